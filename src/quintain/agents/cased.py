"""Cases of earlier tasks, told to whoever acts; which of them is learned, the model is not (Memento, arXiv 2508.16153).

A case is a task as it began, what was done, and whether that solved it; failures are kept and told as such. Training
draws cases in proportion to exp(Q/α), so that every case gets labels and not only those that are liked already;
evaluations read the best, and neither read the task's own cases nor leave any.

What was read is not written down: the memory is a fold over recorded episodes, and reading is a function of it, the
task and how often it was told of episodes, so that a resumed run knows what each episode had been told.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from quintain.agents.deliberation import Deliberation, with_words
from quintain.agents.experience import as_experience, likeness, rank_by_likeness
from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.errors import DataError, UsageError, suggestion
from quintain.memory.bank import Bank, Edit, Entry, Read, load_bank
from quintain.memory.retrieval import CaseValue, Label, kernel_values
from quintain.store.files import replace_file
from quintain.types import Group, Observation, Task, as_text, derive_seed, flatten_scored
from quintain.types.json_text import load_json

By = Literal["value", "kernel", "likeness"]
MAX_TEXT = 400
"""Characters that a case tells of what was done; what came later is left out."""
CASES, LABELS = "cases.jsonl", "labels.jsonl"
WORKED, FAILED = "Cases like this one that were solved:", "Cases that were not solved:"


class CaseMemory:
    """Cases and what reading them came to, a state of a run: ``CaseMemory(count=4).read(task, "Goal: egg.")``.

    Args:
        count: cases that an episode is told.
        by: what they are read by: a learned value, a kernel over what was labelled, or likeness of words alone.
        spread: α of μ ∝ exp(Q/α), in training.
        size: most cases; the oldest make room.
        bank: what is known from the beginning.
        labels: what was learned of it.
    """

    def __init__(
        self,
        *,
        count: int = 4,
        by: By = "value",
        spread: float = 0.1,
        size: int = 500,
        bank: Bank | None = None,
        labels: Sequence[Label] = (),
    ) -> None:
        if by not in get_args(By):
            raise UsageError(f"cases are read by: got {by!r}; {suggestion(by, get_args(By))}")
        self.count, self.by, self.spread = count, by, spread
        self.bank = bank or Bank(size=size, evicts=True)
        self.labels = list(labels)
        self.num_updates = 0
        self._value: CaseValue | None = None

    def read(self, task: Task, begins: str) -> list[Read]:
        """Return the cases that an episode of `task` is told, which begins with `begins`."""
        return self.bank.read(
            begins,
            self.count,
            rank=self.rank,
            without=[task.id],
            temperature=0.0 if task.is_held_out or self.by == "likeness" else self.spread,
            seed=derive_seed("cases", self.num_updates, task.id),
        )

    def rank(self, query: str, entries: Sequence[Entry]) -> Sequence[float]:
        """Return Q of each of `entries`, or how like its words are."""
        if self.by == "likeness":
            return rank_by_likeness(query, entries)
        if self.by == "kernel":
            return kernel_values(query, entries, self.labels, like=likeness)
        if self._value is None:
            self._value = CaseValue()
            self._value.fit(self.labels)
        return self._value.values(query, entries)

    def update(self, groups: Sequence[Group]) -> None:
        """Label what the episodes of `groups` had been told, and keep them as cases; see `State`."""
        episodes = [t for t in flatten_scored(groups) if t.turns and not t.task.is_held_out]
        made = [(t, as_experience(t)) for t in episodes]
        self.labels += [
            Label(query=own.begins, case=read.entry, chance=read.chance, outcome=float(t.is_success))
            for t, own in made
            for read in self.read(t.task, own.begins)
        ]
        self.bank.edit(
            Edit(
                kind="add",
                key=own.begins,
                text=" ".join("; ".join(own.actions).split())[:MAX_TEXT] or "nothing",
                value=float(t.is_success),
                source=own.task,
            )
            for t, own in made
        )
        self.num_updates += 1
        self._value = None

    def save(self, folder: Path) -> None:
        """Write cases and labels into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        self.bank.save(folder / CASES)
        lines = [json.dumps(asdict(label), ensure_ascii=False) for label in self.labels]
        replace_file(folder / LABELS, "".join(f"{line}\n" for line in lines).encode())


def load_cases(folder: Path, *, count: int, by: By) -> CaseMemory:
    """Return the memory that `CaseMemory.save` wrote into `folder`, frozen.

    Raises:
        DataError: there is none.
    """
    bank = load_bank(folder / CASES).freeze()
    try:
        rows = [load_json(line) for line in (folder / LABELS).read_text(encoding="utf-8").split("\n") if line]
        made: list[dict[str, Any]] = [{**row, "case": Entry(**row["case"])} for row in rows]
        labels = [Label(**row) for row in made]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"labels of cases: got {folder / LABELS}, which holds none ({error}); name another"
        ) from error
    return CaseMemory(count=count, by=by, bank=bank, labels=labels)


@dataclass(frozen=True, slots=True)
class Cased:
    """A harness that is told cases: ``cased?cases=runs/NAME/cases``."""

    agent: Agent
    cases: str = ""
    """Folder of cases, as a run of `memento` keeps them."""
    count: int = 4
    """Cases that an episode is told."""
    by: By = "value"
    """What they are read by: value, kernel or likeness."""
    memory: CaseMemory | None = field(default=None, init=False, compare=False)

    def __post_init__(self) -> None:
        """Read the cases, where a folder is named.

        Raises:
            DataError: it holds none.
            UsageError: there is no such way to read.
        """
        if self.cases:
            object.__setattr__(self, "memory", load_cases(Path(self.cases), count=self.count, by=self.by))

    def open(self, brief: Brief) -> CasedSession:
        """See `Agent.open`."""
        return CasedSession(self.agent, brief, self.memory)


def tell_cases(agent: Agent, memory: CaseMemory) -> Cased:
    """Return `agent` as it is told cases of `memory`."""
    told = Cased(agent)
    object.__setattr__(told, "memory", memory)
    return told


class CasedSession(Deliberation):
    """An episode of `Cased`."""

    def __init__(self, agent: Agent, brief: Brief, memory: CaseMemory | None) -> None:
        """Open the inner session."""
        super().__init__(agent, brief)
        self._memory = memory

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; the first observation is followed by the cases."""
        memory, self._memory = self._memory, None
        words = "" if memory is None else case_words(memory.read(self._brief.task, as_text(observation)))
        return super().observe(with_words(observation, words) if words else observation, legal_actions)


def case_words(reads: Sequence[Read]) -> str:
    """Return cases as they are told, what was solved apart from what was not; empty where there is none."""
    parts: list[str] = []
    for head, is_solved in ((WORKED, True), (FAILED, False)):
        lines = [f"- {r.entry.key} Done: {r.entry.text}" for r in reads if (r.entry.value > 0) == is_solved]
        parts += ["\n".join([head, *lines])] if lines else []
    return "\n".join(parts)
