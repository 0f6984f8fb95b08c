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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Literal, cast

from annotated_types import Ge, Le

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
from quintain.environments.states import SavedState, restore_state, save_state
from quintain.errors import UsageError
from quintain.rollout.views import seats_of
from quintain.search.tree import BestFirstTree, Node, Path, Seen
from quintain.search.tree_search import Budget, TreeSearch
from quintain.types import Action, Observation, StepResult

Order = Literal["breadth", "best"]
NODES, MOST_STATES = 1_000, 1_000_000
"""Actions that are tried as it is, and at most: each may keep a state in memory."""


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

    nodes: Annotated[int, Ge(1), Le(MOST_STATES)] = NODES
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
    asked = f"a search in {environment_name(environment)}"
    if isinstance(environment, Snapshot) and not isinstance(environment, Legal):
        raise UsageError(
            f"{asked}: got an environment that lists no legal actions; give it legal_actions(), or take its expert"
        )
    require_searchable(environment, asked, "take an expert or a model")


def require_searchable(environment: Environment, asked: str, otherwise: str) -> None:
    """Raise where no search can go back, whoever says what is tried; `otherwise` is what helps where several act.

    Raises:
        UsageError: the environment has no snapshots, or lets several seats act.
    """
    if not isinstance(environment, Snapshot):
        raise UsageError(
            f"{asked}: got an environment that cannot be brought back; give it snapshot() and restore(state)"
        )
    if len(seats_of(environment)) > 1:
        raise UsageError(
            f"{asked}: got an environment of several seats, whose moves nobody foresees; {otherwise}"
        )


def ends_solved(result: StepResult, total: float) -> bool:
    """Return whether an episode ends with `result` and is solved; where nobody says so, by its return `total`."""
    return result.is_over and (total > 0 if result.is_success is None else result.is_success)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How a state is brought back, and what was found of it: ``Place(state=…, total=0.5, progress=0.2)``."""

    state: SavedState | None
    total: float
    """what the actions so far returned"""
    progress: float = 0.0


@dataclass(slots=True)
class States:
    """A ground of states that the environment brings back; each is gone on from by every legal action, in order.

    A state that was there before, where states can be recognised, counts as over; so does one at the limit of turns.
    After a solution nothing more is tried.
    """

    environment: Environment
    budget: Budget
    known: set[str | None] = field(default_factory=set[str | None])

    def begin(self) -> Seen:
        """Return the state that the environment is in."""
        self._note_state()
        return Seen(key="", text="", place=Place(state=save_state(self.environment), total=0.0))

    def restore(self, node: Node) -> None:
        """Bring the environment back to the state of `node`.

        Raises:
            EnvironmentFault: it brings another one back.
        """
        restore_state(self.environment, self._saved(node))

    def expand(self, nodes: Sequence[Node]) -> list[list[Path]]:
        """See `Ground`."""
        return [[[seen] for seen in self._act(node)] for node in nodes]

    def _act(self, node: Node) -> Iterator[Seen]:
        """Yield the state after each legal action in that of `node`, as far as the budget goes."""
        environment, place = self.environment, cast(Place, node.seen.place)
        self.restore(node)
        assert isinstance(environment, Legal), "see `refuse_unsearchable`"
        for text in environment.legal_actions()[: self.budget.steps_left]:
            self._snapshot.restore(self._saved(node).state)
            result = advance(environment, Action(text=text))
            self.budget.num_steps += 1
            total = place.total + result.reward
            is_solved = ends_solved(result, total)
            if result.is_over or node.depth + 1 >= environment.max_turns or not self._note_state():
                reached = Place(state=None, total=total)
                yield Seen(key=text, text="", is_over=True, is_solved=is_solved, place=reached)
            else:
                progress = environment.progress() if isinstance(environment, Progressing) else 0.0
                reached = Place(state=save_state(environment), total=total, progress=progress)
                yield Seen(key=text, text="", place=reached)
            if is_solved:
                return

    def _note_state(self) -> bool:
        """Note the state that the environment is in; return whether it was not there before, as far as one can see."""
        key = self.environment.state_key() if isinstance(self.environment, StateKey) else None
        is_new = key is None or key not in self.known
        self.known.add(key)
        return is_new

    def _saved(self, node: Node) -> SavedState:
        """Return the state of `node`, which is not over."""
        return cast(SavedState, cast(Place, node.seen.place).state)

    @property
    def _snapshot(self) -> Snapshot:
        assert isinstance(self.environment, Snapshot), "see `refuse_unsearchable`"
        return self.environment


def search(environment: Environment, *, nodes: int, by: Order = "breadth") -> Found:
    """Return the way on from where `environment` is, of `nodes` tried actions at most; it is left as it is."""

    def rank(node: Node) -> float:
        place = cast(Place, node.seen.place)
        return -(place.total + place.progress) if by == "best" else 0.0

    budget = Budget(steps=nodes)
    ground = States(environment, budget)
    tree = BestFirstTree(ground.begin(), rank)
    TreeSearch(trees=[tree], ground=ground, budget=budget, score=returns).run()
    ground.restore(tree.root)
    actions = tuple(str(node.seen.key) for node in reversed(tree.best.lineage))
    return Found(actions=actions, is_solved=tree.best.seen.is_solved, num_nodes=budget.num_steps)


def returns(found: Sequence[Sequence[Path]]) -> list[list[float | None]]:
    """Return what the actions that lead to each new state returned."""
    return [[cast(Place, path[0].place).total for path in paths] for paths in found]
