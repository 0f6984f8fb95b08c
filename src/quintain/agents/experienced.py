"""Short experiences in the instructions: what practice found out, told to every episode (Youtu-Agent, 2512.24615).

The experiences are a bank of entries; `quintain.methods.agents.practice` writes it. All of them are told, oldest first,
each with its number, by which it may be changed or deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from quintain.agents.protocol import Agent, Brief, Session
from quintain.memory.bank import Bank, load_bank

HEAD = "What was learned from earlier tasks:"


@dataclass(frozen=True, slots=True)
class Experienced:
    """A harness that is told experiences: ``experienced?notes=runs/NAME/notes.jsonl``."""

    agent: Agent
    notes: str = ""
    """File of experiences, as a run of `practice` keeps them."""
    bank: Bank | None = field(default=None, init=False, compare=False)

    def __post_init__(self) -> None:
        """Read the notes, where a file is named.

        Raises:
            DataError: it holds none.
        """
        if self.notes:
            object.__setattr__(self, "bank", load_bank(Path(self.notes)).freeze())

    def open(self, brief: Brief) -> Session:
        """See `Agent.open`."""
        told = "" if self.bank is None else notes_text(self.bank)
        instructions = "\n\n".join(part for part in (brief.instructions, told) if part)
        return self.agent.open(replace(brief, instructions=instructions))


def tell_notes(agent: Agent, bank: Bank) -> Experienced:
    """Return `agent` as it is told what is in `bank`."""
    told = Experienced(agent)
    object.__setattr__(told, "bank", bank)
    return told


def notes_text(bank: Bank) -> str:
    """Return the experiences as they are told: ``[3] Look first.``; empty where there is none."""
    lines = [f"[{entry.id}] {entry.text}" for entry in bank.entries]
    return "\n".join([HEAD, *lines]) if lines else ""
