"""A teacher that needs neither an expert nor a model: it searches what legal actions lead to, and plays what it found.

Before the first turn of an episode it looks ahead in the environment itself: a state is saved, an action carried out,
the state brought back. Each action that is carried out counts against a stated number; the environment is then as it
was. It sees what happens, and so also what is hidden from agents and what chance has in store: where a task is a guess,
its way teaches to guess.

``breadth`` goes on from the state of the fewest turns, so that the first solution is one of the shortest. ``best`` goes
on from that of the highest return so far, with the share of the task that is done where the environment says it
(`Progressing`), of equal ones as ``breadth``. Where states can be recognised (`StateKey`) each is gone on from once.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, Literal

from quintain.config.ranges import PositiveInt
from quintain.config.spec import fields_of, read_options, split_spec
from quintain.environments.protocol import (
    Environment,
    Legal,
    Progressing,
    Snapshot,
    StateKey,
    advance,
    environment_name,
)
from quintain.errors import UsageError
from quintain.rollout.views import seats_of
from quintain.types import Action, Observation

Order = Literal["breadth", "best"]
NODES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search came to: ``Found(actions=("up", "left"), is_solved=True, num_nodes=41)``."""

    actions: tuple[str, ...]
    """the way to a solution; else that to the highest return that was seen, the first one"""
    is_solved: bool
    num_nodes: int
    """actions that were carried out"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searcher:
    """A demonstrator that plays what it finds: ``Searcher.read("search?nodes=500&by=best")``.

    Where it finds no solution it goes where the return was highest, and on with the first legal action: the episode
    fails, as an expert's may, and nothing is solved by luck.
    """

    nodes: PositiveInt = NODES
    by: Order = "breadth"
    plans: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    """what is left of the way, by the environment that it is walked in"""

    @classmethod
    def read(cls, spec: str) -> Searcher:
        """Return the search that `spec` names: ``search``, with the options ``nodes`` and ``by``.

        Raises:
            UsageError: an option is unknown, or has a value that it cannot have.
        """
        return cls(**read_options(split_spec(spec)[1], fields_of(cls, ("plans",)), repr(spec)))

    def __call__(self, environment: Environment, _rng: Random, seen: Sequence[Observation]) -> Action:
        """Return the next action of the way that was found at the beginning of the episode."""
        assert isinstance(environment, Legal), "see `refuse_unsearchable`"
        if len(seen) == 1:
            self.plans[id(environment)] = list(search(environment, nodes=self.nodes, by=self.by).actions)
        left = self.plans.get(id(environment)) or list(environment.legal_actions()[:1])
        return Action(text=left.pop(0) if left else "")


def is_search(agent: str) -> bool:
    """Whether `agent` names a search, and no model."""
    return agent.partition("?")[0] == "search"


def refuse_unsearchable(environment: Environment) -> None:
    """Raise where nothing can be searched.

    Raises:
        UsageError: the environment has no snapshots, lists no legal actions, or lets several seats act.
    """
    asked = f"a search in {environment_name(environment)}: got an environment"
    if not isinstance(environment, Snapshot):
        raise UsageError(f"{asked} that cannot be brought back; give it snapshot() and restore(state)")
    if not isinstance(environment, Legal):
        raise UsageError(f"{asked} that lists no legal actions; give it legal_actions(), or take its expert")
    if len(seats_of(environment)) > 1:
        raise UsageError(f"{asked} of several seats, whose moves nobody foresees; take an expert or a model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A state on a way, what led there, and what that returned: ``Way(state=…, actions=("up",), total=0.5)``."""

    state: Any
    actions: tuple[str, ...]
    total: float


def search(environment: Environment, *, nodes: int, by: Order = "breadth") -> Found:
    """Return the way on from where `environment` is, of `nodes` tried actions at most; it is left as it is."""
    assert isinstance(environment, Snapshot) and isinstance(environment, Legal), "see `refuse_unsearchable`"
    root = environment.snapshot()
    numbers = count()
    waiting = [(0.0, 0, next(numbers), Way(state=root, actions=(), total=0.0))]
    known = {_key(environment)} - {None}
    best, num, is_solved = waiting[0][-1], 0, False
    while waiting and num < nodes and not is_solved:
        *_, way = heapq.heappop(waiting)
        environment.restore(way.state)
        for text in environment.legal_actions()[: nodes - num]:
            environment.restore(way.state)
            result = advance(environment, Action(text=text))
            num += 1
            total = way.total + result.reward
            ahead = Way(state=None, actions=(*way.actions, text), total=total)
            is_over = result.is_terminated or result.is_truncated
            is_solved = is_over and (total > 0 if result.is_success is None else result.is_success)
            if is_solved or total > best.total:
                best = ahead
            if is_solved:
                break
            key = _key(environment)
            if is_over or len(ahead.actions) >= environment.max_turns or key in known:
                continue
            known |= {key} - {None}
            ahead = Way(state=environment.snapshot(), actions=ahead.actions, total=total)
            worth = total + (environment.progress() if isinstance(environment, Progressing) else 0.0)
            rank = -worth if by == "best" else 0.0
            heapq.heappush(waiting, (rank, len(ahead.actions), next(numbers), ahead))
    environment.restore(root)
    return Found(actions=best.actions, is_solved=is_solved, num_nodes=num)


def _key(environment: Environment) -> str | None:
    """Return what the state is recognised by; None where it cannot be."""
    return environment.state_key() if isinstance(environment, StateKey) else None
