"""LIET (arXiv 2506.07232): learns what actions cost, each agent for itself, and notes that teammates share.

f(observation, action) → steps to go, by censored regression on exploration; notes ← edits that talks of a step ask for.

Before the first step, episodes at random and of an expert that acts at random now and then are played, no model asked,
and f is fitted to how many steps came before the goal (`quintain.memory.utility`). From then on every seat is told f of
the actions that are open to it, from its own observations alone, and a list of notes that all seats share. After each
task the model reads what teammates said and did in its attempts, and how many steps that took, and asks for at most two
edits of the list; those that most tasks ask for are carried out. No weights change, and evaluations leave no notes. f
stands in the run's file ``utility.json``, the list in ``notes.jsonl``: ``costed?utility=…+experienced?notes=…``.

Differences to the paper: an action is one step, so f is what is left to the goal, where the paper has high-level
actions and what it takes to carry them out; f is a regression over words, where the paper tunes a language model by
LoRA; notes come of the attempts at a task together, and none of held-out tasks. Its code was not read. Measured in a
room with a flag, and on talks of two seats whose notes a script writes; the paper has C-WAH and TDW-MAT.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from random import Random
from typing import cast

from quintain.agents.costed import Costed, tell_costs
from quintain.agents.experienced import notes_text, tell_notes
from quintain.agents.protocol import Agent
from quintain.config.ranges import PositiveInt, Share
from quintain.environments.protocol import (
    Environment,
    Expert,
    Legal,
    Seats,
    advance,
    begin,
    environment_name,
)
from quintain.errors import UsageError
from quintain.learning.train_config import StepRoundsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.memory.bank import Bank, Edit
from quintain.memory.edits import merge, read_edits, record_edits, replay_edits
from quintain.memory.utility import CostSample, StepsToGo
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import Collector
from quintain.types import Action, Group, StepResult, Task, Trajectory, as_text, derive_seed, flatten_scored

EVENT, NOTES, UTILITY = "liet", "notes.jsonl", "utility.json"
MAX_SHOWN = 600
"""Characters that an attempt shows of itself, its end."""
ASK = (
    "Attempts of a team at one task are below, with what was said and done and how many steps it took. In a line of "
    "at most 30 words, say what teammates should tell or ask each other, so that other tasks take fewer steps. Write "
    "one or two lines, each of the form add: TEXT, update NUMBER: TEXT, or delete NUMBER."
)
Write = Callable[[Sequence[str]], Sequence[str]]
"""questions → what is answered to each"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(StepRoundsConfig):
    """Configuration of LIET."""

    environment: str = "twocards"
    explored: PositiveInt = 600
    """Episodes of exploration that f is fitted to, half of them at random."""
    noise: Share = 0.5
    """Chance of an action at random in the other half, where the environment has an expert."""
    tasks: PositiveInt = 8
    """Tasks of a step."""
    group_size: PositiveInt = 4
    """Attempts at a task."""
    notes: PositiveInt = 12
    """Most notes in the list."""
    edits: PositiveInt = 4
    """Edits of a step at most: those that most tasks ask for."""


def method(config: Config) -> Rounds:
    """Return LIET as `config` describes it."""
    utility, counts = StepsToGo(), dict[str, float]()
    notes: list[Bank] = []

    def tell(agent: Agent) -> Agent:
        return tell_team(agent, utility, notes[-1] if notes else Bank())

    def collect(collector: Collector, step: int) -> list[Group]:
        if not utility.is_fitted:
            with closing(collector.rollout.make_environment()) as environment:
                tasks = collector.tasks(0, config.explored)
                samples = explore_all(environment, tasks, config.noise, collector.seed("explore"))
            utility.fit(samples)
            utility.save(collector.run.folder / UTILITY)
            counts["liet/explored"] = float(len(samples))
        bank = replay_edits(collector.run, EVENT, config.notes, before=step)
        notes[:] = [bank.freeze()]
        groups = collector.sample(
            step, collector.tasks(step, config.tasks), size=config.group_size, agent=tell
        )
        seed = collector.seed("reflect", step)
        asked, unread = reflect(groups, bank, lambda texts: collector.ask(ASK, texts, seed=seed))
        edits = merge(asked, config.edits)
        refused = bank.edit(edits)
        record_edits(collector.run, EVENT, step, edits)
        bank.save(collector.run.folder / NOTES)
        notes[:] = [bank.freeze()]
        found = {"notes": len(bank), "edits": len(edits), "refused": len(refused), "unread": unread}
        counts.update({f"liet/{name}": float(count) for name, count in found.items()})
        return groups

    def measure(groups: Sequence[Group], _: Callable[[Sequence[int]], str]) -> Mapping[str, float]:
        steps = [len(t.turns) for t in flatten_scored(groups) if t.is_success]
        return counts | ({"liet/steps": sum(steps) / len(steps)} if steps else {})

    return Rounds(
        collect=collect,
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        trains=False,
        evaluated=tell,
        measure=measure,
    )


def tell_team(agent: Agent, utility: StepsToGo, notes: Bank) -> Costed:
    """Return `agent` as every seat plays it: told what its own actions cost, and the notes that all share."""
    return tell_costs(tell_notes(agent, notes), utility)


def explore_all(environment: Environment, tasks: Sequence[Task], noise: float, seed: int) -> list[CostSample]:
    """Return the steps of an episode of each of `tasks`, every second one at random throughout."""
    return [
        sample
        for number, task in enumerate(tasks)
        for sample in explore(
            environment, task, 1.0 if number % 2 else noise, Random(derive_seed(seed, number))
        )
    ]


def explore(environment: Environment, task: Task, noise: float, rng: Random) -> list[CostSample]:
    """Return the steps of an episode, with what the seat whose turn it was saw, and how many were left to the goal.

    Each action is the expert's, or, with a chance of `noise` and where there is none, one of those that are legal. A
    step of an episode that ended without the goal is as many away as an episode may have.

    Raises:
        UsageError: the environment does not list what can be done.
    """
    if not isinstance(environment, Legal):
        raise UsageError(
            f"exploration: got {environment_name(environment)}, which does not list what can be done; take an "
            "environment with legal_actions"
        )
    world: Environment = environment
    has_expert, has_seats = isinstance(world, Expert), isinstance(world, Seats)
    seen, begins = as_text(begin(world, task)), dict[str, str]()
    lived: list[tuple[str, str, str]] = []
    result: StepResult | None = None
    while (result is None or not result.is_over) and len(lived) < world.max_turns:
        first = begins.setdefault(cast(Seats, world).seat() if has_seats else "", seen)
        is_random = rng.random() < noise or not has_expert
        legal = cast(Legal, world).legal_actions()
        text = rng.choice(legal) if is_random else cast(Expert, world).expert_action().text
        lived.append((first, seen, text))
        result = advance(world, Action(text=text))
        seen = as_text(result.observation)
    is_solved = result is not None and bool(result.is_success)
    is_lost = result is not None and result.is_terminated and not is_solved
    return [
        CostSample(*step, world.max_turns if is_lost else len(lived) - number, not is_solved)
        for number, step in enumerate(lived)
    ]


def reflect(groups: Sequence[Group], notes: Bank, write: Write) -> tuple[list[Edit], int]:
    """Return the edits that what happened in `groups` asks for, in order, and how many lines were none."""
    chosen = [group for group in groups if not group.task.is_held_out and group.scored]
    answers = write([talk_text(group, notes) for group in chosen])
    read = [read_edits(answer, source=group.task.id) for group, answer in zip(chosen, answers, strict=True)]
    return [edit for edits, _ in read for edit in edits], sum(num for _, num in read)


def talk_text(group: Group, notes: Bank) -> str:
    """Return what is asked of the attempts of `group`, with the notes so far."""
    parts = [notes_text(notes)] if len(notes) else []
    parts += [
        f"Attempt {number}, {outcome_text(attempt)}:\n{talk_lines(attempt)}"
        for number, attempt in enumerate(group.scored, 1)
    ]
    return "\n\n".join(parts)


def outcome_text(attempt: Trajectory) -> str:
    """Return what came of `attempt`."""
    return f"{'solved' if attempt.is_success else 'not solved'} in {len(attempt.turns)} steps"


def talk_lines(attempt: Trajectory) -> str:
    """Return who said and did what in `attempt`, its last `MAX_SHOWN` characters."""
    return "\n".join(f"{turn.seat}: {turn.action.text}" for turn in attempt.turns)[-MAX_SHOWN:]
