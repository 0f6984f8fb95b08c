"""What a completion may say, as text that each engine compiles for itself, and what one was sampled under."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

GrammarKind = Literal["lark", "json_schema", "regex", "choice", "tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """What a completion may say, as text that each engine compiles for itself.

    Example: ``Grammar(kind="regex", text="(yes|no)")``; see also `Grammar.of_choices` and `Grammar.of_tokens`. Under a
    grammar of text a completion ends with one of the request's stop ids, which are allowed where the grammar may end.
    """

    text: str
    """Lark as llguidance reads it, a JSON schema, a regular expression, a JSON list of texts, or one of token ids."""
    kind: GrammarKind = "lark"

    @classmethod
    def of_choices(cls, texts: Sequence[str]) -> Grammar:
        """Return the grammar that admits one of `texts`."""
        return cls(kind="choice", text=json.dumps(list(texts)))

    @classmethod
    def of_tokens(cls, token_ids: Sequence[int]) -> Grammar:
        """Return the grammar that admits one sequence of tokens, after which the completion ends."""
        return cls(kind="tokens", text=json.dumps(list(token_ids)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """What a completion was sampled under: ``Constraint(grammar=Grammar(text=…), stop_ids=frozenset({2}))``."""

    grammar: Grammar
    stop_ids: frozenset[int]
    """tokens that end a completion, where the grammar may end"""
