"""A planner whose steps are given to scripted workers: a typed plan, under a grammar, and what came of each step.

A step names a worker, a thing that it is to go for, the step that has to have ended well before it, and when it stops:

    1. anna: fridge until done
    2. bert: mug (after 1) until once

The worker walks to the thing, opens or takes it, or does what it says, as long as the verbs on its card allow it. A
step whose earlier step failed is skipped. The planner then sees what is there and how each step ended, and plans on. A
plan refers to earlier steps alone, so it has no cycles, and to workers that there are: with ``grammar`` no other can be
sampled; without, it is refused with the reason and costs a turn. One step at a time (``steps=1``) is a router. Workers
are scripts and cannot change: only the planner is trained, by any method that learns from outcomes.

Where `shows_cards` is false, the planner has to find out who can do what.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

from quintain.agents.deliberation import Deliberation
from quintain.agents.harness import PlainText
from quintain.agents.protocol import Brief, Prompt
from quintain.agents.scripted_actor import require_ways, take_step
from quintain.agents.workforce import Cards, describe_cards, read_cards, verb_of
from quintain.engines.protocol import Capability, Grammar
from quintain.environments.noisy import Fallible
from quintain.environments.protocol import (
    Environment,
    Expert,
    FindsWay,
    Snapshot,
    join_results,
)
from quintain.environments.wrapped import ACTIONS, Wrapped
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Action, StepResult, as_text

if TYPE_CHECKING:
    from quintain.types import Observation, Task, ToolSpec

MAX_STEPS = 9
THING = "[a-z][a-z0-9 ]{0,23}"
_STEP = re.compile(rf"(\d)\. (\w+): ({THING}?)(?: \(after (\d)\))? until (done|once)")


class PlanStep(NamedTuple):
    """A step of a typed plan: ``PlanStep(worker="anna", thing="mug", after=1, is_once=False)``."""

    worker: str
    thing: str
    after: int = 0
    """number of the step that has to have ended well, from 1; 0: none"""
    is_once: bool = False
    """whether it stops after one action, and not when nothing is left to do about the thing"""


def write_plan(steps: tuple[PlanStep, ...]) -> str:
    """Return `steps` as a plan is written, a line each."""
    return "\n".join(
        f"{number}. {step.worker}: {step.thing}{f' (after {step.after})' * bool(step.after)} "
        f"until {'once' if step.is_once else 'done'}"
        for number, step in enumerate(steps, 1)
    )


def read_plan(text: str, workers: Cards, most: int = MAX_STEPS) -> tuple[PlanStep, ...]:
    """Return the steps of the plan `text`.

    Raises:
        UsageError: it is no plan: a line that is none, a worker that is not there, a step that refers to a later one.
    """
    lines = text.strip().splitlines()
    if not 1 <= len(lines) <= most:
        raise UsageError(f"plan: got {len(lines)} steps; write 1 to {most}")
    steps: list[PlanStep] = []
    for number, line in enumerate(lines, 1):
        found = _STEP.fullmatch(line.strip())
        if found is None or int(found[1]) != number:
            raise UsageError(
                f"plan: got {line[:60]!r} as step {number}; write {number}. WORKER: THING until done"
            )
        if found[2] not in workers:
            raise UsageError(
                f"plan: got the worker {found[2]} in step {number}; name one of {', '.join(workers)}"
            )
        after = int(found[4] or 0)
        if after >= number or found[4] == "0":
            raise UsageError(f"plan: got step {number} after {after}; refer to an earlier one")
        steps.append(PlanStep(found[2], found[3].strip(), after, found[5] == "once"))
    return tuple(steps)


def plan_grammar(workers: Cards, most: int) -> str:
    """Return the grammar (Lark) of the plans of up to `most` steps that `read_plan` reads.

    A thing and what follows it on its line are one expression, for its words could be those of the rest.
    """
    rules: list[str] = []
    for number in range(1, most + 1):
        after = rf"( \(after [1-{number - 1}]\))?" if number > 1 else ""
        rest = f' ("\\n" step_{number + 1})?' if number < most else ""
        rules.append(f'step_{number}: "{number}. " worker ": " rest_{number}{rest}')
        rules.append(f"rest_{number}: /{THING}{after} until (done|once)/")
    names = " | ".join(map(json.dumps, workers))
    return "\n".join(["%llguidance {}", "start: step_1", *rules, f"worker: {names}", ""])


@dataclass(frozen=True, slots=True)
class Routed:
    """A planner for scripted workers: ``Routed(chat, workers="anna:go,open;bert:go,take,put", steps=4)``."""

    chat: Chat
    workers: str = "worker"
    """Who there is, and the verbs that each can do: anna:go,open;bert:go,take. Without verbs: all."""
    steps: int = 4
    """Steps of a plan at most; 1 is a router."""
    shows_cards: bool = True
    """Whether the planner is told the verbs, or the names alone."""
    grammar: bool = True
    """Let nothing be sampled that is no plan (the extra constrained)."""
    masked: bool = False
    """Let log-probs be those among the allowed tokens, in what is sampled and in what is learned."""
    temperature: float = 1.0
    max_tokens: int = 128
    needs: ClassVar[frozenset[Capability]] = frozenset({"grammar"})
    """What the engine must be able to do."""

    def __post_init__(self) -> None:
        """Refuse workers that are none, and plans that have no steps."""
        read_cards(self.workers)
        if not 1 <= self.steps <= MAX_STEPS:
            raise UsageError(f"routed: got steps={self.steps}; give 1 to {MAX_STEPS}")

    def open(self, brief: Brief) -> RoutedSession:
        """See `Agent.open`."""
        return RoutedSession(self, brief)

    def equip(self, environment: Environment) -> Environment:
        """See `Equips`."""
        return RoutedWorld(
            environment, read_cards(self.workers), steps=self.steps, shows_cards=self.shows_cards
        )


class RoutedSession(Deliberation):
    """The conversation of the planner."""

    def __init__(self, settings: Routed, brief: Brief) -> None:
        """Open the chat."""
        super().__init__(PlainText(settings.chat, settings.temperature, settings.max_tokens), brief)
        self._settings = settings
        cards = read_cards(settings.workers)
        self._grammar = Grammar(text=plan_grammar(cards, settings.steps)) if settings.grammar else None

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; only plans can be sampled."""
        prompt = super().observe(observation, legal_actions)
        if self._grammar is None:
            return prompt
        sampling = prompt.sampling.under(self._grammar, is_masked=self._settings.masked)
        return replace(prompt, sampling=sampling)


class RoutedWorld(Wrapped):
    """`inner`, in which scripts carry out plans: ``RoutedWorld(House(), {"anna": ("go", "open"), "bert": ()})``."""

    drops: ClassVar[frozenset[type]] = ACTIONS
    adds: ClassVar[frozenset[type]] = frozenset({Expert, Fallible})
    own: ClassVar[tuple[str, ...]] = ("_num_acted", "_seen")

    def __init__(self, inner: Environment, cards: Cards, *, steps: int = 4, shows_cards: bool = True) -> None:
        """Let the workers of `cards` act in `inner`.

        Raises:
            UsageError: `inner` does not know how to get to a thing.
        """
        require_ways(inner, "routed")
        super().__init__(inner)
        self.cards, self._steps, self._shows = cards, steps, shows_cards
        self._num_acted, self._seen = 0, ""

    def reset(self, task: Task) -> Observation:
        """Begin the episode inside."""
        self._num_acted, self._seen = 0, as_text(self.begin_inner(task))
        return f"{self._seen}\nPlan."

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return nothing: plans are written."""
        return ()

    def instructions(self) -> str:
        """Return the instructions of the environment, who there is, and how a plan is written."""
        shown = self.cards if self._shows else dict.fromkeys(self.cards, ("?",))
        example = write_plan((PlanStep(next(iter(self.cards)), "THING"),))
        told = f"{describe_cards(shown)} Write a plan of up to {self._steps} steps, as: {example}"
        return "\n".join(part for part in (self.inner.instructions(), told) if part)

    def step(self, action: Action) -> StepResult:
        """Carry out the plan that `action` writes; one that is none costs a turn."""
        try:
            plan = read_plan("" if action.error is not None else action.text, self.cards, self._steps)
        except UsageError as error:
            self._num_acted += 1
            return self._end(StepResult(observation=f"{error}", is_success=False, is_valid=False))
        done, ends = [], list[str]()
        for each in plan:
            if each.after and ends[each.after - 1] != "done":
                ends.append("skipped")
                continue
            end, results = self._work(each)
            done += results
            ends.append(end)
            if results and results[-1].is_over:
                return self._end(join_results(done))
        told = "; ".join(f"{number} {end}" for number, end in enumerate(ends, 1))
        if not done:
            self._num_acted += 1
            return self._end(StepResult(observation=f"{told}. {self._seen}\nPlan.", is_success=False))
        result = join_results(done)
        self._seen = as_text(result.observation)
        return self._end(replace(result, observation=f"{told}. {self._seen}\nPlan."))

    def _work(self, step: PlanStep) -> tuple[str, list[StepResult]]:
        """Return how `step` ended, and what its actions led to."""
        verbs = self.cards[step.worker]
        results: list[StepResult] = []
        while (following := cast(FindsWay, self.inner).follow(step.thing)) is not None:
            if verbs and verb_of(following.text) not in verbs:
                return f"failed, {step.worker} cannot {verb_of(following.text)}", results
            if self._num_acted >= self.inner.max_turns:
                break
            result, goes_on = take_step(self.inner, following)
            results.append(result)
            self._num_acted += 1
            if step.is_once or not goes_on:
                break
        return ("done" if results else "failed, nothing is done about it"), results

    def _end(self, result: StepResult) -> StepResult:
        """Return `result`, cut where the environment's own turns are spent."""
        is_late = not result.is_terminated and self._num_acted >= self.inner.max_turns
        return replace(result, is_truncated=result.is_truncated or is_late)

    def expert_action(self) -> Action:
        """Return a plan of the expert's next things, each for who can do the whole of it, or a part."""
        saved, acted = cast(Snapshot, self.inner).snapshot(), self._num_acted
        steps: list[PlanStep] = []
        for number in range(self._steps):
            step = self._assign(cast(FindsWay, self.inner).expert_thing())
            steps.append(step._replace(after=number))
            _, results = self._work(step)
            if not results or results[-1].is_over:
                break
        cast(Snapshot, self.inner).restore(saved)
        self._num_acted = acted
        return Action(text=write_plan(tuple(steps)))

    def _assign(self, thing: str) -> PlanStep:
        """Return the step for `thing` of who can do most of it in the state that is there."""
        saved, acted = cast(Snapshot, self.inner).snapshot(), self._num_acted
        found: list[tuple[bool, int, str]] = []
        for worker in self.cards:
            end, results = self._work(PlanStep(worker, thing))
            found.append((end == "done", len(results), worker))
            cast(Snapshot, self.inner).restore(saved)
            self._num_acted = acted
        is_whole, _, worker = max(found, key=lambda each: each[:2])
        return PlanStep(worker, thing, is_once=not is_whole)

    def mistaken_action(self, rng: random.Random) -> Action:
        """Return the expert's plan with workers that are drawn; see `noisy.Fallible`."""
        steps = read_plan(self.expert_action().text, self.cards, self._steps)
        return Action(text=write_plan(tuple(s._replace(worker=rng.choice(list(self.cards))) for s in steps)))
