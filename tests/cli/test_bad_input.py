"""Every bad input ends in one line that says what came and what to do, with its status, and writes nothing."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quintain.environments.catalog import find
from quintain.errors import EnvironmentFault, StoreError
from quintain.warm_start import corpus as corpora
from quintain.warm_start.corpus import corpus

Cli = Callable[..., Any]
TRAIN = ("train", "sft", "--model", "micro", "--environment")
HEAD = "import os, time\nimport quintain\n\nclass World(quintain.Environment):\n    'A world.'\n    n = 0\n"
RESET = "    def reset(self, task):\n        return 'go'\n"
STEP = "    def step(self, action):\n        World.n += 1\n"
CHAT = '{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}'
ENDS = "        return quintain.StepResult(observation='x', reward=1.0, is_terminated=True)\n"


def world(body: str, name: str) -> str:
    """Write a world with `body` and return its spec."""
    Path(f"{name}.py").write_text(HEAD + body)
    return f"{name}.py:World"


@pytest.mark.parametrize(
    ("argv", "status", "line"),
    [
        (["trian"], 2, "unknown command: got 'trian'; did you mean 'train'?"),
        (["train", "grop"], 2, "method: got 'grop'; did you mean 'grpo'?, or give a file.py"),
        ([*TRAIN, "keydor"], 2, "environment: got 'keydor'; did you mean 'keydoor'?"),
        ([*TRAIN, "guess", "--stesp", "3"], 2, "flag of quintain train sft: got '--stesp'; did you mean '--steps'?"),
        ([*TRAIN, "guess", "--steps", "x"], 2, "--steps: got 'x'; give an integer of 1 or more"),
        ([*TRAIN, "guess", "--data", "x.jsonl"], 2, "flag of quintain train sft: got '--data'; did you mean '--demon"),
        ([*TRAIN, "guess", "--max-context", "5"], 2, "--max-context: got '5'; give an integer of 16 or more"),
        ([*TRAIN, "guess", "--steps", "0"], 2, "--steps: got '0'; give an integer of 1 or more such as"),
        ([*TRAIN, "guess", "--config", "key.json"], 2, "configuration key in key.json: got 'stesp'; did you mean"),
        ([*TRAIN, "guess", "--config", "type.json"], 2, "steps in type.json: got \"3\" (text)"),
        ([*TRAIN, "guess", "--config", "list.json"], 2, "configuration file list.json must hold a table: got [1]; use"),
        ([*TRAIN, "guess", "--run", "../up"], 2, "run name: got '../up'"),
        ([*TRAIN, "guess", "--demonstrations", "0"], 2, "demonstrations: got 0, which leaves nothing to imitate"),
        ([*TRAIN, "guess", "--model", "./nope"], 4, "model './nope': got no such folder; check the path"),
        ([*TRAIN, "guess", "--model", "./broken"], 4, "model './broken': got config.json that cannot be read"),
        ([*TRAIN, "guess", "--model", "b.gguf"], 4, "model 'b.gguf': got b.gguf, which is no GGUF file; copy"),
        (["eval", "./broken", "--environment", "guess"], 4, "model 'broken': got config.json that cannot be read"),
        (["check", "nope.py:World"], 2, "environment: got 'nope.py:World', but there is no file nope.py"),
        (["resume", "nope"], 2, "opening a run: got runs/nope, which is no folder"),
        (["export", "nope", "--to", "hf", "--out", "out"], 2, "opening a run: got runs/nope, which is no folder"),
        (["collect", "keyless.py:World", "--out", "out.jsonl"], 2, "agent: got 'expert', but keyless.py"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(cli: Cli, argv: list[str], status: int, line: str) -> None:
    Path("key.json").write_text('{"stesp": 3}')
    Path("type.json").write_text('{"steps": "3"}')
    Path("list.json").write_text("[1]")
    Path("b.gguf").write_text("x")
    Path("broken").mkdir()
    Path("broken/config.json").write_text("{")
    world(RESET + STEP + ENDS, "keyless")
    before = sorted(Path().iterdir())
    found = cli(*argv)
    assert (found.status, found.out) == (status, "")
    assert found.line.startswith(line)
    assert [path for path in sorted(Path().iterdir()) if path.name != "__pycache__"] == before


def test_conversations_in_place_of_preferences_leave_no_run(cli: Cli) -> None:
    Path("chats.jsonl").write_text(CHAT)
    found = cli("train", "dpo", "--preferences", "chats.jsonl", "--model", "micro")
    assert found.status == 5
    assert found.line.endswith("train it with quintain train sft --demonstrations FILE")
    assert list(Path("runs").iterdir()) == []


BROKEN = {
    "raises": (RESET + "    def step(self, action):\n        raise RuntimeError('boo')\n", "got RuntimeError: boo"),
    "nan": (RESET + "    def step(self, action):\n"
            "        return quintain.StepResult(observation='x', reward=float('nan'))\n", "finite number: got nan"),
    "wrong": (RESET + "    def step(self, action):\n        return 7\n", "must return a StepResult: got int"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_environment_is_a_fault_of_its_own_before_anything_is_written(cli: Cli, name: str) -> None:
    body, what = BROKEN[name]
    found = cli(*TRAIN, world(body, name))
    assert found.status == EnvironmentFault.exit_code
    assert found.line.startswith("environment ") and f"{name}.py:World: " in found.line and what in found.line
    assert not Path("runs").exists()
    checked = cli("check", f"{name}.py:World", "--episodes", "1", "--json")
    assert checked.status == EnvironmentFault.exit_code
    assert what.removeprefix("got ") in checked.out


@pytest.mark.parametrize(
    ("name", "late"), [("late", "raise RuntimeError('late')"), ("hangs", "time.sleep(2)")]
)
def test_an_environment_that_breaks_later_stops_with_its_own_status(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, late: str
) -> None:
    monkeypatch.setattr(corpora, "TIMEOUT", 0.4 if name == "hangs" else 60.0)
    spec = world(RESET + STEP + f"        if World.n > 7:\n            {late}\n" + ENDS, name)
    found = cli("train", "grpo", "--model", "micro", "--environment", spec, "--run", "one")
    assert found.status == EnvironmentFault.exit_code
    assert "got 5 failed episodes, the last by " in found.error
    assert list(Path("runs").iterdir()) == [], "a run that holds nothing is taken away again"


@pytest.mark.usefixtures("cli")
def test_a_few_failed_episodes_are_left_out_of_the_corpus() -> None:
    few = "        if World.n in (3, 9):\n            raise RuntimeError('few')\n"
    texts = list(corpus(find(world(RESET + STEP + few + ENDS, "few")), 0))
    assert texts.count("x") == corpora.NUM_EPISODES - 2


def test_a_process_left_behind_is_reported(cli: Cli) -> None:
    starts = "    def __init__(self):\n        os.posix_spawn('/bin/sleep', ['sleep', '9'], {})\n"
    found = cli("check", world(starts + RESET + STEP + ENDS, "leaky"), "--episodes", "1", "--json")
    closing = {row["name"]: row for row in json.loads(found.out)["findings"]}["closing"]
    assert (found.status, closing["state"]) == (EnvironmentFault.exit_code, "fail")
    assert "processes" in closing["detail"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_standard_output_is_a_problem_of_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))
    with open("/dev/full", "w") as full:
        found = subprocess.run(
            [sys.executable, "-m", "quintain.cli", "methods"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert found.returncode == StoreError.exit_code
    assert found.stderr.splitlines()[0].startswith("quintain: error: writing or reading: got No space left")
