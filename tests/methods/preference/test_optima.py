"""Optima: dialogues are ranked whole, messages in a tree, and both seats learn."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.methods.test_training import interrupting, resume, rows, train, weights

from quintain.data.pairs import Pairs
from quintain.errors import ConfigError
from quintain.methods.preference import optima
from quintain.store.run import Run
from quintain.types import Group, Task, Trajectory

Make = Callable[..., Trajectory]
FIELDS: dict[str, Any] = {
    "environment": "twocards?cost=0&facts=1&values=2&keys=4", "demonstrations": 24, "expert_noise": 0.2,
    "imitation_epochs": 6, "max_turn_tokens": 8, "tasks": 4, "group_size": 4, "num_epochs": 1, "num_minibatches": 1,
    "threshold": 0.2, "min_value": 0.0, "min_gap": 0.05,
}  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.slow
def test_dialogues_are_imitated_and_then_messages_preferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = train("optima", tmp_path / "whole", **FIELDS)
    first, second = rows(folder)[1:]
    assert weights(folder / "start") != weights(folder / "model")
    assert 0 < first["data/kept"] <= 8 and first["data/in"] > first["data/kept"], (
        "both seats of a dialogue a task"
    )
    assert second["data/pairs"] > 0 and second["train/loss"] == pytest.approx(np.log(2))
    for row in (first, second):
        assert row["optima/tokens"] > 1 and row["optima/surprise"] > 0 and row["optima/worth"] < 2
    with Run.open(folder, writable=False) as run:
        own = list(run.trajectories(step=2, phase="train"))
        ways = list(run.trajectories(step=2, phase="branch"))
    assert len(own) == 4 * optima.WAYS and len(ways) == 4 * 3 * optima.WAYS
    with monkeypatch.context() as patch:
        interrupting(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            train("optima", tmp_path / "stopped", **FIELDS)
    resume(tmp_path / "stopped")
    assert weights(tmp_path / "stopped" / "model") == weights(folder / "model")


def test_the_most_surprising_message_counts(trajectory: Make) -> None:
    class Scored:
        def logprobs(self, _: list[Trajectory], *, by: str) -> list[list[Any]]:
            assert by == "reference"
            return [[np.array([-1.0, -2.0]), np.array([-3.0]), np.array([])], []]

    collector: Any = Scored()
    assert optima.most_surprising(collector, [trajectory([]), trajectory([])]) == [3.0, 0.0]


def talk(make: Make, *said: int | tuple[int, ...], index: int = 0) -> Trajectory:
    """A dialogue whose messages are `said`."""
    turns = [((50 + k,), (ids,) if isinstance(ids, int) else ids) for k, ids in enumerate(said)]
    return replace(make(turns, value=1.0, index=index), seed=index)


def tree(
    said: Sequence[Trajectory], expanded: Sequence[optima.Said], worth: Sequence[float]
) -> optima.Family:
    """The tree of dialogues that are worth so much."""
    return optima.Family(
        rate=lambda *_: [*worth],
        chance=np.random.default_rng,
        dialogues=[*said],
        expanded=[*expanded],
        worth=[*worth],
    )


def test_the_best_of_each_task_among_the_best_tasks() -> None:
    assert optima.select_best([[1, 2], [3, 0], [0.1], []], 0.5, 0.5) == [None, 0, None, None]
    assert optima.select_best([[1.0], [1.0], [0.6]], 0.5, 0.5) == [0, 0, None], "ties stay"
    assert optima.select_best([[0.9]], 0.5, 0.1) == [0], "at least one"
    assert optima.select_best([[0.5]], 0.5, 1.0) == [None], "above, not at"


def test_a_message_is_worth_what_came_of_it(trajectory: Make) -> None:
    said = [talk(trajectory, 1, 2, index=0), talk(trajectory, 1, 3, index=1), talk(trajectory, 4, 5, index=2)]
    family = tree(said, [(), ((1,),)], [1.0, 0.0, 0.2])
    root, after = family.children(0.1)
    assert [(len(t.turns), t.index, worth) for t, worth in root] == [(1, 0, 0.5), (1, 2, 0.2)]
    assert [(len(t.turns), t.index, worth) for t, worth in after] == [(2, 0, 1.0), (2, 1, 0.0)]
    assert [len(each) for each in family.children(0.5)] == [2], "the best of the beginning is not above .5"
    pairs = optima.extremes([root, after], margin=0.2)
    assert [(p.chosen.index, p.rejected.index, p.level) for p in pairs] == [(0, 2, "turn"), (0, 1, "turn")]


def test_ways_on_that_say_nearly_the_same_are_one(trajectory: Make) -> None:
    long = tuple(range(20))
    near, far = (*long[:-1], 99), (*long[:-3], 97, 98, 99)
    said = [
        talk(trajectory, long, 1, index=0),
        talk(trajectory, near, 1, index=1),
        talk(trajectory, far, 1, index=2),
    ]
    (root,) = tree(said, [()], [1.0, 0.0, 0.3]).children(0.0)
    assert [(t.index, worth) for t, worth in root] == [(0, 0.5), (2, 0.3)]


def test_what_was_said_in_nearly_these_words_is_not_expanded(trajectory: Make) -> None:
    one, twin, other = (1, 2, 3, 4, 5), (1, 2, 3, 4, 6), (7, 8, 9)
    said = [
        talk(trajectory, one, 1, index=0),
        talk(trajectory, twin, 2, index=1),
        talk(trajectory, other, 3, index=2),
    ]
    family = tree(said, [(), (one,)], [5.0, 5.0, 0.0])
    drawn = {family.draw(np.random.default_rng(seed)) for seed in range(8)}
    assert {(node.seen.place.index, node.depth) for node in drawn} == {(2, 1)}
    family.expanded.append((other,))
    assert family.draw(np.random.default_rng(0)) is family.root, "the beginning where nothing is left"
    deeper = tree([talk(trajectory, other, one, 3)], [(), (one,)], [1.0])
    found = {deeper.draw(np.random.default_rng(seed)).depth for seed in range(12)}
    assert found == {1, 2}, "what was said at another depth is no twin"


def test_worthier_messages_are_expanded_more_often(trajectory: Make) -> None:
    said = [talk(trajectory, k, 9, index=k) for k in range(12)]
    family = tree(said, [()], [3.0, *[0.0] * 11])
    rng = np.random.default_rng(0)
    drawn = [family.draw(rng).seen.place.index for _ in range(300)]
    assert 150 < drawn.count(0) < 250 and set(drawn) == set(range(optima.CANDIDATES)), "e^3 of e^3 + 9 is .69"


def test_half_of_the_pairs_and_both_bounds_in_their_places(trajectory: Make) -> None:
    config = optima.Config(learn="dpo", min_value=0.4, min_gap=0.2)
    made = optima.Dialogues(config, is_preferring=True)

    def family(*worth: float) -> optima.Family:
        return tree([talk(trajectory, k, index=k) for k in range(len(worth))], [()], worth)

    made.families = [family(0.3, 0.0), family(0.9, 0.8), family(0.5, 0.25), family(1.0, 0.0)]
    kept = made.build([])
    assert isinstance(kept, Pairs)
    assert [pair.margin for pair in kept] == [1.0], "of two that pass both bounds the larger half"
    made.families = [family(0.5, 0.25)]
    alone = made.build([])
    assert isinstance(alone, Pairs) and len(alone) == 1, "one pair alone is kept"


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing is imitated"):
        optima.Config(keep_fraction=0.0).check()


def test_the_rounds_alternate() -> None:
    class Still:
        def tasks(self, *_: int) -> list[Task]:
            return [Task(id="twocards/train/0", environment="twocards", seed=0)]

        def sample(self, *_: Any, size: int, **__: Any) -> list[Group]:
            self.size = size
            return [Group(task=task, trajectories=()) for task in _[1]]

        def logprobs(self, *_: Any, by: str) -> list[Any]:
            return []

        def seed(self, *_: Any) -> int:
            return 0

        def replay_episodes(self, _: Any) -> list[Any]:
            return []

        def continue_from(self, *_: Any, **__: Any) -> list[Group]:
            return []

    collector: Any = Still()
    for learn, wanted in (("sft", [8, 8]), ("dpo", [3, 3]), ("hybrid", [8, 3])):
        made = optima.Dialogues(optima.Config(learn=learn))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        sizes: list[int] = []
        for step in (1, 2):
            made.collect(collector, step)
            sizes.append(collector.size)
        assert sizes == wanted and made.metrics() == {}
