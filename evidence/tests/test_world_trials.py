"""Imitation of experts as a benchmark: resumable, and compared with the expert on the same tasks."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from quintain.agents import catalog
from quintain.agents.catalog import AUTO, PRESETS, WRAPPERS, check
from quintain.cli.main import main
from quintain.environments.catalog import ADAPTERS, CATALOG, find
from quintain.errors import DataError, UsageError
from quintain_evidence import world_trials as world_benchmarks
from quintain_evidence.world_trials import (
    END_MARK,
    HARNESSES,
    START_MARK,
    WORLDS,
    Imitated,
    World,
    demonstrated,
    imitate,
    row,
)

SMALL: dict[str, Any] = {
    "model": "micro",
    "demonstrations": 6,
    "steps": 2,
    "batch_size": 3,
    "max_turn_tokens": 8,
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread, a small corpus, few episodes."""
    torch.set_num_threads(1)
    monkeypatch.setattr("quintain.warm_start.corpus.NUM_EPISODES", 4)
    monkeypatch.setattr(world_benchmarks, "EPISODES", 5)


def test_every_embedded_world_is_imitated() -> None:
    names = [world.name for world in WORLDS]
    assert names == sorted(set(names)) and set(names) <= set(CATALOG) - set(ADAPTERS)
    for world in WORLDS:
        config = world.config(2, {})
        assert config.seed == 2 and config.eval_every == config.steps
        assert find(config.environment).spec.startswith(world.name)


UNMEASURED = {
    catalog.OUTSIDE, "advised", "again", "backoff", "backtracked", "branching",
    "cased", "chunks", "configured", "consulting", "costed", "drafted", "evolved", "experienced", "guided",
    "infonav", "interface", "navigated", "ordered", "poact", "ramp", "rollback", "routed", "scheduled", "searched",
    "team", "voted", "workflow",
}  # fmt: skip
"""What no tiny model is taught through here: agents outside and teams play as they like; others change how an agent
that can act is asked (again, under a formula, at a rising temperature, from states it left), or what it is told of
earlier episodes, actions and pages, which their own claims measure."""


def test_every_harness_is_imitated_through() -> None:
    layers = {layer.name for world in HARNESSES for layer in check(world.config(0, {}).agent)}
    assert layers - {AUTO} == {*catalog.HARNESSES, *WRAPPERS, *PRESETS} - UNMEASURED
    names = [world.name for world in HARNESSES]
    assert len(names) == len(set(names))


@pytest.mark.slow
def test_a_run_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(name="guess")
    first = imitate(world, 0, tmp_path, SMALL)
    assert 0 <= first.success <= 1 and first.expert_success == 1.0 and first.parameters > 10_000

    def refuse(*_: Any) -> None:
        raise AssertionError("it was trained again")

    monkeypatch.setattr("quintain.methods.loops.offline.Offline.train", refuse)
    assert imitate(world, 0, tmp_path, SMALL) == first
    other = {**SMALL, "steps": 3}
    with pytest.raises(DataError, match="other settings"):
        imitate(world, 0, tmp_path, other)
    monkeypatch.setattr(world_benchmarks, "imitate", refuse)
    argv = ["bench", "worlds", "--only", "collab,guess", "--seeds", "1", "--runs", str(tmp_path)]
    assert main([*argv, "--set", json.dumps(other)]) == DataError.exit_code, "before the first is trained"


def test_the_expert_plays_the_same_tasks() -> None:
    environment = find("guess")()
    tasks = [environment.task("eval", index) for index in range(4)]
    assert demonstrated("guess", tasks) == demonstrated("guess", tasks) == (1.0, 1.0)


def test_a_row_has_the_share_of_the_expert_and_its_lowest_and_highest_seed() -> None:
    def found(success: float) -> Imitated:
        return Imitated(
            success=success, mean_return=success, expert_success=0.8, expert_return=0.8, seconds=60.0, parameters=9,
            run="x",
        )  # fmt: skip

    world = World(name="guess", settings={"steps": 7})
    result = row(world, {1: found(0.4), 0: found(0.8), 2: found(0.6)}, {}, "the command", "2026-11-21")
    assert result["seeds"] == [0, 1, 2] and result["steps"] == 7 and result["seconds"] == 60.0
    assert result["share"] == pytest.approx({"mean": 0.75, "low": 0.5, "high": 1.0})
    assert result["command"] == "the command"
    assert replace(found(0.8), expert_success=0.0).share == 0.0


@pytest.mark.slow
def test_the_command_stores_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "worlds.json"
    argv = ["bench", "worlds", "--only", "guess", "--seeds", "1", "--runs", str(tmp_path / "runs"), "--json"]
    assert main([*argv, "--output", str(output), "--set", json.dumps(SMALL)]) == 0
    stored = json.loads(output.read_text())
    assert stored == json.loads(capsys.readouterr().out)
    assert stored["guess"]["command"].startswith("quintain bench worlds --only guess --seeds 1")
    assert main([*argv[:-1], "--output", str(output), "--set", json.dumps(SMALL)]) == 0
    assert "share of the expert" in capsys.readouterr().out
    page = tmp_path / "index.md"
    writing = ["bench", "worlds", "--output", str(output), "--page", str(page)]
    assert main(writing) == UsageError.exit_code
    page.write_text(f"# Worlds\n\n{START_MARK}\n\nold\n\n{END_MARK}\n\nMore.\n")
    assert main(writing) == 0
    text = page.read_text()
    assert text.startswith("# Worlds\n") and text.endswith(f"{END_MARK}\n\nMore.\n") and "old" not in text
    command = json.loads(output.read_text())["guess"]["command"]
    assert "| `guess` | " in text and "of 1 reach 90 %" in text and command in text
    page.write_text("# Worlds\n")
    assert main(writing) == DataError.exit_code
    agents = tmp_path / "agents.json"
    argv = ["bench", "worlds", "--agents", "--only", "rci", "--seeds", "1", "--runs", str(tmp_path / "runs")]
    assert main([*argv, "--output", str(agents), "--set", json.dumps(SMALL)]) == 0
    page.write_text(f"{START_MARK}\n{END_MARK}\n")
    assert main(["bench", "worlds", "--agents", "--output", str(agents), "--page", str(page)]) == 0
    assert "| agent | world |" in page.read_text() and "| `rci` | `collab` | " in page.read_text()
    capsys.readouterr()
    assert main(["bench", "worlds", "--only", "guest"]) == UsageError.exit_code
    assert "guess" in capsys.readouterr().err
