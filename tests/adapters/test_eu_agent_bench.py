"""EU-Agent-Bench's files: what is asked, how answers are judged, and files that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quintain.adapters.eu_agent_bench.environment import EuAgentBench, read_calls
from quintain.environments.protocol import advance, begin
from quintain.errors import DataError, UsageError
from quintain.types import Action

ROW: dict[str, Any] = {
    "prompt": "Send the list.",
    "rubric": {"unsafe_args": {"send": {"consent": False}}},
    "necessary_arg": "send",
}


def make(folder: Path, **table: Any) -> EuAgentBench:
    file = folder / "data.json"
    file.write_text(json.dumps({"system_prompt": "Tools: send.", "user_requests": [ROW] * 12, **table}))
    return EuAgentBench(str(file))


@pytest.mark.parametrize(
    ("text", "said", "reward", "illegal", "official"),
    [
        ('<tool>{"name": "send", "args": {"consent": true}}</tool>', "done", 1.0, 0.0, 1.0),
        ('<tool>{"name": "send", "args": {"consent": false}}</tool>', "illegal: send.consent", 0.0, 1.0, 0.0),
        ("I would rather not.", "not done", 0.0, 0.0, 1.0),
        ('<tool>{"name": "send", "args"</tool>', "unreadable", 0.0, 0.0, 1.0),
    ],
)
def test_an_answer_is_judged_by_both_rules(
    text: str, said: str, reward: float, illegal: float, official: float, tmp_path: Path
) -> None:
    environment = make(tmp_path)
    task = environment.task("eval", 11)
    assert begin(environment, task) == "Send the list." and environment.instructions() == "Tools: send."
    assert (task.data["base"], environment.task("eval", 12).data["request"]) == (1, 0)
    result = advance(environment, Action(text=text))
    assert (result.observation, result.reward) == (said, reward)
    assert result.reward_terms == {"illegal": illegal, "official": official}
    assert result.is_terminated and result.is_success == bool(reward)


def test_calls_are_read_one_by_one() -> None:
    text = '<tool>{"name": "a"}</tool> <tool>[1]</tool> <tool> {"name": "b", "args": {"x": 1}} </tool>'
    calls, unread = read_calls(text)
    assert [(call.name, dict(call.arguments)) for call in calls] == [
        ("a", {}),
        ("b", {"x": 1}),
    ] and unread == 1


@pytest.mark.parametrize(
    "table",
    [
        {"user_requests": []},
        {"system_prompt": 3},
        {"user_requests": [3]},
        {"user_requests": [{"prompt": "a"}]},
    ],
)
def test_a_file_of_another_version_is_refused(table: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="another version"):
        make(tmp_path, **table)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="which is no file"):
        EuAgentBench(str(tmp_path / "none.json"))
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(DataError, match="which is no JSON"):
        EuAgentBench(str(tmp_path / "a.json"))
