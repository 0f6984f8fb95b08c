"""An environment in a worker is the environment: what it is, says, asks and breaks comes through."""

import gc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from quintain.environments import worker
from quintain.environments.baselines import expert, play, random_policy
from quintain.environments.catalog import find
from quintain.environments.probes import PROBES, NotApplicableError, Subject
from quintain.environments.protocol import (
    Expert,
    Killable,
    Legal,
    Snapshot,
    StateKey,
    advance,
    begin,
    tool_action,
)
from quintain.environments.worker import Worker, WorkerFault
from quintain.errors import EnvironmentFault, MissingExtra, SandboxError, UsageError
from quintain.processes import frames
from quintain.processes.frames import read_into
from quintain.processes.usage import children
from quintain.types import Action, Failure, Image, Text
from quintain.worlds.guess.game import Guess
from quintain.worlds.keydoor.game import KeyDoor

ODD_WORLD = '''
import os, sys
import quintain
from quintain.environments.tools import OwnedFault
from quintain.errors import EnvironmentFault, SandboxError

print("built")
assert sys.stdin.read() == ""


class JudgeFault(OwnedFault):
    owner = "judge"
    kind = "grader"


class Odd(quintain.Environment):
    """Be odd."""

    evaluation_only = True
    parallel = 0
    return_range = (float("-inf"), 2.0)

    def __init__(self, *, sick: str = ""):
        self.sick = sick
        if sick == "build":
            raise ValueError("no luck")
        if sick == "exit":
            sys.exit("gone")
        if sick == "die":
            print("last words", file=sys.stderr)
            os._exit(4)

    def instructions(self):
        return f"Task {getattr(self, 'number', 0)}."

    def reset(self, task):
        self.number = task.data.get("number", 0)
        return (quintain.Text(text="a"), quintain.Image(data=b"\\x00\\xff", media_type="image/png"))

    def step(self, action):
        if action.text == "judge":
            raise JudgeFault("the judge sleeps")
        if action.text == "sandbox":
            raise SandboxError("no box")
        if action.text == "break":
            raise RuntimeError("boo")
        if action.text == "nan":
            return quintain.StepResult(observation="x", reward=float("nan"))
        return super().step(action)

    def tools(self):
        return super().tools()[:1 + self.number] if hasattr(self, "number") else super().tools()

    def task(self, split, index):
        seed = 2 * index + (split == "eval")
        return quintain.Task(id=f"odd/{split}/{index}", environment="odd", seed=seed, data={"number": index})

    @quintain.tool
    def one(self, n: int) -> str:
        """One."""
        return str(n)

    @quintain.tool
    def two(self) -> object:
        """Two."""
        raise KeyError("ouch")

    def legal_actions(self):
        return ("judge", {1}) if self.sick == "legal" else ("judge", "break")

    def close(self):
        if self.sick == "close":
            raise RuntimeError("cannot be closed")
'''

LOUD_WORLD = """
import os
import quintain


class Loud(quintain.Environment):
    '''Be loud.'''

    def __init__(self, *, where: str):
        self.where = where

    def reset(self, task):
        return "go"

    def step(self, action):
        self.say("before")
        result = super().step(action)
        self.say("after")
        return result

    def say(self, where):
        if where == self.where:
            os.write(2, b"x" * 3000)

    @quintain.tool
    def push(self) -> str:
        '''Push.'''
        self.say("tool")
        return "pushed"
"""


@pytest.fixture
def odd(tmp_path: Path) -> str:
    path = tmp_path / "odd.py"
    path.write_text(ODD_WORLD)
    return f"{path}:Odd"


@pytest.fixture
def world(odd: str) -> Iterator[Worker]:
    with closing(Worker(odd)) as built:
        yield built


def test_episodes_are_those_of_the_environment_itself() -> None:
    with closing(find("worker/keydoor?rooms=2")()) as there:
        assert isinstance(there, Expert) and isinstance(there, Legal) and isinstance(there, StateKey)
        here = KeyDoor(rooms=2)
        for index in range(2):
            task = here.task("train", index)
            assert there.task("train", index) == task
            for policy_of in (lambda: expert, lambda: random_policy(7)):
                one, other = play(here, task, policy_of(), 6), play(there, task, policy_of(), 6)
                assert (one.observations, one.rewards, one.ends) == (
                    other.observations,
                    other.rewards,
                    other.ends,
                )
            assert there.state_key() == here.state_key() and there.legal_actions() == here.legal_actions()
        assert (there.name, there.max_turns, there.tools()) == (here.name, here.max_turns, here.tools())
        assert there.instructions() == here.instructions()


@pytest.mark.parametrize(
    "probe", ["builds", "tools", "nonsense", "determinism", "no leak", "state keys", "closing"]
)
@pytest.mark.slow
def test_keeps_the_contract(probe: str) -> None:
    with closing(Subject(make=find("worker/guess"), num_episodes=2)) as subject:
        assert PROBES[probe](subject)


def test_what_it_can_do_is_what_the_environment_can(world: Worker) -> None:
    assert isinstance(world, Legal) and isinstance(world, Killable)
    assert (
        not isinstance(world, Expert) and not isinstance(world, StateKey) and not isinstance(world, Snapshot)
    )
    with (
        closing(Subject(make=find("worker/guess"), num_episodes=2)) as subject,
        pytest.raises(NotApplicableError),
    ):
        PROBES["snapshot"](subject)


def test_what_is_told_is_that_of_the_task(world: Worker) -> None:
    assert world.evaluation_only and world.parallel == 8 and world.return_range == (float("-inf"), 2.0)
    assert [spec.name for spec in world.tools()] == ["one", "two"]
    first = begin(world, world.task("train", 0))
    assert first == (Text(text="a"), Image(data=b"\0\xff", media_type="image/png"))
    assert world.instructions() == "Task 0." and [spec.name for spec in world.tools()] == ["one"]
    begin(world, world.task("eval", 1))
    assert world.instructions() == "Task 1." and [spec.name for spec in world.tools()] == ["one", "two"]
    assert advance(world, tool_action("one", n=3)).observation == "3"
    assert not advance(world, tool_action("one", n="3")).is_valid


@pytest.mark.parametrize(
    ("action", "owner", "kind", "message"),
    [
        (Action(text="judge"), "judge", "grader", "the judge sleeps"),
        (Action(text="break"), "environment", "RuntimeError", "boo"),
        (
            Action(text="nan"),
            "environment",
            "contract",
            "odd: reward must be a finite number: got nan; return a float",
        ),
        (
            tool_action("two"),
            "tool",
            "contract",
            "tool two raised KeyError: 'ouch'; mend the tool, or return an error text",
        ),
    ],
)
def test_what_it_raises_is_told_as_if_it_were_here(
    world: Worker, action: Action, owner: str, kind: str, message: str
) -> None:
    begin(world, world.task("train", 1))
    with pytest.raises(WorkerFault) as raised:
        advance(world, action)
    assert (raised.value.owner, raised.value.kind, str(raised.value)) == (owner, kind, message)
    assert advance(world, tool_action("one", n=3)).observation == "3", "it goes on"


@pytest.mark.parametrize(
    ("where", "late"),
    [
        ("tool", "replies"),
        ("after", "output"),
        pytest.param("before", "replies", marks=pytest.mark.slow),
        pytest.param("after", "replies", marks=pytest.mark.slow),
        pytest.param("before", "output", marks=pytest.mark.slow),
        pytest.param("tool", "output", marks=pytest.mark.slow),
    ],
)
def test_who_prints_too_much_is_known_however_late_we_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, late: str
) -> None:
    """What was said is in two pipes, and all of it may have come before either is looked at."""
    path = tmp_path / "loud.py"
    path.write_text(LOUD_WORLD)
    monkeypatch.setattr(worker, "MAX_OUTPUT", 2000)
    with closing(Worker(f"{path}:Loud", where=where)) as world:
        begin(world, world.task("train", 0))

        def looked(content: bytearray, stream: int, most: int) -> bool:
            if (most == 2000) == (late == "output"):
                time.sleep(0.1)
            return read_into(content, stream, most)

        monkeypatch.setattr(frames, "read_into", looked)
        with pytest.raises(WorkerFault, match="printed more than") as raised:
            advance(world, tool_action("push"))
    assert (raised.value.owner, raised.value.kind) == ("tool" if where == "tool" else "environment", "output")


def test_errors_of_ours_keep_their_class(world: Worker, odd: str) -> None:
    begin(world, world.task("train", 1))
    with pytest.raises(SandboxError, match="no box"):
        advance(world, Action(text="sandbox"))
    with pytest.raises(UsageError, match="did you mean 'guess'"):
        Worker("gues")
    with pytest.raises(UsageError, match="got 'colour'"):
        Worker("guess", colour="red")


@pytest.mark.parametrize(
    ("sick", "message"),
    [
        ("build", "no luck"),
        ("exit", r"called sys.exit\('gone'\)"),
        ("die", r"open ended its process \(exit status 4\); it said last: built last words"),
    ],
)
def test_what_cannot_be_built_is_told_and_ended(odd: str, sick: str, message: str) -> None:
    before = set(children())
    with pytest.raises(WorkerFault, match=message):
        Worker(odd, sick=sick)
    assert set(children()) <= before


def test_a_missing_package_names_the_interpreter(tmp_path: Path) -> None:
    path = tmp_path / "needy.py"
    path.write_text(
        "import quintain\nfrom quintain.environments.extras import extra_module\n"
        'class Needy(quintain.Environment):\n    """N."""\n    def __init__(self):\n'
        '        extra_module("no_such", package="no-such", extra="x", feature="needy")\n'
    )
    with pytest.raises(
        MissingExtra, match=rf"no-such: it is not installed.* \(in the worker, by {sys.executable} -m pip\)"
    ):
        Worker(f"{path}:Needy")


def test_an_interpreter_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="got 'no-such-python', which is no program"):
        Worker("guess", python="no-such-python")
    with pytest.raises(WorkerFault, match=r"open .*(exit status|connection)"):
        Worker("guess", python="false")
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UsageError, match="it needs Linux"):
        Worker("guess")


def test_values_without_a_json_form_are_the_environments_fault(odd: str) -> None:
    with closing(Worker(odd, sick="legal")) as world:
        begin(world, world.task("train", 0))
        assert isinstance(world, Legal)
        with pytest.raises(EnvironmentFault, match="no JSON form"):
            world.legal_actions()


@pytest.mark.slow
def test_it_begins_anew_after_it_was_killed_and_ends_when_it_is_closed_or_forgotten(odd: str) -> None:
    gc.collect()
    before, handles = set(children()), len(os.listdir("/proc/self/fd"))
    world = Worker("guess")
    begin(world, world.task("train", 0))
    world.kill()
    with pytest.raises(WorkerFault, match="environment guess: step ended its process") as raised:
        advance(world, tool_action("guess", number=3))
    assert raised.value.kind == "crash"
    assert begin(world, world.task("train", 0)) == begin(Guess(), Guess().task("train", 0))
    world.close()
    world.close()
    assert set(children()) <= before
    sick = Worker(odd, sick="close")
    with pytest.raises(WorkerFault, match="cannot be closed"):
        sick.close()
    forgotten: Any = Worker("guess")
    forgotten.task("train", 0)
    del forgotten
    gc.collect()
    # Fewer may be open: what earlier tests gave up is closed when the collector comes.
    assert set(children()) <= before and len(os.listdir("/proc/self/fd")) <= handles


def test_a_failure_is_what_the_rollout_makes_of_it(world: Worker) -> None:
    from quintain.rollout.stepper import guard_call

    begin(world, world.task("train", 1))
    assert guard_call(lambda: advance(world, Action(text="judge"))) == Failure(
        owner="judge", kind="grader", message="the judge sleeps"
    )
