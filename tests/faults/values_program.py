r"""Commands over environments, agents and files that hold every odd value; each in a fork, with its status and words.

It reads a folder and the names of cases (none: all) from its input and prints one JSON object: what of each case is
wrong. Nothing may end with status 1, with a traceback, or with more than one line about the error; where a run comes
to its end, what reads it must, too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from tests.faults.run_program import in_child

import quintain.warm_start.corpus
from quintain.api import train  # loaded before the forks, which share it
from quintain.cli.main import main as run_command

WORLD = '''
import os, sys
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np

from quintain.environments.protocol import Environment, StepResult
from quintain.types import Action, Image, Score, Text


class Broken(str):
    def __str__(self): raise ValueError("no text")
    __repr__ = __str__


def leave(): os._exit(0)
def fork(): os.fork()
def throw(error): raise error


class Odd(Environment):
    """Say up."""

    max_turns = {max_turns}
    return_range = {return_range}

    def instructions(self):
        return {instructions}

    def task(self, split, index):
        return replace(Environment.task(self, split, index), prompt={prompt}, data={data})

    def reset(self, task):
        {at_reset}
        return {shown}

    def step(self, action):
        {at_step}
        return StepResult(
            observation={observation}, reward={reward}, reward_terms={terms}, is_success={success},
            is_terminated={terminated},
        )

    def legal_actions(self):
        return {legal}

    def expert_action(self):
        return {expert}

    def state_key(self):
        return {key}
'''
USUAL = {
    "max_turns": "2", "return_range": "(0.0, 1.0)", "instructions": "'Say up.'", "prompt": "''", "data": "{}",
    "at_reset": "pass", "shown": "'A lever.'", "at_step": "pass", "observation": "'Moved.'",
    "reward": "float(action.text == 'up')", "terms": "{}", "success": "None", "terminated": "True",
    "legal": "('up', 'down')", "expert": "Action(text='up')", "key": "'k'",
}  # fmt: skip
TEXTS = (
    r"'\ud800'", r"'a\udfff' * 50", r"'\ud83d\ude00'", r"'\x00'", r"'\x1b]0;x\x07'", "''", "'<|end|><|user|>'",
    "b'up'", "None", "7", "'x' * 20_000", "Broken('up')", "np.str_('up')",
)  # fmt: skip
NUMBERS = (
    "1e308", "-1e308", "1e15", "1e16", "10**400", "10**5000", "float('nan')", "float('-inf')", "Decimal('0.5')",
    "Fraction(1, 3)", "Fraction(10**400)", "np.float32(1)", "np.float64('nan')", "np.array([1.0])",
    "np.array([1.0, 2.0])",
    "True", "'1'", "None", "1j", "[1.0]",
)  # fmt: skip
ACTS = (
    "leave()", "fork()", "sys.exit(0)", "throw(MemoryError())", "throw(RecursionError('deep'))",
    r"throw(ValueError('\ud800\n\x1b[31m'))", "throw(StopIteration())", "throw(GeneratorExit())",
    "throw(KeyError(Broken('x')))", "throw(SystemExit('bye'))", "throw(OSError(24, 'Too many open files'))",
    "throw(OSError(28, 'No space left on device'))",
)  # fmt: skip
PLACES: dict[str, tuple[str, ...]] = {
    "instructions": TEXTS, "prompt": TEXTS, "shown": TEXTS, "observation": TEXTS,
    "key": (*TEXTS[:6], "(1, 2)", "[]", "float('nan')"),
    "legal": (*tuple(f"({text}, 'down')" for text in TEXTS), "()", "None", "'up'", "('up', 'up')"),
    "expert": (*tuple(f"Action(text={text})" for text in TEXTS), "None", "'up'", "3"),
    "reward": NUMBERS, "success": (*NUMBERS[:8], "'yes'", "np.bool_(True)", "2"),
    "terminated": ("None", "'no'", "np.bool_(True)", "2"),
    "terms": (*tuple(f"{{'a': {number}}}" for number in NUMBERS), r"{'\ud800': 1.0}", "{1: 1.0}", "None", "[1]"),
    "data": (r"{'\ud800': '\udfff'}", "{'n': float('nan')}", "{'o': object()}", "{1: 2}", "None", "{'n': 10**400}"),
    "max_turns": ("0", "-1", "1.5", "None", "'2'", "10**30"),
    "return_range": ("(1.0, 0.0)", "None", "(float('nan'), 1)", "(0, 1e308)"),
    "at_reset": ACTS, "at_step": ACTS,
}  # fmt: skip
AGENT = """
import os
from decimal import Decimal
from fractions import Fraction

import numpy as np

from quintain.types import Score


def run(base_url, api_key, task):
    import openai

    client = openai.OpenAI(base_url=base_url, api_key=api_key)
    client.chat.completions.create(model="policy", messages=[{"role": "user", "content": "go"}], max_tokens=2)
    return VALUE
"""
ANSWERS = (
    *NUMBERS,
    "Score(value=1e308, is_success=True)",
    "Score(value=1.0, is_success='x')",
    "os._exit(0)",
    r"'\ud800'",
)
MESSAGES = '[{"role": "user", "content": "go"}, {"role": "assistant", "content": "up"}]'
LINES = (
    f'{{"messages": {MESSAGES}, "reward": 1e308}}', f'{{"messages": {MESSAGES}, "reward": NaN}}',
    f'{{"messages": {MESSAGES}, "reward": 1e999}}', f'{{"messages": {MESSAGES}, "reward": {"9" * 5000}}}',
    f'{{"messages": {MESSAGES}, "is_success": "\\ud800"}}', f'{{"messages": {MESSAGES}, "id": {"9" * 400}}}',
    f'{{"messages": {MESSAGES}, "task": {{"a": [[[]]]}}, "weight": -Infinity}}',
    '{"messages": [{"role": "user", "content": "\\ud800"}, {"role": "assistant", "content": "up\\udfff"}]}',
    '{"messages": [{"role": "user", "content": null}, {"role": "assistant", "content": "up"}]}',
    '{"messages": [{"role": "\\ud800", "content": "go"}, {"role": "assistant", "content": "up"}]}',
    f'{{"messages": {"[" * 3000}{"]" * 3000}}}', "[" * 100_000, "null", "7", '"\\ud800"', '{"messages": 3}', "{}",
    f'{{"messages": {MESSAGES}, "\\ud800": 1}}', f'{{"messages": {MESSAGES}, "tools": [{{"\\ud800": 1}}]}}',
    '{"messages": [{"role": "user", "content": "go"}, {"role": "assistant", "content": null, "tool_calls": '
    '[{"type": "function", "function": {"name": "f", "arguments": "{\\"n\\": NaN}"}}]}]}',
    '{"messages": [{"role": "user", "content": "go"}, {"role": "assistant", "content": null, "tool_calls": '
    '[{"type": "function", "function": {"name": "\\ud800", "arguments": "{}"}}]}]}',
    '{"prompt": "go", "chosen": "\\ud800", "rejected": "down"}', '{"prompt": 1e999, "completion": "up"}',
)  # fmt: skip
TINY = (
    "--model", "micro", "--demonstrations", "4", "--imitation-epochs", "1", "--steps", "1", "--tasks", "2",
    "--group-size", "2", "--eval-every", "1", "--eval-episodes", "2", "--max-turn-tokens", "8",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Files to write and a command over them: ``Case(files={"e.py": …}, command=["train", …], may_end={0, 3})``."""

    files: Mapping[str, str]
    command: tuple[str, ...]
    may_end: frozenset[int]
    then: tuple[tuple[str, ...], ...] = field(
        default=(("view", "RUN", "--static"), ("export", "RUN", "--to", "messages", "--out", "OUT"))
    )
    """commands over the run where it came to its end"""


def cases() -> Iterator[tuple[str, Case]]:
    """Yield the name of each case and the case."""
    for place, values in PLACES.items():
        for value in values:
            text = WORLD.format(**{**USUAL, place: value})
            line = ("train", "grpo", "--environment", "world.py:Odd", *TINY)
            yield (
                f"{place}={value[:40]}",
                Case(files={"world.py": text}, command=line, may_end=frozenset({0, 2, 3, 5, 9})),
            )
    for value in ANSWERS:
        text = AGENT.replace("VALUE", value)
        line = (
            "train",
            "grpo",
            "--environment",
            "guess",
            "--agent",
            "agent.py:run",
            *TINY,
            "--demonstrations",
            "0",
        )
        yield (
            f"agent={value[:40]}",
            Case(files={"agent.py": text}, command=line, may_end=frozenset({0, 2, 3, 5, 9})),
        )
    for number, value in enumerate(LINES):
        line = (
            "train",
            "sft",
            "--model",
            "micro",
            "--demonstrations",
            "lines.jsonl",
            "--steps",
            "1",
            "--batch-size",
            "1",
        )
        text = f'{{"messages": {MESSAGES}}}\n{value}\n'
        yield (
            f"line {number}={value[:40]}",
            Case(files={"lines.jsonl": text}, command=line, may_end=frozenset({0, 2, 4, 5})),
        )


def tried(name: str, case: Case, root: Path) -> str:
    """Return what is wrong with what `case` does."""
    root.mkdir(parents=True)
    for file, text in case.files.items():
        (root / file).write_text(text, encoding="utf-8", errors="surrogatepass")
    known = {
        **{file: str(root / file) for file in case.files},
        "RUN": str(root / "run"),
        "OUT": str(root / "out.jsonl"),
    }
    line = [_placed(word, known) for word in case.command]
    wrong = _judged([*line, "--run", "run", "--runs", str(root)], case.may_end, root)
    if not wrong and (root / "run" / "model").is_dir():
        for each in case.then:
            wrong = wrong or _judged([_placed(word, known) for word in each], frozenset({0, 2, 5}), root)
    return wrong


def _placed(word: str, known: Mapping[str, str]) -> str:
    """Return `word` with a name of a file as its path."""
    for name, path in known.items():
        if word == name or word.startswith(f"{name}:"):
            return path + word.removeprefix(name)
    return word


def _judged(line: list[str], may_end: frozenset[int], root: Path) -> str:
    """Return what is wrong with how the command `line` ends."""
    log = root / "log"
    log.write_text("")

    def work() -> None:
        if ended := run_command(line):
            os._exit(ended)

    status = in_child(work, str(log))
    said = log.read_text(errors="replace")
    errors = [each for each in said.splitlines() if "quintain: error:" in each]
    if status not in may_end:
        return f"quintain {line[0]}: status {status}: {said[-400:]}"
    if "Traceback (most recent call last)" in said:
        return f"quintain {line[0]}: a traceback: {said[-400:]}"
    if status and len(errors) != 1:
        return f"quintain {line[0]}: status {status} with {len(errors)} lines of errors: {said[-400:]}"
    return ""


def main() -> None:
    """Do what the input asks."""
    root, *names = (line.rstrip("\n") for line in sys.stdin)
    torch.set_num_threads(1)
    assert callable(train)
    quintain.warm_start.corpus.NUM_EPISODES = 4
    wrong: dict[str, str] = {}
    num = 0
    for number, (name, case) in enumerate(cases()):
        if names and not any(name.startswith(wanted) for wanted in names):
            continue
        num += 1
        if found := tried(name, case, Path(root) / str(number)):
            wrong[name] = found
    print(json.dumps({"cases": num, "wrong": wrong}))


if __name__ == "__main__":
    main()
