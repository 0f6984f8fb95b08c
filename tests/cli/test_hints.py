"""What is said to a small mistake: the flag, file, run or model that was probably meant."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quintain.environments.boundary import place
from quintain.environments.catalog import find
from quintain.errors import similar_file
from quintain.learning.train_config import GroupConfig
from quintain.models.load import OURS
from quintain.models.tiny import SIZES
from quintain.store.run import Run
from quintain.warm_start.run_notes import before_teaching

Cli = Callable[..., Any]


def test_a_run_that_is_not_there_is_named_with_those_that_are(cli: Cli) -> None:
    assert (
        "got 'nothing', and there is no run, folder or file of that name; there are no runs"
        in cli("eval", "nothing").line
    )
    for name in ("first", "other"):
        Run.create(Path("runs", name), recipe="test", config={}).close()
    assert "the runs in runs are first, other" in cli("eval", "nothing").line
    assert "did you mean 'first'?" in cli("eval", "frist").line


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (
            "smollm2",
            "got 'smollm2', a model; check it in use: quintain check grpo --model smollm2 --environment E",
        ),
        ("gues", "no run, folder, file, method or environment of that name; did you mean 'guess'?"),
        ("nosuchthing", "of that name; see quintain environments, quintain methods, or the runs in runs"),
    ],
)
def test_what_check_does_not_know(cli: Cli, target: str, told: str) -> None:
    found = cli("check", target)
    assert found.status == 2 and told in found.line


def test_models_that_have_names_of_their_own() -> None:
    assert set(OURS) == {*SIZES, "smollm2"}


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["guess"], "got 'guess', which it has no use for; did you mean '--environment guess'?"),
        (["mine.py:Mine"], "did you mean '--environment mine.py:Mine'?"),
        (["nothing"], "got 'nothing', which it has no use for; see `quintain train grpo --help`"),
        (["--batch-size", "8"], "got '--batch-size'; a step has --tasks times --group-size episodes"),
    ],
)
def test_flags_that_were_meant(cli: Cli, argv: list[str], told: str) -> None:
    found = cli("train", "grpo", *argv)
    assert found.status == 2 and told in found.line


def test_an_agent_that_is_not_there_or_takes_other_arguments(cli: Cli) -> None:
    Path("mine.py").write_text(
        "def two(base_url, api_key): ...\ndef three(a, b, c=1): ...\ndef any(*all): ...\n"
    )
    found = cli("train", "grpo", "--environment", "guess", "--agent", "nowhere.py:run")
    assert found.line == "agent: got 'nowhere.py:run', but there is no file nowhere.py; check the path"
    found = cli("train", "grpo", "--environment", "guess", "--agent", "mine.py:two")
    assert "got two(base_url, api_key); it is called with base_url, api_key, task" in found.line
    assert not Path("runs").exists(), "nothing was begun"


def test_an_argument_that_an_environment_needs_is_named(cli: Cli) -> None:
    Path("mine.py").write_text(
        "import quintain\n\nclass A(quintain.Environment):\n    def __init__(self, path, size=3): ...\n"
    )
    found = cli("check", "mine.py:A")
    assert found.line == (
        "environment: got 'mine.py:A', which cannot be built without path; give it: mine.py:A?path=…"
    )
    assert "mine.py:A?size=4&path=…" in cli("check", "mine.py:A?size=4").line


def test_an_error_in_an_environment_names_the_line_of_its_author(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import random\n\n\ndef reset():\n    return random.sample([1], 2)\n")
    reset: Any = runpy.run_path(str(file))["reset"]
    with pytest.raises(ValueError) as caught:
        reset()
    assert place(caught.value) == " (mine.py, line 5)"


def test_files_are_alike_by_what_stands_before_their_end(cli: Cli) -> None:
    assert similar_file("nothere.jsonl", ["anthropic.jsonl", "notes.csv"]) == ""
    assert similar_file("chat.jsonl", ["chats.jsonl", "runs"]) == "did you mean 'chats.jsonl'?"
    assert cli("label", "nothing.jsonl", "--labeller", "ann").error.count("runs/nothing.jsonl") == 0


def test_a_form_that_is_none_is_said_before_a_file_is_asked_for(cli: Cli) -> None:
    assert cli("export", "a", "--to", "gguf").line.startswith("--to: got 'gguf'")


def test_a_step_of_very_many_episodes_is_noted() -> None:
    config = GroupConfig(environment="guess", demonstrations=0, tasks=8, group_size=1_000_000)
    (note,) = before_teaching(config, find("guess"))
    assert "a step plays 8,000,000 episodes, of up to 1,024,000,000 sampled tokens" in note


def test_a_run_goes_on_for_no_fewer_steps_than_it_has_done(cli: Cli) -> None:
    with Run.create(Path("runs/a"), recipe="grpo", config={"steps": 3, "device": "cpu"}) as run:
        for step in range(4):
            run.commit(step, {})
    assert "--steps: got 2 for runs/a, which has done 3; give more" in cli("resume", "a", "--steps", "2").line
