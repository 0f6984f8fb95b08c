"""What a user's environment breaks at once is told at once, in one line, with status 3."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quintain.environments import smoke_test
from quintain.environments.smoke_test import find_or_blame, find_ready
from quintain.errors import EnvironmentFault, UsageError

Cli = Callable[..., Any]
HEAD = "import pathlib, time\nimport quintain\n\nclass World(quintain.Environment):\n    'A world.'\n"
RESET = "    def reset(self, task):\n        return 'go'\n"


def world(body: str) -> str:
    """Write a world with `body` and return its spec."""
    Path("world.py").write_text(HEAD + body)
    return "world.py:World"


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("    def __init__(self):\n        raise RuntimeError('boo')\n", r"RuntimeError: boo \(world.py, line 7\)"),
        ("    def reset(self, task):\n        raise OSError('boo')\n", r"OSError: boo \(world.py, line 7\)"),
        ("    def reset(self, task):\n        return 7\n", r"return text or content parts: got int"),
        (RESET + "    def step(self, action):\n        return 1 / 0\n", r"ZeroDivisionError: .* \(world.py, line 9\)"),
        (RESET + "    def step(self, action):\n        return 1.0\n", r"must return a StepResult: got float"),
        (RESET + "    def step(self, action):\n"
         "        return quintain.StepResult(observation='x', reward=float('nan'))\n", r"finite number: got nan"),
        ("    def reset(self, task):\n        raise SystemExit(3)\n", r"sys.exit"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("cli")
def test_what_breaks_is_a_fault_of_the_environment(body: str, what: str) -> None:
    with pytest.raises(EnvironmentFault, match=what):
        find_ready(world(body))


@pytest.mark.usefixtures("cli")
def test_a_world_that_hangs_is_told_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoke_test, "DEADLINE", 0.05)
    spec = world("    def reset(self, task):\n        time.sleep(0.5)\n        return 'go'\n")
    with pytest.raises(
        EnvironmentFault, match=r"got no answer within 0.05 s; repair it, then `quintain check"
    ):
        find_ready(spec)


@pytest.mark.usefixtures("cli")
def test_a_file_that_cannot_be_run_is_its_own_fault() -> None:
    Path("bad.py").write_text("1 / 0\n")
    with pytest.raises(
        EnvironmentFault, match=r"bad.py:X: got ZeroDivisionError: .* \(bad.py, line 1\); repair it"
    ):
        find_or_blame("bad.py:X")
    Path("worse.py").write_text("def (:\n")
    with pytest.raises(
        EnvironmentFault, match=r"worse.py:X: got SyntaxError: invalid syntax \(worse.py, line 1\)"
    ):
        find_or_blame("worse.py:X")


@pytest.mark.usefixtures("cli")
def test_a_world_that_works_is_built_closed_and_returned() -> None:
    ends = "    def step(self, action):\n        return quintain.StepResult(observation='x', is_terminated=True)\n"
    closes = "    def close(self):\n        pathlib.Path('closed').write_text('x')\n"
    recipe = find_ready(world(RESET + ends + closes))
    assert Path("closed").read_text() == "x"
    assert recipe().tools() == ()
    assert find_ready("guess").spec == "guess"
    with pytest.raises(UsageError, match="did you mean 'guess'"):
        find_ready("gues")


def test_nothing_is_written_for_a_broken_world(cli: Cli) -> None:
    spec = world("    def reset(self, task):\n        raise RuntimeError('boo')\n")
    for argv in (["train", "sft", "--model", "micro"], ["eval", "guess"], ["collect"]):
        where = ["--environment", spec] if argv[0] != "collect" else [spec, "--out", "data"]
        found = cli(*argv, *where)
        assert found.status == 3
        assert found.line.startswith("environment ")
        assert f"{spec}: got RuntimeError: boo (world.py, line 7); repair it" in found.line
    assert {path.name for path in Path().iterdir()} <= {"world.py", "__pycache__"}


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (
            "    def instructions(self):\n        return 7\n",
            r"world.instructions must return a text: got int",
        ),
        (
            "    def tools(self):\n        return 'go'\n",
            r"world.tools must return a tuple of ToolSpec: got 'go'",
        ),
        ("    def __init__(self):\n        time.sleep(0.5)\n", r"world.py:World: got no answer within 0.1 s"),
    ],
)
@pytest.mark.usefixtures("cli")
def test_what_the_agent_is_told_and_the_building_are_rehearsed(
    monkeypatch: pytest.MonkeyPatch, body: str, what: str
) -> None:
    monkeypatch.setattr(smoke_test, "DEADLINE", 0.1 if "sleep" in body else 60.0)
    with pytest.raises(EnvironmentFault, match=what):
        find_ready(world(RESET + body))


def test_nobody_trains_on_what_is_for_evaluation_only(cli: Cli) -> None:
    ends = "    def step(self, action):\n        return quintain.StepResult(observation='x', is_terminated=True)\n"
    spec = world("    evaluation_only = True\n" + RESET + ends + "    def expert_action(self):\n"
                 "        return quintain.Action(text='x')\n")  # fmt: skip
    told = "training on world: got an environment for evaluation only"
    for command in (
        ("train", "sft", "--environment", spec, "--run", "exam"),
        ("train", "grpo", "--environment", f"mix:guess,{spec}", "--run", "exam"),
        ("collect", spec, "--agent", "expert", "--episodes", "1", "--out", "exam.jsonl"),
    ):
        found = cli(*command)
        assert found.status == UsageError.exit_code, found.error
        assert told in found.line or "training on mix:guess" in found.line
    assert {path.name for path in Path().iterdir()} <= {"world.py", "__pycache__"}
    assert find_ready(spec).spec == spec, "it may be evaluated on"


PICTURED = (
    RESET + "    def step(self, action):\n"
    "        seen = (quintain.Text(text='a page'), quintain.Image(data=b'x', media_type='image/png'))\n"
    "        return quintain.StepResult(observation=seen)\n"
)


def test_a_world_with_pictures_is_refused_for_a_model_before_a_run(cli: Cli) -> None:
    spec = world(PICTURED)
    assert find_ready(spec).spec == spec, "others may act in it"
    told = cli("train", "grpo", "--environment", spec, "--run", "seen", "--steps", "1")
    assert told.status == UsageError.exit_code
    assert "got an observation with a picture (image/png) for a model that reads text only" in told.line
    assert not Path("runs/seen").exists()
