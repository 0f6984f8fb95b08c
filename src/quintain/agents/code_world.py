"""An environment whose actions are Python: code calls the tools of the environment inside it.

Where that has no tools, `act(text)` takes an action there. The code runs in the sandbox; its calls are carried out
here, one by one, until the episode ends. Rewards come from these calls alone: code can earn nothing that its calls
could not.

A snapshot holds the code that was run and what its calls were answered: a restored state runs it again before the
next turn, in a new Python, without calling anything. Code that does not do then what it did (it asked the time) is a
fault. Randomness of the module `random` begins with the seed of the task.

With `proposals` an answer that ends the episode in vain is taken back, and told to be wrong, while others are left: the
environment then tells who acts, so agents are compared at equal numbers. It and `turns` are counted down in what is
seen.

Objects of the environment that have changed since the last turn are bound anew before the next, of the same type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, ClassVar, cast

from quintain.agents.functions import Definition
from quintain.agents.library import ActionLibrary
from quintain.environments.baselines import random_action
from quintain.environments.noisy import Fallible
from quintain.environments.protocol import (
    Described,
    Environment,
    GivesObjects,
    Legal,
    Seats,
    SimultaneousSeats,
    Snapshot,
    StateKey,
    TakesObjects,
    advance,
    join_results,
)
from quintain.environments.wrapped import Wrapped
from quintain.errors import DataError, EnvironmentFault, UsageError
from quintain.safety.limits import Limits
from quintain.safety.python import Cell, PythonProcess, ToolResult
from quintain.types import (
    NOTHING,
    Action,
    Observation,
    StepResult,
    Task,
    ToolCall,
    ToolSpec,
    as_text,
    derive_seed,
)

ACT = ToolSpec(
    name="act",
    description="Take an action in the world; returns what comes of it.",
    parameters={"type": "object", "properties": {"action": {"type": "string"}}, "required": ["action"]},
)
LEGAL = ToolSpec(
    name="legal_actions",
    description="Return the actions that are possible now, with commas between them.",
    parameters={"type": "object", "properties": {}},
)
FIND = ToolSpec(
    name="find_functions",
    description="Return functions that were kept and fit what you describe; call them as they are.",
    parameters={"type": "object", "properties": {"wanted": {"type": "string"}}, "required": ["wanted"]},
)
WRONG = "This is not the answer."
"""What is told of an answer that is taken back."""
MAX_FOUND = 10
"""Functions that are found at once."""
KILLED = {
    "time": "it took too long",
    "memory": "it used too much memory",
    "files": "it wrote too many files",
    "output": "it printed too much",
    "processes": "it left too many processes behind",
    "exited": "it ended the process",
    "protocol": "it broke the connection",
}


@dataclass(slots=True)
class _Turn:
    """What the calls of one turn came to."""

    results: list[StepResult] = field(default_factory=list[StepResult])
    num_calls: int = 0

    @property
    def is_over(self) -> bool:
        """Whether a call ended the episode."""
        return bool(self.results) and self.results[-1].is_over


@dataclass(frozen=True, slots=True)
class _Ran:
    """A cell that was run: its code, what its calls were answered, and what it wrote."""

    code: str
    answers: tuple[ToolResult, ...]
    output: str
    bound: Mapping[str, Any] = NOTHING
    """objects that were bound anew before it"""


class InCode(Wrapped):
    """`inner` with code as its actions; made by `quintain.agents.code.CodeAct.equip`.

    Experts, and whoever else names actions inside, write code here. Legal actions are read by code, not taken; one
    Python belongs to one seat, and whatever code binds is looked at here.
    """

    lists_functions: bool = True
    """Whether the instructions list the functions."""
    drops: ClassVar[frozenset[type]] = frozenset(
        {Described, GivesObjects, Legal, Seats, SimultaneousSeats, TakesObjects}
    )
    adds: ClassVar[frozenset[type]] = frozenset({Fallible})
    own: ClassVar[tuple[str, ...]] = (
        "_num_turns",
        "_answers_left",
        "_ran",
        "_setup",
        "_given",
        "_known",
        "_shelf",
        "_state",
    )

    def __init__(
        self,
        inner: Environment,
        *,
        limits: Limits | None = None,
        max_calls: int = 64,
        max_output: int = 2_000,
        withhold: bool = False,
        shows_state: bool = False,
        turns: int = 0,
        proposals: int = 1,
        library: ActionLibrary | None = None,
        shown: int = 5,
    ) -> None:
        self._turns, self._proposals = turns, proposals
        self._num_turns, self._answers_left = 0, proposals
        super().__init__(inner)
        if proposals > 1 and not isinstance(inner, Snapshot):
            raise UsageError(
                f"code: got proposals={proposals} in {self.name}, which cannot be brought back; leave it at 1"
            )
        self._limits = limits or Limits()
        self._max_calls, self._max_output, self._shows_state = max_calls, max_output, shows_state
        self._withhold = withhold
        self._library, self._shown = library or ActionLibrary(), shown
        self._python: PythonProcess | None = None
        self._ran: list[_Ran] = []
        """cells to which the variables that there are owe something"""
        self._missing: list[_Ran] = []
        """those of them that a new Python is yet to run"""
        self._setup = ""
        self._given: Mapping[str, Any] = NOTHING
        """objects that every new Python begins with"""
        self._known: Mapping[str, Any] = NOTHING
        """objects as they were bound last"""
        self._state: Mapping[str, str] = NOTHING
        self._taken = ""

    def reset(self, task: Task) -> Observation:
        """Begin the episode inside, in a Python of its own."""
        self.close_python()
        first = self.begin_inner(task)
        self._num_turns, self._answers_left = 0, self._proposals
        self._ran, self._missing, self._state = [], [], NOTHING
        shelf = self._shelve(f"{task.prompt} {as_text(first)}")
        self._setup = f"__import__('random').seed({task.seed})\n{shelf}"
        self._given = self._known = self._objects()
        self._open_python()
        return first

    def step(self, action: Action) -> StepResult:
        """Run the code of `action`; calls of tools are carried out as they are."""
        self._num_turns += 1
        if action.error is not None:
            return StepResult(observation=self._count_down(f"Error: {action.error}"), is_valid=False)
        code = code_of(action) if action.tool_calls else action.text
        turn, answers, python = _Turn(), list[ToolResult](), self._find_python()
        bound = self._bind(python)

        def serve(name: str, arguments: Mapping[str, Any]) -> ToolResult:
            answers.append(self._serve(turn, name, arguments))
            return answers[-1]

        cell = python.run(code, serve)
        if cell.reason or cell.was_cut:
            self._ran, self._known = [], self._given  # the variables are gone
        else:
            self._ran.append(_Ran(code, tuple(answers), cell.output, bound))
        if not turn.is_over and not cell.reason:
            self._hand_over(turn, cell)
        if turn.is_over:
            self.close_python()
        return self._result(turn, join_results(turn.results), cell)

    def close(self) -> None:
        """End the Python and the environment."""
        self.close_python()
        self.inner.close()

    def close_python(self) -> None:
        """End the Python."""
        if self._python is not None:
            self._python.close()
        self._python = None

    def restore(self, state: tuple[Any, Mapping[str, Any]]) -> None:
        """Continue from a snapshot, in a Python of its own."""
        self.close_python()
        super().restore(state)
        self._open_python()
        self._missing = list(self._ran)

    def state_key(self) -> str:
        """Return the state of the environment, and of the code that made the variables."""
        ran = derive_seed("code", *(cell.code for cell in self._ran))
        return f"{cast(StateKey, self.inner).state_key()} {ran}"

    def write_action(self, action: Action) -> Action:
        """Return `action` as code."""
        return Action(text=code_of(action, has_tools=bool(self.inner.tools())))

    def mistaken_action(self, rng: Random) -> Action:
        """Return a mistake as code: a typical one, or else a random action."""
        inner = self.inner
        found = inner.mistaken_action(rng) if isinstance(inner, Fallible) else random_action(inner, rng)
        return self.write_action(found)

    def instructions(self) -> str:
        """Return the instructions of the environment, and the functions that code can call, unless others list them."""
        lines = (
            ("", "Functions:", *map(describe_tool, self.tools()), *self._shelf)
            if self.lists_functions
            else ()
        )
        told = (self.inner.instructions(), *lines)
        most = [f"{self._turns} turns"] * bool(self._turns) + [f"{self._proposals} answers"] * (
            self._proposals > 1
        )
        return "\n".join((*told, *([f"At most {' and '.join(most)}."] if most else []))).strip()

    def count_turns(self) -> int:
        """Return the turns of an episode: those of the environment, or fewer."""
        return min(self._turns or self.inner.max_turns, self.inner.max_turns)

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the functions that code can call: the tools, or else `act`; and what finds kept ones, if there are."""
        given = code_tools(self.inner)
        has_kept = len(self._library.bank) > 0 and FIND.name not in {tool.name for tool in given}
        return (*given, FIND) if has_kept else given

    def retrieve(self, name: str) -> Any:
        """Return the object that variable `name` of the code is bound to.

        Raises:
            DataError: there is none, or it has no JSON form.
        """
        if self._python is None:
            raise DataError(f"variable {name} of the code: got no episode; begin one")
        return self._find_python().get(name)

    _shelf: tuple[str, ...] = ()

    def _open_python(self) -> None:
        """Have a Python as every episode begins with."""
        self._python = PythonProcess(self._limits, tools=self.tools(), objects=self._given, setup=self._setup)

    def _find_python(self) -> PythonProcess:
        """Return the Python of the episode, in which all was run that is missing since a state was restored."""
        assert self._python is not None, "an episode begins with reset"
        while self._missing:
            self._repeat(self._python, self._missing.pop(0))
        return self._python

    def _repeat(self, python: PythonProcess, ran: _Ran) -> None:
        """Run in `python` what was run before; its calls are answered as they were.

        Raises:
            EnvironmentFault: it did not do what it had done.
        """
        answers: list[ToolResult] = []

        def serve(_name: str, _arguments: Mapping[str, Any]) -> ToolResult:
            known = ran.answers[len(answers) : len(answers) + 1]
            answers.append(known[0] if known else ToolResult(text="not called before", is_error=True))
            return answers[-1]

        python.put(**ran.bound)
        cell = python.run(ran.code, serve)
        if cell.reason or (tuple(answers), cell.output) != (ran.answers, ran.output):
            raise EnvironmentFault(
                f"{self.name} in code: got a restored state in which {ran.code[:60]!r} did not do what it had done; "
                "let code depend on its variables and calls alone, or go on without snapshots"
            )

    def _objects(self) -> Mapping[str, Any]:
        """Return a copy of the objects that the environment gives now."""
        return deepcopy({**self.inner.objects()}) if isinstance(self.inner, GivesObjects) else NOTHING

    def _bind(self, python: PythonProcess) -> Mapping[str, Any]:
        """Bind in `python` the objects that have changed, and return them.

        Raises:
            EnvironmentFault: one has another type than before.
        """
        now = self._objects()
        known = {
            name: repr(value) for name, value in self._known.items()
        }  # tells 0.0 from -0.0, and 1 from True
        changed = {name: value for name, value in now.items() if known.get(name) != repr(value)}
        for name, value in changed.items():
            before = self._known.get(name, value)
            if type(value) is not type(before):
                raise EnvironmentFault(
                    f"{self.name} in code: got {name} as {type(value).__name__}, which was {type(before).__name__}; "
                    "let an object keep its type"
                )
        if changed:
            python.put(**changed)
        self._known = now
        return changed

    def _shelve(self, query: str) -> str:
        """Choose the functions that an episode is told; return the code that defines all that it can call."""
        given = {tool.name for tool in self.tools()}
        self._shelf = describe_functions(self._library.relevant(query, self._shown, given))
        return self._library.code(found.name for found in self._library.usable(given))

    def _serve(self, turn: _Turn, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Carry out a call of the code."""
        if name == LEGAL.name and not self.inner.tools() and isinstance(self.inner, Legal):
            return ToolResult(text=", ".join(self.inner.legal_actions()))
        if name == FIND.name and len(self._library.bank):
            given = {tool.name for tool in self.tools()}
            found = self._library.relevant(str(arguments.get("wanted", "")), MAX_FOUND, given)
            return ToolResult(text="\n".join(describe_functions(found)) or "none fits")
        turn.num_calls += 1
        if turn.num_calls > self._max_calls:
            return ToolResult(
                text=f"more than {self._max_calls} calls in one turn; go on in the next", is_error=True
            )
        if self.inner.tools():
            action = Action(tool_calls=(ToolCall(name=name, arguments=arguments),))
        else:
            action = Action(text=str(arguments.get("action", "")))
        result = self._propose(lambda: advance(self.inner, action))
        turn.results.append(result)
        is_refused = not result.is_valid and bool(self.inner.tools())
        return ToolResult(
            text=as_text(result.observation).removeprefix("Error: " if is_refused else ""),
            is_error=is_refused,
            is_over=turn.is_over,
        )

    def _hand_over(self, turn: _Turn, cell: Cell) -> None:
        """Give the environment the variables that it looks at."""
        if not isinstance(self.inner, TakesObjects):
            return
        objects: dict[str, Any] = {}
        for name in self.inner.wanted():
            if name in cell.state:
                try:
                    objects[name] = self.retrieve(name)
                except DataError:
                    continue  # no plain data: nothing that could be handed over
        if objects:
            inner = self.inner
            result = self._propose(lambda: inner.take(objects))
            turn.results.append(result)
            self._taken = as_text(result.observation)

    def _propose(self, act: Callable[[], StepResult]) -> StepResult:
        """Return what `act` leads to; an answer that ends the episode in vain is taken back while others are left."""
        if self._answers_left < 2:
            return act()
        saved = cast(Snapshot, self.inner).snapshot()
        result = act()
        if not result.is_terminated or (
            result.reward > 0 if result.is_success is None else result.is_success
        ):
            return result
        cast(Snapshot, self.inner).restore(saved)
        self._answers_left -= 1
        return StepResult(observation=WRONG)

    def _count_down(self, text: str) -> str:
        """Return `text`, and what is left of turns and answers."""
        left = self.max_turns - self._num_turns
        told = [f"turns left: {left}"] * bool(self._turns)
        told += [f"answers left: {self._answers_left}"] * (self._proposals > 1)
        return f"{text}\n({', '.join(told)})" if told else text

    def _result(self, turn: _Turn, total: StepResult, cell: Cell) -> StepResult:
        """Return what the agent is told of its turn, and what it is worth."""
        taken, self._taken = self._taken, ""
        parts = [
            shorten(cell.output.rstrip("\n"), self._max_output, withhold=self._withhold),
            shorten(cell.error, self._max_output),
        ]
        if cell.reason:
            parts.append(f"The code was stopped: {KILLED[cell.reason]}. Its variables are lost.")
        if turn.is_over and as_text(total.observation) != taken:
            parts.append(as_text(total.observation))
        parts.append(taken)
        new = {name: kind for name, kind in cell.state.items() if self._state.get(name) != kind}
        self._state = cell.state
        if self._shows_state and new:
            parts.append(f"Variables: {', '.join(f'{name}: {kind}' for name, kind in new.items())}")
        told = "\n".join(filter(None, parts)) or "(no output)"
        has_failed = bool(cell.error or cell.reason)
        return replace(
            total,
            observation=told if turn.is_over else self._count_down(told),
            is_valid=any(result.is_valid for result in turn.results) or not (has_failed or turn.num_calls),
        )


def code_tools(environment: Environment) -> tuple[ToolSpec, ...]:
    """Return what code can call in `environment`: its tools, or else `act`, and what lists its legal actions."""
    if environment.tools():
        return environment.tools()
    return (ACT, LEGAL) if isinstance(environment, Legal) else (ACT,)


def code_of(action: Action, *, has_tools: bool = True) -> str:
    """Return Python that takes `action`: a line per call, of `act` where there are no tools.

    Example: ``print(guess(number=16))``.
    """
    if not has_tools:
        return f"print(act({action.text!r}))"
    return "\n".join(
        f"print({call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())}))"
        for call in action.tool_calls
    )


def describe_functions(found: Iterable[Definition]) -> tuple[str, ...]:
    """Return each function of `found` as an agent is told of it: ``area(r): Return the area of a circle.``"""
    return tuple(f"{each.signature}: {each.description}" for each in found)


def describe_tool(tool: ToolSpec) -> str:
    """Return `tool` as a function that an agent is told of: ``guess(number: integer): Name a number.``"""
    properties = cast("Mapping[str, Mapping[str, Any]]", tool.parameters.get("properties", NOTHING))
    required = tool.parameters.get("required", ())
    parts = [
        f"{name}: {schema.get('type', 'any')}" + ("" if name in required else " = ...")
        for name, schema in properties.items()
    ]
    return f"{tool.name}({', '.join(parts)}): {tool.description}"


def shorten(text: str, max_length: int, *, withhold: bool = False) -> str:
    """Return `text` cut to `max_length` characters, or nothing of it with `withhold`; what is left out is told."""
    num_over = len(text) - max_length
    if num_over <= 0:
        return text
    if withhold:
        return f"({len(text)} characters, more than {max_length}, were withheld; print less)"
    return f"{text[:max_length]}\n... ({num_over} more characters; print less)"
