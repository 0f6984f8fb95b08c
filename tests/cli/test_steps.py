"""``RUN@best`` and ``RUN@75``: a step of a run wherever commands take a run or a model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.learning.test_saved import KINDS, scripted
from tests.methods import test_training
from tests.methods.test_training import train

from quintain.cli.arguments import resolve_model
from quintain.models.fingerprint import fingerprint
from quintain.models.load import load
from quintain.store.run import Run

pytestmark = pytest.mark.usefixtures("quick")
Cli = Callable[..., Any]


@pytest.fixture
def run(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three steps, of which step 1 was best, in ``runs/a``; the policies after 0, 1, 2 and 3 are kept."""
    assert cli
    scripted(monkeypatch, (0.25, 0.75, 0.5, 0.25))
    return train("grpo", Path("runs/a"), steps=3, eval_every=1, eval_episodes=2, **KINDS["grpo"])


@pytest.mark.slow
def test_commands_take_a_step_of_a_run(cli: Cli, run: Path) -> None:
    with Run.open(run, writable=False) as opened:
        known = opened.weights()
    assert cli("export", "a@best", "--to", "hf", "--out", "best").status == 0
    assert cli("export", "runs/a@3", "--to", "hf", "--out", "last").status == 0
    assert [fingerprint(load(name).model) for name in ("best", "last")] == [known[1], known[3]]
    assert cli("export", "a@1", "--with", "a@best", "--to", "hf", "--out", "mean").status == 0
    assert fingerprint(load("mean").model) == known[1]
    found = cli("eval", "a@best", "--episodes", "2", "--json")
    assert found.status == 0 and '"num": 2' in found.out
    found = cli("check", "a@best")
    assert found.status == 0 and "1, intact to the last byte" in found.out
    found = cli("compare", "a@best", "a")
    assert found.status == 0 and "a@best" in found.out
    small = [
        "--steps",
        "1",
        "--eval-episodes",
        "2",
        "--tasks",
        "2",
        "--group-size",
        "2",
        "--demonstrations",
        "0",
    ]
    world = f"{Path(test_training.__file__)}:Coin"
    found = cli("train", "grpo", "--environment", world, "--model", "a@best", "--run", "b", *small)
    assert found.status == 0 and "was taught in" not in found.error
    assert fingerprint(load("runs/b/start").model) == known[1]
    assert "quintain eval runs/b@best" in found.out.splitlines()[-1]
    assert resolve_model("a@best", "runs") == "runs/a@best" and resolve_model("c@best", "runs") == "c@best"


def test_a_step_where_a_whole_run_is_asked_for_is_refused(cli: Cli) -> None:
    with Run.create(Path("runs/a"), recipe="test", config={}) as run:
        run.commit(0, {"eval/success": 0.5})
        run.commit(4, {"eval/success": 0.25})
    for command in (
        ["view", "a@best"],
        ["resume", "a@4"],
        ["export", "a@best", "--to", "messages", "--out", "x"],
    ):
        found = cli(*command)
        assert (
            found.status == 2
            and "a step of the run a; a step is named where a model is asked for" in found.line
        )
    found = cli("compare", "a@3", "a")
    assert (
        "got the step '3', which was not evaluated; those that were are 0, 4, as in a@4 or a@best"
        in found.line
    )
    for command in (["eval", "a@9"], ["check", "a@9"], ["export", "a@9", "--to", "hf", "--out", "x"]):
        found = cli(*command, *(["--environment", "guess"] if command[0] == "eval" else []))
        assert "got step 9, which is not kept; no step of it is kept" in found.line
