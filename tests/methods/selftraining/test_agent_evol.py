"""AgentEvol: thresholds by environment, one success of a task, the base in every iteration, from the base model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.build import shorten_corpus
from tests.methods.test_training import rows, train

from quintain.config import build
from quintain.data.pipeline import as_example
from quintain.errors import ConfigError
from quintain.methods.loops.rounds import Material
from quintain.methods.selftraining.agent_evol import Config, evolving, method, read_thresholds
from quintain.testing.episodes import Lived, record_cases
from quintain.types import Example, Trajectory


def of(name: str, value: float) -> Trajectory:
    (group,) = record_cases([Lived(task=0, value=value, is_success=True, num_turns=2)])
    (trajectory,) = group.trajectories
    return replace(trajectory, task=replace(trajectory.task, environment=name, id=f"{name}/{value}"))


def names(thresholds: str, *trajectories: Trajectory) -> list[str]:
    made = evolving(read_thresholds(thresholds), "filtered").run([as_example(t) for t in trajectories])
    return [example.trajectory.task.id for example in made.examples]


def test_each_environment_has_a_threshold_of_its_own_by_its_whole_name() -> None:
    trajectories = [of("babyai/GoTo", 0.5), of("scienceworld?x=1", 98.0), of("sci", 1.0), of("guess", 0.99)]
    assert names("0.99,babyai=0,scienceworld=99", *trajectories) == ["babyai/GoTo/0.5", "sci/1.0"]


@pytest.mark.parametrize("text", ["babyai=0", "0.9,babyai=x", ""])
def test_thresholds_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="thresholds: got"):
        read_thresholds(text)


def test_flags_are_no_strings_that_are_always_true() -> None:
    values: dict[str, Any] = {"merges": "False"}
    with pytest.raises(ConfigError):
        build(Config, values, "x")
    assert build(Config, {"merges": False}, "x").merges is False


def test_without_merging_the_base_is_left_out() -> None:
    shown = [of("guess", 1.0)]
    groups = record_cases([Lived(task=1, value=1.0, is_success=True, num_turns=1)])
    ((_, data),) = Material(method(Config(merges=False)), shown).take(groups)
    assert [e.trajectory.task.id for e in data if isinstance(e, Example)] == ["t1"]


@pytest.mark.slow
def test_three_worlds_are_explored_and_each_has_a_success_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_corpus(monkeypatch)
    worlds = "mix:sums?digits=1&revisions=0,stream?pages=2&facts=1,bandit?arms=2&pulls=2"
    folder = train(
        "agent_evol", tmp_path / "run", environment=worlds, demonstrations=6, tasks=6, num_minibatches=2, num_epochs=1,
        thresholds="0.99,stream=0.5", eval_every=1, eval_episodes=6, max_turn_tokens=6,
    )  # fmt: skip
    start, *rounds = rows(folder)
    assert len(rounds) == 2
    for row in (start, *rounds):
        wins = [row[f"eval/task/{name}/success"] for name in ("sums", "stream", "bandit")]
        assert row["eval/success"] == pytest.approx(sum(wins) / 3)
        assert [row[f"eval/task/{name}/episodes"] for name in ("sums", "stream", "bandit")] == [2, 2, 2]
    for row in rounds:
        wins = [row[f"task/{name}/success"] for name in ("sums", "stream", "bandit")]
        assert row["train/success"] == pytest.approx(sum(wins) / 3), (
            "two tasks of each, two episodes of a task"
        )
        assert row["data/in"] == 12


def test_without_a_base_there_is_nothing_to_merge() -> None:
    with pytest.raises(ConfigError, match="no base to merge"):
        Config(demonstrations=0).check()
