"""The tokens of a trajectory as a forest that only grows: each turn hangs under the turn that it continues.

A turn continues its speaker's turn before. A turn with `starts_segment` brings a whole prompt: where the tokens of an
earlier turn's walk are an exact prefix of it, the turn becomes a branch under that one, else a new root. So history
that was rewritten, a retry or a plan is a new leaf, and nothing ever changes. A walk from a root to a leaf is a token
stream.
"""

from collections.abc import Sequence

from quintain.types.episodes import Turn


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
        sampled = turn.completion.token_ids
        given = end - len(sampled)
        # What was sampled is compared first: it tells most turns apart, and is short.
        if (
            new.prompt_ids[given:end] == sampled
            and new.prompt_ids[start:given] == turn.prompt_ids[num_shared:]
        ):
            matches.add(number)
            if end > best[1]:
                best = (number, end)
    return best
