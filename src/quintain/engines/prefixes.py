"""What streams of tokens begin alike, and in which order it is read once for all of them.

Prompts of a group are equal; those of agents that share instructions, of turns that quote the same document, or of
calls of one graph (`engines.graph`) begin alike and go on differently. New streams are a trie: what several have in
common is computed in one of them and copied into the others, then what fewer have in common, and so on (Parrot,
arXiv 2405.19888). A short common piece is not worth a pass of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

Streams = Sequence[list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stream is read to `length` tokens, which others take over: ``Piece(leader=0, length=9, others=(1, 2))``."""

    leader: int
    length: int
    others: tuple[int, ...]


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many ids two streams have in common from their beginning."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[:middle] == second[:middle] else (low, middle - 1)
    return low


def find_longest(stream: Sequence[int], known: Streams) -> tuple[int, int]:
    """Return which of `known` has the most in common with `stream`, and how many tokens; (-1, 0) where none has any."""
    place, length = -1, 0
    for number, other in enumerate(known):
        if stream[: length + 1] == other[: length + 1] and len(other) > length < len(stream):
            place, length = number, common_length(stream, other)
    return place, length


def plan_pieces(streams: Streams, starts: Sequence[int], min_shared: int) -> list[list[Piece]]:
    """Return the pieces that new `streams` share, level by level; those of one level do not depend on each other.

    Args:
        streams: all different; the last token of each is left to be read by itself, since it is asked what follows it.
        starts: how many tokens of each are there already.
        min_shared: shortest piece that is read by itself.
    """
    known = list(starts)
    levels: list[list[Piece]] = []
    groups = [sorted(range(len(streams)), key=lambda place: streams[place])]
    while groups:
        level: list[Piece] = []
        inner: list[list[int]] = []
        for members in groups:
            if len(members) < 2:
                continue
            first = streams[members[0]]
            length = common_length(first, streams[members[-1]])
            end = min(length, len(first) - 1)
            new = [place for place in members if known[place] < end]
            if len(new) > 1 and end - known[new[0]] >= min_shared:
                level.append(Piece(leader=new[0], length=end, others=tuple(new[1:])))
                for place in new:
                    known[place] = end
            if length == len(first):
                inner.append(members[1:])
            else:
                inner += [
                    list(part) for _, part in groupby(members, key=lambda place: streams[place][length])
                ]
        if level:
            levels.append(level)
        groups = inner
    return levels
