"""``quintain replay RUN --episode ID``: what is printed of an episode, how a person goes on, what is refused."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.dashboard.viewer.test_replays import GUESS, find_secret, guess

from quintain.store import Run

Cli = Callable[..., Any]


@pytest.fixture
def name(cli: Cli) -> str:
    """The id of an episode of two wrong guesses in the run ``a``."""
    wrong = [number for number in range(1, 9) if number != find_secret()]
    with Run.create(Path("runs/a"), recipe="grpo", config={"environment": GUESS}) as run:
        (found,) = run.append([guess(*wrong[:2])], step=1)
        run.finish("done")
    return found


def test_the_episode_turn_by_turn(cli: Cli, name: str) -> None:
    out = cli("replay", "a", "--episode", name[:18]).out
    assert [line for line in out.splitlines() if line.startswith("[turn ")] == [
        line for line in out.splitlines() if line.startswith("[")
    ]
    assert out.count("[turn ") == 2 and out.splitlines()[-1] in ("higher", "lower")
    assert cli("replay", "a", "--episode", name, "--turn", "2").out.count("[turn ") == 1


def test_a_person_takes_over(cli: Cli, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"gues 1\nguess {find_secret()}\n"))
    before = Path("runs/a/run.db").read_bytes()
    out = cli("replay", "a", "--episode", name, "--turn", "2", "--take-over").out
    assert out.count("[turn ") == 1 and "did you mean" in out
    assert f"[you, reward 1, solved] guess {find_secret()}" in out
    assert Path("runs/a/run.db").read_bytes() == before


def test_turns_run_out_for_a_person_too(cli: Cli, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = find_secret() % 8 + 1
    monkeypatch.setattr("sys.stdin", io.StringIO(f"guess {wrong}\n" * 9))
    out = cli("replay", "a", "--episode", name, "--take-over").out
    assert out.count("[you, reward 0") == 3 and f"[you, reward 0, not solved] guess {wrong}" in out


def test_what_is_refused(cli: Cli, name: str) -> None:
    for given, said in (
        ((), "needs --step or --episode"),
        (("--episode", name, "--step", "1"), "needs --step or --episode"),
        (("--episode", "zz"), f"got 'zz', with which 0 of 1 ids begin; the newest are {name} ("),
        (("--episode", name, "--turn", "9"), "turn: got 8; the episode has 2"),
        (("--episode", name, "--json"), "--out, --json: got an episode"),
        (("--step", "1", "--take-over"), "--turn, --policy, --take-over: got a step"),
    ):
        assert said in cli("replay", "a", *given).line
