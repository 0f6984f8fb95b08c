"""The text that a turn adds to a rendered chat, found once and filled with contents afterwards.

A template is rendered with names in the place of contents, bare and padded with blanks; the text around the names and
the edges that lost their blanks are its pieces. Pieces are only made where filling them gives the rendering back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

EMPTY_THOUGHT = re.compile(r"\n?<think>\s*</think>\s*")
PAD = " \n "
"""Blanks that show whether a template trims contents."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """What a turn adds: template text around the new contents, and which of their edges are trimmed."""

    texts: tuple[str, ...]
    trims: tuple[tuple[bool, bool], ...]

    def fill(self, contents: Sequence[str]) -> str:
        """Return the text that new messages of `contents` add."""
        parts = [self.texts[0]]
        for content, (left, right), text in zip(contents, self.trims, self.texts[1:], strict=True):
            trimmed = content.lstrip() if left else content
            parts += (trimmed.rstrip() if right else trimmed, text)
        return "".join(parts)


def after_answer(before: str, said: str, after: str) -> str | None:
    """Return what follows `before` and the answer `said` in `after`; None where it begins otherwise.

    Blanks that a template puts or trims around answers are not a rewriting: the stream keeps what was
    sampled.
    """
    if not after.startswith(before):
        return None
    tail = after[len(before) :]
    for text, spoken in ((tail, said), (tail.lstrip(), said.lstrip()), (tail.lstrip(), said.strip())):
        if text.startswith(spoken):
            return text[len(spoken) :]
    return None


def after_unthinking(before: str, said: str, after: str) -> str | None:
    """Return the same as `after_answer` where templates differ from themselves by empty thoughts only.

    Qwen3 without thinking puts an empty ``<think>`` block before each answer and takes it out of history, GLM puts
    one into history: where nothing was thought, nothing is rewritten, and the stream keeps what it has.
    """
    bare = EMPTY_THOUGHT.sub("", after)
    delta = after_answer(EMPTY_THOUGHT.sub("", before), said, bare)
    if delta is None or "<think>" in said:
        return None
    # The delta keeps the blocks of its own, such as the one that opens the next answer.
    blocks = [found.group() for found in EMPTY_THOUGHT.finditer(after)]
    sizes = (len(delta) + sum(map(len, blocks[count:])) for count in range(len(blocks), -1, -1))
    tails = (after[len(after) - size :] for size in sizes)
    return next((tail for tail in tails if EMPTY_THOUGHT.sub("", tail) == delta), None)


def pieces_of(bare: str, padded: str, names: Sequence[str]) -> Pieces | None:
    """Return the pieces around `names` in `bare`, with the edges that were trimmed in `padded`.

    None unless each name stands in `bare` once, in order, and filling the pieces gives `padded` too: a
    template that quotes or edits contents has no fixed pieces.
    """
    texts: list[str] = []
    for name in names:
        before, found, bare = bare.partition(name)
        if not found or name in bare:
            return None
        texts.append(before)
    texts.append(bare)
    trims: list[tuple[bool, bool]] = []
    rest = padded.removeprefix(texts[0])
    for name, after in zip(names, texts[1:], strict=True):
        left = not rest.startswith(PAD)
        rest = rest.removeprefix(PAD).removeprefix(name)
        right = not rest.startswith(PAD)
        rest = rest.removeprefix(PAD).removeprefix(after)
        trims.append((left, right))
    pieces = Pieces(tuple(texts), tuple(trims))
    return pieces if pieces.fill([PAD + name + PAD for name in names]) == padded else None
