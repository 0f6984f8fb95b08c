"""What is sampled is recorded under its phase, and of a continued episode only what is new is paid for."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.learning.test_update import played_by

from quintain.rollout.collect import Limits
from quintain.rollout.views import Prefix
from quintain.runs.collector import Collector
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

    def append(trajectories: Sequence[Trajectory], *, step: int, phase: str) -> list[str]:
        recorded.append((len(trajectories), step, phase))
        return [f"id{number}" for number in range(len(trajectories))]

    run = SimpleNamespace(append=append)
    nothing = cast(Any, None)
    collector = Collector(
        cast(Any, run), cast(Any, rollout), nothing, nothing, nothing, nothing,
        environment="e", seed=0, teach=list,
    )  # fmt: skip
    prefixes = [cast(Prefix, SimpleNamespace(turns=turns[:number])) for number in known]
    collector.continue_from(7, prefixes, size=2, is_answered=False)
    assert (collector.spent.env_steps, collector.spent.tokens) == (
        0,
        sum(4 * (3 - number) for number in known),
    )
    collector.spent.tokens, collector.recorded[:], recorded[:] = 0, [], []
    found = collector.continue_from(7, prefixes, size=2, phase=phase)
    assert [t.id for group in found for t in group.trajectories] == ["id0", "id1", "id2", "id3"]
    assert [t.id for t in collector.recorded] == ["id0", "id1", "id2", "id3"]
    new = sum(2 * (3 - number) for number in known)
    assert (collector.spent.env_steps, collector.spent.tokens) == (new, 2 * new)
    assert recorded == [(4, 7, phase)]
