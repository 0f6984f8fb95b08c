"""The tokens of a trajectory as a forest that only grows: a node for each turn, under the node that it continues.

A turn continues its speaker's turn before. A turn with `starts_segment` brings a whole prompt: where the tokens of an
earlier node's walk are an exact prefix of it, the turn becomes a branch under that node, else a new root. So history
that was rewritten, a retry or a plan is a new leaf, and no node ever changes.

`Trajectory.turns` and this forest say the same: `join_forest(make_forest(trajectory)) == trajectory`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from quintain.types.episodes import Completion, Trajectory, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The tokens that one turn adds: ``Node(id=1, parent=0, given=(9, 4), sampled=(17, 2), …)``."""

    id: int
    """its place among the nodes, which is the number of its turn"""
    parent: int | None
    """the node whose walk it continues, always an earlier one; None for a root"""
    given: tuple[int, ...]
    """token ids that were given to the policy after those of the parent's walk; never trained on"""
    sampled: tuple[int, ...]
    logprobs: tuple[float, ...]
    """of the sampled tokens (nats), empty where they are not known"""
    policy: str
    versions: tuple[tuple[int, int], ...]
    """(number of the first sampled token, version of the weights) of each span of tokens"""
    speaker: str
    turn: int
    """number of the turn in the trajectory"""

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The ids that it adds to a walk."""
        return self.given + self.sampled


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """All nodes of a trajectory: ``Forest(trajectory=without_tokens, nodes=(root, child))``."""

    trajectory: Trajectory
    """everything that is not tokens; its turns have none"""
    nodes: tuple[Node, ...]

    def leaves(self) -> tuple[Node, ...]:
        """Return the nodes without a child, in order; each is the end of a walk."""
        inner = {node.parent for node in self.nodes}
        return tuple(node for node in self.nodes if node.id not in inner)

    def walk(self, leaf: int) -> tuple[Node, ...]:
        """Return the nodes from the root to the node `leaf`: their tokens, end to end, are a token stream."""
        found: list[Node] = []
        at: int | None = leaf
        while at is not None:
            found.append(self.nodes[at])
            at = self.nodes[at].parent
        return tuple(reversed(found))

    def tokens(self, leaf: int) -> tuple[int, ...]:
        """Return the token stream of the walk to `leaf`."""
        return tuple(token for node in self.walk(leaf) for token in node.token_ids)


def make_forest(trajectory: Trajectory) -> Forest:
    """Return the forest of `trajectory`; `join_forest` is the way back."""
    turns = trajectory.turns
    nodes: list[Node] = []
    for number, (turn, (parent, num_shared)) in enumerate(zip(turns, find_parents(turns), strict=True)):
        done = turn.completion
        nodes.append(
            Node(
                id=number,
                parent=parent,
                given=turn.prompt_ids[num_shared:],
                sampled=done.token_ids,
                logprobs=done.logprobs,
                policy=done.policy,
                versions=done.version_spans or ((0, done.policy_version),),
                speaker=turn.speaker,
                turn=number,
            )
        )
    bare = tuple(_with_tokens(turn, (), (), ()) for turn in turns)
    return Forest(trajectory=replace(trajectory, turns=bare), nodes=tuple(nodes))


def join_forest(forest: Forest) -> Trajectory:
    """Return the trajectory that `forest` was made of."""
    turns: list[Turn] = []
    for turn, node in zip(forest.trajectory.turns, forest.nodes, strict=True):
        shared = forest.tokens(node.parent) if turn.starts_segment and node.parent is not None else ()
        turns.append(_with_tokens(turn, shared + node.given, node.sampled, node.logprobs))
    return replace(forest.trajectory, turns=tuple(turns))


def find_parents(turns: Sequence[Turn]) -> list[tuple[int | None, int]]:
    """Return for each turn the number of the turn that it continues, and how many tokens of its prompt that one has.

    A turn without `starts_segment` continues its speaker's turn before and its prompt has none of those tokens.
    """
    parents: list[tuple[int | None, int]] = []
    newest: dict[str, int] = {}
    ends: list[int] = []
    for number, turn in enumerate(turns):
        if turn.starts_segment:
            parent, num_shared = _longest_prefix(turns, parents, ends, turn)
        else:
            parent, num_shared = newest.get(turn.speaker), 0
        newest[turn.speaker] = number
        before = 0 if parent is None else ends[parent]
        ends.append(before + len(turn.prompt_ids) - num_shared + len(turn.completion.token_ids))
        parents.append((parent, num_shared))
    return parents


def _longest_prefix(
    turns: Sequence[Turn], parents: Sequence[tuple[int | None, int]], ends: Sequence[int], new: Turn
) -> tuple[int | None, int]:
    """Return the earlier turn of the same speaker whose walk is the longest prefix of the prompt of `new`."""
    matches: set[int] = set()
    best: tuple[int | None, int] = (None, 0)
    for number, (parent, num_shared) in enumerate(parents):
        turn, end = turns[number], ends[number]
        if turn.speaker != new.speaker or end > len(new.prompt_ids):
            continue
        if parent is not None and parent not in matches:
            continue
        start = 0 if parent is None else ends[parent]
        if turn.prompt_ids[num_shared:] + turn.completion.token_ids == new.prompt_ids[start:end]:
            matches.add(number)
            if end > best[1]:
                best = (number, end)
    return best


def _with_tokens(
    turn: Turn, prompt: tuple[int, ...], sampled: tuple[int, ...], logprobs: tuple[float, ...]
) -> Turn:
    done: Completion = replace(turn.completion, token_ids=sampled, logprobs=logprobs)
    return replace(turn, prompt_ids=prompt, completion=done)
