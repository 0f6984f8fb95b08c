"""An environment under a guard: every action is judged before it is carried out.

A refused call is answered by what the guard says and is not carried out; it is no score, but it is counted, in the
reward term ``refused`` and as an error of its tool. Calls of one action are judged in their order; those that are
allowed are carried out together, as they would be without a guard. A guard that ends the episode ends it unsolved.

Everything that the environment can do it still can: the guard's state goes back with its snapshots, and belongs to the
key of its state. What the environment does by itself, as an expert that looks ahead, is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from quintain.environments.mixture import MixedEnvironment
from quintain.environments.protocol import (
    NOT_RUN,
    Environment,
    Legal,
    SimultaneousSeats,
    StateKey,
    TakesObjects,
    advance,
    advance_all,
    environment_name,
)
from quintain.environments.wrapped import Wrapped
from quintain.safety.guard import REFUSED, Guard, Verdict
from quintain.safety.policy import (
    Policy,
    read_order_of,
    read_policy,
    refuse_unknown,
    refuse_unknown_order,
)
from quintain.types import (
    UNKNOWN_TOOL,
    Action,
    CallResult,
    Content,
    Observation,
    StepResult,
    Task,
    ToolCall,
    ToolError,
    ToolSpec,
    as_text,
    derive_seed,
)

NOBODY = "(A person could allow it, and nobody is here to be asked.)"
"""What follows a refusal where a person would have been asked."""
Ask = Callable[[str], bool]
"""A question to a person: may this be done?"""
TAKE = ToolSpec(name="take", description="", parameters={})
"""What handing variables of code to an environment is judged as."""


class GuardedEnvironment(Wrapped):
    """`inner` under `guard`; `ask` asks a person where the guard wants one."""

    def __init__(self, inner: Environment, guard: Guard, *, ask: Ask | None = None) -> None:
        """Put `inner` under `guard`."""
        super().__init__(inner)
        self.guard, self.ask = guard, ask

    def reset(self, task: Task) -> Observation:
        """Begin the episode inside, and let the guard see how."""
        first = self.begin_inner(task)
        self.guard.begin(task, first)
        return first

    def step(self, action: Action) -> StepResult:
        """Carry out what of `action` the guard allows."""
        if action.error is not None:
            return advance(self.inner, action)
        singles = split_calls(action)
        verdicts = self._judge(singles)
        allowed = [place for place, verdict in enumerate(verdicts) if verdict.effect == "allow"]
        if len(allowed) == len(singles):
            result = advance(self.inner, action)
            self.guard.see(singles, result.observation)
            return result
        result = StepResult(observation=())
        if allowed:
            calls = tuple(action.tool_calls[place] for place in allowed)
            result = advance(self.inner, replace(action, tool_calls=calls))
            self.guard.see(tuple(singles[place] for place in allowed), result.observation)
        return self._refuse(result, singles, verdicts, allowed)

    def _judge(self, singles: Sequence[Action]) -> list[Verdict]:
        """Return the guard's verdicts up to one that ends the episode; a person's word turns what asks for it."""
        verdicts: list[Verdict] = []
        for single in singles:
            verdict = self.guard.judge(single)
            if verdict.effect == "ask":
                is_allowed = self.ask is not None and self.ask(describe_action(single))
                told = verdict.says if self.ask is not None else f"{verdict.says} {NOBODY}"
                verdict = replace(verdict, effect="allow" if is_allowed else "forbid", says=told)
            verdicts.append(verdict)
            if verdict.effect == "end":
                break
        return verdicts

    def _refuse(
        self,
        result: StepResult,
        singles: Sequence[Action],
        verdicts: Sequence[Verdict],
        allowed: Sequence[int],
    ) -> StepResult:
        """Return `result`, that of what was `allowed`, with what the rest of the calls are told."""
        refused = [place for place in range(len(verdicts)) if place not in allowed]
        told = dict(zip(allowed, parts_by_call(result.observation, len(allowed)), strict=True))
        told |= {place: verdicts[place].says for place in refused}
        told |= dict.fromkeys(range(len(verdicts), len(singles)), NOT_RUN)
        observation: Observation = told[0]
        if len(singles) > 1:
            observation = tuple(CallResult(text=told[place], call=place) for place in sorted(told))
        found = replace(result, observation=observation)
        return self._count(found, [singles[place] for place in refused], verdicts)

    def _count(
        self, result: StepResult, refused: Sequence[Action], verdicts: Sequence[Verdict]
    ) -> StepResult:
        """Return `result` of a turn in which `refused` were; a guard may have ended the episode, unsolved."""
        is_over = result.is_over
        if any(verdict.effect == "end" for verdict in verdicts) and not is_over:
            result = replace(result, is_terminated=True, is_success=False)
        return replace(
            result,
            is_valid=False,
            reward_terms={**result.reward_terms, REFUSED: float(len(refused))},
            tool_errors=(*result.tool_errors, *map(self._as_error, refused)),
        )

    def _as_error(self, single: Action) -> ToolError:
        """Return the refusal of a call as an error of its tool."""
        names = {tool.name for tool in self.inner.tools()}
        called = single.tool_calls[0].name if single.tool_calls else ""
        return ToolError(tool=called if called in names else UNKNOWN_TOOL, cause="refused")

    def step_all(self, actions: Mapping[str, Action]) -> StepResult:
        """Carry out what each seat does; one that is refused is told so as of an action that could not be read."""
        given, refused, verdicts = dict(actions), list[Action](), list[Verdict]()
        for seat, action in actions.items():
            if action.error is not None:
                continue
            singles = split_calls(action)
            found = self._judge(singles)
            verdicts += found
            wrong = [place for place, verdict in enumerate(found) if verdict.effect != "allow"]
            if wrong:
                given[seat] = Action(text=action.text, error=found[wrong[0]].says.removeprefix("Error: "))
                refused += [singles[place] for place in wrong]
        result = advance_all(cast(SimultaneousSeats, self.inner), given)
        return self._count(result, refused, verdicts) if refused else result

    def take(self, objects: Mapping[str, Any]) -> StepResult:
        """Hand over variables of code, if the guard allows the call ``take`` with them."""
        call = Action(tool_calls=(ToolCall(name=TAKE.name, arguments=objects),))
        verdicts = self._judge([call])
        if verdicts[0].effect == "allow":
            return cast(TakesObjects, self.inner).take(objects)
        return self._count(StepResult(observation=verdicts[0].says), [call], verdicts)

    def legal_actions(self) -> tuple[str, ...]:
        """Return the legal actions that the guard does not forbid; all where it forbids every one."""
        given = tuple(cast(Legal, self.inner).legal_actions())
        before = self.guard.snapshot()
        kept: list[str] = []
        for text in given:
            if self.guard.judge(Action(text=text)).effect != "forbid":
                kept.append(text)
            self.guard.restore(before)
        return tuple(kept) or given

    def snapshot(self) -> Any:
        """Return the environment's state and the guard's."""
        return super().snapshot(), self.guard.snapshot()

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        inner, own = state
        super().restore(inner)
        self.guard.restore(own)

    def state_key(self) -> str:
        """Return a key that is equal where the states of environment and guard are."""
        own = derive_seed(repr(self.guard.snapshot()))
        return f"{cast(StateKey, self.inner).state_key()}|{own:x}"


def apply_policy(inner: Environment, path: str) -> GuardedEnvironment:
    """Return `inner` under the policy in the file at `path`.

    Raises:
        ConfigError: it is no policy, or names what is no tool of `inner`.
    """
    return GuardedEnvironment(inner, read_guard(path, inner)())


def read_guard(path: str, inner: Environment) -> Callable[[], Policy]:
    """Return what makes the guard of the policy in the file at `path`, for `inner`; raises as `apply_policy` does."""
    rules, order = read_policy(path), read_order_of(path)
    tools = (*inner.tools(), *((TAKE,) if isinstance(inner, TakesObjects) else ()))
    where = f"policy {Path(path).name} for {environment_name(inner)}"
    refuse_unknown(rules, tools, where)
    if order is not None:
        refuse_unknown_order(order, tools, where)
    return partial(Policy, rules, order)


def guard_mixture(worlds: str, path: str) -> MixedEnvironment:
    """Return the mixture `worlds` with each of its environments under the policy in the file at `path`.

    Raises:
        ConfigError: it is no policy, or names what is no tool of any of them.
    """
    with closing(MixedEnvironment(worlds)) as plain:
        make = read_guard(path, plain)
    return MixedEnvironment(worlds, lambda part: GuardedEnvironment(part, make()))


def split_calls(action: Action) -> tuple[Action, ...]:
    """Return `action` as actions of one call each; one without calls is a single one."""
    if len(action.tool_calls) < 2:
        return (action,)
    return tuple(replace(action, tool_calls=(call,)) for call in action.tool_calls)


def parts_by_call(observation: Observation, count: int) -> list[str]:
    """Return what each of `count` calls was told; where that is one text, the first has it."""
    parts: Sequence[Content] = () if isinstance(observation, str) else observation
    results = {part.call: part.text for part in parts if isinstance(part, CallResult)}
    if len(results) == count:
        return [results[place] for place in sorted(results)]
    return [as_text(observation), *("" for _ in range(count - 1))][:count]


def describe_action(action: Action) -> str:
    """Return `action`, which has one call at most, in words for a person."""
    if not action.tool_calls:
        return f"say {action.text!r}"
    (call,) = action.tool_calls
    return f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"
