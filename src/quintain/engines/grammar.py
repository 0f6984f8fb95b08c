"""Completions that a grammar allows, token by token: fixed tokens, or grammars of text with llguidance.

A mask is computed for each token from what was said before it, so nothing that is sampled ever has to be rejected.
Grammars of text (the extra `constrained`) are Lark as llguidance reads it, JSON schemas, regular expressions and
choices.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from quintain.engines.protocol import Grammar
from quintain.errors import EngineFault, InvariantError, MissingExtra, UsageError, is_panic
from quintain.types.json_text import load_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MAX_COMPILED = 256
"""Grammars that are kept compiled; the one that was compiled first goes first."""
LONGEST_PROBLEM = 200


class Guide(Protocol):
    """One completion under a grammar, from its first token on."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more can be said, not even a stop token."""
        ...

    def allow_tokens(self) -> NDArray[np.bool_]:
        """Return which tokens [V or fewer] may come next; at least one, a stop token where it may end.

        Raises:
            EngineFault: the grammar is past what can be followed.
        """
        ...

    def take(self, token: int) -> None:
        """Go on after `token` was sampled.

        Raises:
            EngineFault: the grammar is past what can be followed.
            InvariantError: `token` was not allowed.
        """
        ...


class Grammars:
    """Compiles grammars for a vocabulary, and keeps what it compiled.

    Args:
        vocabulary: number of tokens of the model.
        tokenizer: what grammars of text need; None admits fixed tokens only.
    """

    def __init__(self, vocabulary: int, tokenizer: PreTrainedTokenizerBase | None) -> None:
        self.vocabulary = vocabulary
        self.tokenizer = tokenizer
        self._tokenizers: dict[frozenset[int], Any] = {}
        self._matchers: dict[tuple[Grammar, frozenset[int]], Any] = {}

    def begin(self, grammar: Grammar, stop_ids: frozenset[int]) -> Guide:
        """Return the guide of a new completion, which one of `stop_ids` ends.

        Raises:
            UsageError: the grammar cannot be compiled, or it is of text and there is no tokenizer.
            MissingExtra: llguidance is not installed.
        """
        if grammar.kind == "tokens":
            return FixedTokens(tokens_of(grammar, self.vocabulary), self.vocabulary)
        known = self._matchers.get((grammar, stop_ids))
        if known is None:
            known = self._matchers[grammar, stop_ids] = self._compile(grammar, stop_ids)
            if len(self._matchers) > MAX_COMPILED:
                del self._matchers[next(iter(self._matchers))]
        return TextGuide(known.deep_copy(), self._tokenizers[stop_ids].vocab_size)

    def _compile(self, grammar: Grammar, stop_ids: frozenset[int]) -> Any:
        """Return the matcher of a grammar of text at its beginning."""
        library = _library()
        if self.tokenizer is None:
            raise UsageError(
                f"a grammar ({grammar.kind}): got an engine without a tokenizer; build it with the model's"
            )
        if stop_ids not in self._tokenizers:
            backend = cast(Any, self.tokenizer).backend_tokenizer.to_str()
            self._tokenizers[stop_ids] = library.LLTokenizer(backend, eos_token=sorted(stop_ids))
        try:
            matcher = library.LLMatcher(self._tokenizers[stop_ids], _source(grammar), log_level=0)
        except BaseException as error:
            if not is_panic(error):
                raise
            raise _refusal(str(error)) from None
        if matcher.is_error():
            raise _refusal(str(matcher.get_error()))
        return matcher


class TextGuide:
    """One completion under a grammar of text; see `Guide`."""

    is_over = False

    def __init__(self, matcher: Any, num_tokens: int) -> None:
        """Begin where `matcher` is."""
        self._matcher = matcher
        self._num_tokens = num_tokens
        self._mask: NDArray[np.bool_] | None = None
        """what was allowed last, until a token was taken"""

    def allow_tokens(self) -> NDArray[np.bool_]:
        """See `Guide.allow_tokens`."""
        packed = np.frombuffer(self._ask(self._matcher.compute_bitmask), np.uint8)
        self._mask = np.unpackbits(packed, bitorder="little")[: self._num_tokens].astype(np.bool_)
        return self._mask

    def take(self, token: int) -> None:
        """See `Guide.take`."""
        mask, self._mask = self._mask, None
        is_allowed = mask is None or (token < len(mask) and bool(mask[token]))
        if not is_allowed or not self._ask(self._matcher.consume_token, token):
            raise InvariantError(
                f"a token under a grammar: got {token}, which is not allowed here; sample what is allowed"
            )

    def _ask(self, question: Callable[..., Any], *arguments: object) -> Any:
        """Return what the library answers; its limits hold for what is computed at a token, too.

        Raises:
            EngineFault: it can follow the grammar no further.
        """
        problem = ""
        try:
            answer = question(*arguments)
        except BaseException as error:
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            answer, problem = None, f"{type(error).__name__}: {error}"
        if not problem and self._matcher.is_error():
            problem = str(self._matcher.get_error())
        if problem:
            raise EngineFault(
                f"following a grammar: got {first_line(problem)}; simplify the grammar, or the tools' schemas"
            )
        return answer


class FixedTokens:
    """One completion that says `token_ids` one after the other; see `Guide`."""

    def __init__(self, token_ids: tuple[int, ...], vocabulary: int) -> None:
        self._left = list(token_ids)
        self._vocabulary = vocabulary

    @property
    def is_over(self) -> bool:
        """See `Guide.is_over`."""
        return not self._left

    def allow_tokens(self) -> NDArray[np.bool_]:
        """Return the next token only."""
        mask = np.zeros(self._vocabulary, dtype=np.bool_)
        mask[self._left[0]] = True
        return mask

    def take(self, token: int) -> None:
        """See `Guide.take`."""
        if token != self._left.pop(0):
            raise InvariantError(
                f"a token of a fixed sequence: got {token}, which is not the next; sample what is allowed"
            )


@lru_cache(maxsize=MAX_COMPILED)
def check_grammar(grammar: Grammar) -> None:
    """Refuse a grammar that no engine could compile; no tokenizer is needed to see that.

    Raises:
        UsageError: its text is not what its kind asks for.
        MissingExtra: it is of text, and llguidance is not installed.
    """
    if grammar.kind == "tokens":
        tokens_of(grammar, None)
        return
    try:
        problem = str(_library().LLMatcher.validate_grammar(_source(grammar), None))
    except BaseException as error:
        if not is_panic(error):
            raise
        problem = str(error)
    if problem:
        raise _refusal(problem)


@lru_cache(maxsize=MAX_COMPILED)
def tokens_of(grammar: Grammar, vocabulary: int | None) -> tuple[int, ...]:
    """Return the token ids that a grammar of kind ``tokens`` admits; it is asked twice for each request.

    Raises:
        UsageError: its text is no JSON list of one or more token ids (of the `vocabulary`).
    """
    found = _json(grammar)
    limit = float("inf") if vocabulary is None else vocabulary
    ids = cast("list[Any]", found) if isinstance(found, list) else []
    if not ids or not all(type(token) is int and 0 <= token < limit for token in ids):
        raise _refusal(f"{grammar.text[:60]!r} for fixed tokens: write a JSON list of ids of the vocabulary")
    return tuple(cast("list[int]", ids))


def first_line(problem: str) -> str:
    """Return what the library says first of a problem, without the state that it prints after it."""
    return " ".join(problem.partition("<state>")[0].split())[:LONGEST_PROBLEM]


def is_available() -> bool:
    """Return whether grammars of text can be compiled here."""
    return importlib.util.find_spec("llguidance") is not None


def _source(grammar: Grammar) -> str:
    """Return a grammar of text as llguidance takes it."""
    if grammar.kind == "lark":
        return grammar.text
    if grammar.kind == "regex":
        return str(_library().LLMatcher.grammar_from_regex(grammar.text))
    if grammar.kind == "json_schema":
        _json(grammar)
        return str(_library().LLMatcher.grammar_from_json_schema(grammar.text))
    found = _json(grammar)
    texts = cast("list[Any]", found) if isinstance(found, list) else []
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise _refusal(f"{grammar.text[:60]!r} for a choice: write a JSON list of texts")
    return "start: " + " | ".join(json.dumps(text, ensure_ascii=False) for text in cast("list[str]", texts))


def _json(grammar: Grammar) -> object:
    """Return the value that the text of `grammar` stands for."""
    try:
        return load_json(grammar.text)
    except ValueError as error:
        raise _refusal(f"{grammar.text[:60]!r} ({grammar.kind}), which is no JSON: {error}") from error


def _refusal(problem: str) -> UsageError:
    """Return the error of a grammar that cannot be compiled."""
    return UsageError(
        f"grammar of a completion: got {first_line(problem)}; simplify the grammar, or the tools' schemas"
    )


def _library() -> Any:
    """Return llguidance.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import llguidance
    except ImportError as error:
        raise MissingExtra.for_package("llguidance", "constrained", "schema-constrained decoding") from error
    return llguidance
