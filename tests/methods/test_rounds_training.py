"""Methods of rounds train as configured, and what a round trains on is what it says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.methods.test_training import Coin, rows, train, weights

from quintain.data.pipeline import Pipeline, as_example, example_samples
from quintain.data.stages import threshold
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.find import find_method
from quintain.methods.loops import rounds
from quintain.methods.loops.rounds import Improve, Material, OptimizerSteps, Rounds, funnels, step_batches
from quintain.store.run import Run
from quintain.testing.episodes import Lived, record_cases
from quintain.types import Trajectory, flatten_scored

FIELDS: dict[str, dict[str, Any]] = {
    "rest": {"tasks": 4, "group_size": 2, "with_demonstrations": True},
    "pae": {"tasks": 4, "group_size": 4},
    "agent_evol": {"tasks": 4, "group_size": 2, "num_epochs": 1, "num_minibatches": 2, "weights": "reward"},
    "agent0": {"tasks": 4, "group_size": 8, "low": 0.0, "high": 1.0},
    "star": {"tasks": 8, "first_updates": 2},
    "paprika": {"tasks": 3, "group_size": 4, "oversample_factor": 1},
    "world_of_bits": {"episodes": 4, "max_turns": 2},
}


pytestmark = pytest.mark.usefixtures("quick")


QUICK = frozenset({"rest", "star", "agent0"})
"""Several trainings of a round, counted steps, and pairs: of each kind of round one."""


@pytest.mark.parametrize(
    "recipe", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in FIELDS]
)
def test_it_trains(recipe: str, tmp_path: Path) -> None:
    folder = train(recipe, tmp_path / recipe, max_turn_tokens=6, **FIELDS[recipe])
    found = rows(folder)
    assert len(found) == 3
    assert weights(folder / "start") != weights(folder / "model")
    made = find_method(recipe).make(find_method(recipe).config_class(environment="x", **FIELDS[recipe]))
    if isinstance(made, Rounds):
        names = {
            "rest": "data/3/above",
            "pae": "data/shortest",
            "agent_evol": "data/first_of_task",
            "star": "data/stripped",
        }
        assert all(names.get(recipe, "data/pairs") in row for row in found[1:])


def test_tasks_that_failed_are_tried_again_beside_their_first_try(tmp_path: Path) -> None:
    folder = train("star", tmp_path / "run", max_turn_tokens=6, tasks=8, first_updates=2)
    with Run.open(folder, writable=False) as run:
        for step in (1, 2):
            names = [t.group for t in run.trajectories(step=step, phase="train")]
            again = [name for name in names if name.endswith("+1")]
            assert len(names) == 8 + len(again) == len(set(names))
        assert any(t.group.endswith("+1") for t in run.trajectories(phase="train"))


def lived(*values: float) -> list[Trajectory]:
    made = record_cases([Lived(task=k, value=v, is_success=True, num_turns=1) for k, v in enumerate(values)])
    return list(flatten_scored(made))


def method(**fields: Any) -> Rounds:
    return Rounds(
        collect=lambda *_: [], build=Pipeline(threshold(0.0)), update=Update(loss=imitation()), **fields
    )


def numbers(data: Any) -> list[float]:
    return [example.trajectory.outcome.value for example in data]


def test_newest_rounds_and_the_base_are_trained_on() -> None:
    later = (Improve(build=Pipeline(threshold(0.5)), rate=0.1),)
    material = Material(method(memory=2, later=later), lived(9.0))
    groups = [
        record_cases([Lived(task=0, value=v, is_success=True, num_turns=1)]) for v in (0.25, 1.0, 2.0, -1.0)
    ]
    seen = [[numbers(data) for _, data in material.take(group)] for group in groups]
    assert seen == [
        [[9.0, 0.25], []],
        [[9.0, 0.25, 1.0], [9.0, 1.0]],
        [[9.0, 1.0, 2.0], [9.0, 1.0, 2.0]],
        [[9.0, 2.0], [9.0, 2.0]],
    ]
    every = Material(method(memory=None))
    assert [numbers(every.take(group)[0][1]) for group in groups[:3]] == [
        [0.25],
        [0.25, 1.0],
        [0.25, 1.0, 2.0],
    ]


def test_rewards_are_computed_once_for_all_trainings_of_a_round() -> None:
    asked: list[int] = []

    def reward(groups: Any) -> Any:
        asked.append(len(groups))
        return groups

    later = (Improve(build=Pipeline(threshold(0.5))), Improve(build=Pipeline(threshold(0.7))))
    material = Material(method(later=later, reward=reward))
    for _ in range(2):
        material.take(record_cases([Lived(task=0, value=1.0, is_success=True, num_turns=1)]))
    assert asked == [1, 1]


def test_what_later_trainings_kept_is_told_by_number() -> None:
    material = Material(method(later=(Improve(build=Pipeline(threshold(0.5))),)))
    made = [
        one
        for one, _ in material.take(record_cases([Lived(task=0, value=0.5, is_success=True, num_turns=1)]))
    ]
    told = funnels(made)
    assert told["data/threshold"] == 1.0 and told["data/2/threshold"] == 0.0
    assert funnels([()]) == {"data/pairs": 0.0}


def test_counted_steps_go_through_the_data_over_and_over() -> None:
    samples = example_samples([as_example(t) for t in lived(1.0, 1.0, 1.0, 1.0, 1.0)])
    steps = OptimizerSteps(count=lambda number: 4 * number, batch_size=2)
    batches = list(step_batches(samples, steps, 1, 0))
    assert len(batches) == 4 and len(list(step_batches(samples, steps, 2, 0))) == 8
    first = [sample.trajectory for batch in batches[:2] for sample in batch]
    assert sorted(first) == [0, 1, 2, 3, 4], "an epoch before anything comes again"
    assert sum(len(batch) for batch in batches) == 10


def test_starting_over_is_from_the_model_and_the_base_is_imitated_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    seen: list[tuple[int, int]] = []
    learn = rounds.learn_in_epochs

    def watched(policies: Any, samples: Any, *rest: Any, **fields: Any) -> Any:
        seen.append((fields["step"], len(samples)))
        return learn(policies, samples, *rest, **fields)

    monkeypatch.setattr(rounds, "learn_in_epochs", watched)
    folder = train("agent_evol", tmp_path / "run", max_turn_tokens=6, **FIELDS["agent_evol"])
    shown = seen[0][1]
    assert seen[0] == (1, shown) and shown > 0
    kept = [int(row["data/first_of_task"]) for row in rows(folder)[1:]]
    assert [size for _, size in seen[1:]] == [shown + count for count in kept if count]
    assert replace(method(), has_warm_start=False).merges_base and Coin.max_turns == 2
