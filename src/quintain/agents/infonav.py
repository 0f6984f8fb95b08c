"""InfoNav: a plan whose facts are known or unknown leads what an agent says (iAgents, arXiv 2406.14928).

Agents of several people talk, each of whom sees its own person's data alone. Before its first message an agent writes
a plan with the facts that it takes, each in brackets, and then which of them it knows: ``[fig]`` is unknown, ``(fig:
3)`` is known. At every later turn it writes what it has learned, and each message is asked for with what is still
unknown beside it. A plan without brackets is one fact, the whole task, and unknown; marks that cannot be read change
nothing; a fact that stands in no plan is not added. All of that is said in the agent's own conversation, so nothing in
it comes from another's data but what that one has said.

What is private may be long: with `recall` its sentences go into a bank of the seat's own, and each turn shows those
that name an unknown fact (exact) and those most like what was heard and is unknown (fuzzy). Sentences that ask, and
what stands behind the last of them, are shown; sentences that are in the bank are not shown again.

Differences to the paper: marks are lines ``fact: value``, read by name, where it rewrites the plan; what is looked for
is what is unknown, where a model writes the query; likeness is a cosine of words, not of embeddings; two agents who
have to agree are the environment's affair (`twocards?consensus=true`), and so is the bound of turns; no third agent is
called in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Literal

from quintain.agents.deliberation import Deliberation, Words, with_words
from quintain.agents.experience import rank_by_likeness
from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.errors import UsageError
from quintain.memory.bank import Bank, Edit
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Observation, as_text

PLAN = "First write in a line how to solve this, with each fact that it takes in square brackets."
MARK = "Now write which of these facts you know, a line for each: FACT: VALUE. Write none if you know none."
UPDATE = "Write which of the unknown facts you know now, a line for each: FACT: VALUE. Write none if you know none."
NONE = "none"
WHOLE = "the answer"
"""The fact of a plan that names none."""
MAX_NAME, MAX_VALUE = 60, 120
"""Characters of a fact's name and of its value."""
_SLOT = re.compile(rf"\[([^\[\]\n]{{1,{MAX_NAME}}})\]")
_LINE = re.compile(r"[\s\-*(]*\[?([^:\[\]\n]+?)\]?\s*[:=]\s*(.+?)[)\s]*")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_UNKNOWN = frozenset({"", "?", "unknown", "none", "n/a", "not known"})
"""Values that say that there is none."""
Stage = Literal["plan", "marks", "act"]


@dataclass(slots=True)
class Facts:
    """The facts of a plan, in order, with the values of those that are known: ``Facts({"fig": "3", "blue": ""})``."""

    values: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def read(cls, plan: str, most: int) -> Facts:
        """Return the facts in brackets in `plan`, at most so many, all unknown; without one, the whole task."""
        names = list(dict.fromkeys(found.strip() for found in _SLOT.findall(plan) if found.strip()))
        return cls(dict.fromkeys(names[:most] or [WHOLE], ""))

    def mark(self, text: str) -> None:
        """Take in the lines of `text` that give an unknown fact of the plan a value."""
        names = {name.lower(): name for name in self.values}
        for line in text.splitlines():
            found = _LINE.fullmatch(line)
            name = names.get(found[1].strip().lower()) if found else None
            if found and name and found[2].strip().lower().rstrip(".") not in _UNKNOWN:
                self.values[name] = found[2].strip()[:MAX_VALUE]

    @property
    def unknown(self) -> list[str]:
        """The names of those without a value."""
        return [name for name, value in self.values.items() if not value]

    @property
    def words(self) -> str:
        """What stands beside the question for a message."""
        shown = ", ".join(
            f"({name}: {value})" if value else f"[{name}]" for name, value in self.values.items()
        )
        rest = ", ".join(self.unknown)
        return f"Facts: {shown}. " + (f"Unknown: {rest}." if rest else "Nothing is unknown: conclude.")


@dataclass(frozen=True, slots=True)
class InfoNav:
    """A plan of facts before each message: ``InfoNav(PlainText(chat), chat)``."""

    agent: Agent
    chat: Chat
    facts: int = 8
    """Most facts of a plan."""
    recall: int = 0
    """Sentences of what is private that a turn shows, looked up by what is unknown; 0: all of it, once."""
    max_tokens: int = 96
    """Tokens of a plan, and of marks."""

    def __post_init__(self) -> None:
        """Refuse a plan of nothing."""
        if self.facts < 1 or self.recall < 0:
            raise UsageError(
                f"infonav: got facts={self.facts}, recall={self.recall}; give facts of 1 or more, recall of 0 or more"
            )

    def open(self, brief: Brief) -> InfoNavSession:
        """See `Agent.open`."""
        return InfoNavSession(self, brief)


class InfoNavSession(Deliberation):
    """An episode of `InfoNav`, of one seat."""

    def __init__(self, settings: InfoNav, brief: Brief) -> None:
        """Know nothing yet."""
        super().__init__(settings.agent, brief)
        self._settings = settings
        self._words = Words(settings.chat, settings.max_tokens)
        self._legal = brief.legal_actions
        self._stage: Stage = "act"
        self._heard: list[str] = []
        self.facts: Facts | None = None
        """What the plan takes; None before there is one."""
        self.bank = Bank()
        """What is private, sentence by sentence."""

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`: before a message a plan or marks are asked for."""
        self._legal = legal_actions or self._legal
        self._heard.append(as_text(observation))
        shown = self._hide(observation) if self._settings.recall else observation
        if self.facts is None:
            self._stage = "plan"
            return self._ask(with_words(shown, PLAN), "plan")
        if not self.facts.unknown:
            self._stage = "act"
            return self._inner.observe(with_words(shown, self.facts.words), self._legal)
        self._stage = "marks"
        return self._ask(with_words(shown, f"{self._recollect()}{UPDATE}"), "marks")

    def read(self, completion: Completion) -> Action:
        """See `Session.read`: a plan, marks, or a message."""
        if self._stage == "act":
            return self._inner_read(completion)
        text = self._words.read(completion)
        self._inner_ends(completion)
        if self._stage == "plan":
            self.facts = Facts.read(text, self._settings.facts)
            self._stage = "marks"
            self._next = self._ask(f"{self._recollect()}{self.facts.words} {MARK}", "marks")
        else:
            assert self.facts is not None, "a plan comes first"
            self.facts.mark(text)
            self._stage = "act"
            words = f"{self.facts.words} Now act."
            self._next = replace(self._inner.observe(words, self._legal), shows=words)
        return Action(text=text)

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`; demonstrated plans name what the question does, marks what was seen or heard of it."""
        if self._stage == "act":
            return self._inner.write(action)
        if self._stage == "plan":
            names = [
                word
                for part in split_sentences(self._heard[0])
                if part.endswith("?")
                for word in _names(part)
            ]
            return self._words.write(" ".join(f"[{name}]" for name in names[: self._settings.facts]) or NONE)
        assert self.facts is not None, "a plan comes first"
        found = {name: find_value(name, "\n".join(self._heard)) for name in self.facts.unknown}
        return self._words.write(
            "\n".join(f"{name}: {value}" for name, value in found.items() if value) or NONE
        )

    def _ask(self, words: Observation, role: str) -> Prompt:
        """Return the prompt for text that is a `role`."""
        prompt = self._inner.observe(words, self._legal)
        return self._words.ask(prompt, role, as_text(words))

    def _hide(self, observation: Observation) -> str:
        """Return what is shown of `observation`; what is private in the first one goes into the bank."""
        sentences = split_sentences(as_text(observation))
        if self.facts is None:
            last = max(
                (k for k, each in enumerate(sentences) if each.endswith("?")), default=len(sentences) - 1
            )
            told = dict.fromkeys(each for each in sentences[:last] if not each.endswith("?"))
            self.bank.edit([Edit(kind="add", key=each, text=each, source="own") for each in told])
        kept = {entry.text for entry in self.bank.entries}
        return " ".join(each for each in sentences if each not in kept)

    def _recollect(self) -> str:
        """Return what the bank says of what is unknown and of what was heard; empty without `recall`."""
        if not self._settings.recall or self.facts is None:
            return ""
        unknown, last = self.facts.unknown, self._heard[-1] if len(self._heard) > 1 else ""
        exact = [
            entry.text for entry in self.bank.entries if any(has_name(entry.text, name) for name in unknown)
        ]
        query = " ".join([*unknown, last])
        reads = self.bank.read(query, self._settings.recall, rank=rank_by_likeness, least=0.0)
        found = list(dict.fromkeys([*exact, *(read.entry.text for read in reads)]))
        return "".join(f"You recall: {text}\n" for text in found[: self._settings.recall])


def split_sentences(text: str) -> list[str]:
    """Return the sentences and lines of `text`."""
    return [part.strip() for part in _SENTENCE.split(text) if part.strip()]


def has_name(text: str, name: str) -> bool:
    """Return whether all words of `name` stand in `text`."""
    return set(_names(name)) <= set(_names(text))


def find_value(name: str, text: str) -> str:
    """Return what `text` says last that `name` is, by ``NAME = VALUE``, ``NAME is VALUE`` or ``say NAME VALUE``."""
    found = re.findall(
        rf"\b{re.escape(name)}\s*(?:=|:|is\b)\s*(\w+)|\bsay {re.escape(name)} (\w+)", text, re.I
    )
    return next((one or other for one, other in reversed(found)), "")


def _names(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())
