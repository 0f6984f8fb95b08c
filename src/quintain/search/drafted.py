"""A tree of whole solutions: drafted, debugged, tuned and improved by what each one measured (AutoMind).

``drafted?steps=15&drafts=5&knowledge=FILE``: a node is a plan, a program, what it wrote and its metric (AutoMind, arXiv
2506.10974). Which node is worked on next, and how, is drawn by a policy (`quintain.search.solutions`).

What is known of tasks like this one is read from a bank by the words of the task, and by what it gained there (the
paper has a model rank it). A draft is told two entries; an improvement is told, with the chance `tricks`, one that was
told neither to its parent before nor on the way there; what made nothing better anywhere is told only where nothing
else is left, half of the time. A draft whose plan the model calls harder than `stepwise`, from 1 to 5, is written line
by line, each line run before the next; others in one piece.

A metric is what running a solution measured, whatever the model says. In the end the best that runs is handed in, and
what that pays is the episode's; where nothing runs nothing is handed in. Every plan, rating and piece of code is a
turn, sampled from a prompt of its own that states all it needs, so that the turns that led to what was handed in are
data (`quintain.data.searched.follow_found`).

Differences to the paper: one bank in the place of papers for drafts and tricks for improvements, found by the likeness
of words, not by a model's labels; a node told a trick has a list of its own, where the published code shares one among
all descendants. Chances that could not be read (all but `drafts` and `greedy`) are ours. No clock: `steps` bound it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import ClassVar, Literal, cast

from quintain.agents.deliberation import Deliberation
from quintain.agents.experience import rank_by_likeness
from quintain.agents.harness import PlainText
from quintain.agents.protocol import Brief, Prompt
from quintain.data.searched import ATTEMPT, number_actions, split_head, with_head
from quintain.environments.protocol import (
    Environment,
    Expert,
    RunsSolutions,
    Snapshot,
    SolutionRun,
    StateKey,
    advance,
    environment_name,
)
from quintain.environments.wrapped import ACTIONS, Wrapped
from quintain.errors import DataError, UsageError
from quintain.memory.bank import Bank, Edit, Entry, load_bank
from quintain.search.solutions import (
    HARDEST,
    Kind,
    Move,
    Policy,
    Solution,
    choose,
    find_best,
    list_gains,
    pick_trick,
    read_rating,
)
from quintain.store.run import Run
from quintain.text.chat import Chat
from quintain.text.code import parse_code
from quintain.types import Action, Observation, StepResult, Task, Trajectory, as_text, derive_seed

Ask = Literal["plan", "rate", "code", "line"]
DRAFT_ENTRIES = 2
"""Entries of knowledge that a draft is told at most."""
MAX_LINES, MAX_TRIES = 12, 3
"""Turns of a solution that is written line by line, and tries at one line."""
SHOWN, PLAN_LENGTH = 10, 80
"""Earlier solutions that a plan is told of, and characters of the plan of each."""
DONE = "done"
GOALS: dict[Kind, str] = {
    "draft": "Plan a solution in one sentence, another one than those.",
    "debug": "This one does not run. Plan how to mend it in one sentence.",
    "tune": "Plan in one sentence which numbers of this one to change.",
    "improve": "Plan in one sentence how to make this one better.",
}
RATE = f"How hard is that to write, from 1 (easy) to {HARDEST} (hard)? Write a number."
CODE = "Write the whole solution, and nothing else."
LINE = f"Write the next line, and nothing else; write {DONE} if there is none."
SO_FAR = "So far:"
KNOWN = "Known of tasks like this one:"
ALONE = "Say what you are asked for and nothing else; the best solution is handed in by itself."
EXAMPLE = "Do what is known to help."
"""What a demonstration plans."""


def rank_knowledge(query: str, entries: Sequence[Entry]) -> list[float]:
    """Return how like the words of `query` the key of each of `entries` is, from 0 to 1, times 1 + what it gained."""
    scores = rank_by_likeness(query, entries)
    return [score * (1 + entry.value) for score, entry in zip(scores, entries, strict=True)]


def read_code(text: str) -> str:
    """Return what stands in the fenced blocks of `text`, all of it where there are none."""
    found = parse_code(text)
    return text.strip() if found.error is not None else found.text


def read_solution(shown: str, text: str) -> str:
    """Return the solution that was complete with `text`, said to what was `shown`: itself, or the lines before, too."""
    text = read_code(text)
    if not shown.endswith(LINE):
        return text
    lines = shown.removesuffix(f"\n\n{LINE}").rpartition(f"{SO_FAR}\n")[2]
    return lines if text.lower() == DONE else f"{lines}\n{text}"


def follow_solutions(trajectory: Trajectory) -> list[tuple[str, float]]:
    """Return the solutions that led to the one that was handed in, with what each measured, 0 where it did not run."""
    _, way, _ = split_head(trajectory.final_observation)
    turns = [
        turn
        for turn, number in zip(trajectory.turns, number_actions(trajectory), strict=True)
        if number in way and ATTEMPT in turn.reward_terms
    ]
    return [
        (read_solution(as_text(turn.observation), turn.action.text), turn.reward_terms[ATTEMPT])
        for turn in turns
    ]


def load_knowledge(source: Path) -> Bank:
    """Return what is known: the bank in the file `source`, or what helped in the run `source` where it solved a task.

    Of a run training episodes count alone. The key of an entry is the task as it began, its text the lines that gained.

    Raises:
        DataError: there is none.
    """
    if source.is_dir():
        bank = Bank()
        with Run.open(source, writable=False) as run:
            for t in run.trajectories():
                if not t.is_success or t.task.is_held_out:
                    continue
                key = as_text(split_head(t.turns[0].observation)[2]).partition("\n\n")[0]
                bank.edit(
                    Edit(kind="add", key=key, text=text, value=gain, source=t.task.id)
                    for text, gain in list_gains(follow_solutions(t))
                )
    else:
        bank = load_bank(source)
    if not len(bank):
        raise DataError(f"knowledge: got {source}, which holds none; name a run that solved tasks, or a bank")
    return bank.freeze()


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafted(Policy):
    """A model that works on a tree of solutions: ``Drafted(chat=chat, steps=15, drafts=5)``."""

    chat: Chat
    steps: int = 15
    """Solutions that are written."""
    knowledge: str = ""
    """What is known: a bank's file, or a run, by what it solved in training; empty: nothing."""
    count: int = 6
    """Entries of it that are read for a task."""
    stepwise: int = 3
    """Drafts that are rated harder are written line by line: 0 all of them, 5 none, and then nobody is asked."""
    temperature: float = 1.0
    max_tokens: int = 128
    bank: Bank | None = field(default=None, init=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse a search of nothing and chances that are none; read what is known.

        Raises:
            UsageError: see above.
            DataError: what is named holds nothing.
        """
        if min(self.steps, self.drafts, self.count) < 1 or self.depth < 0:
            raise UsageError(
                f"drafted: got steps={self.steps}, drafts={self.drafts}, count={self.count}, depth={self.depth}; "
                "give 1 or more, and a depth of 0 or more"
            )
        for name in ("debug", "tune", "most_tuned", "greedy", "tricks"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"drafted: got {name}={getattr(self, name)}; give a chance from 0 to 1")
        if not 0 <= self.stepwise <= HARDEST:
            raise UsageError(f"drafted: got stepwise={self.stepwise}; give 0 to {HARDEST}")
        if self.knowledge:
            object.__setattr__(self, "bank", load_knowledge(Path(self.knowledge)))

    def open(self, brief: Brief) -> DraftedSession:
        """See `Agent.open`."""
        return DraftedSession(PlainText(self.chat, self.temperature, self.max_tokens), brief)

    def equip(self, environment: Environment) -> Environment:
        """Return `environment`, in which a tree of solutions grows.

        Raises:
            UsageError: it does not run solutions.
        """
        return DraftedWorld(environment, self)


def tell_knowledge(settings: Drafted, bank: Bank) -> Drafted:
    """Return `settings` with what is in `bank`."""
    told = replace(settings)
    object.__setattr__(told, "bank", bank)
    return told


class DraftedWorld(Wrapped):
    """`inner`, in which a tree of solutions grows: ``DraftedWorld(Fit(), settings)``; the best is handed in."""

    drops: ClassVar[frozenset[type]] = (ACTIONS - {Expert}) | {Snapshot, StateKey}

    def __init__(self, inner: Environment, settings: Drafted) -> None:
        """Let solutions of the tasks of `inner` be written.

        Raises:
            UsageError: it does not run solutions.
        """
        if not isinstance(inner, RunsSolutions):
            raise UsageError(
                f"drafted in {environment_name(inner)}: got an environment that does not run solutions; take fit, or "
                "define run_solution, check_solution and hand_in"
            )
        self._settings = settings
        super().__init__(inner)
        self.tree: list[Solution] = []

    def instructions(self) -> str:
        """Return the instructions of the environment, and that nothing has to be handed in."""
        return f"{self.inner.instructions()} {ALONE}"

    def count_turns(self) -> int:
        """Return the turns of all solutions, each with its plan, its rating and its lines."""
        return self._settings.steps * (2 + MAX_LINES)

    def reset(self, task: Task) -> Observation:
        """Ask for the first plan."""
        self._goal = as_text(self.begin_inner(task))
        self._task, self.tree, self._number = task, [], 0
        self._told: list[frozenset[str]] = []
        self._useless: set[str] = set()
        bank = self._settings.bank
        reads = (
            bank.read(self._goal, self._settings.count, rank=rank_knowledge, without=[task.id], least=0.0)
            if bank is not None
            else []
        )
        self.known = [read.entry for read in reads]
        return self._begin()

    def step(self, action: Action) -> StepResult:
        """Take in a plan, a rating, a line or a whole solution."""
        self._turns.append(self._number)
        self._number += 1
        text = "" if action.error is not None else action.text.strip()
        if self._asked == "plan":
            self._plan = text
            self._asked = self._ask_next()
        elif self._asked == "rate":
            self._asked = "line" if read_rating(text) > self._settings.stepwise else "code"
        elif self._asked == "code":
            code = read_code(text)
            return self._add(code, self._runner.run_solution(code))
        else:
            return self._take_line(read_code(text))
        return self._show()

    def expert_action(self) -> Action:
        """Return an easy plan, or the solution of the expert inside, whole or line by line."""
        if self._asked == "plan":
            return Action(text=EXAMPLE)
        if self._asked == "rate":
            return Action(text="1")
        solution = cast(Expert, self.inner).expert_action()
        left = solution.text.splitlines()[len(self._lines) :]
        return solution if self._asked == "code" else Action(text=left[0] if left else DONE)

    @property
    def _runner(self) -> RunsSolutions:
        return cast(RunsSolutions, self.inner)

    def _choose(self, rng: Random) -> Move:
        """Return what is done next."""
        return choose(self.tree, self._settings, rng)

    def _begin(self) -> Observation:
        """Begin the next solution; return what its plan is asked with."""
        settings = self._settings
        rng = Random(derive_seed("drafted", self._task.id, self._task.seed, len(self.tree)))
        self._move = move = self._choose(rng)
        self._told_now = frozenset[str]() if move.node is None else self._told[move.node.number]
        self._trick, entries = "", list[Entry]()
        if move.kind == "draft":
            entries = rng.sample(self.known, min(DRAFT_ENTRIES, len(self.known)))
        elif move.kind == "improve" and move.node is not None:
            trick = pick_trick(self.known, self._told_now, self._useless, settings.tricks, rng)
            if trick is not None:
                self._trick, entries = trick.id, [trick]
                self._told_now |= {trick.id}
                self._told[move.node.number] = self._told_now
        self._asked: Ask = "plan"
        self._plan, self._turns = "", list[int]()
        self._lines, self._num_lines, self._num_tries, self._problem = list[str](), 0, 0, ""
        self._knowledge = "\n".join([KNOWN, *(entry.text for entry in entries)]) if entries else ""
        return self._prompt()

    def _ask_next(self) -> Ask:
        """Return what is asked after a plan: drafts are rated, unless that would change nothing."""
        if self._move.kind != "draft" or self._settings.stepwise == HARDEST:
            return "code"
        return "rate" if self._settings.stepwise else "line"

    def _prompt(self) -> Observation:
        """Return what is asked now, with all that it needs."""
        node = self._move.node
        parts = [self._goal, self._knowledge]
        if self._asked == "plan" and self.tree:
            parts.append("\n".join(["Solutions so far:", *map(describe_solution, self.tree[-SHOWN:])]))
        if node is not None:
            parts.append(f"Solution {node.number}:\n{node.text}\n{node.output}")
        if self._asked != "plan":
            parts.append(f"Plan: {self._plan}")
        parts.append(self._problem)
        if self._lines:
            parts.append("\n".join([SO_FAR, *self._lines]))
        question = {"plan": GOALS[self._move.kind], "rate": RATE, "code": CODE, "line": LINE}[self._asked]
        return with_head("\n\n".join([*filter(None, parts), question]), "begin", ())

    def _show(self) -> StepResult:
        """Return what is asked now, as a result that pays nothing."""
        return StepResult(observation=self._prompt(), reward=0.0, is_success=False)

    def _take_line(self, text: str) -> StepResult:
        """Take in a line, which is kept if it runs; a line that fails `MAX_TRIES` times ends the solution."""
        self._num_lines += 1
        if text.lower() != DONE:
            self._problem = self._runner.check_solution("\n".join([*self._lines, text]))
            if self._problem:
                self._num_tries += 1
                if self._num_tries >= MAX_TRIES:
                    return self._add("\n".join([*self._lines, text]), SolutionRun(output=self._problem))
            else:
                self._lines.append(text)
                self._num_tries = 0
        if text.lower() == DONE or self._num_lines >= MAX_LINES:
            whole = "\n".join(self._lines)
            return self._add(whole, self._runner.run_solution(whole))
        return self._show()

    def _add(self, text: str, found: SolutionRun) -> StepResult:
        """Take a solution into the tree; begin the next one, or hand the best one in."""
        parent, kind, number = self._move.node, self._move.kind, len(self.tree)
        mended = parent if kind == "debug" else None
        improved = parent if kind == "improve" else None
        node = Solution(
            number=number,
            kind=kind,
            parent=None if parent is None else parent.number,
            root=number if parent is None else parent.root,
            text=text,
            plan=self._plan,
            output=found.output,
            metric=found.metric,
            depth=0 if mended is None else mended.depth + 1,
            trick=self._trick if mended is None else mended.trick,
            base=improved.number if improved is not None else mended.base if mended is not None else None,
            turns=(*(() if parent is None else parent.turns), *self._turns),
        )
        self.tree.append(node)
        self._told.append(self._told_now)
        if node.trick and node.base is not None and node.metric is not None:
            before = self.tree[node.base].metric
            if before is not None and node.metric <= before:
                self._useless.add(node.trick)
        paid = {ATTEMPT: node.metric or 0.0}
        if len(self.tree) >= self._settings.steps:
            return self._end(paid)
        return StepResult(observation=self._begin(), reward=0.0, reward_terms=paid, is_success=False)

    def _end(self, paid: dict[str, float]) -> StepResult:
        """Hand the best solution in; return what that came to."""
        best = find_best(self.tree)
        if best is None:
            return StepResult(
                observation=with_head("No solution runs.", "end", ()),
                reward=0.0,
                reward_terms=paid,
                is_terminated=True,
                is_success=False,
            )
        result = advance(self.inner, self._runner.hand_in(best.text))
        return replace(
            result,
            observation=with_head(result.observation, "end", best.turns),
            reward_terms={**result.reward_terms, **paid},
            is_truncated=result.is_truncated or not result.is_terminated,
        )


def describe_solution(node: Solution) -> str:
    """Return a line about `node`: its number, what it came to, and its plan."""
    came = "does not run" if node.metric is None else f"{node.metric:.3f}"
    return f"{node.number} {node.kind} {came}: {' '.join(node.plan.split())[:PLAN_LENGTH]}"


class DraftedSession(Deliberation):
    """An episode of `Drafted`: each turn is a conversation of its own, which states all that it needs."""

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`."""
        self._inner = self._agent.open(self._brief)
        return super().observe(split_head(observation)[2], legal_actions)
