"""Arithmetic with tools: look prices up, calculate step by step, check a result before it is given.

Families it stands for: function calling and tool-integrated reasoning, and self-correction: a number may be checked
and revised before the answer is final. Tools fail, lie or break at rates that are asked for. What a tool tells
depends on the task and on the count of calls alone.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from typing import ClassVar, Literal, get_args

from quintain.environments.noisy import chatter
from quintain.environments.protocol import Environment, tool_action
from quintain.environments.splitting import split_draw
from quintain.environments.tools import tool
from quintain.environments.words import KEYS
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task, ToolCall, ToolSpec, as_text, derive_seed
from quintain.worlds.calc.problem import (
    NAMES,
    OPERATIONS,
    Call,
    Name,
    Operation,
    Problem,
    draw_phases,
    draw_problem,
    solve,
)

MAX_STEPS, MAX_DIGITS = 12, 6
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(get_args(Operation), ("a", "b")),
    "lookup": ("name",),
    "check": ("number",),
    "answer": ("number",),
}
WRITTEN = re.compile(r"\s*([a-z]+)((?:\s+(?:-?\d{1,18}|[a-z]+))+)\s*", re.IGNORECASE)
"""A call in plain text: ``add 3 4``, ``lookup fig`` or ``answer 7``."""
REFUSAL = "There is no tool for this."
"""The right reply to a task whose tools are withheld."""
MAX_PHASES = 8
DISTRACTORS: tuple[ToolSpec, ...] = tuple(
    ToolSpec(
        name=f"{what}_of_{of}",
        description=f"Return the {what} of a {of}.",
        parameters={"type": "object", "properties": {of: {"type": "string"}}, "required": [of]},
    )
    for of in ("metal", "cloth", "boat", "horse", "house", "road", "river", "stone", "glass")
    for what in (
        *("price", "weight", "colour", "age", "origin", "height"),
        *("depth", "width", "length", "maker", "owner", "number"),
    )
)
"""Tools that tell of other things."""
UNTOLD = "Error: the tool did not answer; call it again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What happened in an episode: ``Ledger(told={("add", (3, 4)): 7}, num_calls=1, checks_left=2)``."""

    told: Mapping[Call, int] = field(default_factory=dict[Call, int])
    """Results that tools told since the last check that failed; never changed in place."""
    num_calls: int = 0
    checks_left: int = 0
    checked: int | None = None
    """The number that was checked last."""
    paid: frozenset[Call] = frozenset()
    """Calls of the solution whose result was told rightly."""
    turn: int = 0


State = tuple[Problem, Ledger, int]


class Calc(Environment):
    """Compute from left to right, and answer. A name stands for its price."""

    name = "calc"
    tags: ClassVar[frozenset[str]] = frozenset({"tools", "reasoning", "self-improvement"})

    def __init__(
        self,
        *,
        steps: int = 2,
        names: int = 1,
        digits: int = 2,
        trivial: float = 0.0,
        withheld: float = 0.0,
        listed: bool = True,
        calculator: bool = True,
        checks: int = 2,
        check_errors: float = 0.0,
        failures: float = 0.0,
        lies: float = 0.0,
        crashes: float = 0.0,
        reward: Literal["sparse", "dense"] = "sparse",
        noise: int = 0,
        phases: int = 1,
        distractor_tools: int = 0,
    ) -> None:
        """Ask for chains of `steps` operations on numbers of at most `digits` digits, `names` of them named.

        A share `trivial` of the tasks needs no tool. With `withheld` a first line lists the tools for calculations,
        and in that share of the tasks words that are none; then the right reply says that there is no tool;
        `listed=false` leaves the line out. Without `calculator` the agent does the sums itself. A number may be
        checked `checks` times, and a check is wrong at the rate `check_errors`. Calculations and
        look-ups say that they failed (`failures`), tell a wrong number (`lies`) or raise an exception
        (`crashes`, a `ToolFault`) at these rates. `reward=dense` pays half for right results on the way.

        With `phases` a task is as many problems, each told once the one before is answered: in turn a chain of `steps`
        operations on numbers, and a single name. `distractor_tools` tell of other things, and solve nothing.

        Raises:
            UsageError: there are no such problems.
        """
        counts = f"steps={steps}, names={names}, digits={digits}, checks={checks}, noise={noise}"
        if (
            not (0 <= steps <= MAX_STEPS and 0 <= names <= min(steps + 1, len(NAMES)))
            or not 1 <= digits <= MAX_DIGITS
            or min(checks, noise) < 0
        ):
            raise UsageError(
                f"calc: got {counts}; give 0 to {MAX_STEPS} steps, at most {len(NAMES)} names and one more than "
                f"steps, 1 to {MAX_DIGITS} digits, and no negative number"
            )
        is_plain = names == 1 and trivial == withheld == 0 and reward == "sparse"
        if not (1 <= phases <= MAX_PHASES and 0 <= distractor_tools <= len(DISTRACTORS)):
            raise UsageError(
                f"calc: got phases={phases}, distractor_tools={distractor_tools}; give 1 to {MAX_PHASES} phases and "
                f"at most {len(DISTRACTORS)} tools"
            )
        if phases > 1 and not is_plain:
            raise UsageError(
                f"calc: got phases={phases} with names={names}, trivial={trivial}, withheld={withheld}, "
                f"reward={reward}; leave these as they are by default"
            )
        rates = {
            "trivial": trivial,
            "withheld": withheld,
            "check_errors": check_errors,
            "failures": failures,
            "lies": lies,
            "crashes": crashes,
        }
        for label, rate in rates.items():
            if not 0 <= rate <= 1:
                raise UsageError(f"calc: got {label}={rate}; give a share from 0 to 1")
        self._shape = (steps, names, digits)
        self._rates = rates
        self._is_dense, self._noise, self._num_checks = reward == "dense", noise, checks
        self._has_calculator, self._is_listed = calculator, listed
        self._phases, self._distractors = phases, {spec.name for spec in DISTRACTORS[:distractor_tools]}
        left_out = () if calculator else tuple(OPERATIONS)
        own = (
            spec for spec in super().tools() if spec.name not in left_out and (checks or spec.name != "check")
        )
        self._specs = (*own, *DISTRACTORS[:distractor_tools])
        attempts = 1 if failures == lies == 0 else 3
        self.max_turns = phases * (steps + names + 1 + checks) * attempts + 4
        self._problem = Problem(first=1, steps=())
        self._ledger = Ledger()
        self._seed = 0

    def is_withheld(self) -> bool:
        """Whether the task at hand lists no tool for calculations."""
        return derive_seed("withheld", self._seed) < self._rates["withheld"] * 2**63

    def reset(self, task: Task) -> str:
        """Pose the problem of the task."""
        is_trivial = derive_seed("trivial", task.seed) < self._rates["trivial"] * 2**63
        shape = (0, 0, self._shape[2]) if is_trivial else self._shape
        self._problem = split_draw(
            task,
            lambda rng: (
                draw_problem(*shape, rng)
                if self._phases == 1
                else draw_phases(self._phases, shape[0], shape[2], rng)
            ),
        )
        self._ledger, self._seed = Ledger(checks_left=self._num_checks), task.seed
        listed = f"{self._list_tools()} " if self._rates["withheld"] and self._is_listed else ""
        return f"{listed}{self._problem.words()}{chatter(self._noise, self._seed, 0)}"

    def _list_tools(self) -> str:
        """Return the line that lists the tools of the task, or as many words that are no tools."""
        words = list(KEYS if self.is_withheld() else OPERATIONS)
        Random(derive_seed("listed", self._seed)).shuffle(words)
        return f"Tools: {', '.join(words[: len(OPERATIONS)])}."

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools that these options leave."""
        return self._specs

    def step(self, action: Action) -> StepResult:
        """Run tool calls, or one that is written out in plain text: ``add 3 4``."""
        self._ledger = replace(self._ledger, turn=self._ledger.turn + 1)
        if action.error is None and not action.tool_calls:
            action = replace(action, tool_calls=_parse_calls(action.text))
        known = {spec.name for spec in self._specs}
        calls = action.tool_calls
        missing = [call.name for call in calls if call.name in ARGUMENTS and call.name not in known]
        others = [call.name for call in calls if call.name in self._distractors]
        if self._rates["withheld"] and action.error is None and action.text.strip() == REFUSAL:
            result = self._end_refused()
        elif self.is_withheld() and calls:
            text = f"Error: {calls[0].name} is not among the tools of this task."
            result = StepResult(observation=text, is_valid=False)
        elif missing:
            text = f"Error: {missing[0]} is not available; tools: {', '.join(sorted(known))}."
            result = StepResult(observation=text, is_valid=False)
        elif others:
            rest = "; the other calls were not run" * (len(calls) > 1)
            result = StepResult(observation=f"{others[0]} knows nothing of that{rest}.")
        else:
            result = super().step(action)
        noise = chatter(self._noise, self._seed, self._ledger.turn)
        # A cut episode that was paid for results on the way is no success.
        return replace(
            result,
            observation=f"{as_text(result.observation)}{noise}" if noise else result.observation,
            is_success=bool(result.is_success),
        )

    def _end_refused(self) -> StepResult:
        """End the task of one who says that there is no tool for it."""
        is_right = self.is_withheld()
        return StepResult(
            observation="right" if is_right else "wrong",
            reward=float(is_right),
            is_terminated=True,
            is_success=is_right,
        )

    @tool
    def add(self, a: int, b: int) -> str:
        """Return a plus b."""
        return self._tell(("add", (a, b)))

    @tool
    def subtract(self, a: int, b: int) -> str:
        """Return a minus b."""
        return self._tell(("subtract", (a, b)))

    @tool
    def multiply(self, a: int, b: int) -> str:
        """Return a times b."""
        return self._tell(("multiply", (a, b)))

    @tool
    def lookup(self, name: Name) -> str:
        """Return the price of a name."""
        return self._tell(("lookup", (name,)))

    @tool
    def check(self, number: int) -> str:
        """Say whether a number is the right answer."""
        ledger = self._ledger
        if not ledger.checks_left:
            return "no checks left"
        is_right = number == self._problem.answer
        if self._happens("check_errors", "check", number):
            is_right = not is_right
        told = ledger.told if is_right else {}
        self._ledger = replace(ledger, checks_left=ledger.checks_left - 1, checked=number, told=told)
        return "right" if is_right else "wrong"

    @tool
    def answer(self, number: int) -> str:
        """Give the answer."""
        is_right = number == self._problem.answer
        if is_right and self._problem.later:
            following, *later = self._problem.later
            self._problem = replace(following, later=tuple(later))
            ledger = Ledger(checks_left=self._num_checks)
            self._ledger = replace(ledger, num_calls=self._ledger.num_calls, turn=self._ledger.turn)
            return f"right. {following.words()}"
        share = 0.5 if self._is_dense and self._results() else 1.0
        self.reward(share * is_right, answer=share * is_right)
        return self.finish("right" if is_right else "wrong", reward=0.0, success=is_right)

    def solution(self) -> tuple[ToolCall, ...]:
        """Return the calls that solve the problem, the answer last; without a calculator, only its look-ups."""
        problems = (self._problem, *self._problem.later)
        return tuple(_call(*call) for p in problems for call in (*self._results(p), ("answer", (p.answer,))))

    def expert_action(self) -> Action:
        """Return the next call, from what tools told; where they lie, the result is checked before it is given."""
        if self.is_withheld():
            return Action(text=REFUSAL)
        ledger = self._ledger
        told = ledger.told if self._has_calculator else {**self._sums(), **ledger.told}
        *_, (value, call) = self._problem.calls(told)
        if call is None:
            is_unsure = self._rates["lies"] > 0 and ledger.checks_left > 0 and ledger.checked != value
            call = ("check" if is_unsure else "answer", (value,))
        return Action(tool_calls=(_call(*call),))

    def thought(self) -> str:
        """Return the results on the way, as far as they are known, and what is missing for the next."""
        if self.is_withheld():
            return "None of the tools does this."
        ledger = self._ledger
        told = ledger.told if self._has_calculator else {**self._sums(), **ledger.told}
        chain = list(self._problem.calls(told))
        parts = [
            f"{call[1][0]} {call[0]} {call[1][1]} is {value}"
            for (_, call), (value, _) in pairwise(chain)
            if call is not None and call[0] != "lookup"
        ]
        _, missing = chain[-1]
        if missing is not None:
            parts.append(f"next is {' '.join(map(str, (missing[0], *missing[1])))}")
        return "; ".join(parts)

    def snapshot(self) -> State:
        """Return the problem and what happened."""
        return self._problem, self._ledger, self._seed

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._problem, self._ledger, self._seed = state

    def state_key(self) -> str:
        """Return what was told and what is left; the count of calls only where tools err by it."""
        ledger = self._ledger
        count = ledger.num_calls if any(self._rates[rate] for rate in ("failures", "lies", "crashes")) else 0
        left = [len(self._problem.later)] * (self._phases > 1)
        told = sorted(ledger.told.items(), key=repr)
        return repr((told, ledger.checks_left, sorted(ledger.paid, key=repr), count, *left))

    def _results(self, problem: Problem | None = None) -> tuple[Call, ...]:
        """Return the calls of the solution of `problem`, else of the one at hand, that the tools allow."""
        calls, _ = solve(problem or self._problem)
        return calls if self._has_calculator else tuple(call for call in calls if call[0] == "lookup")

    def _sums(self) -> dict[Call, int]:
        """Return the calculations of the solution: what an agent without a calculator does in its head."""
        results = {
            call: self._problem.result(call) for call in solve(self._problem)[0] if call[0] != "lookup"
        }
        return {call: result for call, result in results.items() if result is not None}

    def _happens(self, rate: str, *coordinates: int | str) -> bool:
        """Whether what occurs at `rate` occurs now."""
        share = self._rates[rate]
        return share > 0 and derive_seed(rate, self._seed, *coordinates) < share * 2**63

    def _tell(self, call: Call) -> str:
        """Return the reply to a calculation or look-up, and note it."""
        ledger = replace(self._ledger, num_calls=self._ledger.num_calls + 1)
        self._ledger = ledger
        if self._happens("crashes", ledger.num_calls):
            raise RuntimeError("broke, as asked for by crashes=")
        if self._happens("failures", ledger.num_calls):
            return UNTOLD
        result = self._problem.result(call)
        if result is None:
            return "no price"
        if self._happens("lies", ledger.num_calls):
            return self._note(call, result + 1 + derive_seed("lie", self._seed, ledger.num_calls) % 9)
        if self._is_dense and call not in ledger.paid:
            self._pay(call)
        return self._note(call, result)

    def _note(self, call: Call, result: int) -> str:
        """Note that `result` was told, and return it as text."""
        self._ledger = replace(self._ledger, told={**self._ledger.told, call: result})
        return f"= {result}"

    def _pay(self, call: Call) -> None:
        """Pay for `call` if it is one of the solution."""
        results = self._results()
        if call in results:
            self._ledger = replace(self._ledger, paid=self._ledger.paid | {call})
            part = 0.5 / len(results)
            self.reward(part, result=part)


def _call(name: str, arguments: tuple[int | str, ...]) -> ToolCall:
    """Return the call of tool `name`."""
    return tool_action(name, **dict(zip(ARGUMENTS[name], arguments, strict=True))).tool_calls[0]


def _parse_calls(text: str) -> tuple[ToolCall, ...]:
    """Return the call that is written out in `text`, if there is one."""
    found = WRITTEN.fullmatch(text)
    if not found:
        return ()
    name = found[1].lower()
    words: list[int | str] = [
        int(word) if word.lstrip("-").isdigit() else word.lower() for word in found[2].split()
    ]
    if len(ARGUMENTS.get(name, ())) != len(words):
        return ()
    return (_call(name, tuple(words)),)
