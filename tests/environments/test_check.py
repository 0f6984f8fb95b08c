import contextlib
import io
import json
import random
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import Any, cast

import pytest

import quintain
from quintain.environments.check import CheckReport, check
from quintain.environments.protocol import Environment
from quintain.errors import EnvironmentFault, UsageError
from quintain.types import Action, StepResult, Task, ToolSpec


class Coin(Environment):
    """Say heads or tails; the first line tells which."""

    max_turns = 3

    def reset(self, task: Task) -> str:
        self.side = task.rng.choice(["heads", "tails"])
        return f"say {self.side}"

    def step(self, action: Action) -> StepResult:
        is_right = action.text == self.side
        return StepResult(
            observation="right" if is_right else "wrong", reward=float(is_right), is_terminated=is_right
        )

    def legal_actions(self) -> tuple[str, ...]:
        return ("heads", "tails", "edge")

    def expert_action(self) -> Action:
        return Action(text=self.side)


class Raises(Coin):
    """Raises."""

    def step(self, action: Action) -> StepResult:
        raise KeyError("inventory")


class Hangs(Coin):
    """Hangs."""

    is_over = threading.Event()

    def step(self, action: Action) -> StepResult:
        self.is_over.wait(60)
        return super().step(action)


class HangsInSilence(Coin):
    """Takes standard output for itself, and does not come back."""

    is_over = threading.Event()

    def reset(self, task: Task) -> str:
        with contextlib.redirect_stdout(io.StringIO()):
            self.is_over.wait(60)
        return super().reset(task)


class NotANumber(Coin):
    """Returns NaN."""

    def step(self, action: Action) -> StepResult:
        return StepResult(observation="", reward=float("nan"))


class WrongType(Coin):
    """Returns a tuple."""

    def step(self, action: Action) -> StepResult:
        return cast(StepResult, ("", 0.0, False, False, {}))


class TooMuch(Coin):
    """Pays more than it says."""

    def step(self, action: Action) -> StepResult:
        return StepResult(observation="", reward=2.0, is_terminated=True)


class Unseeded(Coin):
    """Does not use the task's randomness."""

    def reset(self, task: Task) -> str:
        return f"{super().reset(task)} {random.random()}"


class Leaks(Coin):
    """Remembers the episode before."""

    def __init__(self) -> None:
        self.count = 0

    def reset(self, task: Task) -> str:
        self.count += 1
        return f"{super().reset(task)} {self.count > 4}"


class Forgets(Coin):
    """Restores something else."""

    def snapshot(self) -> str:
        return self.side

    def restore(self, state: str) -> None:
        self.side = "tails" if state == "heads" else "heads"


class Refuses(Coin):
    """Refuses what it lists."""

    def step(self, action: Action) -> StepResult:
        result = super().step(action)
        return StepResult(observation="no", is_valid=False) if action.text == "edge" else result


class Clueless(Coin):
    """Has a poor expert."""

    def expert_action(self) -> Action:
        return Action(text="edge")


class Free(Coin):
    """Rewards doing nothing."""

    def step(self, action: Action) -> StepResult:
        return StepResult(observation="", reward=float(action.text == ""), is_terminated=True)


class Spawns(Coin):
    """Leaves a process behind."""

    def __init__(self) -> None:
        self.child = subprocess.Popen(["sleep", "20"])
        CHILDREN.append(self.child)


class Threads(Coin):
    """Leaves a thread behind."""

    def __init__(self) -> None:
        threading.Thread(target=DONE.wait, daemon=True).start()


class Opens(Coin):
    """Leaves a file open."""

    def __init__(self) -> None:
        FILES.append(open(__file__))  # noqa: SIM115


class ClosesOnce(Coin):
    """Cannot be closed twice."""

    def close(self) -> None:
        del self.closed

    closed: int

    def __init__(self) -> None:
        self.closed = 0


class SameSeeds(Coin):
    """Uses the same seeds in both splits."""

    def task(self, split: Any, index: int) -> Task:
        return Task(id=f"coin/{split}/{index}", environment="coin", seed=index, split=split)


class Keys(Coin):
    """Has keys that never repeat."""

    def state_key(self) -> str:
        return str(time.perf_counter_ns())


class NoTool(Environment):
    """Has a tool nobody explained."""

    def reset(self, task: Task) -> str:
        return "go"

    @quintain.tool
    def act(self) -> str:
        return self.finish("done", reward=1.0)


class Breaks(Coin):
    """Breaks on strange actions."""

    def step(self, action: Action) -> StepResult:
        json.loads(action.text) if action.text.startswith("{") else None
        return super().step(action)


class Unbuildable(Coin):
    """Cannot be built."""

    def __init__(self) -> None:
        raise OSError("no display")


class NoTurns(Coin):
    """Has no turns."""

    max_turns = 0


class OwnTasks(Coin):
    """Names other tasks in every instance."""

    def __init__(self) -> None:
        self.salt = random.random()

    def task(self, split: Any, index: int) -> Task:
        return replace(super().task(split, index), data={"salt": self.salt})


class SameIds(Coin):
    """Names all tasks alike."""

    def task(self, split: Any, index: int) -> Task:
        return replace(super().task(split, index), id="coin")


class Unpicklable(Coin):
    """Puts a function into its tasks."""

    def task(self, split: Any, index: int) -> Task:
        return replace(super().task(split, index), data={"judge": SECRET})


class Illegal(Coin):
    """Lists an action twice."""

    def legal_actions(self) -> tuple[str, ...]:
        return ("heads", "heads")


class Drifts(Coin):
    """Has keys that differ between instances."""

    def __init__(self) -> None:
        self.salt = str(random.random())

    def state_key(self) -> str:
        return self.salt


class GivesUp(Coin):
    """Has an expert that gives up on every fourth task or so."""

    def reset(self, task: Task) -> str:
        self.is_hard = (task.seed >> 1) % 4 == 0
        return super().reset(task)

    def expert_action(self) -> Action:
        if self.is_hard:
            raise EnvironmentFault("expert has no action")
        return super().expert_action()


class NeverTries(Coin):
    """Has an expert that always gives up."""

    def expert_action(self) -> Action:
        raise EnvironmentFault("expert has no action")


class Pays(Coin):
    """Pays late."""

    def step(self, action: Action) -> StepResult:
        return replace(super().step(action), reward=random.random())


class Renames(Coin):
    """Has a tool that is called otherwise in every other episode."""

    episodes = 0

    def reset(self, task: Task) -> str:
        type(self).episodes += 1
        return super().reset(task)

    def tools(self) -> tuple[ToolSpec, ...]:
        name = "say" if type(self).episodes % 2 else "tell"
        return (ToolSpec(name=name, description="Say it.", parameters={"type": "object"}),)


SECRET = threading.Lock()
CHILDREN: list["subprocess.Popen[bytes]"] = []
FILES: list[Any] = []
DONE = threading.Event()


def states(report: CheckReport) -> dict[str, str]:
    return {finding.name: finding.state for finding in report.findings}


def detail(report: CheckReport, name: str) -> str:
    [found] = [finding.detail for finding in report.findings if finding.name == name]
    return found


@pytest.mark.parametrize("spec", ["guess", "keydoor", "gymnasium/FrozenLake-v1", "gymnasium/Taxi-v4"])
def test_the_embedded_worlds_pass(spec: str) -> None:
    report = check(spec, episodes=5)
    assert report.has_passed, "\n".join(report.lines())
    assert report.measured["expert/return"] > report.measured["random/return"]


def test_babyai_passes() -> None:
    pytest.importorskip("minigrid")
    report = check("babyai/GoToRedBallNoDists", episodes=5)
    assert report.has_passed, "\n".join(report.lines())
    assert report.measured["expert/success"] == 1.0 and report.measured["noop/success"] == 0.0


def test_a_good_world_by_value() -> None:
    report = check(Coin, episodes=10)
    assert report.has_passed, "\n".join(report.lines())
    assert states(report) | {"tools": "skip", "snapshot": "skip", "state keys": "skip"} == states(report)
    assert report.measured["expert/success"] == 1.0 and report.measured["expert/num_episodes"] == 10
    assert report.measured["noop/return"] == 0.0 and 0 < report.measured["random/success"] < 1
    assert report.measured["distinct_first_observations"] == 2
    assert report.measured["first_observation_overlap"] == 1.0
    assert report.measured["steps_per_second"] > 100


@pytest.mark.parametrize(
    ("world", "probe", "said"),
    [
        (Raises, "random play", "raised KeyError: 'inventory'"),
        (NotANumber, "random play", "reward must be a finite number: got nan"),
        (WrongType, "random play", "must return a StepResult: got tuple"),
        (TooMuch, "random play", "returns from 2 to 2, outside return_range 0 to 1"),
        (
            Unseeded,
            "determinism",
            "under one seed (draw from task.rng, and from nothing else): observation 0",
        ),
        (Renames, "determinism", "and from nothing else): tools are"),
        (Leaks, "no leak", "an episode depends on those before it"),
        (Forgets, "snapshot", "goes on differently"),
        (Refuses, "legal actions", "the legal action 'edge' was refused"),
        (Clueless, "baselines", "the expert is no better than random play"),
        (Free, "baselines", "doing nothing succeeds more often"),
        (Spawns, "closing", "3 processes behind"),
        (Threads, "closing", "3 threads behind"),
        (Opens, "closing", "3 open files behind"),
        (ClosesOnce, "closing", "raised AttributeError: 'ClosesOnce' object"),
        (SameSeeds, "tasks", "500 seeds are in train and in eval"),
        (Keys, "state keys", "the same text twice"),
        (NoTool, "tools", "tool act has no description"),
        (Breaks, "nonsense", "raised JSONDecodeError"),
        (NoTurns, "builds", "max_turns must be a positive integer: got 0"),
        (type("Silent", (Coin,), {}), "builds", "it has no instructions"),
        (OwnTasks, "tasks", "two instances name different tasks"),
        (SameIds, "tasks", "two tasks have the same id"),
        (Unpicklable, "tasks", "cannot pickle"),
        (Illegal, "legal actions", "different texts"),
        (Drifts, "state keys", "different keys in two instances"),
        (NeverTries, "baselines", "expert has no action"),
        (Pays, "determinism", "rewards are"),
        (Unbuildable, "builds", "raised OSError: no display"),
    ],
)
def test_a_broken_world_is_a_named_failure(world: type[Environment], probe: str, said: str) -> None:
    if "processes" in said and sys.platform != "linux":
        pytest.skip("child processes are only counted on Linux")
    report = check(world, episodes=6, deadline=20)
    DONE.set()
    for child in CHILDREN:
        child.kill()
        child.wait()
    for file in FILES:
        file.close()
    FILES.clear()
    CHILDREN.clear()
    DONE.clear()
    assert not report.has_passed and states(report)[probe] == "fail", "\n".join(report.lines())
    assert said in detail(report, probe)


class Unpaid(Coin):
    """Nobody plays it well, and chance earns nothing."""

    expert_action = None  # pyright: ignore[reportAssignmentType]

    def step(self, action: Action) -> StepResult:
        return replace(super().step(action), reward=0.0, is_success=False)


def test_random_play_that_is_never_rewarded_is_noted() -> None:
    report = check(Unpaid)
    (found,) = (finding for finding in report.findings if finding.name == "baselines")
    assert report.has_passed and found.state == "note"
    assert found.detail.startswith("random play was never rewarded") and "random 0% (0)" in found.detail


def test_an_expert_may_give_up_now_and_then() -> None:
    report = check(GivesUp, episodes=12)
    assert states(report)["baselines"] == "pass" and "; the expert gave up " in detail(report, "baselines")
    assert report.measured["expert/success"] == 1.0 and report.measured["expert/num_episodes"] < 12


def test_a_hanging_world_is_told_where_it_hangs_and_the_rest_is_skipped() -> None:
    started = time.monotonic()
    report = check(Hangs, episodes=2, deadline=1.0)
    Hangs.is_over.set()
    assert time.monotonic() - started < 30
    assert states(report)["random play"] == "fail" and states(report)["closing"] == "skip"
    assert "took longer than 1 s, in step at " in detail(report, "random play")
    assert detail(report, "closing") == "not run: the environment hung in random play"


def test_a_world_that_hangs_with_the_output_in_its_hands_does_not_keep_it() -> None:
    before = sys.stdout
    try:
        report = check(HangsInSilence, episodes=2, deadline=0.5)
        assert sys.stdout is before
    finally:
        HangsInSilence.is_over.set()
        sys.stdout = before
    assert "fail" in states(report).values()


def test_the_report_is_told_to_people() -> None:
    report = check(Unbuildable)
    lines = list(report.lines())
    assert lines[0] == "✗ builds         raised OSError: no display"
    assert lines[-1] == "Unbuildable: 1 failed; 15 probes, 14 skipped"


def test_an_unknown_world_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="did you mean 'guess'"):
        check("gues")
