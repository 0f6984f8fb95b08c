"""A workforce: a planner who takes a task apart, a coordinator who gives out the parts, and workers (OWL, 2505.23885).

The planner sees the task and the cards of the workers, and writes a plan, one numbered part per line. The coordinator
is shown the next part and the cards, and names a worker. The worker is shown the part and what the environment shows,
and acts until it says ``done`` or ``failed``, or for `actions` actions. When a part fails, or an action is not on the
card of who tries it, the planner is told and plans again, at most `max_replans` times.

All are seats of one environment (`WorkforceWorld`): each may be a policy of its own, a worker can be exchanged without
the others, and the turns of one seat can be trained alone. A question to the coordinator, and a part to a worker, is a
conversation of its own.

Differences to the paper: a card lists the verbs that a worker may use, in the place of its tools; parts are done one
after the other; a worker says in one word how its part ended, and the coordinator hears nothing of earlier parts.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

from quintain.agents.deliberation import Deliberation
from quintain.agents.harness import PlainText
from quintain.agents.plan import Plan, edit, whole_plan
from quintain.agents.protocol import Brief, Prompt
from quintain.agents.seated import SeatedWorld
from quintain.environments.baselines import foreseen
from quintain.environments.noisy import Fallible
from quintain.environments.protocol import Environment, Expert, Snapshot, StateKey, environment_name
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Action, StepResult, as_text

if TYPE_CHECKING:
    from quintain.types import Observation, Task

PLANNER, COORDINATOR = "planner", "coordinator"
PART = "Part: "
"""What a question to the coordinator, and an order to a worker, begin with."""
DONE, FAILED = "done", "failed"
Cards = Mapping[str, tuple[str, ...]]
"""Worker → the verbs that it may use; none: all."""


def read_cards(text: str) -> Cards:
    """Return the cards of the workers that `text` names.

    Example: ``mover:go;maker:gather,make`` → mover: go; maker: gather, make.

    Raises:
        UsageError: there is none, one has no name or that of another seat, or two have the same.
    """
    cards: dict[str, tuple[str, ...]] = {}
    for part in text.split(";"):
        name, _, verbs = (piece.strip() for piece in part.partition(":"))
        if not name or name in cards or name in (PLANNER, COORDINATOR):
            raise UsageError(
                f"workforce: got workers={text!r}; name each worker once, and no other seat, as mover:go;maker:make"
            )
        cards[name] = tuple(verb.strip() for verb in verbs.split(",") if verb.strip())
    return cards


def describe_cards(cards: Cards) -> str:
    """Return the cards as they are told: ``Workers: mover: go; maker: gather, make.``"""
    told = "; ".join(f"{name}: {', '.join(verbs) or 'all'}" for name, verbs in cards.items())
    return f"Workers: {told}."


def verb_of(call: str) -> str:
    """Return the first word of an action or of a call: ``go`` of ``go(hill)`` and of ``go hill``."""
    return call.partition("(")[0].partition(" ")[0].strip()


@dataclass(frozen=True, slots=True)
class Workforce:
    """A planner, a coordinator and workers: ``Workforce(chat, workers="mover:go;maker:gather,make")``."""

    chat: Chat
    workers: str = "worker"
    """Who there is, and the verbs on their cards: mover:go;maker:gather,make. Without verbs: all."""
    actions: int = 8
    """Actions of a part after which it counts as done."""
    max_replans: int = 3
    """Times that the planner plans again at most."""
    temperature: float = 1.0
    max_tokens: int = 128

    def __post_init__(self) -> None:
        """Refuse a workforce that nobody could be part of."""
        read_cards(self.workers)
        if self.actions < 1 or self.max_replans < 0:
            raise UsageError(
                f"workforce: got actions={self.actions} and max_replans={self.max_replans}; give actions of 1 or more "
                "and max_replans of 0 or more"
            )

    def open(self, brief: Brief) -> WorkforceSession:
        """See `Agent.open`."""
        return WorkforceSession(PlainText(self.chat, self.temperature, self.max_tokens), brief)

    def equip(self, environment: Environment) -> Environment:
        """See `Equips`."""
        return WorkforceWorld(
            environment, read_cards(self.workers), actions=self.actions, max_replans=self.max_replans
        )


class WorkforceSession(Deliberation):
    """The conversation of a seat: the planner's goes on, others begin anew with every part."""

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`."""
        if as_text(observation).startswith(PART):
            self._inner = self._agent.open(self._brief)
        return super().observe(observation, legal_actions)


class State(NamedTuple):
    """Where a workforce has come to: ``State(plan=("go(hill)",), seen="have nothing")``."""

    plan: tuple[str, ...] = ()
    """parts that are left, the one that is worked at first"""
    worker: str = ""
    """who works at it"""
    acted: int = 0
    """actions of the part"""
    replans: int = 0
    seen: str = ""
    """what it showed last"""


class WorkforceWorld(SeatedWorld):
    """`inner`, in which parts of a plan are given out: ``WorkforceWorld(Craft(), {"mover": ("go",), "maker": ()})``."""

    own: ClassVar[tuple[str, ...]] = ("_num_done", "_state")

    def __init__(self, inner: Environment, cards: Cards, *, actions: int = 8, max_replans: int = 3) -> None:
        """Let the workers of `cards` act in `inner`.

        Raises:
            UsageError: `inner` has tools, or no expert or snapshots by which a plan could be shown.
        """
        if inner.tools() or not (
            isinstance(inner, Expert) and isinstance(inner, Snapshot) and isinstance(inner, StateKey)
        ):
            raise UsageError(
                f"workforce: got {environment_name(inner)}, which has tools, or lacks an expert, snapshots or "
                "state_key; take an environment of words that has them, such as craft"
            )
        self.cards, self._actions, self._max_replans = cards, actions, max_replans
        super().__init__(inner)
        self._state = State()

    def count_turns(self) -> int:
        """Return the turns of all seats."""
        return 4 * self.inner.max_turns + 2 * self._max_replans + 2

    def seats(self) -> tuple[str, ...]:
        """Return who is played."""
        return (PLANNER, COORDINATOR, *self.cards)

    def seat(self) -> str:
        """Return who acts next: the planner without a plan, the coordinator without a worker, else the worker."""
        return self._state.worker or (COORDINATOR if self._state.plan else PLANNER)

    def reset(self, task: Task) -> Observation:
        """Begin the episode inside."""
        seen = as_text(self.begin_inner(task))
        self._state = State(seen=seen)
        return f"{seen}\n{describe_cards(self.cards)}\nWrite the plan."

    def step(self, action: Action) -> StepResult:
        """Take a plan, the name of a worker, or what a worker does, as the seat's turn is."""
        return {PLANNER: self._take_plan, COORDINATOR: self._assign_worker}.get(self.seat(), self._take_work)(
            action
        )

    def _take_plan(self, action: Action) -> StepResult:
        """Take the plan that `action` writes."""
        plan = tuple(step.text for step in edit(Plan(), action.text).steps)
        if not plan:
            return self._again("there is no plan", is_valid=False)
        self._state = self._state._replace(plan=plan)
        return StepResult(observation=self._question())

    def _assign_worker(self, action: Action) -> StepResult:
        """Take the name of a worker."""
        name = action.text.strip()
        if name not in self.cards:
            return self._again(f"{name[:40]!r} is no worker", is_valid=False)
        self._state = self._state._replace(worker=name, acted=0)
        card = {name: self.cards[name]}
        return StepResult(
            observation=f"{PART}{self._state.plan[0]}\n{self._state.seen}\n{describe_cards(card)} "
            f"Act, then say {DONE} or {FAILED}."
        )

    def _take_work(self, action: Action) -> StepResult:
        """Take what the worker does: an action, or the word that its part is over."""
        state, said = self._state, action.text.strip()
        if said == DONE:
            return self._next()
        if said == FAILED:
            return self._again(f"{state.worker} failed at {state.plan[0]}")
        verbs = self.cards[state.worker]
        if verbs and verb_of(said) not in verbs:
            return self._again(f"{state.worker} cannot {verb_of(said)[:40]}", is_valid=False)
        result = self._act(action)
        self._state = state = state._replace(seen=as_text(result.observation), acted=state.acted + 1)
        if result.is_over or state.acted < self._actions:
            return result
        after = self._next()
        return replace(
            after, reward=result.reward, reward_terms=result.reward_terms, is_valid=result.is_valid
        )

    def _next(self) -> StepResult:
        """Go on to the next part; after the last one the planner is asked what is left to do."""
        self._state = self._state._replace(plan=self._state.plan[1:], worker="")
        if self._state.plan:
            return StepResult(observation=self._question())
        return self._again("all parts are done")

    def _again(self, why: str, *, is_valid: bool = True) -> StepResult:
        """Ask the planner for another plan and tell it why; the episode is over where it has planned too often."""
        state = self._state
        if state.replans >= self._max_replans:
            return StepResult(observation=f"{why}.", is_success=False, is_truncated=True, is_valid=is_valid)
        self._state = state._replace(plan=(), worker="", replans=state.replans + 1)
        return StepResult(
            observation=f"{why}. {state.seen}\n{describe_cards(self.cards)}\nWrite the plan.",
            is_valid=is_valid,
        )

    def _question(self) -> str:
        """Return what the coordinator is asked."""
        return f"{PART}{self._state.plan[0]}\n{describe_cards(self.cards)} Who does it?"

    def expert_action(self) -> Action:
        """Return all that the environment's expert will do, who can do a part, or what it takes."""
        state = self._state
        if not state.plan:
            return Action(text=whole_plan(foreseen(self.inner), names=True).text)
        part = state.plan[0]
        if not state.worker:
            able = (name for name, verbs in self.cards.items() if not verbs or verb_of(part) in verbs)
            return Action(text=next(able, next(iter(self.cards))))
        verbs = self.cards[state.worker]
        if verbs and verb_of(part) not in verbs:
            return Action(text=FAILED)
        action = cast(Expert, self.inner).expert_action()
        return action if whole_plan([action], names=True).steps[0].text == part else Action(text=DONE)

    def mistaken_action(self, rng: random.Random) -> Action:
        """Return any worker, or what the environment calls a mistake; a plan has none. See `noisy.Fallible`."""
        state = self._state
        if state.plan and not state.worker:
            return Action(text=rng.choice(list(self.cards)))
        if state.worker and isinstance(self.inner, Fallible):
            return self.inner.mistaken_action(rng)
        return self.expert_action()

    def state_key(self) -> str:
        """Return the state of the environment, what is planned, and who works."""
        told = self._state
        return f"{cast(StateKey, self.inner).state_key()} {told.plan} {told.worker}"
