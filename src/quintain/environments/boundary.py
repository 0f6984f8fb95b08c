"""Calls into environment code outside of episodes: building an environment, asking what it is, naming its tasks.

Whatever that code raises becomes an `EnvironmentFault` of one line that names the environment and the place; a call
that does not return in time is given up.
"""

import sysconfig
import threading
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar, cast

from quintain.environments.process import ProcessWatch
from quintain.environments.protocol import CountsTasks, Environment, Expert, Factory, environment_name
from quintain.environments.sizes import check_size
from quintain.errors import EnvironmentFault, QuintainError, UsageError
from quintain.types import Split, Task, ToolSpec
from quintain.types.terminal import write_command

T = TypeVar("T")
DEADLINE = 60.0
"""Seconds that one question to an environment may take."""


def spec_of(make: Callable[..., object]) -> str:
    """Return the name by which a user knows the environment that `make` builds."""
    return str(getattr(make, "spec", None) or getattr(make, "__name__", None) or repr(make))


OURS = Path(__file__).resolve().parents[1]
"""The folder of this package."""
LIBRARIES = frozenset(
    Path(sysconfig.get_paths()[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


@contextmanager
def blame(spec: str) -> Generator[None]:
    """Turn what is raised within into an `EnvironmentFault` that names `spec`; our other errors stay as they are."""
    told = f"environment {spec}: "
    try:
        with ProcessWatch():
            yield
    except EnvironmentFault as fault:
        if str(fault).startswith(told):
            raise
        raise EnvironmentFault(f"{told}got {fault}; {look(spec)}") from fault
    except (QuintainError, KeyboardInterrupt):
        raise
    except BaseException as error:  # what environment code raises may be anything
        is_exit = isinstance(error, SystemExit)
        words = f"{type(error).__name__}: {describe_error(error)}".removesuffix(": ")
        reason = "a call of sys.exit" if is_exit else words
        raise EnvironmentFault(f"{told}got {reason}{place(error)}; {look(spec)}") from error


def describe_error(error: BaseException) -> str:
    """Return what `error` says; nothing where that raises, for what code of others raises need not be text."""
    try:
        return str(error)
    except Exception:
        return ""


def place(error: BaseException) -> str:
    """Return the file and line that `error` was raised at: the last that is of no library, where there is one."""
    if isinstance(error, SyntaxError):
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not is_of_library(frame.filename)]
    frame = (own or frames)[-1]
    return f" ({Path(frame.filename).name}, line {frame.lineno})"


def is_of_library(file: str) -> bool:
    """Whether `file` belongs to Python, to an installed package, or to what plays environments here."""
    if file.startswith("<"):
        return True
    place = Path(file).resolve()
    if place.is_relative_to(OURS):
        return not place.is_relative_to(OURS / "worlds") and not place.is_relative_to(OURS / "adapters")
    return any(place.is_relative_to(folder) for folder in LIBRARIES)


def look(spec: str) -> str:
    """Return how to look closer."""
    return f"repair it, then `{write_command('quintain', 'check', spec)}`"


@dataclass(slots=True)
class _Answer(Generic[T]):
    """What became of a call in another thread."""

    value: T | None = None
    error: QuintainError | None = None
    done: threading.Event = field(default_factory=threading.Event)


def call_within(spec: str, call: Callable[[], T], *, seconds: float | None = None) -> T:
    """Return the result of `call`, which asks the environment `spec` something, within `seconds`.

    Raises:
        EnvironmentFault: it raised, or took longer than `seconds` (`DEADLINE` when None).
    """
    answer = _Answer[T]()
    limit = DEADLINE if seconds is None else seconds

    def work() -> None:
        try:
            with blame(spec):
                answer.value = call()
        except QuintainError as error:
            answer.error = error
        except KeyboardInterrupt:  # its own: signals come to the main thread alone
            answer.error = EnvironmentFault(f"environment {spec}: got KeyboardInterrupt; {look(spec)}")
        finally:
            answer.done.set()

    # A daemon: what hangs cannot be stopped, and must not keep the process alive.
    threading.Thread(target=work, name="quintain-environment", daemon=True).start()
    if not answer.done.wait(limit):
        raise EnvironmentFault(f"environment {spec}: got no answer within {limit:g} s; {look(spec)}")
    if answer.error is not None:
        raise answer.error
    return cast(T, answer.value)


def ask(make: Factory, question: Callable[[Environment], T]) -> T:
    """Return the answer of a new environment to `question`; the environment is closed.

    Raises:
        EnvironmentFault: building, asking or closing raised or hung.
    """

    def call() -> T:
        with closing(make()) as environment:
            return question(environment)

    return call_within(spec_of(make), call)


def check_instructions(environment: Environment) -> str:
    """Return the instructions of `environment`.

    Raises:
        EnvironmentFault: they are not a text.
    """
    found = cast(object, environment.instructions())
    if isinstance(found, str):
        check_size(f"{environment_name(environment)}.instructions", len(found))
        return found
    raise EnvironmentFault(
        f"{environment_name(environment)}.instructions must return a text: got {type(found).__name__}; return a str"
    )


def check_range(environment: Environment) -> tuple[float, float]:
    """Return the smallest and largest total reward that `environment` names.

    Raises:
        EnvironmentFault: they are no two numbers, the smaller one first.
    """
    found = cast(object, environment.return_range)
    pair = cast("Sequence[object]", found) if isinstance(found, (tuple, list)) else ()
    with suppress(OverflowError):  # of an integer that no float holds
        numbers = [float(each) for each in pair if isinstance(each, (int, float))]
        if len(numbers) == len(pair) == 2 and numbers[0] <= numbers[1]:
            return numbers[0], numbers[1]
    raise EnvironmentFault(
        f"{environment_name(environment)}.return_range: got a {type(found).__name__} that is no range; give the "
        "smallest and the largest total reward of an episode, as in (0.0, 1.0)"
    )


def has_expert(make_environment: Factory) -> bool:
    """Return whether an environment made by `make_environment` knows a good next action."""
    return ask(make_environment, lambda environment: isinstance(environment, Expert))


def require_expert(make_environment: Factory, agent: str) -> None:
    """Raise a `UsageError` if the environment, in which `agent` is to act, has no expert."""
    if not has_expert(make_environment):
        raise UsageError(
            f"agent: got {agent!r}, but {spec_of(make_environment)} has no expert_action; take random or a model"
        )


def check_acts(environment: Environment) -> None:
    """Raise where no action does anything: there are no tools, and `step` is nobody's own.

    Raises:
        EnvironmentFault: as said.
    """
    if not environment.tools() and type(environment).step is Environment.step:
        raise EnvironmentFault(
            f"{environment_name(environment)}: got neither tools nor step(), so that nothing can be done in it; mark a "
            "method with @quintain.tool, or write step(self, action) (docs/own-environment.md)"
        )


def check_tools(environment: Environment) -> tuple[ToolSpec, ...]:
    """Return the tools of `environment`.

    Raises:
        EnvironmentFault: they are not a tuple (or list) of `ToolSpec`.
    """
    found = cast(object, environment.tools())
    tools = (
        tuple(each for each in found if isinstance(each, ToolSpec))
        if isinstance(found, (tuple, list))
        else ()
    )
    if isinstance(found, (tuple, list)) and len(tools) == len(found):
        check_size(f"{environment_name(environment)}.tools", sum(len(str(tool)) for tool in tools))
        return tools
    raise EnvironmentFault(
        f"{environment_name(environment)}.tools must return a tuple of ToolSpec: got {found!r:.60}; "
        "mark methods with @quintain.tool instead"
    )


def refuse_training(environment: Environment) -> None:
    """Raise where the tasks of `environment` are there to measure agents only.

    Raises:
        UsageError: they are.
    """
    if environment.evaluation_only:
        name = environment_name(environment)
        raise UsageError(
            f"training on {name}: got an environment for evaluation only, whose scores would mean nothing after "
            f"that; train on another, then: "
            f"{write_command('quintain', 'eval', 'RUN', '--environment', name)}"
        )


def trainable_tools(environment: Environment) -> tuple[ToolSpec, ...]:
    """Return the tools of `environment`, which may be trained on.

    Raises:
        UsageError: it is for evaluation only.
    """
    refuse_training(environment)
    return check_tools(environment)


class GuardedTasks:
    """The tasks of an environment, each named within the deadline."""

    def __init__(self, make: Factory) -> None:
        """Keep one environment for its tasks."""
        self.spec = spec_of(make)
        self.environment = call_within(self.spec, make)

    def num_tasks(self, split: Split) -> int | None:
        """Return how many tasks of `split` there are, where the environment says so with ``num_tasks(split)``."""
        environment = self.environment
        if not isinstance(environment, CountsTasks):
            return None
        return call_within(self.spec, lambda: environment.num_tasks(split))

    def task(self, split: Split, index: int) -> Task:
        """Return task number `index` of `split`.

        Raises:
            EnvironmentFault: the environment raised, hung or gave something else than a task.
        """
        task = cast(object, call_within(self.spec, lambda: self.environment.task(split, index)))
        if not isinstance(task, Task):
            raise EnvironmentFault(
                f"environment {self.spec}: got {type(task).__name__} from task(); return a quintain.Task"
            )
        prompt = cast(object, task.prompt)
        if not isinstance(prompt, str):
            raise EnvironmentFault(
                f"environment {self.spec}: got {type(prompt).__name__} as the prompt of task {index}; give a text"
            )
        check_size(f"environment {self.spec}: the prompt of task {index}", len(prompt))
        return task


def tasks_of(make: Factory) -> Callable[[], GuardedTasks]:
    """Return a function that builds the source of tasks for a curriculum: the tasks of `make`, each with a deadline."""
    return lambda: GuardedTasks(make)
