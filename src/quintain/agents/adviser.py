"""An agent that is told sub-goals by an adviser, who knows only what an adapter writes to it: RLAdapter
(arXiv 2309.17176).

Three speak. The adapter is shown the task, what is done, and how well the last advice was understood, and writes a
message. The adviser reads the message alone and names a thing to go for next. The agent is shown that sub-goal with
what it sees, and acts; or a script that knows the way acts in its place. The adapter is asked again when the sub-goal
is reached or after `every` steps, `queries` times an episode at most; after that the last sub-goal stays. It is paid 1
where the sub-goal was reached in its own interval by a step that the environment pays for, so that what is easily
reached and leads nowhere is worth nothing.

Each is a seat, so that each may be a policy of its own, frozen or trained. The adviser may be the environment's script,
which knows nothing but the message (`Advises`). How well advice was understood is the cosine of the words of the advice
and of what the agent did since (`agents.experience.likeness`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, cast

from quintain.agents.experience import likeness
from quintain.agents.harness import PlainText
from quintain.agents.protocol import Brief
from quintain.agents.seated import Anew, SeatedWorld
from quintain.environments.advice import FACTS, clauses
from quintain.environments.baselines import random_action
from quintain.environments.noisy import Idle
from quintain.environments.protocol import (
    Advises,
    Environment,
    FindsWay,
    StateKey,
    environment_name,
    join_results,
)
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Action, StepResult, as_text, derive_seed

if TYPE_CHECKING:
    from quintain.types import Observation, Task

ADAPTER, ADVISER, AGENT = "adapter", "adviser", "agent"
UNDERSTOOD, REACHED = "understood", "reached"
"""Reward terms of the step that ends an interval: how alike advice and behaviour are, and whether the sub-goal was
reached and paid for. Neither pays the agent; the second is what the adapter is paid."""
SUBGOAL = "Sub-goal: "


@dataclass(frozen=True, slots=True)
class Advised:
    """An adapter, an adviser and an agent: ``Advised(chat, every=8, queries=4)``."""

    chat: Chat
    temperature: float = 1.0
    max_tokens: int = 32
    """Tokens of what each of them says."""
    every: int = 8
    """Steps of the environment after which the adapter is asked again."""
    queries: int = 4
    """Times that the adviser is asked in an episode, at most."""
    adviser: Literal["scripted", "policy"] = "scripted"
    """Who advises: the environment's script, or a policy (of the seat adviser)."""
    actor: Literal["policy", "scripted"] = "policy"
    """Who acts on a sub-goal: a policy (of the seat agent), or a script that knows the way."""
    adapter: Literal["policy", "fixed"] = "policy"
    """Who writes to the adviser: a policy (of the seat adapter), or nobody: the first facts that are seen."""

    def __post_init__(self) -> None:
        """Refuse numbers with which nobody is asked, and a play without players."""
        if self.every < 1 or self.queries < 1:
            raise UsageError(
                f"advised: got every={self.every}, queries={self.queries}; give at least 1 of each"
            )
        if (self.adviser, self.actor, self.adapter) == ("scripted", "scripted", "fixed"):
            raise UsageError("advised: got no policy as adapter, adviser or actor; let it play one of them")

    def open(self, brief: Brief) -> Anew:
        """See `Agent.open`."""
        return Anew(PlainText(self.chat, self.temperature, self.max_tokens), brief)

    def equip(self, environment: Environment) -> Environment:
        """See `Equips`."""
        played = (
            *((ADAPTER,) if self.adapter == "policy" else ()),
            *((ADVISER,) if self.adviser == "policy" else ()),
            *((AGENT,) if self.actor == "policy" else ()),
        )
        return AdvisedWorld(environment, every=self.every, queries=self.queries, played=played)


class AdvisedWorld(SeatedWorld):
    """`inner`, in which an agent is advised: ``AdvisedWorld(Craft(reward="dense"), every=8, queries=4)``."""

    adds: ClassVar[frozenset[type]] = SeatedWorld.adds | {Advises}
    own: ClassVar[tuple[str, ...]] = (
        "subgoal", "message", "num_queries", "done", "_first", "_seen", "_early", "_behaviour", "_waits",
        "_understood", "_num_done",
    )  # fmt: skip

    def __init__(
        self, inner: Environment, *, every: int, queries: int, played: tuple[str, ...] = (ADAPTER, AGENT)
    ) -> None:
        """Let the seats `played` speak, and scripts play the others.

        Raises:
            UsageError: `inner` has tools, or does not know what a script needs.
        """
        self.every, self.queries, self._played = every, queries, played
        super().__init__(inner)
        is_known = isinstance(inner, FindsWay) and isinstance(inner, Advises) and isinstance(inner, Idle)
        if not is_known or inner.tools():
            raise UsageError(
                f"an advised agent: got {environment_name(inner)}, which has no adviser or does not know the way to a "
                "thing; take craft"
            )
        self._begin()

    def count_turns(self) -> int:
        """Return the turns of all who speak."""
        return self.inner.max_turns + 2 * self.queries

    def _begin(self) -> None:
        self.subgoal, self.message, self.num_queries = "", "", 0
        self.done: list[str] = []
        """sub-goals that were paid for"""
        self._first = self._seen = ""
        self._early: list[StepResult] = []
        self._behaviour: list[str] = []
        self._waits = ADAPTER
        self._understood = 0.0

    def seats(self) -> tuple[str, ...]:
        """Return who is played."""
        return self._played

    def seat(self) -> str:
        """Return who speaks next; at the end, who spoke last."""
        return self._waits if self._waits in self._played else self._played[-1]

    def reset(self, task: Task) -> Observation:
        """Begin the episode, up to the first who is played."""
        self._begin()
        self._first = self._seen = as_text(self.begin_inner(task))
        self._early = self._scripts_after([])
        return self._describe_for_seat() if not self._early else self._early[-1].observation

    def step(self, action: Action) -> StepResult:
        """Take a message, advice or an action, as the seat's turn is."""
        own = self._take_action(action)
        early, self._early = self._early, []
        results = [*early, *self._scripts_after([own])]
        paid = {seat: sum(r.rewards.get(seat, 0.0) for r in results) for seat in self._played}
        return replace(join_results(results), is_valid=own.is_valid, rewards=paid)

    def facts(self) -> list[str]:
        """Return the clauses of all that the adapter is shown, none twice: what a message is made of."""
        return list(dict.fromkeys(clauses(self._describe_for_adapter())))

    def advise(self, message: str) -> str:
        """Return what the environment's adviser says to `message`, and to nothing else."""
        return cast(Advises, self.inner).advise(message)

    def expert_action(self) -> Action:
        """Return a message with any facts, the script's advice, or the next action towards the sub-goal.

        Nobody knows beforehand what the adviser must be told: the adapter is shown the form alone.
        """
        if self._waits == ADAPTER:
            facts = self.facts()
            rng = random.Random(derive_seed("facts", *facts, self.num_queries))
            return Action(text="; ".join(rng.sample(facts, min(FACTS, len(facts)))))
        if self._waits == ADVISER:
            return Action(text=self.advise(self.message))
        return self._follow_subgoal()

    def mistaken_action(self, rng: random.Random) -> Action:
        """Return what the expert says, but of the agent any action; see `noisy.Fallible`."""
        return random_action(self.inner, rng, self._seen) if self._waits == AGENT else self.expert_action()

    def state_key(self) -> str:
        """Return the state of the environment, whose turn it is, and what was said."""
        own = (self._waits, self.subgoal, self.message, self.num_queries, self.done, self._behaviour)
        return f"{cast(StateKey, self.inner).state_key()} {own}"

    def _follow_subgoal(self) -> Action:
        """Return what leads to the sub-goal; where nothing does, what only passes time."""
        return cast(FindsWay, self.inner).follow(self.subgoal) or cast(Idle, self.inner).idle_action()

    def _scripts_after(self, done: list[StepResult]) -> list[StepResult]:
        """Return `done` and what comes of the turns of those who are not played."""
        while self._waits not in self._played and not (done and done[-1].is_over):
            fixed = Action(text="; ".join(self.facts()[:FACTS]))
            done.append(self._take_action(fixed if self._waits == ADAPTER else self.expert_action()))
        return done

    def _take_action(self, action: Action) -> StepResult:
        """Carry out `action` of the seat whose turn it is."""
        text = " ".join(action.text.split())
        if self._waits == ADAPTER:
            self.message = text
            if ADVISER in self._played:
                self._waits = ADVISER
            else:
                self._ask(self.advise(text))
            return StepResult(observation=self._describe_for_seat(), is_success=False)
        if self._waits == ADVISER:
            self._ask(text)
            return StepResult(observation=self._describe_for_seat(), is_success=False)
        return self._act_towards(action, text)

    def _ask(self, advice: str) -> None:
        """Take the advice, and let the agent act on it."""
        self.subgoal = " ".join(advice.lower().split())
        self.num_queries += 1
        self._behaviour, self._waits = [], AGENT

    def _act_towards(self, action: Action, text: str) -> StepResult:
        """Do `action`; the interval ends when the sub-goal is reached, or has taken long enough."""
        result = self._act(action)
        self._seen = as_text(result.observation)
        self._behaviour.append(text)
        led = cast(FindsWay, self.inner)
        is_known = self.subgoal in led.things() and self.subgoal not in self.done
        is_reached = is_known and result.reward > 0 and led.follow(self.subgoal) is None
        is_over = result.is_over
        terms = dict(result.reward_terms)
        if is_reached or is_over or len(self._behaviour) >= self.every:
            self.done += [self.subgoal] * is_reached
            self._understood = likeness(self.subgoal, " ".join(self._behaviour))
            terms |= {UNDERSTOOD: self._understood, REACHED: float(is_reached)}
            self._behaviour = []
            if self.num_queries < self.queries:
                self._waits = ADAPTER
        paid = {
            seat: value
            for seat, value in ((ADAPTER, float(is_reached)), (AGENT, result.reward))
            if seat in self._played
        }
        return replace(result, observation=self._describe_for_seat(), reward_terms=terms, rewards=paid)

    def _describe_for_adapter(self) -> str:
        done = ", ".join(self.done) or "nothing"
        return f"{self._first}\n{self._seen if self._seen != self._first else ''}\nDone: {done}."

    def _describe_for_seat(self) -> str:
        """Return what the seat that speaks next is shown."""
        if self._waits == ADAPTER:
            told = f"\nAdvice: {self.subgoal}. Understood: {self._understood:.1f}" if self.subgoal else ""
            return f"{self._describe_for_adapter()}{told}"
        if self._waits == ADVISER:
            return self.message
        return f"{self._seen}\n{SUBGOAL}{self.subgoal}"
