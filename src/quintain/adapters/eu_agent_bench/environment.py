"""EU-Agent-Bench (arXiv 2510.21524): benign requests, which an agent can meet lawfully or not.

``eu-agent-bench/FILE.json`` reads a file of the public preview: a system prompt that lists tools, and requests, each
with a rubric of unsafe arguments. An agent answers once, with calls as ``<tool>{"name": …, "args": {…}}</tool>``. It
succeeds where the job is done and lawful; the reward terms hold the offences (``illegal``) and the official rule
(``official``, for which silence is lawful). Ten requests in a row are variants of one: ``--cluster base``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

from quintain.environments.protocol import Environment
from quintain.errors import DataError, UsageError
from quintain.rewards.legality import find_offences, judge_calls, read_rubric, score_officially
from quintain.types import Action, Split, StepResult, Task, ToolCall
from quintain.types.json_text import load_json

CALL = re.compile(r"<tool>(.*?)</tool>", re.DOTALL)
NUM_VARIANTS = 10


class EuAgentBench(Environment):
    """Answer with calls of the tools that you are given."""

    tags: ClassVar[frozenset[str]] = frozenset({"tools"})
    evaluation_only = True
    max_turns = 1

    def __init__(self, file: str = "") -> None:
        """Take the requests in `file`.

        Raises:
            UsageError: there is no file.
            DataError: it is no file of the benchmark, or of another version.
        """
        path = Path(file)
        if not file or not path.is_file():
            raise UsageError(f"eu-agent-bench: got {file!r}, which is no file; give one of benchmark_data")
        try:
            found: object = load_json(path.read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            raise DataError(
                f"eu-agent-bench: got {path.name}, which is no JSON ({error!s:.60}); give a file of it"
            ) from error
        table: Mapping[str, Any] = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        prompt, rows = table.get("system_prompt"), table.get("user_requests")
        if not isinstance(prompt, str) or not isinstance(rows, list) or not rows:
            raise DataError(
                f"eu-agent-bench: got {path.name} without system_prompt and user_requests; is it another version?"
            )
        self.name, self._prompt = f"eu-agent-bench/{path.stem}", prompt
        self._rows = [
            self._read(each, f"{path.name}, request {number}")
            for number, each in enumerate(cast("list[object]", rows), 1)
        ]
        self._at = 0

    def _read(self, row: object, where: str) -> Mapping[str, Any]:
        """Return a request whose rubric can be read."""
        if not isinstance(row, dict) or not isinstance(row.get("prompt"), str):  # pyright: ignore[reportUnknownMemberType]
            raise DataError(f"{where}: got no prompt; is it another version?")
        found = cast("dict[str, Any]", row)
        return {"prompt": found["prompt"], "rubric": read_rubric(found, where)}

    def task(self, split: Split, index: int) -> Task:
        """Return request number `index`, around and around; the splits have the same ones."""
        place = index % len(self._rows)
        data = {"request": place, "base": place // NUM_VARIANTS}
        seed = index << 1 | (split == "eval")
        return Task(
            id=f"{self.name}/{split}/{index}",
            environment=self.name,
            seed=seed,
            split=split,
            data=data,
            tags=self.tags,
        )

    def instructions(self) -> str:
        """Return the system prompt, which lists the tools."""
        return self._prompt

    def reset(self, task: Task) -> str:
        """Make the request that the task names."""
        self._at = int(task.data["request"])
        return str(self._rows[self._at]["prompt"])

    def step(self, action: Action) -> StepResult:
        """Judge the calls; the episode is over."""
        calls, num_unread = read_calls(action.text)
        rubric = self._rows[self._at]["rubric"]
        offences = find_offences(calls, rubric)
        verdict = judge_calls(calls, rubric, num_unread=num_unread)
        return StepResult(
            observation=f"{verdict.replace('_', ' ')}{': ' if offences else ''}{', '.join(offences)}",
            reward=float(verdict == "done"),
            is_terminated=True,
            is_success=verdict == "done",
            is_valid=action.error is None and not num_unread,
            reward_terms={"illegal": float(len(offences)), "official": score_officially(calls, rubric)},
        )


def read_calls(text: str) -> tuple[list[ToolCall], int]:
    """Return the calls that stand in `text`, and how many could not be read."""
    calls: list[ToolCall] = []
    num_unread = 0
    for found in CALL.findall(text):
        try:
            row: object = load_json(found.strip())
        except ValueError:
            row = None
        table = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
        arguments = table.get("args", {})
        if isinstance(table.get("name"), str) and isinstance(arguments, dict):
            calls.append(ToolCall(name=table["name"], arguments=cast("dict[str, Any]", arguments)))
        else:
            num_unread += 1
    return calls, num_unread
