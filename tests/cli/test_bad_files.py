"""Files that cannot be trained on: one line, before anything is written (endpoints: `tests.engines.test_probe`)."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli

ASK, ANSWER = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CHAT: dict[str, Any] = {"messages": [ASK, ANSWER]}
PAIR: dict[str, Any] = {"prompt": "a", "chosen": "b", "rejected": "c"}
LABELLED: dict[str, Any] = {"prompt": "a", "completion": "b", "label": False}
RESULT = {"role": "tool", "tool_call_id": "99", "content": "x"}
SHOP = '''import quintain


class Shop(quintain.Environment):
    """Answer."""

    def reset(self, task):
        return task.prompt

    def step(self, action):
        self.reward(0.0)
        return quintain.StepResult(observation="", is_terminated=True, is_success=False)
'''
SFT, DPO = ("sft", "--demonstrations"), ("dpo", "--preferences")
TASKS = ("grpo", "--environment", "shop.py:Shop", "--tasks")
ELSEWHERE: dict[str, Any] = {**CHAT, "task": "guess/train/999999999"}


@pytest.mark.parametrize(
    ("rows", "command", "line"),
    [
        ([CHAT, PAIR], SFT, "data.jsonl line 2: got a preference, and this takes a conversation"),
        ([CHAT, LABELLED], SFT, "data.jsonl line 2: got a labelled answer, and this takes a conversation"),
        ([PAIR, CHAT], DPO, "data.jsonl line 2: got a conversation, and this takes a preference"),
        ([PAIR, LABELLED], DPO, "data.jsonl line 2: got a labelled answer, and this takes a preference"),
        (
            [PAIR, LABELLED],
            ("dpo", "--loss", "kto", "--preferences"),
            "data.jsonl line 2: got a labelled answer, and data.jsonl line 1 is a preference",
        ),
        ([{"messages": [ASK, {**ANSWER, "train": False}]}], SFT, "got nothing to imitate"),
        (
            [{"messages": [ASK, {"role": "assistant", "tool_calls": [CALL]}, RESULT, ANSWER]}],
            SFT,
            "data.jsonl line 1: got a result of the call '99', and before it stands '1'",
        ),
        (
            [ELSEWHERE],
            ("eto", "--environment", "guess", "--demonstrations"),
            "recorded episodes of data.jsonl: got 1 that are of tasks of guess",
        ),
        (
            [{"id": "1", "prompt": "a", "split": "train"}, {"id": "1", "prompt": "b", "split": "eval"}],
            TASKS,
            "data.jsonl line 2: got the id '1' of data.jsonl line 1; give each its own",
        ),
        (
            [{"id": "1", "prompt": "a", "split": "train"}, {"id": "2", "prompt": "a", "split": "eval"}],
            TASKS,
            "data.jsonl line 2: got a held-out task that is data.jsonl line 1 of training, too",
        ),
    ],
)
def test_a_bad_file_is_one_line_and_nothing_is_written(
    cli: Cli, rows: list[dict[str, Any]], command: tuple[str, ...], line: str
) -> None:
    Path("shop.py").write_text(SHOP)
    Path("data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = cli("train", *command, "data.jsonl", "--model", "micro", "--run", "a")
    assert found.status in (2, 5) and line in found.error
    assert [each for each in found.error.splitlines() if "error" in each] == [found.error.splitlines()[-1]]
    assert list(Path("runs").glob("*")) == []
