"""A ground of episodes: a state is come to by carrying out what led there, and a policy goes on from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from quintain.rollout.replay import ReplayedEpisode
from quintain.rollout.views import Prefix
from quintain.search.tree import Node, Path, Seen
from quintain.types import Group, Stop, Task, Trajectory, as_text


class Player(Protocol):
    """What plays episodes in the step of a run and takes them up again; a run's collector does, and records them."""

    def seed(self, *parts: int | str) -> int:
        """Return the seed of the run that `parts` name."""
        ...

    def sample(
        self, step: int, tasks: Sequence[Task], *, size: int, max_turns: int | None = None, again: int = 0
    ) -> list[Group]:
        """Return `size` episodes of each of `tasks`; `again` counts the calls of a step."""
        ...

    def replay_episodes(self, trajectories: Sequence[Trajectory]) -> list[ReplayedEpisode]:
        """Carry out recorded episodes again, to continue them at any of their turns."""
        ...

    def continue_from(
        self,
        step: int,
        prefixes: Sequence[Prefix],
        *,
        size: int,
        seed: int,
        max_turns: int | None = None,
        phase: str,
        again: int = 0,
    ) -> list[Group]:
        """Return `size` ways on from each of `prefixes`, recorded under `phase` of the journal's `step`."""
        ...


@dataclass(slots=True, kw_only=True)
class Episodes:
    """Ways on that a policy finds: ``Episodes(player=collector, step=1, size=3, turns=2)``.

    The place of a root is its task, that of any other state an episode through it.
    """

    player: Player
    step: int
    size: int
    """ways on from a state"""
    turns: int | None = None
    """turns that a way on goes; None: to the end"""
    name: str = "tree"
    """of the seeds of ways on from a state below the root"""
    phase: str = "train"
    is_by_depth: bool = True
    """whether states are gone on from with others of their depth; else with all"""
    groups: list[Group] = field(default_factory=list[Group])
    """all that was played"""
    num_calls: int = 0

    def expand(self, nodes: Sequence[Node]) -> list[list[Path]]:
        """See `Ground`."""
        found = dict[Node, list[Path]]()
        for depth in sorted({node.depth for node in nodes}) if self.is_by_depth else [None] * bool(nodes):
            same = [node for node in nodes if depth in (None, node.depth)]
            groups = self._begin(same) if isinstance(same[0].seen.place, Task) else self._go_on(same)
            for node, group in zip(same, groups, strict=True):
                found[node] = [path for t in group.scored if (path := path_of(t, node.depth))]
            self._add(groups)
        return [found[node] for node in nodes]

    def play_on(self, nodes: Sequence[Node]) -> list[Group]:
        """Return an episode from each of `nodes` to its end."""
        played = list[Group]()
        if nodes:
            played = self.player.continue_from(
                self.step,
                self._prefixes(nodes),
                size=1,
                seed=self.player.seed("tree", self.step, self.num_calls),
                phase=self.phase,
                again=self.num_calls,
            )
        self._add(played)
        return played

    def _begin(self, nodes: Sequence[Node]) -> list[Group]:
        """Return episodes of the tasks of `nodes`, which are roots."""
        tasks = [node.seen.place for node in nodes]
        return self.player.sample(
            self.step, tasks, size=self.size, max_turns=self.turns, again=self.num_calls
        )

    def _go_on(self, nodes: Sequence[Node]) -> list[Group]:
        """Return ways on from `nodes`, of one depth where their turns are bounded."""
        return self.player.continue_from(
            self.step,
            self._prefixes(nodes),
            size=self.size,
            seed=self.player.seed(self.name, self.step, self.num_calls),
            max_turns=None if self.turns is None else nodes[0].depth + self.turns,
            phase=self.phase,
            again=self.num_calls,
        )

    def _prefixes(self, nodes: Sequence[Node]) -> list[Prefix]:
        """Return the beginnings of episodes that lead to each of `nodes`."""
        walks = self.player.replay_episodes([node.seen.place for node in nodes])
        return [walk.prefix(node.depth) for walk, node in zip(walks, nodes, strict=True)]

    def _add(self, groups: Sequence[Group]) -> None:
        self.groups += groups
        self.num_calls += 1


def path_of(trajectory: Trajectory, begin: int = 0) -> list[Seen]:
    """Return the states after each turn of `trajectory`, from turn number `begin` on.

    The last one is over unless it was the search that stopped there.
    """
    turns, last = trajectory.turns, len(trajectory.turns) - 1
    shown = [*(turn.observation for turn in turns[1:]), trajectory.final_observation]
    return [
        Seen(
            key=turns[number].completion.token_ids,
            text=as_text(shown[number]),
            is_over=number == last and trajectory.stop is not Stop.CUT,
            is_solved=number == last and trajectory.is_success,
            place=trajectory,
        )
        for number in range(begin, len(turns))
    ]


def trees_of(groups: Sequence[Group]) -> list[Group]:
    """Return the episodes of `groups` by their task, in the order of the first of each."""
    found: dict[str, list[Trajectory]] = {}
    for group in groups:
        found.setdefault(group.task.id, []).extend(group.trajectories)
    return [Group(task=own[0].task, trajectories=tuple(own)) for own in found.values() if own]


def share_solved(trees: Sequence[Group]) -> float:
    """Return the share of `trees` that hold a solution; 0 of none."""
    return sum(any(t.is_success for t in tree.scored) for tree in trees) / max(len(trees), 1)
