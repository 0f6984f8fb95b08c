"""Texts with half of a surrogate pair, which JSON can hold and UTF-8 cannot: made whole."""

import re

HALF = re.compile(r"[\ud800-\udfff]")


def valid_text(text: str) -> str:
    """Return `text` with each half of a surrogate pair as U+FFFD; a pair in two halves becomes its character."""
    if HALF.search(text) is None:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
