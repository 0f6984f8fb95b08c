"""Practice of Youtu-Agent (arXiv 2512.24615; Training-Free GRPO, 2510.08191): learns a list of short experiences.

Each task is attempted several times; of groups whose rewards differ the attempts are contrasted: what did the better
ones do? At most two edits of the list of experiences come of a group (add, update, delete). Of those of a step the ones
are carried out that most groups ask for, and the list stands in the instructions of all later episodes, evaluations
included. No weights change. Any text may be written: what is no edit, or cannot be carried out (an unknown number, a
list that is full), is counted and nothing else. The list stands in the run's file ``notes.jsonl``, for
``experienced?notes=…``; the edits are events of the journal, so that a resumed run has it again.

Differences to the paper: the attempts stand in the question as they are, cut to their ends, and are not summed up
before; the edits of a batch are merged by counting, not by a call; a group is kept where rewards differ, whatever their
range, where the paper asks for a mean between 0 and 1; an update of an unknown number is refused, where its code adds.
Measured on sentences of which some help, contrasted by a script; the paper has mathematics and search on the web.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from quintain.agents.experienced import notes_text, tell_notes
from quintain.agents.reflexion import transcript
from quintain.config.ranges import PositiveFloat, PositiveInt
from quintain.learning.train_config import StepRoundsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.memory.bank import Bank, Edit
from quintain.memory.edits import MAX_LENGTH, merge, read_edits, record_edits, replay_edits
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import Collector, differs
from quintain.types import Group, Trajectory

if TYPE_CHECKING:
    from quintain.store.run import Run

EVENT, NOTES = "practice", "notes.jsonl"
MAX_SHOWN = 600
"""Characters that an attempt shows of itself, its end."""
ASK = (
    "Several attempts at one task are below, with what each earned. In a line of at most 30 words, say what the better "
    "ones did that the others did not, so that it helps with other tasks. Write one or two lines, each of the form "
    "add: TEXT, update NUMBER: TEXT, or delete NUMBER."
)
Write = Callable[[Sequence[str]], Sequence[str]]
"""questions → what is answered to each"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(StepRoundsConfig):
    """Configuration of practice."""

    tasks: PositiveInt = 16
    """Tasks of a step."""
    group_size: PositiveInt = 5
    """Attempts at a task."""
    experiences: PositiveInt = 12
    """Most experiences in the list."""
    edits: PositiveInt = 4
    """Edits of a step at most: those that most groups ask for."""
    temperature: PositiveFloat = 0.7


def method(config: Config) -> Rounds:
    """Return practice as `config` describes it."""
    counts: dict[str, float] = {}
    runs: list[Run] = []

    def bank() -> Bank:
        return (
            replay_edits(runs[0], EVENT, config.experiences)
            if runs
            else Bank(size=config.experiences, length=MAX_LENGTH)
        )

    def collect(collector: Collector, step: int) -> list[Group]:
        runs[:] = [collector.run]
        notes = replay_edits(collector.run, EVENT, config.experiences, before=step)
        tasks = collector.tasks(step, config.tasks)
        groups = collector.sample(
            step, tasks, size=config.group_size, agent=partial(tell_notes, bank=notes.freeze())
        )
        seed = collector.seed("practice", step)
        asked, unread = propose(groups, notes, lambda texts: collector.ask(ASK, texts, seed=seed))
        edits = merge(asked, config.edits)
        refused = notes.edit(edits)
        record_edits(collector.run, EVENT, step, edits)
        notes.save(collector.run.folder / NOTES)
        counts.clear()
        counts.update(
            {
                "practice/experiences": float(len(notes)),
                "practice/edits": float(len(edits)),
                "practice/refused": float(len(refused)),
                "practice/unread": float(unread),
            }
        )
        return groups

    def measure(_groups: Sequence[Group], _decode: Callable[[Sequence[int]], str]) -> Mapping[str, float]:
        return counts

    return Rounds(
        collect=collect,
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        trains=False,
        evaluated=lambda agent: tell_notes(agent, bank().freeze()),
        measure=measure,
    )


def propose(groups: Sequence[Group], notes: Bank, write: Write) -> tuple[list[Edit], int]:
    """Return the edits that the contrasts of `groups` ask for, in order, and how many lines were none."""
    chosen = [group for group in groups if not group.task.is_held_out and differs(group)]
    answers = write([contrast_text(group, notes) for group in chosen])
    read = [read_edits(answer, source=group.task.id) for group, answer in zip(chosen, answers, strict=True)]
    return [edit for edits, _ in read for edit in edits], sum(num for _, num in read)


def contrast_text(group: Group, notes: Bank) -> str:
    """Return the question that contrasts the attempts of `group`, with the experiences so far."""
    parts = [notes_text(notes)] if len(notes) else []
    parts += [
        f"Attempt {number}, which earned {outcome_text(attempt)}:\n{attempt_lines(attempt)}"
        for number, attempt in enumerate(group.scored, 1)
    ]
    return "\n\n".join(parts)


def outcome_text(attempt: Trajectory) -> str:
    """Return what `attempt` earned."""
    return f"{sum(turn.reward for turn in attempt.turns):g}"


def attempt_lines(attempt: Trajectory) -> str:
    """Return what happened in `attempt`, its last `MAX_SHOWN` characters."""
    return "\n".join(transcript(attempt))[-MAX_SHOWN:]
