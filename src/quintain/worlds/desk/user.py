"""The customer at the desk, scripted: says a detail when asked for it, and STOP when the talk is over.

A reply depends on the case and the dialogue alone, so a saved state needs no more than these. The user reveals
nothing it was not asked for, and never judges: grading is the database's.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from quintain.environments.dialogue import STOP, Line
from quintain.types import derive_seed
from quintain.worlds.desk.case import Case

PATIENCE = 4
"""Messages that mean nothing to the user before it leaves."""
REFUSAL = "I must refuse:"
"""How a message begins that the tool `refuse` sends."""
Topic = Literal["wish", "name", "order", "size", "city", "confirm", "closing"]
Dialogue = tuple[Line, ...]
ASKED: tuple[tuple[Topic, re.Pattern[str]], ...] = (
    ("name", re.compile(r"\bname\b|\bwho\b", re.IGNORECASE)),
    ("size", re.compile(r"\bsizes?\b", re.IGNORECASE)),
    ("city", re.compile(r"\bcity\b|\bwhere\b|\baddress\b", re.IGNORECASE)),
    ("order", re.compile(r"\borders?\b|\bnumber\b", re.IGNORECASE)),
    ("confirm", re.compile(r"\bconfirm\b|\bsure\b|\bgo ahead\b|\bshall i\b", re.IGNORECASE)),
    ("wish", re.compile(r"\bhelp\b|\bwhat\b|\bwant\b", re.IGNORECASE)),
)
CLOSING = re.compile(r"\b(done|cancelled|refunded|exchanged|changed|paid|cost|price|was)\b", re.IGNORECASE)
WISHES = {
    "cancel": ("I want to cancel an order.", "Please cancel something I bought."),
    "refund": ("I want to return an order.", "I would like my money back for an order."),
    "exchange": ("I want another size of an order.", "An order has the wrong size, please exchange it."),
    "city": ("I want an order sent elsewhere.", "Please send an order to another city."),
    "price": ("What did I pay for an order?", "I forgot what an order cost me."),
}
OTHERS = (
    "Your parcel broke my window.",
    "I want to work for you.",
    "A lawyer told me to call you.",
    "I lost my gift card.",
    "Your courier was rude.",
)
SMALL_TALK = (
    "It rains a lot here today.",
    "My sister told me about your shop.",
    "Sorry, there is noise on the line.",
    "I have 2 minutes before my train.",
    "I was in your shop at 9, it was closed.",
)


class User(Protocol):
    """Who talks to the agent."""

    def opening(self, case: Case) -> str:
        """Return what the user says first."""
        ...

    def reply(self, case: Case, dialogue: Dialogue) -> str:
        """Return what the user says to the last message of `dialogue`; `STOP` in it ends the talk."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedUser:
    """A user that follows rules: ``ScriptedUser(is_hidden=True)`` does not even say what it wants at first."""

    is_hidden: bool = False
    is_noisy: bool = False
    """says the same in different words, and other things besides"""

    def opening(self, case: Case) -> str:
        """See `User.opening`."""
        said = "Hello, I need some help." if self.is_hidden else self._wish(case, 0)
        return self._with_noise(case, said, 0)

    def reply(self, case: Case, dialogue: Dialogue) -> str:
        """See `User.reply`."""
        said, count = dialogue[-1][1], len(dialogue)
        asked = topics(said)
        if said.startswith(REFUSAL):
            return self._after_refusal(case, dialogue)
        if "closing" in asked:
            return f"Thank you. {STOP}"
        if not asked:
            puzzled = sum(speaker == "agent" and not topics(text) for speaker, text in dialogue)
            return "Sorry?" if puzzled < PATIENCE else f"This leads nowhere. {STOP}"
        answers: dict[Topic, Callable[[], str]] = {
            "wish": lambda: self._wish(case, count),
            "name": lambda: f"I am {case.name}.",
            "order": lambda: f"The {case.item}." if case.is_vague else f"Order {case.order}.",
            "size": lambda: self._value(case, dialogue, "exchange"),
            "city": lambda: self._value(case, dialogue, "city"),
            "confirm": lambda: self._confirmation(case),
        }
        return self._with_noise(case, " ".join(answers[topic]() for topic in asked), count)

    def _after_refusal(self, case: Case, dialogue: Dialogue) -> str:
        refusals = sum(speaker == "agent" and text.startswith(REFUSAL) for speaker, text in dialogue)
        if case.is_pushy and refusals < 2:
            return self._with_noise(case, "Please, make an exception.", len(dialogue))
        return f"I see. {STOP}"

    def _wish(self, case: Case, count: int) -> str:
        if case.kind == "other":
            return OTHERS[case.window * case.order % len(OTHERS)]
        words = WISHES[case.kind]
        return words[_chance(case, count) % len(words)] if self.is_noisy else words[0]

    def _value(self, case: Case, dialogue: Dialogue, kind: str) -> str:
        if case.kind != kind:
            return "As it is."
        value = case.value if has_asked(dialogue[:-1], "confirm") else case.first_value
        return f"To {value}." if kind == "city" else f"{value.capitalize()}."

    def _confirmation(self, case: Case) -> str:
        if case.first_value == case.value:
            return "Yes."
        return f"No, {'to ' if case.kind == 'city' else ''}{case.value} instead."

    def _with_noise(self, case: Case, said: str, count: int) -> str:
        if not self.is_noisy:
            return said
        chance = _chance(case, count)
        talk = SMALL_TALK[chance % len(SMALL_TALK)]
        return f"{talk} {said}" if chance & 64 else f"{said} {talk}"


def topics(said: str) -> tuple[Topic, ...]:
    """Return what the agent's message `said` asks for, or that it closes the talk.

    A message with a question mark asks before it tells; one without tells before it asks. A bare number tells.
    """
    asked: tuple[Topic, ...] = tuple(topic for topic, pattern in ASKED if pattern.search(said))
    if "wish" in asked and len(asked) > 1:
        asked = tuple(topic for topic in asked if topic != "wish")
    is_closing = bool(CLOSING.search(said)) or (not asked and any(letter.isdigit() for letter in said))
    if is_closing and ("?" not in said or not asked):
        return ("closing",)
    return asked


def has_asked(dialogue: Dialogue, topic: Topic) -> bool:
    """Whether the agent asked for `topic` in `dialogue`."""
    return any(speaker == "agent" and topic in topics(text) for speaker, text in dialogue)


def _chance(case: Case, count: int) -> int:
    return derive_seed("desk user", case.name, case.order, case.price, count)
