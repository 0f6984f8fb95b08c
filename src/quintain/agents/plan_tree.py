"""A tree of plans that decides which past turns are shown: AgentOccam's planning actions (arXiv 2410.13825).

Beside the actions of the environment the agent may write ``branch [1] find the order``, which makes a plan under plan
1 the current one, ``prune [2] it is sold out``, which gives plan 2 up, with all under it, and goes on with the plan
above it, and ``note [it costs 12]``. These are turns in which nothing is done. The prompt ends with the tree, the
current plan marked, and shows the turns of the current plan alone: those of plans beside it and of plans given up are
not shown, their reasons are. ``go_back`` and ``stop [answer]`` stand for ``back`` and ``answer`` where the
environment's actions have these words and not its own.

Differences to the paper: the tree is kept for any environment of text; a plan that is no plan any more, or none yet,
is said to the agent and changes nothing; at most `commands` planning actions stand before an action.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import is_

from quintain.agents.context import Exchange, Rewriting
from quintain.agents.deliberation import with_words
from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.errors import UsageError
from quintain.types import Action, Completion, Observation

COMMAND = re.compile(r"\s*(branch|prune)\s*\[(\d+)\]\s*(.*\S)\s*|\s*(note)\s*\[(.*)\]\s*")
STANDS_FOR = {"go_back": "back", "stop": "answer"}
"""Actions of the paper → words that environments have for them."""
EXPLAIN = (
    "You may plan before you act: branch [PLAN] what to do next; prune [PLAN] why it is given up; note [TEXT] "
    "to remember it."
)


@dataclass(slots=True)
class Plan:
    """A plan of the tree: ``Plan(intent="find the order", parent=1)``."""

    intent: str
    parent: int | None
    """number of the plan above; None: the task"""
    reason: str = ""
    """why it was given up; empty while it was not"""
    notes: list[str] = field(default_factory=list[str])


class PlanTree:
    """Plans, numbered from 1: ``tree.take("branch [1] find the order"); tree.write()``."""

    def __init__(self) -> None:
        """Begin with the task as the one plan."""
        self.plans = [Plan("do the task", None)]
        self.current = 1

    def take(self, text: str) -> str | None:
        """Carry out the planning action `text`; return what is wrong with it, "" if nothing, None where it is none."""
        command = COMMAND.fullmatch(text)
        if command is None:
            return None
        if command[4]:
            self.plans[self.current - 1].notes.append(command[5].strip())
            return ""
        number = int(command[2])
        if not 1 <= number <= len(self.plans) or self.is_pruned(number):
            live = ", ".join(str(each) for each in range(1, len(self.plans) + 1) if not self.is_pruned(each))
            return f"there is no plan {number}; the plans are {live}"
        if command[1] == "branch":
            self.plans.append(Plan(command[3], number))
            self.current = len(self.plans)
            return ""
        above = self.plans[number - 1].parent
        if above is None:
            return "plan 1 is the task, which cannot be given up"
        self.plans[number - 1].reason = command[3]
        if self.is_pruned(self.current):
            self.current = above
        return ""

    def is_pruned(self, number: int) -> bool:
        """Whether plan `number`, or one that it is under, was given up."""
        plan = self.plans[number - 1]
        return bool(plan.reason) or (plan.parent is not None and self.is_pruned(plan.parent))

    def write(self) -> str:
        """Return the tree as text, a plan a line, notes under it; of a plan that was given up the reason alone."""
        return "\n".join(["Plans:", *self._write(1, "")])

    def _write(self, number: int, indent: str) -> list[str]:
        plan = self.plans[number - 1]
        if plan.reason:
            return [f"{indent}plan {number}: {plan.intent} (given up: {plan.reason})"]
        lines = [f"{indent}plan {number}: {plan.intent}{' <- now' if number == self.current else ''}"]
        lines += [f"{indent}  note: {note}" for note in plan.notes]
        under = [n for n, other in enumerate(self.plans, 1) if other.parent == number]
        return [*lines, *(line for each in under for line in self._write(each, f"{indent}  "))]


@dataclass(frozen=True, slots=True)
class Branching:
    """Plans in a tree: ``Branching(PlainText(chat), commands=3)``."""

    agent: Agent
    commands: int = 3
    """Planning actions before an action; one more is an invalid action."""

    def open(self, brief: Brief) -> BranchingSession:
        """See `Agent.open`.

        Raises:
            UsageError: there may be fewer than 0 planning actions.
        """
        if self.commands < 0:
            raise UsageError(f"branching: got commands={self.commands}; give 0 or more")
        return BranchingSession(self, brief)


class BranchingSession(Rewriting):
    """An episode of `Branching`: a turn belongs to the plan that was current when it was asked for."""

    def __init__(self, settings: Branching, brief: Brief) -> None:
        """Begin with the task as the one plan."""
        told = "\n\n".join(part for part in (brief.instructions, EXPLAIN) if part)
        super().__init__(settings.agent, replace(brief, instructions=told))
        self._settings = settings
        self._tree = PlanTree()
        self._turns: list[tuple[int, Exchange]] = []
        """all of the episode, each with the plan that was current"""
        self._legal = brief.legal_actions
        self._left = settings.commands
        self._seen: Observation = ""

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; once there are plans besides the task, the tree stands behind what is seen."""
        self._left, self._seen = self._settings.commands, observation
        self._legal = legal_actions
        return super().observe(observation, legal_actions)

    def kept(self, history: Sequence[Exchange]) -> Sequence[Exchange] | None:
        """See `Rewriting.kept`: the turns of the current plan."""
        own = [exchange for plan, exchange in self._turns if plan == self._tree.current]
        is_shown = len(own) == len(history) and all(map(is_, own, history))
        return None if is_shown else own

    def _prompt(self, observation: Observation, legal_actions: tuple[str, ...]) -> Prompt:
        """See `Rewriting`."""
        tree = self._tree
        is_bare = len(tree.plans) == 1 and not tree.plans[0].notes
        shown = observation if is_bare else with_words(observation, tree.write())
        prompt = super()._prompt(shown, legal_actions)
        self._turns.append((tree.current, self._history[-1]))
        return replace(prompt, role=prompt.role or "plan")

    def read(self, completion: Completion) -> Action:
        """See `Session.read`: a planning action is carried out here, and asked again what to do."""
        action = super().read(completion)
        if self._next is not None or action.error is not None or action.tool_calls:
            return action
        if COMMAND.fullmatch(action.text) is None:
            return self._translate(action)
        if not self._left:
            return replace(action, error=f"{self._settings.commands} planning actions in a row; act now")
        self._left -= 1
        wrong = self._tree.take(action.text)
        seen = with_words(self._seen, f"Error: {wrong}") if wrong else self._seen
        self._next = replace(self._prompt(seen, self._legal), shows=self._tree.write())
        return action

    def _translate(self, action: Action) -> Action:
        """Return `action` in the environment's words, where it is said in those of the paper."""
        verb, _, rest = action.text.strip().partition(" ")
        word = STANDS_FOR.get(verb)
        verbs = {each.partition(" ")[0] for each in self._legal}
        if word is None or verb in verbs or word not in verbs:
            return action
        return replace(action, text=f"{word} {rest.strip().removeprefix('[').removesuffix(']')}".strip())
