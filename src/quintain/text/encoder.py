"""Encode text so that only a chat template can write special tokens.

Markup is every special token and every added token that looks like one and that the chat template writes
(`<tool_call>`, `[INST]`). Before untrusted text meets a template it is *defused*: a private mark is put inside each
markup string in it. After rendering, the markup that is still whole was written by the template and becomes its id;
everything else loses its marks and is encoded by a private tokenizer that knows no markup. `plain` never returns a
markup id, whatever the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from tokenizers import AddedToken, Tokenizer

from quintain.errors import ModelError, is_panic
from quintain.types.unicode import valid_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MARK = "\ue000"
LITERAL_MARK, BREAK = MARK + "0", MARK + "1"
ANCHOR = "\ufdd0anchor\ufdd1"
CALL_MARKERS = frozenset({"[TOOL_CALLS]", "[ARGS]", "<|python_tag|>"})
"""Special tokens that an assistant may write, because tool calls of its family begin with them."""
MARKUP_SHAPE = re.compile(r"<.*>|\[.*\]|\{.*\}", re.DOTALL)
TAGS = ("think", "tool_call", "tool_response")
WELL_KNOWN = frozenset(
    [*(f"<{tag}>" for tag in TAGS), *(f"</{tag}>" for tag in TAGS), "[TOOL_CALLS]", "[ARGS]"]
)
"""Added tokens that are markup whatever the template writes: models write them by themselves."""
CACHED_TEXTS, CACHED_LENGTH = 16_384, 2_000


class Defuser:
    """Breaks every occurrence of `tokens` in a text, also those that would form with the text around it."""

    def __init__(self, tokens: Iterable[str]) -> None:
        """Prepare to break `tokens`, each of two characters or more."""
        known = sorted(set(tokens), key=lambda token: (-len(token), token))
        self._pattern = re.compile("|".join(map(re.escape, known)) or r"(?!)")
        self._heads = {token[:cut] for token in known for cut in range(1, len(token))}
        self._tails = {token[cut:] for token in known for cut in range(1, len(token))}
        self._reach = range(1, max(map(len, known), default=1))
        self._cache: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        """Return `text` with a break inside each token, and at an edge that could complete one outside."""
        found = self._cache.get(text)
        if found is None:
            found = self._break_specials(text)
            if len(text) <= CACHED_LENGTH:
                if len(self._cache) >= CACHED_TEXTS:
                    self._cache.clear()
                self._cache[text] = found
        return found

    def _break_specials(self, text: str) -> str:
        """Return what `__call__` promises."""
        if MARK in text:
            text = text.replace(MARK, LITERAL_MARK)
        while self._pattern.search(text):
            text = self._pattern.sub(lambda match: match[0][0] + BREAK + match[0][1:], text)
        core = text.strip()
        if any(core[:size] in self._tails for size in self._reach):
            text = text.replace(core, BREAK + core)
            core = BREAK + core
        if any(core[-size:] in self._heads for size in self._reach):
            text = text.replace(core, core + BREAK)
        return text


class TextEncoder:
    """Text to ids for one tokenizer; see the head of the module."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Read the added tokens of `tokenizer` and copy its backend.

        Raises:
            ModelError: the tokenizer has no fast backend.
        """
        if not tokenizer.is_fast:
            raise ModelError(
                f"a tokenizer with a fast backend is needed: got {type(tokenizer).__name__}; "
                "convert it and save it with a tokenizer.json"
            )
        backend = cast(Tokenizer, tokenizer.backend_tokenizer)
        added = cast("dict[int, AddedToken]", tokenizer.added_tokens_decoder)
        self.template = cast("str | dict[str, str] | None", tokenizer.chat_template)
        """The chat template that the encoder was made for; what it spells out is markup."""
        named = self.template.values() if isinstance(self.template, dict) else [self.template or ""]
        written = "\n".join(named)
        markup = {number: token for number, token in added.items() if is_markup(token, written)}
        self.num_tokens = len(tokenizer)
        self._ids = {token.content: number for number, token in markup.items()}
        self._pattern = markup_pattern(markup.values())
        self._backend, self._anchor = without_markup(backend, self._ids)
        self._forbidden = frozenset((*markup, self._anchor))
        self._cache: dict[tuple[str, bool], tuple[int, ...]] = {}
        self.defuse = Defuser(self._ids)
        """Defuse untrusted text."""
        special = self._special = {token.content for token in markup.values() if token.special}
        self.defuse_answer = Defuser(special - CALL_MARKERS)
        """Defuse what an assistant wrote: it may use the markup of tool calls, but no other special token."""

    @property
    def markup_ids(self) -> frozenset[int]:
        """Ids that `plain` never returns."""
        return self._forbidden

    def markup_id(self, token: str) -> int | None:
        """Return the id of the markup `token`, None if the tokenizer has none."""
        return self._ids.get(token)

    def plain(self, text: str, *, continues: bool = True) -> tuple[int, ...]:
        """Return the ids of `text` without any markup id; `continues` says that other tokens precede it."""
        ids = self._encode(text, continues)
        if self._forbidden.isdisjoint(ids):
            return ids
        single = [token for character in text for token in self._encode(character, continues)]
        return tuple(token for token in single if token not in self._forbidden)

    def encode_marked(self, text: str, *, continues: bool) -> tuple[int, ...]:
        """Return the ids of rendered `text`: whole markup gives its id, defused markup is plain text."""
        key = (text, continues)
        found = self._cache.get(key)
        if found is None:
            found = tuple(self._encode_marked(text, continues))
            if len(text) <= CACHED_LENGTH:
                if len(self._cache) >= CACHED_TEXTS:
                    self._cache.clear()
                self._cache[key] = found
        return found

    def first_markup(self, text: str) -> tuple[int, int] | None:
        """Return (its end in `text`, its id) for the first markup of rendered `text`."""
        match = self._pattern.search(text)
        return None if match is None else (match.end(), self._id_of(match[0]))

    def parts(self, text: str) -> list[tuple[str, int | None]]:
        """Return rendered `text` in parts: (markup, its id) and (other text, None); defused markup is other text."""
        found: list[tuple[str, int | None]] = []
        for index, piece in enumerate(self._pattern.split(text)):
            if index % 2:
                found.append((piece, self._id_of(piece)))
            elif piece:
                found.append((piece.replace(BREAK, "").replace(LITERAL_MARK, MARK), None))
        return found

    def marks_in(self, text: str) -> list[str]:
        """Return the markup in rendered `text`, in order."""
        return [found.strip() for found in self._pattern.findall(text)]

    def marks_at(self, text: str) -> list[int]:
        """Return where the markup in rendered `text` begins, in order."""
        return [found.start() for found in self._pattern.finditer(text)]

    def last_mark_end(self, text: str) -> int:
        """Return where the last markup in rendered `text` ends, 0 where there is none."""
        return max((found.end() for found in self._pattern.finditer(text)), default=0)

    def is_special(self, mark: str) -> bool:
        """Whether `mark` is a special token of the tokenizer."""
        return mark in self._special

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of `token_ids`, special tokens included."""
        return self._backend.decode(list(token_ids), skip_special_tokens=False)

    def _encode_marked(self, text: str, continues: bool) -> list[int]:
        ids: list[int] = []
        for place, (part, token) in enumerate(self.parts(text)):
            if token is None:
                ids.extend(self.plain(part, continues=continues or place > 0))
            else:
                ids.append(token)
        return ids

    def _id_of(self, piece: str) -> int:
        found = self._ids.get(piece)
        return self._ids[piece.strip()] if found is None else found

    def _encode(self, text: str, continues: bool) -> tuple[int, ...]:
        """Encode with the private backend; the anchor keeps `text` from looking like a document's start."""
        whole = ANCHOR + text if continues else text
        try:
            ids = self._backend.encode(whole, add_special_tokens=False).ids
        except TypeError:  # lone surrogates cannot cross into the backend
            ids = self._backend.encode(valid_text(whole), add_special_tokens=False).ids
        except BaseException as error:
            if not is_panic(error):
                raise
            raise ModelError(
                f"encoding {text[:40]!r}: the tokenizer gave up ({error}); take the tokenizer of the model's authors"
            ) from None
        return tuple(ids[1:] if continues else ids)


def is_markup(token: AddedToken, template: str) -> bool:
    """Whether untrusted text must not produce `token`: it is special, or the chat `template` writes it.

    The tags of thoughts and calls always count. Other added tokens are text: of Gemma's, six thousand are HTML. A
    special token of one character (some checkpoints pad with ``!``) is ordinary text that cannot be broken.
    """
    text = token.content
    is_written = MARKUP_SHAPE.fullmatch(text) is not None and (text in WELL_KNOWN or text in template)
    return len(text) > 1 and (token.special or is_written)


def markup_pattern(tokens: Iterable[AddedToken]) -> re.Pattern[str]:
    """Return the pattern that finds `tokens`, longest first, with the blanks that they swallow; one group."""
    longest = sorted(tokens, key=lambda token: (-len(token.content), token.content))
    blanks = r"\s*"
    parts = (blanks * t.lstrip + re.escape(t.content) + blanks * t.rstrip for t in longest)
    return re.compile(f"({'|'.join(parts) or '(?!)'})")


def without_markup(backend: Tokenizer, markup: Iterable[str]) -> tuple[Tokenizer, int]:
    """Return a copy of `backend` that reads `markup` as plain text, and the id of its anchor."""
    names = set(markup)
    description = cast("dict[str, Any]", json.loads(backend.to_str()))
    for token in description["added_tokens"]:
        token["special"] = token["content"] in names
    copy = Tokenizer.from_str(json.dumps(description))
    copy.no_truncation()
    copy.no_padding()
    copy.add_tokens([AddedToken(ANCHOR, normalized=False, special=False)])
    copy.encode_special_tokens = True
    return copy, cast(int, copy.token_to_id(ANCHOR))
