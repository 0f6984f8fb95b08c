"""A person corrects a run's plans in a pipe; a run learns from what is kept."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quintain.agents.plan import Plan
from quintain.cli.plan_correction import LeftEarly, ask_plan
from quintain.environments.catalog import find
from quintain.store import Run
from quintain.text.chat import Chat
from quintain.warm_start.demonstrations import tokenizer_of

Cli = Callable[..., Any]
WORLD = "house?things=0&kind=put"


def test_lines_are_edits_and_the_end_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    correct = ask_plan(iter(["change 1: go; add: rest", None]).__next__)
    assert correct("You see a door.", Plan(), "") == "change 1: go\n add: rest"
    assert "You see a door.\n\n(no plan)" in capsys.readouterr().out
    with pytest.raises(LeftEarly):
        correct("", Plan(), "plan: got nothing")
    assert capsys.readouterr().out == "plan: got nothing\n"


def test_plans_are_corrected_kept_and_learned_from(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    common = ("--environment", WORLD, "--agent", "plan+choice", "--eval-episodes", "4", "--steps", "1")
    start = ("--model", "micro", "--demonstrations", "24", "--batch-size", "8", "--run", "start")
    assert not cli("train", "sft", *common, *start).status
    monkeypatch.setattr("sys.stdin", io.StringIO("1. go\n\n1. look; 2. go\nquit\n1. go\n"))
    played = cli("play", WORLD, "--plans", "start", "--episodes", "5", "--seed", "3", "--record", "plans")
    assert (played.status, played.error) == (0, "")
    assert "left after 3 episodes; the episode at hand is not kept" in played.out
    with Run.open(Path("plans"), writable=False) as run:
        kept = list(run.trajectories())
    chat = Chat(tokenizer_of(Path("plans")))
    said = [chat.words(each.turns[0].completion.token_ids).strip() for each in kept]
    assert [each.task.id for each in kept] == [find(WORLD)().task("train", number).id for number in (3, 4, 5)]
    assert (said[0], said[2]) == ("1. go", "1. look\n2. go")
    assert [bool(each.turns[0].completion.logprobs) for each in kept] == [False, True, False]
    assert all(each.turns[1].completion.logprobs for each in kept), "actions are the policy's own"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--episodes", "2"), "are played with --plans alone"),
        (("--plans", "start", "--split", "eval"), "nothing is learned from"),
        (("--plans", "nowhere"), "nowhere"),
        (("--plans", "nowhere", "--record", "kept.jsonl"), "give a new folder"),
    ],
)
def test_what_cannot_be_is_said(cli: Cli, words: tuple[str, ...], said: str) -> None:
    found = cli("play", WORLD, *words)
    assert found.status and said in found.error
