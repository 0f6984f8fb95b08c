"""What is sampled is recorded under its phase, and of a continued episode only what is new is paid for."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.training.test_updating import played_by

from quintain.rollout.collect import Limits
from quintain.rollout.views import Prefix
from quintain.training.collector import Collector
from quintain.types import Group, Trajectory


@pytest.mark.parametrize(("known", "phase"), [((1, 2), "branch"), ((0, 1), "values")])
def test_only_new_turns_of_continued_episodes_count_in_a_budget(known: tuple[int, ...], phase: str) -> None:
    base = played_by("policy", 1.0)
    turns = base.turns * 3

    def long() -> Trajectory:
        return Trajectory(
            task=base.task, turns=turns, outcome=base.outcome, stop=base.stop, seed=0, group="g", index=0
        )

    recorded: list[tuple[int, int, str]] = []
    rollout = SimpleNamespace(
        limits=Limits(),
        continuations=lambda prefixes, **_: [
            Group(task=base.task, trajectories=(long(), long())) for _ in prefixes
        ],
    )
    run = SimpleNamespace(append=lambda ts, *, step, phase: recorded.append((len(ts), step, phase)))
    nothing = cast(Any, None)
    collector = Collector(
        cast(Any, run), cast(Any, rollout), nothing, nothing, nothing, nothing,
        environment="e", seed=0, teach=list,
    )  # fmt: skip
    prefixes = [cast(Prefix, SimpleNamespace(turns=turns[:number])) for number in known]
    collector.continue_from(7, prefixes, size=2, phase=phase)
    new = sum(2 * (3 - number) for number in known)
    assert (collector.spent.env_steps, collector.spent.tokens) == (new, 2 * new)
    assert recorded == [(4, 7, phase)]
