"""Two controllers around code as actions: which policy speaks next, and which functions it may choose from.

PoAct (arXiv 2501.07054): the policy controller lets a plan be made first and when code has failed `patience` times in
a row, and before all code a thought that says what is next. The action controller lists to code the `functions` that
share the most telling words with what was seen, planned and thought since code ran last, of the environment's tools and
of functions that were kept (DynaSaur), and reviews code before it runs (`quintain.agents.code_review`): a draft that is
certain to fail is asked for again, `reviews` times, without a step of the environment. The last one is carried out.

Each policy is a question in one conversation, and tokens are only appended. Functions that are not listed can be
called all the same, by who knows them.

Differences to the paper: the controllers are rules, where those of the paper are prompts (the switch follows the stage
of the work in both); the words of functions find them, where the paper has embeddings of tools and examples; a policy's
question stays in the conversation, where the paper puts another one in its place. Texts of prompts are our own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from quintain.agents.code import CodeAct, find_shelf
from quintain.agents.code_review import find_bound, review_code
from quintain.agents.code_world import WRONG, InCode, describe_functions, describe_tool
from quintain.agents.deliberation import Deliberation, Words, describe_action, with_words
from quintain.agents.library import rank_by_words
from quintain.agents.protocol import Agent, Brief, Prompt, equip, equipping
from quintain.environments.protocol import Environment
from quintain.errors import UsageError
from quintain.memory.bank import Entry
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Observation, as_text

Policy = Literal["plan", "thought", "code"]
STAGES = (
    "You work in steps. Plan: the way to what is asked. Thought: what is next, and which functions that needs. "
    "Code: Python that does it; what it prints is told to you."
)
"""Told once, for all policies."""
QUESTIONS: dict[Policy, str] = {
    "plan": "Plan: write in words the steps to what is asked, and no code.",
    "thought": "Thought: write in words what is next and which functions that needs, and no code.",
    "code": "Code: do what is next. Functions:",
}
REFUSED = "Code: refused before it ran, for"
FAILED = re.compile(
    rf"Traceback \(most recent call last\)|^Error: |The code was stopped: |{re.escape(WRONG)}", re.M
)
"""What is told of code that failed."""


def choose_policy(last: Policy | None, failures: int, patience: int) -> Policy:
    """Return the policy that speaks after `last` (None: at the beginning), where code failed `failures` times in a row.

    A plan is made at the beginning and after every `patience` failures, then a thought, then code.
    """
    if last is None or (last == "code" and failures > 0 and failures % patience == 0):
        return "plan"
    return "code" if last == "thought" else "thought"


def choose_functions(query: str, entries: Sequence[Entry], count: int) -> tuple[Entry, ...]:
    """Return the `count` of `entries` that fit `query` best (`rank_by_words`), of equal ones the first, best first."""
    scores = rank_by_words(query, entries)
    order = sorted(range(len(entries)), key=lambda place: -scores[place])
    return tuple(entries[place] for place in order[:count])


@dataclass(frozen=True, slots=True)
class PoAct:
    """Planned, thought over, and reviewed code: ``PoAct(CodeAct(chat), chat, functions=8)``, ``poact+code``."""

    agent: Agent
    chat: Chat
    functions: int = 8
    """Functions that are listed to code, of those that there are."""
    reviews: int = 2
    """Times in a turn that a draft of code may be refused."""
    patience: int = 2
    """Failures in a row after which a new plan is made."""
    max_tokens: int = 96
    """Tokens of a plan or a thought."""

    def __post_init__(self) -> None:
        """Refuse what leaves nothing to choose from, and agents that write no code."""
        if min(self.functions, self.patience) < 1 or self.reviews < 0:
            given = f"functions={self.functions}, patience={self.patience}, reviews={self.reviews}"
            raise UsageError(
                f"poact: got {given}; give 1 or more functions and patience, and no negative number"
            )
        if not isinstance(equipping(self.agent), CodeAct):
            raise UsageError(
                f"poact: got {type(self.agent).__name__} inside, which is no agent that writes code; write poact+code"
            )

    def open(self, brief: Brief) -> PoActSession:
        """See `Agent.open`."""
        return PoActSession(self, brief)

    def equip(self, environment: Environment) -> Environment:
        """Return `environment` with a Python in front of it, whose functions are listed here and not there."""
        world = equip(self.agent, environment)
        assert isinstance(world, InCode), "what writes code brings it"
        world.lists_functions = False
        return world


class PoActSession(Deliberation):
    """An episode of `PoAct`; `next_policy` and `next_functions` are its two controllers."""

    def __init__(self, settings: PoAct, brief: Brief) -> None:
        """Open the conversation."""
        instructions = "\n\n".join(part for part in (brief.instructions, STAGES) if part)
        super().__init__(settings.agent, replace(brief, instructions=instructions))
        self._settings = settings
        self._words = Words(settings.chat, settings.max_tokens)
        self._tools, self._legal = brief.tools, brief.legal_actions
        kept = find_shelf(settings.agent).usable({tool.name for tool in brief.tools})
        lines = zip(kept, describe_functions(kept), strict=True)
        self._entries = (
            *(Entry(id=t.name, key=f"{t.name} {t.description}", text=describe_tool(t)) for t in brief.tools),
            *(Entry(id=f.name, key=f"{f.name} {f.description}", text=line) for f, line in lines),
        )
        self._bound = frozenset(found.name for found in kept)
        """names that code can call beside tools"""
        self._policy: Policy | None = None
        self._listed: tuple[Entry, ...] = ()
        self._said: list[str] = []
        """what was seen, planned, thought and drafted since code ran"""
        self._failures = self._refusals = 0

    def next_policy(self) -> Policy:
        """Return the policy that speaks next."""
        return choose_policy(self._policy, self._failures, self._settings.patience)

    def next_functions(self) -> tuple[Entry, ...]:
        """Return the functions that are listed to code now."""
        return choose_functions(" ".join(self._said), self._entries, self._settings.functions)

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; the question of the next policy follows what is seen."""
        self._legal = legal_actions or self._legal
        seen = as_text(observation)
        self._failures = self._failures + 1 if self._policy is not None and FAILED.search(seen) else 0
        self._said, self._refusals = [seen], 0
        return self._ask(observation)

    def read(self, completion: Completion) -> Action:
        """See `Session.read`: a plan, a thought, or a draft of code."""
        if self._policy != "code":
            self._inner_ends(completion)
            said = self._words.read(completion)
            self._said.append(said)
            self._next = self._ask()
            return Action(text=said)
        draft = self._inner_read(completion)
        if self._next is not None:
            return draft  # what is inside has more to say
        fault = draft.error or review_code(draft.text, self._tools, self._bound)
        if fault and self._refusals < self._settings.reviews:
            self._refusals += 1
            self._said.append(draft.text)
            self._next = self._refuse(fault)
        else:
            self._bound |= find_bound(draft.text)
        return draft

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`; a demonstration plans and thinks of its next action."""
        return (
            self._inner.write(action)
            if self._policy == "code"
            else self._words.write(describe_action(action))
        )

    def _ask(self, seen: Observation | None = None) -> Prompt:
        """Return the question of the next policy, behind what was `seen`."""
        self._policy = self.next_policy()
        words = QUESTIONS[self._policy]
        if self._policy == "code":
            words = f"{words}\n{self._list()}"
        shown = words if seen is None else with_words(seen, words)
        prompt, shows = self._inner.observe(shown, self._legal), words if seen is None else None
        if self._policy != "code":
            return self._words.ask(prompt, self._policy, shows)
        return replace(prompt, role=prompt.role or self._policy, shows=shows)

    def _refuse(self, fault: str) -> Prompt:
        """Return the question for another draft, with functions that the refused one's words find."""
        before = self._listed
        listed = self._list()
        words = f"{REFUSED} {fault}." + f"\nFunctions:\n{listed}" * (self._listed != before)
        return replace(self._inner.observe(words, self._legal), role="code", shows=words)

    def _list(self) -> str:
        """Choose functions, and return a line of each."""
        self._listed = self.next_functions()
        return "\n".join(entry.text for entry in self._listed)
