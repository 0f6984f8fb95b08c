"""The airline's customer, scripted: answers what it is asked, and does with its phone what it is told to do.

What it says and does depends on the case and the lines alone. It never judges: grading is the databases'.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from quintain.environments.dialogue import LEAVES, STOP, Call, Line, Persona
from quintain.types import derive_seed
from quintain.worlds.flights.case import Case

TALK_LIMIT = 5
"""Messages that mean nothing to the customer before it leaves."""
WISHES = {
    "cancel": "I want to cancel a booking.",
    "rebook": "I want another flight for a booking.",
    "bags": "I want to change the bags of a booking.",
    "pass": "I cannot find my boarding pass.",
}
PHONE: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("update_app", re.compile(r"\bupdate", re.IGNORECASE)),
    ("sign_in", re.compile(r"\bsign (?:in|on)\b|\blog ?in\b", re.IGNORECASE)),
    ("get_pass", re.compile(r"\b(?:open|get|load|fetch) (?:the|your) (?:boarding )?pass\b", re.IGNORECASE)),
    ("show_phone", re.compile(r"\bphone\b|\bapp\b|\bscreen\b", re.IGNORECASE)),
)
"""What the customer does with its phone, and the words of the agent that have it do so, the first that fits."""
ASKED: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("name", re.compile(r"\bname\b|\bwho\b", re.IGNORECASE)),
    ("booking", re.compile(r"\bbooking\b|\breservation\b", re.IGNORECASE)),
    ("flight", re.compile(r"\bflight\b", re.IGNORECASE)),
    ("bags", re.compile(r"\bbags\b|\bluggage\b", re.IGNORECASE)),
    ("wish", re.compile(r"\bhelp\b|\bwant\b", re.IGNORECASE)),
)
CLOSING = re.compile(r"\b(?:done|cancelled|rebooked|changed|refuse|cannot|sorry)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Customer:
    """Who is at the desk: ``Customer(case=case, persona=Persona(mishears=.2))``."""

    case: Case
    persona: Persona
    is_hidden: bool = False
    """says not even what it wants, until it is asked"""

    def opening(self) -> str:
        """Return what it says first."""
        return "Hello, I need some help." if self.is_hidden else WISHES[self.case.kind]

    def reply(self, lines: Sequence[Line]) -> str | Call:
        """Return what it does with its phone, or says."""
        last = lines[-1]
        if self.persona.leaves(lines):
            return LEAVES
        told = next(text for speaker, text in reversed(lines) if speaker == "agent")
        wanted = [name for name, pattern in PHONE if pattern.search(told)]
        if last[0] == "agent" and wanted:
            return Call(name=wanted[0], by="user")
        if last[0] == "tool":
            return f"{last[1].partition(': ')[2].removeprefix('Error: ').rstrip('.').capitalize()}."
        seed = derive_seed("flights", self.case.name, self.case.number)
        return self.persona.reply(lines, seed, self._say)

    def _say(self, lines: Sequence[Line]) -> str:
        """Return the answers to what the last of `lines` asks."""
        told, case = lines[-1][1], self.case
        if CLOSING.search(told) and "?" not in told:
            return f"Thank you. {STOP}"
        answers = {
            "name": f"I am {case.name}.",
            "booking": f"Booking {case.number}.",
            "flight": f"Flight {case.flight}." if case.kind == "rebook" else "As it is.",
            "bags": f"{case.bags} bags." if case.kind == "bags" else "As they are.",
            "wish": WISHES[case.kind],
        }
        said = [answers[topic] for topic in topics(told)]
        if said:
            return " ".join(said)
        lost = sum(speaker == "agent" and not topics(text) for speaker, text in lines)
        return "Sorry?" if lost < TALK_LIMIT else f"This leads nowhere. {STOP}"


def topics(told: str) -> tuple[str, ...]:
    """Return what the agent's message asks for; what it wants only where nothing else is asked."""
    asked = tuple(topic for topic, pattern in ASKED if pattern.search(told))
    return tuple(topic for topic in asked if topic != "wish" or len(asked) == 1)
