"""What is said to an adviser: a message of few facts, which are clauses of what was seen."""

import re

FACTS = 2
"""Clauses of a message that an adviser reads."""


def clauses(text: str) -> list[str]:
    """Return the parts of `text` between full stops, semicolons and lines, in lower case and without what is empty.

    Example: ``"Goal: table. Recipes: table: 2 wood; hill: empty."`` → goal: table, recipes: table: 2 wood, hill: empty.
    """
    return [part for piece in re.split(r"[.;\n]", text.lower()) if (part := " ".join(piece.split()))]
