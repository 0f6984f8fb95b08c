"""Issues of real agents: a checkout's layout, the benchmark's verdict, and containers by a stand-in for Docker."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from quintain.adapters.agent_issues.environment import AgentIssues
from quintain.adapters.agent_issues.layout import find_changed, is_solved, read_issues
from quintain.adapters.rexbench.layout import choose_task, cut_hints, read_tasks
from quintain.environments.boundary import refuse_training
from quintain.environments.protocol import advance, begin, tool_action
from quintain.environments.tools import GraderFault
from quintain.errors import DataError, MissingExtra, UsageError

METADATA = {
    "issue_github_url": "https://x/1", "repo_url": "https://x", "buggy_commit": "a1",
    "target_dockerhub_image": "some/bench:lagent_1", "title": "It fails", "description": "On import.",
}  # fmt: skip
GOLD = "--- a/a/run.txt\n+++ b/a/run.txt\n@@ -1 +1 @@\n-x\n+y\n"
DOCKER = """#!/bin/sh
echo "$@" >> "{trace}"
case "$*" in
  *missing*) echo "no such image" >&2; exit 125;;
  *apply_patch*) for each in "$@"; do case "$each" in *:/patches:ro) folder="${{each%:/patches:ro}}";; esac; done
    grep -q "+y" "$folder/patch.patch" && echo "SUCCESS: FIX CONFIRMED" && exit 0; echo "TEST FAILED"; exit 1;;
  *) echo "looked"; exit 3;;
esac
"""


def write_checkout(folder: Path, said: Mapping[str, object] = METADATA) -> Path:
    place = folder / "bench" / "benchmark" / "lagent_1"
    place.mkdir(parents=True)
    (place / "metadata.json").write_text(json.dumps(said))
    (place / "1.patch").write_text(GOLD)
    return folder / "bench"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentIssues:
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(DOCKER.format(trace=tmp_path / "trace"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    return AgentIssues(str(write_checkout(tmp_path)))


def test_the_verdict_is_the_benchmarks() -> None:
    assert is_solved("x\nSUCCESS: FIX CONFIRMED", 0)
    assert not is_solved("FIX CONFIRMED", 1) and not is_solved("FIX CONFIRMED, 1 FAILED", 0)
    assert not is_solved("all good", 0)
    assert find_changed(f"{GOLD}--- a/gone.py\n+++ /dev/null\n") == {"a/run.txt", "gone.py"}


def test_an_episode(world: AgentIssues, tmp_path: Path) -> None:
    task = world.task("eval", 0)
    assert "It fails" in str(begin(world, task)) and "lagent_1" in task.id
    looked = advance(world, tool_action("look", command="ls"))
    assert looked.observation == "exit code 3\nlooked\n" and not looked.is_terminated
    wrong = advance(world, tool_action("submit_patch", diff=GOLD.replace("+y", "+z")))
    assert (wrong.is_success, wrong.reward, dict(wrong.reward_terms)) == (False, 0.0, {"located_file": 1.0})
    begin(world, task)
    right = advance(world, world.expert_action())
    assert (right.is_success, right.reward) == (True, 1.0)
    said = (tmp_path / "trace").read_text()
    assert (
        "--network none --pull never" in said
        and "some/bench:lagent_1 -c cd /app/source_code_buggy && ls" in said
    )


def test_a_container_that_cannot_run_is_no_score(world: AgentIssues) -> None:
    begin(world, world.task("eval", 0))
    with pytest.raises(GraderFault, match=r"no such image'; docker pull some/bench:lagent_1"):
        advance(world, tool_action("look", command="missing"))
    with pytest.raises(UsageError, match="evaluation"):
        refuse_training(world)


def test_other_layouts_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"has no benchmark/TAG/metadata.json; name a checkout"):
        read_issues(tmp_path)
    old = {key: value for key, value in METADATA.items() if key != "title"}
    with pytest.raises(DataError, match="does not say title; it is of another version"):
        read_issues(write_checkout(tmp_path, old))
    place = tmp_path / "other"
    place.mkdir()
    with pytest.raises(DataError, match="names no image"):
        read_issues(write_checkout(place, {**METADATA, "target_dockerhub_image": "--privileged x"}))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingExtra, match="needs the program docker"):
        AgentIssues(str(write_checkout(tmp_path / "third")))


TEXT = "# Task\n\nDo it.\n\n### Hints\nLook there.\n\n### More detailed hints\nLine 3.\n"


def test_hints_are_cut_by_level(tmp_path: Path) -> None:
    assert [cut_hints(TEXT, level) for level in range(3)] == [
        "# Task\n\nDo it.\n",
        "# Task\n\nDo it.\n\n### Hints\nLook there.\n",
        TEXT,
    ]
    assert cut_hints("Do it.", 0) == "Do it.\n"
    with pytest.raises(UsageError, match="hints: got 3; give 0 for none to 2 for all"):
        cut_hints(TEXT, 3)
    place = tmp_path / "instructions" / "cogs"
    place.mkdir(parents=True)
    (place / "instructions.md").write_text(TEXT)
    tasks = read_tasks(tmp_path)
    assert choose_task(tasks, "cogs") == TEXT
    with pytest.raises(UsageError, match="task of rexbench: got 'cog'; did you mean 'cogs'"):
        choose_task(tasks, "cog")
    with pytest.raises(DataError, match="name a checkout of RExBench"):
        read_tasks(place)
