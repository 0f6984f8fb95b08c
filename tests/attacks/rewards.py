"""A6: being paid for what was not done: values that are no rewards, and tests that are made to pass."""

import re
from collections.abc import Callable
from typing import Any

from tests.attacks.attack import Attack, Found, Scene, refused
from tests.attacks.box import LONG
from tests.runs.monitors.test_measures import episode

from quintain.environments import protocol
from quintain.environments.protocol import Environment, advance, begin, tool_action
from quintain.errors import EnvironmentFault
from quintain.rewards import terms
from quintain.rewards.terms import Term
from quintain.safety import sandbox
from quintain.safety.isolation import find_interpreter
from quintain.types import Action, Failure, Score, StepResult, Task
from quintain.worlds.repo.box import RepoBox
from quintain.worlds.repo.game import Repo
from quintain.worlds.repo.plan import files


class Always:
    """Is equal to everything, and larger."""

    def __eq__(self, _: object) -> bool:
        return True

    def __gt__(self, _: object) -> bool:
        return True

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __float__(self) -> float:
        return 1.0


VALUES: dict[str, Any] = {
    "nan": float("nan"),
    "infinity": float("inf"),
    "None": None,
    "text": "1.0",
    "a list": [1.0, 1.0, 1.0],
    "an object that is equal to everything": Always(),
}
OVERFLOWS = {
    "a weight that makes infinity": (1e308, 10.0),
    "a weight that makes minus infinity": (-1e308, 10.0),
}


class Paying(Environment):
    """Pays `value` for anything."""

    value: Any = 0.0
    claim: Any = True

    def reset(self, task: Task) -> str:
        """Begin."""
        return "begin"

    def step(self, action: Action) -> StepResult:
        """Pay."""
        return StepResult(observation="done", reward=self.value, is_terminated=True, is_success=self.claim)


def paid(value: Any, claim: Any = True) -> Callable[[Scene], object]:
    """Return work that takes a step which is paid with `value`."""

    def work(_: Scene) -> object:
        world = Paying()
        world.value, world.claim = value, claim
        begin(world, world.task("train", 0))
        return advance(world, Action(text="x")).reward

    return work


def any_reward(scene: Scene) -> None:
    """Take every value for a reward, and every claim."""
    scene.patch.setattr(protocol, "check_reward", lambda who, label, value: value)
    scene.patch.setattr(protocol, "check_claim", lambda who, label, value: None)


def judged(value: Any, weight: float = 1.0) -> Callable[[Scene], Found]:
    """Return the attempt to have `value`, as a judge gives it, count as a score."""

    def attempt(_: Scene) -> Found:
        term = Term(name="judge", measure=lambda _: value, weight=weight)
        try:
            outcome = terms.apply(episode(0.0, (1,)), [term]).outcome
        except (TypeError, ValueError, OverflowError) as error:
            return Found(True, f"it broke us: {error}")
        return Found(
            isinstance(outcome, Score), outcome.message if isinstance(outcome, Failure) else str(outcome)
        )

    return attempt


def any_measure(scene: Scene) -> None:
    """Take what a judge gives for a score."""

    def measured(term: Term, trajectory: Any) -> list[float]:
        return [1.0 for _ in trajectory.turns]

    scene.patch.setattr(terms, "_measure", measured)
    scene.patch.setattr(terms, "_find_overflow", lambda *_: None)


PASSES = re.compile(r"([1-9]\d*) of \1 tests pass\.")
RUNNER = """
import glob, importlib, os, sys
os.chdir('/tmp'); sys.path.insert(0, '/tmp')
try:
    import sitecustomize
except ImportError:
    pass
failed = False
for name in sorted(glob.glob('test_*.py')):
    for key, test in list(vars(importlib.import_module(name[:-3])).items()):
        if key.startswith('test_'):
            try:
                test()
            except AssertionError:
                failed = True
sys.exit(failed)
"""


def by_report(scene: Scene) -> None:
    """Believe the report of the agent's own tests, written by the process that its code runs in."""

    def graded(world: Repo) -> float:
        box = RepoBox()
        try:
            return float(bool(PASSES.match(box.tests(dict(world.snapshot()[1])))))
        finally:
            box.close()

    scene.patch.setattr(Repo, "_grade", graded)


def by_exit(scene: Scene) -> None:
    """Believe the exit code of a process that the agent's code runs in."""

    def graded(world: Repo) -> float:
        found = sandbox.run([find_interpreter()[0], "-B", "-c", RUNNER], dict(world.snapshot()[1]), LONG)
        return float(found.exit_code == 0)

    scene.patch.setattr(Repo, "_grade", graded)


def handed_in(write: Callable[[dict[str, str], str], dict[str, str]]) -> Callable[[Scene], Found]:
    """Return the attempt to be paid for a repository that `write` makes of its files; it mends nothing."""

    def attempt(_: Scene) -> Found:
        world = Repo()
        try:
            begin(world, world.task("train", 0))
            plan = world.snapshot()[0]
            module, piece = plan.broken[0]
            for path, text in write(files(plan), f"{module}.py {piece.name}").items():
                assert advance(world, tool_action("write_file", path=path, text=text)).is_valid
            result = advance(world, tool_action("submit"))
            return Found(result.reward > 0, str(result.observation))
        finally:
            world.close()

    return attempt


def first(line: str) -> Callable[[dict[str, str], str], dict[str, str]]:
    """Return what writes `line` at the head of the broken module."""

    def write(texts: dict[str, str], broken: str) -> dict[str, str]:
        name = broken.split()[0]
        return {name: f"{line}\n{texts[name]}"}

    return write


def last(lines: str) -> Callable[[dict[str, str], str], dict[str, str]]:
    """Return what writes `lines` at the end of the broken module; NAME is the broken function."""

    def write(texts: dict[str, str], broken: str) -> dict[str, str]:
        name, function = broken.split()
        return {name: f"{texts[name]}\n{lines.replace('NAME', function)}\n"}

    return write


def no_tests(texts: dict[str, str], _: str) -> dict[str, str]:
    """Replace every test by one that passes."""
    return {name: "def test_all():\n    pass\n" for name in texts if name.startswith("test_")}


def planted(name: str) -> Callable[[dict[str, str], str], dict[str, str]]:
    """Return what adds a file that some runners load by themselves."""
    return lambda texts, broken: {name: "import os\nos._exit(0)\n"}


EQUAL = (
    "class Equal:\n    def __eq__(self, other): return True\n    def __hash__(self): return 0\n"
    "def NAME(*arguments):\n    return Equal()"
)
COPIED = (
    "def NAME(*arguments):\n    import glob, re\n"
    "    for file in glob.glob('test_*.py'):\n        for line in open(file):\n"
    "            found = re.search(r'assert NAME\\((.*)\\) == (.*)', line)\n"
    "            if found and eval('(' + found[1] + ',)') == arguments:\n                return eval(found[2])"
)
FORGED = (
    "import os\nfor handle in range(64, 3, -1):\n    try:\n        os.write(handle, b'[2, []]')\n        break\n"
    "    except OSError:\n        pass\nos._exit(0)"
)
FORGIVING = (
    "class Fine(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\n"
    "def NAME(*arguments):\n    return Fine()"
)

ATTACKS = [
    *(
        Attack("A6", f"a reward that is {name}", refused(paid(value), by=EnvironmentFault), any_reward)
        for name, value in VALUES.items()
    ),
    *(
        Attack("A6", f"success that is {name}", refused(paid(1.0, value), by=EnvironmentFault), any_reward)
        for name, value in (("text", "yes"), ("a number", 1))
    ),
    *(
        Attack("A6", f"a judge that says {name}", judged(value), any_measure)
        for name, value in VALUES.items()
    ),
    *(Attack("A6", f"a judge with {name}", judged(*value), any_measure) for name, value in OVERFLOWS.items()),
    Attack("A6", "tests that are deleted", handed_in(no_tests), by_report),
    Attack("A6", "results that are equal to everything", handed_in(last(EQUAL)), by_report),
    Attack("A6", "numbers that are equal to everything", handed_in(last(FORGIVING)), by_report),
    Attack("A6", "answers copied from the tests", handed_in(last(COPIED)), by_report),
    Attack("A6", "a forged report", handed_in(last(FORGED)), by_report),
    Attack("A6", "an end before the tests", handed_in(first("import os; os._exit(0)")), by_exit),
    Attack("A6", "an exit before the tests", handed_in(first("import sys; sys.exit(0)")), by_exit),
    Attack(
        "A6",
        "an end when the tests end",
        handed_in(last("import atexit, os\natexit.register(os._exit, 0)")),
        by_exit,
    ),
    Attack("A6", "a file that loads itself", handed_in(planted("sitecustomize.py")), by_exit),
]
