"""WebDancer: what is paid, which tries are imitated, which groups are drawn again, and how tokens are averaged."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.methods.imitation.conftest import made

from quintain.data.pack import pack
from quintain.data.pipeline import as_example
from quintain.data.samples import samples_from
from quintain.environments.protocol import tool_action
from quintain.errors import DataError
from quintain.methods.imitation import web_dancer
from quintain.methods.loops.on_policy import Estimates
from quintain.methods.method import sample_until_mixed
from quintain.rewards.terms import apply
from quintain.store.run import Run
from quintain.types import Action, Group, Score, Task, Text, Trajectory

Make = Callable[..., Trajectory]


def worth(trajectory: Trajectory) -> float:
    outcome = apply(trajectory, web_dancer.rewards(0.1)).outcome
    assert isinstance(outcome, Score)
    return outcome.value


def spoiled(trajectory: Trajectory, number: int = 0, **changes: Any) -> Trajectory:
    turns = list(trajectory.turns)
    turns[number] = replace(turns[number], **changes)
    return replace(trajectory, turns=tuple(turns))


def test_format_is_worth_a_tenth_and_the_answer_the_rest(trajectory: Make) -> None:
    right = trajectory([((1,), (2,))] * 2, ["search a", "answer b"])
    wrong = replace(right, outcome=Score(value=0.0, is_success=False))
    assert worth(wrong) == pytest.approx(0.1) and worth(right) == pytest.approx(1.0)
    assert worth(spoiled(right, action=Action(error="no call"))) == pytest.approx(0.9)
    assert worth(spoiled(wrong, 1, action=Action(error="no call"))) == 0.0


def test_each_filter_drops_what_it_is_for(trajectory: Make) -> None:
    good = trajectory([((1,), (2, 3))] * 2, ["search a", "answer b"])
    kinds = {
        "valid": spoiled(good, is_valid=False),
        "within": trajectory([((1,) * 9, (2, 3))] * 2, ["search a", "answer b"]),
        "correct": replace(good, outcome=Score(value=0.0, is_success=False)),
        "quality": trajectory([((1,), (2,))] * 3, ["search a", "Search A ", "answer b"]),
    }
    line = web_dancer.pipeline(12)
    for name, bad in kinds.items():
        left = line.run([as_example(good), as_example(bad)])
        lost = [p.stage for p in left.funnel.passages if p.num_out < p.num_in]
        assert lost == [name] and len(left.examples) == 1
        assert left.funnel.num_tokens == 4, "what was said counts, what was read does not"
    called = spoiled(good, action=tool_action("search", query="Seat"))
    assert web_dancer.num_repeats(called) == 0
    twice = spoiled(called, 1, action=tool_action("search", query="seat"))
    assert web_dancer.num_repeats(twice) == 1


def test_what_is_rightly_done_twice_is_no_repetition(trajectory: Make) -> None:
    """Reading on, gathering and going forward: each time from another state, and with another result."""
    walk = trajectory([((1,), (2,))] * 3, ["read", "read", "answer b"])
    assert web_dancer.num_repeats(walk) == 1, "as far as anybody can see nothing has changed"
    pages = [replace(turn, observation=(Text(text=f"page {k}"),)) for k, turn in enumerate(walk.turns)]
    assert web_dancer.num_repeats(replace(walk, turns=tuple(pages))) == 0
    keyed = [replace(turn, state_key=str(k)) for k, turn in enumerate(walk.turns)]
    assert web_dancer.num_repeats(replace(walk, turns=tuple(keyed))) == 0
    search = tool_action("search", query="seat")
    asked = [replace(pages[0], action=search), replace(pages[1], action=search), pages[2]]
    assert web_dancer.num_repeats(replace(walk, turns=tuple(asked))) == 0, "the second page of what was found"
    same = [
        asked[0],
        replace(asked[1], observation=(Text(text="found"),)),
        replace(pages[2], observation=(Text(text="found"),)),
    ]
    assert web_dancer.num_repeats(replace(walk, turns=tuple(same))) == 1, "it was told already"


class Drawn:
    """A collector whose groups have the outcomes that are named."""

    def __init__(self, *outcomes: Sequence[float]) -> None:
        self.outcomes, self.num_sampled = list(outcomes), 0

    def tasks(self, step: int, count: int) -> list[Task]:
        return [Task(id=str(n), environment="e", seed=n) for n in range(count)]

    def sample(self, step: int, tasks: Sequence[Task], *, size: int) -> list[Group]:
        self.num_sampled += len(tasks)
        return [self.group(task, self.outcomes[int(task.id)]) for task in tasks]

    def group(self, task: Task, outcomes: Sequence[float]) -> Group:
        return Group(task=task, trajectories=tuple(episode(2, value, task) for value in outcomes))


def episode(length: int, value: float, task: Task) -> Trajectory:
    return replace(made([((1,), (2,) * length)], value=value), task=task, group=task.id)


def test_equal_groups_are_drawn_again_until_enough_differ_or_the_cap_bites() -> None:
    alike, split = [1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]
    none = [0.0] * 4
    collect: Any = sample_until_mixed(2, 4, attempts=3)
    enough = Drawn(alike, split, none, split, split, split)
    groups = collect(enough, 1)
    assert enough.num_sampled == 4 and web_dancer.measure_draws(groups, 2) == {
        "web_dancer/differing": 0.5,
        "web_dancer/missing": 0.0,
    }
    poor = Drawn(alike, none, none, alike, alike, split)
    groups = collect(poor, 1)
    assert poor.num_sampled == 6 and web_dancer.measure_draws(groups, 2)["web_dancer/missing"] == 1.0
    credit = web_dancer.method(web_dancer.Config()).credit(groups, Estimates())
    kept = [any(turn.any() for turn in arrays) for arrays in credit.advantages]
    assert kept == [False] * 20 + [True] * 4, "equal groups teach nothing"


def test_tokens_of_a_group_count_the_same_however_long_their_episodes_are() -> None:
    """Lengths 2 and 8: by token (2·a + 8·b)/10, by sequence (a + b)/2."""
    task = Task(id="t", environment="e", seed=0)
    group = Group(task=task, trajectories=(episode(2, 1.0, task), episode(8, 0.0, task)))
    update = web_dancer.method(web_dancer.Config()).update
    credit = web_dancer.method(web_dancer.Config()).credit([group], Estimates())
    a, b = (float(arrays[0][0]) for arrays in credit.advantages)
    assert a == pytest.approx(-b) and a > 0
    found = {}
    for how in ("token_mean", "sequence_mean"):
        batch = pack(samples_from(credit), aggregation=how)
        found[how] = float((batch.advantages * batch.loss_weight).sum())
    assert update.aggregation == "token_mean" and not update.has_reference
    assert found["token_mean"] == pytest.approx((2 * a + 8 * b) / 10)
    assert found["sequence_mean"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.slow
def test_it_imitates_what_is_left_of_five_tries_and_then_learns_by_reward(train: Any, tmp_path: Path) -> None:
    fields = {"environment": "hopqa?hops=1&closed=0", "tasks": 2, "group_size": 2, "max_draws": 1}
    rows = train("web_dancer", **fields, imitation_epochs=1, demonstrations=4)
    assert rows[-1]["web_dancer/missing"] + 2 * rows[-1]["web_dancer/differing"] == 2
    with Run.open(tmp_path / "web_dancer", writable=False) as run:
        (event,) = [event for event in run.events() if event["kind"] == "cold start"]
        assert event["data"]["data/in"] == 20
        assert event["data"]["data/correct"] >= event["data"]["data/kept"] > 0
        assert {key: value for key, value in rows[0].items() if key.startswith("data/")} == event["data"]
        shown = list(run.trajectories(step=0, phase="demonstrations"))
        assert sorted({t.index for t in shown}) == [0, 1, 2, 3, 4]


def test_a_teacher_that_never_succeeds_is_told_by_stage(train: Any) -> None:
    with pytest.raises(
        DataError, match=r"imitating the best of many tries: got .* into .* and none out of it"
    ):
        train("web_dancer", environment="hopqa?hops=1&closed=0&early=1", demonstrations=2, teacher_noise=1.0)
