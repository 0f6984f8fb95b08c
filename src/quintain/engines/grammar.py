"""Completions that a grammar allows, token by token, with llguidance (the extra `constrained`).

The grammar is Lark as llguidance reads it, JSON schemas included. The one rule: a mask is computed for each
token from what was said before it, so nothing that is sampled ever has to be rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from quintain.engines.protocol import Guide
from quintain.errors import InvariantError, MissingExtra, UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TOKENIZERS: WeakKeyDictionary[PreTrainedTokenizerBase, dict[frozenset[int], Any]] = WeakKeyDictionary()


class Grammar:
    """A constraint by the Lark text `grammar`; completions end with one of `stop_ids`."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, grammar: str, stop_ids: frozenset[int]) -> None:
        """Compile the grammar.

        Raises:
            UsageError: the grammar cannot be compiled.
            MissingExtra: llguidance is not installed.
        """
        library = _library()
        known = _TOKENIZERS.setdefault(tokenizer, {})
        if stop_ids not in known:
            backend = cast(Any, tokenizer).backend_tokenizer.to_str()
            known[stop_ids] = library.LLTokenizer(backend, eos_token=sorted(stop_ids))
        self.num_tokens: int = known[stop_ids].vocab_size
        self._matcher = library.LLMatcher(known[stop_ids], grammar)
        if self._matcher.is_error():
            problem = " ".join(str(self._matcher.get_error()).split())
            raise UsageError(f"grammar of a completion: got {problem[:200]}; simplify the tools' schemas")

    def begin(self) -> Guide:
        """See `Constraint.begin`."""
        return GrammarGuide(self._matcher.deep_copy(), self.num_tokens)


class GrammarGuide:
    """One completion; see `Guide`."""

    def __init__(self, matcher: Any, num_tokens: int) -> None:
        """Begin where `matcher` is."""
        self._matcher = matcher
        self._num_tokens = num_tokens

    def allowed(self) -> NDArray[np.bool_]:
        """See `Guide.allowed`."""
        packed = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        return np.unpackbits(packed, bitorder="little")[: self._num_tokens].astype(np.bool_)

    def take(self, token: int) -> None:
        """See `Guide.take`.

        Raises:
            InvariantError: `token` was not allowed.
        """
        if not self._matcher.consume_token(token):
            raise InvariantError(
                f"a token under a grammar: got {token}, which is not allowed here; sample what is allowed"
            )


def _library() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise MissingExtra.named("llguidance", "constrained", "schema-constrained decoding") from error
    return llguidance
