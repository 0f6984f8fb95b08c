"""Tool calls as ToRL allows them (arXiv 2503.23383): at most C an answer, and of an error its last line alone.

``capped?calls=1+tools``: a call beyond the cap is not carried out and answered by a fixed message; C counts over the
whole episode, however many turns it has. What answers is never counted: a call of the tool `answer`, or code that does
nothing else. With ``results=permuted`` every call is carried out and then answered by what a call of another task's
solution was told, in the same form: a control in which tools cost what they cost and tell nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, cast

from quintain.agents.protocol import Agent, Brief, Session, equip
from quintain.environments.protocol import (
    Environment,
    Expert,
    StateKey,
    advance,
    begin,
    environment_name,
)
from quintain.environments.wrapped import Wrapped
from quintain.errors import UsageError
from quintain.types import (
    ANSWER,
    Action,
    Observation,
    StepResult,
    Task,
    ToolCall,
    as_text,
    derive_seed,
)

NONE_LEFT = "Error: no tool calls are left; give the answer."
"""What a call beyond the cap is told."""
TRACEBACK = "Traceback (most recent call last):"
Results = Literal["told", "permuted"]


@dataclass(frozen=True, slots=True)
class Capped:
    """At most `calls` calls an answer: ``Capped(JsonTools(chat), calls=1)``, in the catalogue ``capped?calls=1``."""

    agent: Agent
    calls: int = 1
    """Calls of an episode that are carried out; 0 for none at all."""
    results: Results = "told"
    """What calls are answered: what they told, or what those of another task told (permuted)."""

    def __post_init__(self) -> None:
        """Check the cap.

        Raises:
            UsageError: it is negative.
        """
        if self.calls < 0:
            raise UsageError(f"calls of capped: got {self.calls}; give 0 or more")

    def open(self, brief: Brief) -> Session:
        """See `Agent.open`."""
        return self.agent.open(brief)

    def equip(self, environment: Environment) -> Environment:
        """Return `environment`, as the harness inside needs it, with a cap on its calls."""
        return CappedCalls(equip(self.agent, environment), calls=self.calls, results=self.results)


class CappedCalls(Wrapped):
    """`inner` with at most `calls` calls an episode: ``CappedCalls(Calc(), calls=1)``. Experts do not know the cap."""

    own: ClassVar[tuple[str, ...]] = ("num_left", "_others", "_num_told")

    def __init__(self, inner: Environment, *, calls: int, results: Results = "told") -> None:
        """Count the calls of `inner`.

        Raises:
            UsageError: results are to be permuted, and `inner` has no expert who could solve another task.
        """
        if results == "permuted" and not isinstance(inner, Expert):
            raise UsageError(
                f"results=permuted: got {environment_name(inner)}, which has no expert to solve another task; "
                "leave it out"
            )
        super().__init__(inner)
        self.num_left, self._calls, self._results = calls, calls, results
        self._others: list[str] = []
        self._num_told = 0

    def reset(self, task: Task) -> Observation:
        """Begin the episode inside with the whole cap."""
        self.num_left, self._num_told = self._calls, 0
        self._others = self._replies_elsewhere(task) if self._results == "permuted" else []
        return self.begin_inner(task)

    def step(self, action: Action) -> StepResult:
        """Carry out the calls of `action` that the cap leaves, and those that answer; others are told `NONE_LEFT`."""
        if action.error is not None or is_answer(action):
            return advance(self.inner, action)
        kept = cut_calls(action.tool_calls, self.num_left)
        num_refused = len(action.tool_calls) - len(kept)
        if not action.tool_calls:
            num_refused = int(self.num_left == 0)  # code, or a call in words
        self.num_left -= sum(call.name != ANSWER for call in kept) if action.tool_calls else 1 - num_refused
        if num_refused and not kept:
            return StepResult(observation=NONE_LEFT)
        found = advance(self.inner, replace(action, tool_calls=tuple(kept)))
        if found.is_over:
            return found
        told = last_line(as_text(found.observation))
        if self._others and found.is_valid:
            told = self._others[self._num_told % len(self._others)]
            self._num_told += 1
        return replace(found, observation=f"{told}\n{NONE_LEFT}" if num_refused else told)

    def state_key(self) -> str:
        """Return the state of the environment, and what is left of the cap."""
        return f"{cast(StateKey, self.inner).state_key()} {self.num_left}"

    def _replies_elsewhere(self, task: Task) -> list[str]:
        """Return what the expert's calls were told in another task, which `task` draws."""
        # The lowest bit of a seed is that of the split.
        seed = derive_seed("permuted", task.seed) >> 2 << 1 | task.seed & 1
        other = replace(task, id=f"{task.id}/permuted", seed=seed)
        begin(self.inner, other)
        told: list[str] = []
        assert isinstance(self.inner, Expert), "checked at the beginning"
        for _ in range(self.max_turns):
            action = self.inner.expert_action()
            if is_answer(action):
                break
            found = advance(self.inner, action)
            told.append(as_text(found.observation))
            if found.is_over:
                break
        return told


def is_answer(action: Action) -> bool:
    """Whether `action` answers and calls nothing else: the tool `answer`, or code that calls that function alone."""
    if action.tool_calls:
        return all(call.name == ANSWER for call in action.tool_calls)
    if action.text.split()[:1] == [ANSWER]:
        return True  # a call in words, as some worlds read them
    try:
        body = ast.parse(action.text.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    found = body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None
    if isinstance(found, ast.Call) and isinstance(found.func, ast.Name) and found.func.id == "print":
        (found,) = found.args if len(found.args) == 1 else (None,)
    if not isinstance(found, ast.Call) or not isinstance(found.func, ast.Name) or found.func.id != ANSWER:
        return False
    return not any(
        isinstance(node, ast.Call) for part in (*found.args, *found.keywords) for node in ast.walk(part)
    )


def cut_calls(calls: Sequence[ToolCall], num: int) -> list[ToolCall]:
    """Return the first `num` of `calls`, and with them those that answer, which are not counted."""
    kept: list[ToolCall] = []
    for call in calls:
        if call.name == ANSWER or num > 0:
            kept.append(call)
        num -= call.name != ANSWER
    return kept


def last_line(text: str) -> str:
    """Return `text` with the last line alone of a traceback in it: ``NameError: name 'x' is not defined``."""
    before, found, after = text.partition(TRACEBACK)
    lines = [line for line in after.splitlines() if line.strip()]
    # A traceback's own lines are indented; what follows the error stays.
    own = next((number for number, line in enumerate(lines) if not line.startswith(" ")), None)
    return f"{before}{chr(10).join(lines[own:])}" if found and own is not None else text
