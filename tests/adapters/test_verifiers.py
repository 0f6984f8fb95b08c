"""Environments of verifiers in a worker (``.venv-verifiers``, which `make test-real` sets up)."""

import queue
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quintain.adapters.verifiers import environment as verifiers
from quintain.adapters.verifiers import rollout as verifiers_rollout
from quintain.adapters.verifiers.environment import Verifiers
from quintain.adapters.verifiers.rollout import End, Loop, Question
from quintain.environments.protocol import Legal, advance, begin, tool_action
from quintain.environments.worker import Worker, WorkerFault
from quintain.errors import MissingExtra, UsageError
from quintain.processes.usage import children
from quintain.types import Action, Image, Text

WORLDS = Path(__file__).with_name("verifiers_worlds.py")
pytestmark = pytest.mark.timeout(
    900
)  # a busy machine takes long to import the package and to start processes
real = pytest.mark.real("verifiers", beside=True)


@pytest.fixture
def world(python_beside: str, request: pytest.FixtureRequest) -> Iterator[Worker]:
    """The environment of the kind that the test names."""
    with closing(loaded(python_beside, kind=request.param)) as built:
        yield built


def loaded(python: str, **settings: Any) -> Worker:
    return Worker(f"verifiers/{WORLDS}", python=python, timeout=100.0, start_timeout=100.0, **settings)


def kind(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("world", [name], indirect=True)


def say(world: Worker, text: str) -> Any:
    return advance(world, Action(text=text))


def test_a_missing_package_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verifiers", None)
    with pytest.raises(
        MissingExtra, match=r"verifiers: it is not installed; pip install .verifiers>=0\.1\.14,<0\.2"
    ):
        Verifiers("x.py")


@pytest.mark.parametrize("found", ["0.1.9", "0.2.0", "0.4.0"])
def test_another_version_is_named(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setattr(verifiers, "package", lambda: SimpleNamespace())
    monkeypatch.setattr(verifiers, "version", lambda _: found)
    with pytest.raises(
        UsageError, match=rf"verifiers: got version {found}; it needs its API of 0\.1: pip install"
    ):
        Verifiers("x.py")


@pytest.mark.slow
def test_an_answer_that_comes_at_once_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one who is asked may answer before the one who asks waits."""

    class Slow(queue.SimpleQueue[Any]):
        def put(self, item: Any, *_: Any, **__: Any) -> None:
            super().put(item)
            time.sleep(0.2)

    class Asks:
        """Asks once, and is pleased with whatever is said."""

        rubric = SimpleNamespace(score_rollout=nothing, cleanup=nothing)
        _teardown = nothing

        async def rollout(self, row: Any, ask: Any, *_: Any) -> Any:
            return {"reward": float(await ask([row], []) == "yes")}

    monkeypatch.setattr(verifiers_rollout.queue, "SimpleQueue", Slow)
    monkeypatch.setattr(verifiers_rollout, "_client", lambda ask: ask)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(verifiers_rollout, "response", lambda action: action.text)  # pyright: ignore[reportUnknownLambdaType]
    with closing(Loop(Asks(), deadline=60.0)) as loop:
        assert isinstance(loop.begin({}), Question)
        end = loop.reply(Action(text="yes"))
        assert isinstance(end, End) and end.state["reward"] == 1.0


async def nothing(*_: Any) -> None:
    """Do nothing."""


@real
@kind("single")
def test_a_question_is_answered_and_graded(world: Worker) -> None:
    assert (world.name, world.max_turns, world.evaluation_only) == ("verifiers/verifiers_worlds", 1, False)
    task = world.task("train", 1)
    assert begin(world, task) == "What is 1 + 1?" and world.instructions() == "Answer with a number."
    right = say(world, "2")
    assert (right.reward, right.is_success, right.is_terminated, right.is_truncated) == (
        1.0,
        True,
        True,
        False,
    )
    assert right.reward_terms["exact"] == 1.0 and right.reward_terms["num_turns"] == 1.0
    begin(world, task)
    wrong = say(world, "please, 3")
    assert (wrong.reward, wrong.is_success) == (0.25, False)
    assert not isinstance(world, Legal)


@real
@kind("single")
def test_splits_share_no_row_where_there_is_one_set(world: Worker) -> None:
    rows = {
        split: {world.task(split, index).data["row"] for index in range(8)} for split in ("train", "eval")
    }
    assert rows == {"train": {0, 1, 2, 4, 5, 6}, "eval": {3, 7}}


@real
@kind("tools")
def test_tools_are_the_environments_own(world: Worker) -> None:
    assert {world.task("eval", index).data["row"] for index in range(8)} == {0, 1}
    assert [spec.name for spec in world.tools()] == ["add"]
    begin(world, world.task("train", 3))
    assert "3 + 3" in str(begin(world, world.task("train", 3)))
    assert advance(world, tool_action("add", a=3, b=3)).observation == "6"
    unknown = advance(world, tool_action("no_such"))
    assert not unknown.is_valid and [error.cause for error in unknown.tool_errors] == ["invalid_call"]
    assert say(world, "6").is_success
    begin(world, world.task("train", 3))
    with pytest.raises(WorkerFault, match="add is out of order") as found:
        advance(world, tool_action("add", a=-1, b=3))
    assert (found.value.owner, found.value.kind) == ("tool", "ToolCallError")


@real
@kind("turns")
def test_turns_end_as_the_environment_says(world: Worker) -> None:
    assert world.max_turns == 20, "it has no limit of its own"
    task = world.task("train", 2)
    begin(world, task)
    assert say(world, "1").observation == "more"
    assert not advance(world, Action(error="unreadable")).is_valid
    last = say(world, str(4 if task.data["row"] == 2 else 2 * int(task.data["row"])))
    assert last.observation == "that was it" and last.is_terminated
    for said, kind_of, message in (
        ("crash", "RuntimeError", "fell apart"),
        ("infra", "InfraError", "is gone"),
    ):
        begin(world, task)
        with pytest.raises(WorkerFault, match=message) as found:
            say(world, said)
        assert (found.value.owner, found.value.kind) == ("environment", kind_of)
    assert begin(world, task), "it goes on"


@real
@kind("anew")
def test_a_prompt_that_is_built_anew_is_shown_whole_and_its_limit_cuts(world: Worker) -> None:
    assert world.evaluation_only, "there is no training set"
    assert begin(world, world.task("eval", 0)) == "turn 0"
    assert say(world, "a").observation == "turn 1"
    last = say(world, "0")
    assert (last.is_truncated, last.is_terminated, last.reward) == (True, False, 1.0)


@real
@kind("broken")
def test_a_reward_function_that_raises_is_the_judges_failure(world: Worker) -> None:
    begin(world, world.task("train", 0))
    with pytest.raises(WorkerFault, match="Error calling reward function broken: no verdict") as found:
        say(world, "0")
    assert (found.value.owner, found.value.kind) == ("judge", "grader")


@real
@kind("many")
def test_a_group_of_environments_plays_each_row_in_its_own(world: Worker) -> None:
    seen = [str(begin(world, world.task("train", index))) for index in range(12)]
    assert len(set(seen)) == 6, "the rows of both have the same questions"
    assert say(world, "1").observation in ("more", "less", "that was it")


@real
@kind("picture")
def test_pictures_come_through(world: Worker) -> None:
    first = begin(world, world.task("train", 0))
    assert first == (Text(text="Look."), Image(data=b"\x89PNG\r\n\x1a\n", media_type="image/png"))


@real
def test_an_episode_that_is_broken_off_leaves_nothing_behind(python_beside: str) -> None:
    before = set(children())
    world = loaded(python_beside, kind="turns")
    for index in range(3):
        begin(world, world.task("train", index))
        say(world, "-1")
    assert begin(world, world.task("train", 0)) == begin(world, world.task("train", 0))
    world.close()
    assert set(children()) <= before


@real
def test_what_cannot_be_loaded_is_named(python_beside: str) -> None:
    with pytest.raises(WorkerFault, match="no kind odd"):
        loaded(python_beside, kind="odd")
    with pytest.raises(UsageError, match="compare the episodes of a group"):
        loaded(python_beside, kind="group")
    with pytest.raises(UsageError, match=r"got 'no-such-env', which is not installed .*no_such_env"):
        Worker("verifiers/no-such-env", python=python_beside, start_timeout=100.0)
