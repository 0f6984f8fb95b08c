"""The index over the paragraphs of one question; those of a whole corpus are `quintain.retrieval`'s."""

from functools import lru_cache

from quintain.retrieval.bm25 import BM25


@lru_cache(maxsize=256)
def index_of(titles: tuple[str, ...], paragraphs: tuple[str, ...]) -> BM25:
    """Return the index of `paragraphs` with their `titles`, made once.

    Raises:
        MissingExtra: bm25s is not installed.
    """
    return BM25([f"{title} {text}" for title, text in zip(titles, paragraphs, strict=True)])
