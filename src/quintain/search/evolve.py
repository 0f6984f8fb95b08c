"""Whole attempts that evolve: revised, recombined and refined, each carried out from the start (SE-Agent).

``evolved?size=4&rounds=3+react``: a task is attempted `size` times; then in each of `rounds` rounds there is one more
attempt by every operator (SE-Agent, arXiv 2508.02085):

- *recombine*: the best attempt and one that was paid well and did other things are aligned; of each segment in which
  they differ that side is taken whose actions the attempts that were paid more hold; the agent is told to do that;
- *refine*: the agent begins as the best attempt, without what changed nothing there, up to a step that is drawn, and is
  told which actions the attempts that were paid less hold;
- *revise*: it is shown what the best and the most different attempt did, and is asked for another way.

What an attempt is worth is what carrying it out paid, nothing else: an operator's child is an attempt like any other,
every action of it sampled and counted. The episode ends with the first solution, else with the best attempt. What an
environment says cannot be undone (`Reversible`) ends it, too: nobody begins again after that.

Differences to the paper: its operators are a model's words about attempts, ours work on lists of actions and end in a
sentence to the agent. Its published code takes the last two attempts whatever they came to; here, as its text says,
reward and difference choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import islice
from random import Random
from statistics import fmean
from typing import ClassVar

from quintain.agents.deliberation import Reopening, describe_action, with_words
from quintain.agents.protocol import Agent, Brief, Prompt, equip
from quintain.data.searched import ATTEMPT, split_head, with_head
from quintain.environments.protocol import (
    Environment,
    Reversible,
    Snapshot,
    StateKey,
    advance,
    environment_name,
    sum_parts,
)
from quintain.environments.wrapped import Wrapped
from quintain.errors import UsageError
from quintain.rollout.views import seats_of
from quintain.search.agent import ends_solved
from quintain.types import NOTHING, Action, Observation, StepResult, Task, as_text, derive_seed

DIFFERENCE = 0.5
"""What being wholly different counts in the choice of a mate, beside the span of what attempts were paid."""
DRAWS = 8
"""Times that a child is drawn by coins which was attempted before."""
NUM_RISKS = 4
"""Actions at most that a refined attempt is told to avoid."""
SUMMARY = 400
"""Characters of an attempt that a revised one is shown, as in the paper's code."""
RECOMBINE = "Attempts failed. Together they say: do this, step by step, then go on until the task is solved."
REFINE = "Attempts failed. Begin like this, then do better than before."
REVISE = "These attempts failed. Do it in another way than they did."
AVOID = "Avoid: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What was done, and what it came to: ``Attempt(actions=("go a", "take b"), changed=(True, False), paid=0.5)``."""

    actions: tuple[str, ...]
    changed: tuple[bool, ...]
    """of each action whether anything was another thing after it"""
    paid: float
    numbers: tuple[int, ...] = ()
    """of the actions in the episode"""
    terms: dict[str, float] = field(default_factory=dict[str, float])
    last: StepResult | None = None
    """what the last action was answered"""

    @property
    def is_solved(self) -> bool:
        """Whether it ended in a solution."""
        return self.last is not None and ends_solved(self.last, self.paid)


def find_best(pool: Sequence[Attempt]) -> Attempt:
    """Return the solved one of `pool`, else the one that was paid most; of equal ones the first."""
    return max(pool, key=lambda attempt: (attempt.is_solved, attempt.paid))


def pick_mate(best: Attempt, pool: Sequence[Attempt]) -> Attempt | None:
    """Return whose parts are put into `best`: the highest pay, 0 to 1 over `pool`, + ½ difference; None: all are alike.

    The difference is 1 - 2 M / T, of M actions in common blocks and T in both. Example: a b c d beside a x c d: 1/4.
    """
    low = min(attempt.paid for attempt in pool)
    span = max(attempt.paid for attempt in pool) - low or 1.0
    others = [attempt for attempt in pool if attempt.actions != best.actions]

    def rank(other: Attempt) -> float:
        likeness = SequenceMatcher(None, best.actions, other.actions, autojunk=False).ratio()
        return (other.paid - low) / span + DIFFERENCE * (1 - likeness)

    return max(others, key=rank, default=None)


def align(one: Sequence[str], other: Sequence[str]) -> list[tuple[Sequence[str], Sequence[str]]]:
    """Return both lists cut into segments that are equal or differ; those of equal length into single actions.

    Example: a b c and a x c d: (a, a), (b, x), (c, c), (nothing, d).
    """
    found: list[tuple[Sequence[str], Sequence[str]]] = []
    for what, i, j, k, m in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if what == "replace" and j - i == m - k:
            found += [(one[n : n + 1], other[n - i + k : n - i + k + 1]) for n in range(i, j)]
        else:
            found.append((one[i:j], other[k:m]))
    return found


def weigh(segment: Sequence[str], pool: Sequence[Attempt]) -> float:
    """Return the mean pay of the attempts of `pool` that hold every action of `segment`; 0 where none does."""
    return fmean([attempt.paid for attempt in pool if set(segment) <= set(attempt.actions)] or [0.0])


def recombine(one: Attempt, other: Attempt, pool: Sequence[Attempt], rng: Random) -> tuple[str, ...] | None:
    """Return for each segment the side that weighs more in `pool`, of equal ones either; else sides by coins.

    None where nothing comes of it that was not attempted.
    """
    parts, known = align(one.actions, other.actions), {attempt.actions for attempt in pool}
    for number in range(DRAWS + 1):
        found: list[str] = []
        for part in parts:
            first, second = (weigh(side, pool) for side in part) if number == 0 else (0.0, 0.0)
            found += rng.choice(part) if first == second else part[first < second]
        if tuple(found) not in known:
            return tuple(found)
    return None


def prune(attempt: Attempt) -> tuple[str, ...]:
    """Return the actions of `attempt` that changed something."""
    return tuple(action for action, has in zip(attempt.actions, attempt.changed, strict=True) if has)


def find_risks(pool: Sequence[Attempt]) -> list[str]:
    """Return actions whose attempts were paid less than all on average, the worst first, each once."""
    mean = fmean(attempt.paid for attempt in pool)
    worth = {action: weigh((action,), pool) for attempt in pool for action in attempt.actions}
    return [action for action in sorted(worth, key=lambda action: worth[action]) if worth[action] < mean]


@dataclass(frozen=True, slots=True)
class Evolved:
    """Any harness, evolving: ``Evolved(ReAct(chat), size=4, rounds=3)``."""

    agent: Agent
    size: int = 4
    """Attempts before the first round."""
    rounds: int = 3
    """Rounds, of an attempt by each operator."""

    def __post_init__(self) -> None:
        """Refuse an evolution of nothing."""
        if self.size < 1 or self.rounds < 0:
            raise UsageError(
                f"evolved: got size={self.size}, rounds={self.rounds}; give 1 attempt or more, and no negative number"
            )

    @property
    def num_attempts(self) -> int:
        """How often a task is attempted at most."""
        return self.size + 3 * self.rounds

    def open(self, brief: Brief) -> EvolvedSession:
        """See `Agent.open`."""
        return EvolvedSession(self.agent, brief)

    def equip(self, environment: Environment) -> Environment:
        """Return `environment`, as the harness inside needs it, in which attempts follow one another.

        Raises:
            UsageError: several seats act in it.
        """
        return EvolvedWorld(equip(self.agent, environment), self)


class EvolvedWorld(Wrapped):
    """`inner`, attempted again until it is solved: ``EvolvedWorld(KeyDoor(), settings)``; the best attempt is paid."""

    drops: ClassVar[frozenset[type]] = frozenset({Snapshot})

    def __init__(self, inner: Environment, settings: Evolved) -> None:
        """Let attempts at the tasks of `inner` evolve.

        Raises:
            UsageError: several seats act in it.
        """
        if len(seats_of(inner)) > 1:
            raise UsageError(
                f"an evolving agent in {environment_name(inner)}: got an environment of several seats, whose moves "
                "nobody repeats; take another agent"
            )
        self._settings = settings
        self.pool = list[Attempt]()
        super().__init__(inner)

    def count_turns(self) -> int:
        """Return the turns of all attempts."""
        return self._settings.num_attempts * self.inner.max_turns

    def reset(self, task: Task) -> Observation:
        """Begin the first attempt."""
        self._task, self.pool = task, []
        self._number, self._is_final = 0, False
        return self._begin()

    def step(self, action: Action) -> StepResult:
        """Carry `action` out; after the last one of an attempt the next attempt begins."""
        result = advance(self.inner, action)
        seen = self._look(result.observation)
        self._actions.append(describe_action(action))
        self._changed.append(result.is_over or result.reward != 0 or seen != self._seen)
        self._numbers.append(self._number)
        self._seen, self._number = seen, self._number + 1
        self._paid += result.reward
        self._terms = sum_parts((self._terms, result.reward_terms))
        if isinstance(self.inner, Reversible) and not self.inner.can_go_back():
            self._is_final = True
        if not result.is_over and len(self._actions) >= self.inner.max_turns:
            result = replace(result, is_truncated=True)
        if not result.is_over:
            return replace(result, reward=0.0, rewards=NOTHING, reward_terms=NOTHING)
        self.pool.append(
            Attempt(
                actions=tuple(self._actions),
                changed=tuple(self._changed),
                paid=self._paid,
                numbers=tuple(self._numbers),
                terms=self._terms,
                last=result,
            )
        )
        return self._end_attempt(result)

    def _end_attempt(self, result: StepResult) -> StepResult:
        """Return the beginning of the next attempt, or the end of the episode: that of the best one."""
        ended = self.pool[-1]
        best = ended if self._is_final else find_best(self.pool)
        if not (self._is_final or best.is_solved or len(self.pool) >= self._settings.num_attempts):
            words = self._instruct()
            observation = self._begin()
            observation = with_head(with_words(observation, words) if words else observation, "begin", ())
            return StepResult(
                observation=observation,
                reward=0.0,
                reward_terms={ATTEMPT: ended.paid},
                is_valid=result.is_valid,
                tool_errors=result.tool_errors,
            )
        last = best.last
        assert last is not None, "every attempt was carried out"
        return replace(
            last,
            observation=with_head(last.observation, "end", best.numbers),
            reward=best.paid,
            rewards=NOTHING,
            reward_terms={**best.terms, ATTEMPT: ended.paid},
            is_success=best.is_solved,
            is_valid=result.is_valid,
            tool_errors=result.tool_errors,
        )

    def _begin(self) -> Observation:
        """Begin an attempt; return what it sees first."""
        observation = self.begin_inner(self._task)
        self._actions, self._changed, self._numbers = list[str](), list[bool](), list[int]()
        self._paid, self._terms = 0.0, dict[str, float]()
        self._seen = self._look(observation)
        return observation

    def _instruct(self) -> str:
        """Return what the next attempt is told; the first ones are told nothing."""
        number = len(self.pool) - self._settings.size
        if number < 0:
            return ""
        rng = Random(derive_seed("evolve", self._task.id, self._task.seed, len(self.pool)))
        best, others = find_best(self.pool), self._list_mates()
        mate = pick_mate(best, others)
        if number % 3 == 0 and mate is not None:
            child = recombine(best, mate, [*self.pool, *others], rng)
            if child is not None:
                return f"{RECOMBINE}\n{'; '.join(child)}"
        if number % 3 == 1 and len(kept := prune(best)) > 1:
            risks = [risk for risk in find_risks(self.pool) if risk not in kept]
            avoid = f"\n{AVOID}{'; '.join(risks[:NUM_RISKS])}" if risks else ""
            return f"{REFINE}\n{'; '.join(islice(kept, rng.randrange(1, len(kept))))}{avoid}"
        shown = [best] if mate is None else [best, mate]
        return "\n".join([REVISE, *(f"- {'; '.join(each.actions)[:SUMMARY]}" for each in shown)])

    def _list_mates(self) -> Sequence[Attempt]:
        """Return the attempts of which segments may be taken."""
        return self.pool

    def _look(self, observation: Observation) -> str:
        """Return by what it is seen that an action changed something."""
        return self.inner.state_key() if isinstance(self.inner, StateKey) else as_text(observation)


class EvolvedSession(Reopening):
    """An episode of `Evolved`: every attempt is a conversation of its own, which begins with what it is told."""

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`."""
        what, _, shown = split_head(observation)
        if what == "begin":
            self._reopen(self.brief_without([shown]))
        return super().observe(shown, legal_actions)
