"""The text that a turn adds to a rendered chat, found once and filled with contents afterwards.

A template is rendered with names in the place of contents, bare and padded with blanks; the text around the names and
the edges that lost their blanks are its pieces. Pieces are only made where filling them gives the rendering back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def common_prefix(left: str, right: str) -> str:
    """Return what `left` and `right` both begin with."""
    same = next((n for n, pair in enumerate(zip(left, right, strict=False)) if len(set(pair)) > 1), None)
    return left[: min(len(left), len(right)) if same is None else same]


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
