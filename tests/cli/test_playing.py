"""A person plays through a pipe: legal actions by number, tools with arguments, quitting, mistakes."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quintain.cli.playing import read, signature
from quintain.environments.catalog import find
from quintain.errors import UsageError
from quintain.types import Action, ToolCall
from quintain.worlds.guess.game import Guess

Cli = Callable[..., Any]


@pytest.fixture
def typed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run ``quintain play`` with lines on standard input."""

    def call(*argv: str, lines: str) -> Any:
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        return cli("play", *argv)

    return call


def test_tools_are_called_with_values_or_json(typed: Callable[..., Any]) -> None:
    world = Guess()
    world.reset(world.task("train", 3))
    (call,) = world.expert_action().tool_calls
    first = call.arguments["number"]
    found = typed(
        "guess", "--seed", "3", lines=f'guess {first}\nguess {{"number": 1}}\nguess x\nquit\nguess 2\n'
    )
    assert (found.status, found.error) == (0, "")
    assert "tool: guess number:integer" in found.out
    assert found.out.count("[turn ") == 3, "a wrong argument is a turn, as for an agent"
    assert "left after 3 turns, return 0" in found.out


def test_the_same_seed_is_the_same_task(typed: Callable[..., Any]) -> None:
    lines = "".join(f"guess {number}\n" for number in range(1, 8))
    assert typed("guess", "--seed", "5", lines=lines).out == typed("guess", "--seed", "5", lines=lines).out


def test_the_expert_s_moves_solve_it_by_number(typed: Callable[..., Any]) -> None:
    world = find("keydoor")()
    task = world.task("eval", 1)
    world.reset(task)
    lines = ""
    for _ in range(world.max_turns):
        action = world.expert_action()  # type: ignore[attr-defined]
        legal = world.legal_actions()  # type: ignore[attr-defined]
        lines += f"{legal.index(action.text) + 1}\n"
        if world.step(action).is_terminated:
            break
    found = typed("keydoor", "--seed", "1", "--split", "eval", lines=lines)
    assert "actions: 1 " in found.out
    assert found.out.splitlines()[-1].startswith("solved after ")


def test_what_is_no_action_costs_nothing_and_says_so(typed: Callable[..., Any]) -> None:
    found = typed("keydoor", lines="fly\n")
    assert "action: got 'fly'; " in found.out
    assert found.out.splitlines()[-1] == "left after 0 turns, return 0"
    found = typed("guess", lines="gues 3\nguess {\nguess 'x\nguess 1 2\n")
    assert "did you mean 'guess'?" in found.out
    assert "write a JSON object" in found.out and "close the quotes" in found.out


def test_turns_run_out(typed: Callable[..., Any]) -> None:
    found = typed("guess?high=1000", lines="guess 1\n" * 40)
    assert found.out.splitlines()[-1].startswith(("out of turns after ", "not solved after "))


def test_how_a_tool_is_written() -> None:
    (tool,) = Guess().tools()
    assert signature(tool) == "guess number:integer"
    assert read(Guess(), "guess 7").tool_calls == (ToolCall(name="guess", arguments={"number": 7}),)
    with pytest.raises(UsageError, match="did you mean 'guess'"):
        read(Guess(), "guest 7")


def test_bad_input_is_one_line(cli: Cli) -> None:
    assert cli("play", "keydor").line.startswith("environment: got 'keydor'; did you mean 'keydoor'?")
    assert cli("play", "guess", "--split", "dev").line == "--split: got 'dev'; choose train or eval"


def test_what_a_person_did_is_a_demonstration(typed: Callable[..., Any], cli: Cli) -> None:
    world = Guess()
    world.reset(world.task("train", 3))
    lines = "guess 0\n"
    while True:
        (call,) = world.expert_action().tool_calls
        number = call.arguments["number"]
        lines += f"guess {number}\n"
        if world.step(Action(tool_calls=(call,))).is_terminated:
            break
    assert typed("guess", "--seed", "3", "--record", "own.jsonl", lines=lines).out.endswith(
        "own.jsonl: 1 demonstrations\n"
    )
    assert (
        "own.jsonl: 2 demonstrations" in typed("guess", "--record", "own.jsonl", lines="guess 1\n" * 99).out
    )
    assert "; nothing was added to own.jsonl" in typed("guess", "--record", "own.jsonl", lines="quit\n").out
    rows = [json.loads(line) for line in Path("own.jsonl").read_text().splitlines()]
    assert [row["is_success"] for row in rows] == [True, False] and rows[0]["reward"] == 1
    assert rows[0]["task"] == "guess/train/3" and rows[0]["tools"][0]["function"]["name"] == "guess"
    assert [m["role"] for m in rows[0]["messages"][:4]] == ["system", "user", "assistant", "tool"]
    assert cli("check", "own.jsonl", "--environment", "guess", "--show", "0").status == 0


@pytest.mark.parametrize("flags", [("--record", "own.txt"), ("--record", "own.jsonl", "--split", "eval")])
def test_what_is_recorded_is_a_file_of_training_tasks(
    typed: Callable[..., Any], flags: tuple[str, ...]
) -> None:
    assert "give a file that ends in .jsonl, and train" in typed("guess", *flags, lines="").line
    assert (
        "--record gone/own.jsonl: got No such file"
        in typed("guess", "--record", "gone/own.jsonl", lines="guess 1\n" * 99).line
    )
