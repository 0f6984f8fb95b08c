"""Logs of inspect-ai: ours as theirs and back, and theirs, of which a small one stands here as it writes them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.build import make_episode, make_turn

from quintain.errors import DataError
from quintain.eval.evaluate import evaluate
from quintain.eval.inspect_log import read_log, write_log
from quintain.types import Action, Failure, Score, Stop, Task, Text, ToolCall, Trajectory

BROKEN = Failure(owner="tool", kind="timeout", message="too slow")


def make_played(name: str, value: float, index: int = 0) -> Trajectory:
    turn = make_turn(
        (2, 3),
        prompt=(1, 4, 5),
        action=Action(text="go", tool_calls=(ToolCall(name="f", arguments={"a": 1}),)),
    )
    task = Task(
        id=name, environment="w", seed=7, split="eval", data={"request": 3}, tags=frozenset({"tools"})
    )
    episode = make_episode(replace(turn, observation=(Text(text="What?"),)))
    return replace(
        episode, task=task, outcome=Score(value=value, is_success=value == 1), index=index, seconds=2.0
    )


def write(place: Path, log: Any) -> Path:
    place.write_text(json.dumps(log))
    return place


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    broken = replace(make_played("c", 0.0), outcome=BROKEN, stop=Stop.FAILURE)
    episodes = [make_played("a", 1.0), make_played("a", 0.25, 1), make_played("b", 1.0), broken]
    write_log(episodes, tmp_path / "log.json", model="m", created="2026-11-28T08:00:00+00:00")
    again = read_log(tmp_path / "log.json")
    assert [t.task for t in again] == [t.task for t in episodes]
    assert [t.outcome for t in again[:3]] == [t.outcome for t in episodes[:3]]
    assert isinstance(again[3].outcome, Failure) and "tool/timeout: too slow" in again[3].outcome.message
    assert evaluate(again).success == evaluate(episodes).success == pytest.approx(2 / 3)
    log = json.loads((tmp_path / "log.json").read_text())
    assert log["version"] == 2 and log["eval"]["config"]["epochs"] == 2
    assert [s["epoch"] for s in log["samples"]] == [1, 2, 1, 1]
    usage = log["samples"][0]["model_usage"]["m"]
    assert usage == {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    call = log["samples"][0]["messages"][1]["tool_calls"][0]
    assert (call["function"], call["arguments"]) == ("f", {"a": 1})
    with pytest.raises(DataError, match="got no episode"):
        write_log([], tmp_path / "none.json", model="m", created="")


THEIRS: dict[str, Any] = {
    "version": 2,
    "eval": {"task": "sums", "model": "mock/model"},
    "samples": [
        {"id": "a", "epoch": 1, "input": "1+1?", "output": {"choices": [{"message": {"content": "2"}}]},
         "scores": {"includes": {"value": "C"}, "exact": {"value": "I"}}, "total_time": 1.5},
        {"id": "a", "epoch": 2, "input": [{"role": "user", "content": "1+1?"}], "scores": {"includes": {"value": "P"}}},
        {"id": 3, "epoch": 1, "input": "x", "scores": {}, "error": {"message": "broken tool"}},
    ],
}  # fmt: skip


def test_theirs_are_episodes(tmp_path: Path) -> None:
    first, second, third = read_log(write(tmp_path / "log.json", THEIRS))
    assert (first.task.id, first.task.environment, first.seconds) == ("sums/a", "sums", 1.5)
    assert first.outcome == Score(value=1.0, is_success=True) and second.outcome == Score(
        value=0.5, is_success=False
    )
    assert (second.index, second.group) == (1, first.group)
    assert isinstance(third.outcome, Failure) and third.task.id == "sums/3"
    one = {**THEIRS, "samples": THEIRS["samples"][:1]}
    (exact,) = read_log(write(tmp_path / "one.json", one), scorer="exact")
    assert not exact.is_success


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ([], "got no object"),
        ({"version": 3}, "got version 3; write it with inspect-ai 0.3"),
        ({"version": 2, "samples": []}, "got no samples"),
        ({"version": 2, "samples": [{"id": 1}]}, "got a sample of another form"),
        (
            {"version": 2, "samples": [{"id": 1, "epoch": 1, "input": "", "scores": {}}]},
            "got scores by nobody",
        ),
        (
            {
                "version": 2,
                "samples": [{"id": 1, "epoch": 1, "input": "", "scores": {"s": {"value": {"a": 1}}}}],
            },
            "takes? a scorer that gives C, I, P, N or a number",
        ),
    ],
)
def test_other_files_are_one_line(tmp_path: Path, log: Any, line: str) -> None:
    with pytest.raises(DataError, match=line):
        read_log(write(tmp_path / "log.json", log))
    with pytest.raises(DataError, match="cannot be read"):
        read_log(tmp_path / "missing.json")
