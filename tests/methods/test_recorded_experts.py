"""Methods that learn from an expert learn from recorded episodes of one, in an environment that has none."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.build import shorten_corpus
from tests.methods.test_training import interrupting, resume, rows, train, weights

import quintain
from quintain.environments.protocol import Environment
from quintain.errors import ConfigError, DataError, UsageError
from quintain.store.run import Run
from quintain.types import Action, StepResult, Task

WALK, TAUGHT = f"{__file__}:Walk", f"{__file__}:Taught"


class Walk(Environment):
    """Say up twice; anything else goes down, from where nothing leads back."""

    max_turns = 3

    def reset(self, task: Task) -> str:
        self.height, self.is_lost = 0, False
        return f"Floor {task.seed % 7}."

    def step(self, action: Action) -> StepResult:
        is_valid = action.text in self.legal_actions()
        self.is_lost |= action.text == "down"
        self.height += action.text == "up" and not self.is_lost
        done = self.height == 2
        return StepResult(
            observation="No. Say up." if not is_valid else "Lost." if self.is_lost else "Well.",
            reward=float(done),
            is_terminated=done,
            is_success=done,
            is_valid=is_valid,
        )

    def legal_actions(self) -> tuple[str, ...]:
        return ("up", "down")

    def snapshot(self) -> tuple[int, bool]:
        return self.height, self.is_lost

    def restore(self, saved: tuple[int, bool]) -> None:
        self.height, self.is_lost = saved


class Taught(Walk):
    """The same, with an expert who would go down."""

    def expert_action(self) -> Action:
        return Action(text="down")


pytestmark = pytest.mark.usefixtures("quick")


def shown(folder: Path, name: str = "walk", count: int = 10) -> str:
    file = folder / "shown.jsonl"
    said = [
        {"role": "user", "content": "Floor 1."},
        {"role": "assistant", "content": "up"},
        {"role": "user", "content": "Well."},
        {"role": "assistant", "content": "up"},
    ]
    lines = [json.dumps({"messages": said, "task": f"{name}/train/{3 * number}"}) for number in range(count)]
    file.write_text("\n".join(lines))
    return str(file)


START: dict[str, Any] = {"environment": WALK, "imitation_epochs": 6, "max_turn_tokens": 6}
FIELDS: dict[str, dict[str, Any]] = {
    "eto": {"tasks": 8, "num_epochs": 1, "num_minibatches": 1},
    "dmpo": {"tasks": 8, "batch_size": 4},
    "ipr": {"tasks": 6, "num_epochs": 1, "num_minibatches": 1, "margin": 0.2, "rollouts": 2},
    "pgpo": {"tasks": 6, "num_minibatches": 1, "rollouts": 2, "margin": 0.2},
    "step_agent": {"tasks": 20, "group_size": 6},
    "steca": {"steps": 1, "episodes": 6, "samples": 2, "updates": 2, "batch_size": 4},
    "e2cl": {"steps": 1, "tasks": 4, "updates": 2, "batch_size": 4},
    "star": {"tasks": 6, "first_updates": 2},
    "swirl": {"tasks": 6},
    "toolrl": {"tasks": 6, "contexts": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("recipe", FIELDS)
def test_a_file_takes_the_place_of_an_expert(recipe: str, tmp_path: Path) -> None:
    folder = train(
        recipe, tmp_path / recipe, **{**START, **FIELDS[recipe], "demonstrations": shown(tmp_path)}
    )
    with Run.open(folder, writable=False) as run:
        said = [event["message"] for event in run.events() if event["kind"] == "data"]
        imitated = list(run.trajectories(step=0, phase="demonstrations"))
        own = list(run.trajectories(step=1, phase="train"))
    assert said == ["10 recorded episodes of shown.jsonl in the place of an expert"]
    assert imitated and all(t.is_success and t.task.environment == "walk" for t in imitated)
    recorded = {f"walk/train/{3 * number}" for number in range(10)}
    assert {t.task.id for t in imitated} == recorded
    if recipe == "step_agent":  # what it does otherwise is mostly cut off, and no other step then
        assert all(0 < row["step_agent/other"] < 1 for row in rows(folder)[1:])
    else:
        assert weights(folder / "start") != weights(folder / "model")
    if recipe in ("eto", "ipr", "pgpo", "star"):
        assert own and {t.task.id for t in own} <= recorded  # explored are the tasks that were shown


@pytest.mark.slow
def test_a_recorded_expert_is_asked_before_the_environments_own(tmp_path: Path) -> None:
    fields: dict[str, Any] = {**START, **FIELDS["step_agent"], "environment": TAUGHT}
    folder = train("step_agent", tmp_path / "file", **fields, demonstrations=shown(tmp_path, "taught"))
    with Run.open(folder, writable=False) as run:
        done = {t.turns[-1].action.text for t in run.trajectories(step=0, phase="demonstrations")}
    assert done == {"up"}


@pytest.mark.slow
def test_a_run_that_goes_on_shows_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields: dict[str, Any] = {**START, **FIELDS["eto"], "demonstrations": shown(tmp_path)}
    whole = train("eto", tmp_path / "whole", **fields)
    interrupting(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        train("eto", tmp_path / "part", **fields)
    monkeypatch.undo()
    shorten_corpus(monkeypatch)
    resume(tmp_path / "part")
    assert rows(tmp_path / "part") == rows(whole)
    assert weights(tmp_path / "part/model") == weights(whole / "model")


@pytest.mark.parametrize(
    ("recipe", "fields", "kind", "words"),
    [
        ("eto", {"environment": "none"}, UsageError, "got none for eto, which learns from episodes"),
        (
            "dmpo",
            {"environment": "none"},
            UsageError,
            "episodes of the policy beside recorded ones; name one",
        ),
        ("toolrl", {}, ConfigError, "an expert, who is asked what is right wherever the policy comes"),
        (
            "eto",
            {"name": "elsewhere"},
            DataError,
            "they name elsewhere/train/0, elsewhere/train/3, its first is",
        ),
    ],
)
def test_what_recordings_do_not_give_is_said_before_anything_is_written(
    recipe: str, fields: dict[str, Any], kind: type[Exception], words: str, tmp_path: Path
) -> None:
    file = shown(tmp_path, fields.pop("name", "walk"))
    given: dict[str, Any] = {"environment": WALK, "demonstrations": file, "model": "micro", **fields}
    with pytest.raises(kind, match=words):
        quintain.train(recipe, root=tmp_path / "runs", **given)
    assert not (tmp_path / "runs").exists()
