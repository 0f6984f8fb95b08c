"""Values as models write them where it is not JSON: Python's literals, and objects with bare keys.

``[find(city='Rome', seats=2, direct=True)]`` is a list of calls, ``{city:<|"|>Rome<|"|>,seats:2}`` an object of
Gemma 4. Nothing is evaluated: what is no literal is refused, with the place where it is not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from quintain.text.parse import DEEPEST, UnreadableError, quote, read_json

_WORDS: dict[str, Any] = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "null": None,
    "None": None,
}
_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*)(?:\.\d*)?(?:[eE][-+]?\d+)?|[-+]?\.\d+(?:[eE][-+]?\d+)?")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_BLANKS = re.compile(r"\s*")
_KEY = re.compile(r"[^:,{}\[\]]{1,200}")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""}
_QUOTED = {mark: re.compile(rf"[^{mark}\\]*") for mark in "'\""}
_UNICODE = {"x": 2, "u": 4, "U": 8}


def read_literal(text: str, quotes: Sequence[str] = ("'", '"'), *, bare_keys: bool = False) -> Any:
    """Return the value that `text` is: a number, a word, a string in `quotes`, a list or an object.

    Quotes of one character have escapes, as in Python; strings in other quotes are as they stand. With `bare_keys`
    the keys of objects have no quotes.

    Raises:
        UnreadableError: `text` is not that; the message continues a sentence that begins with "tool call 1".
    """
    reader = _Reader(text, quotes, bare_keys)
    value = reader.value(0)
    reader.end()
    return value


def read_calls(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Return name and arguments of the calls in a list such as ``[find(city='Rome'), book(train="IC 9")]``.

    Raises:
        UnreadableError: `text` is not that.
    """
    reader = _Reader(text, ("'", '"'), False)
    calls = list(reader.calls())
    reader.end()
    return calls


class _Reader:
    """A place in a text, and what is read from there on."""

    def __init__(self, text: str, quotes: Sequence[str], bare_keys: bool) -> None:
        self.text, self.quotes, self.bare_keys = text, sorted(quotes, key=len, reverse=True), bare_keys
        self.at = 0

    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        found: list[tuple[str, dict[str, Any]]] = []
        is_list = self.took("[")
        while not (is_list and self.took("]")):
            found.append(self.call())
            if not self.took(","):
                if is_list:
                    self.need("]")
                break
        return found

    def call(self) -> tuple[str, dict[str, Any]]:
        name = self.name("the name of a tool")
        self.need("(")
        arguments: dict[str, Any] = {}
        while not self.took(")"):
            key = self.name("the name of an argument")
            self.need("=")
            self.put(arguments, key, 0)
            if not self.took(","):
                self.need(")")
                break
        return name, arguments

    def value(self, depth: int) -> Any:
        if depth > DEEPEST:
            raise UnreadableError(f"is nested deeper than {DEEPEST} levels")
        self.skip()
        for mark in self.quotes:
            if self.text.startswith(mark, self.at):
                return self.string(mark)
        if self.took("["):
            return self.items("]", depth)
        if self.took("("):
            return self.items(")", depth)
        if self.took("{"):
            return self.object(depth)
        word = _NAME.match(self.text, self.at)
        if word and word[0] in _WORDS:
            self.at = word.end()
            return _WORDS[word[0]]
        return self.number()

    def number(self) -> int | float:
        found = _NUMBER.match(self.text, self.at)
        if not found:
            raise self.problem("a value")
        written = found[0].replace("_", "").removeprefix("+")
        self.at = found.end()
        if re.fullmatch(r"-?\d+", written):
            written = re.sub(r"^(-?)0+(?=\d)", r"\1", written)  # 007, which JSON does not have
        return read_json(re.sub(r"\.(?!\d)", ".0", re.sub(r"^(-?)\.", r"\g<1>0.", written)))

    def string(self, mark: str) -> str:
        self.at += len(mark)
        if mark not in _QUOTED:
            end = self.text.find(mark, self.at)
            if end < 0:
                raise UnreadableError(f"has a string that is not closed by {mark}")
            start, self.at = self.at, end + len(mark)
            return self.text[start:end]
        parts: list[str] = []
        plain = _QUOTED[mark]
        while True:
            found = plain.match(self.text, self.at)
            assert found is not None, "the pattern matches the empty text, too"
            parts.append(found[0])
            self.at = found.end()
            if self.at >= len(self.text):
                raise UnreadableError(f"has a string that is not closed by {mark}")
            self.at += 1
            if self.text[self.at - 1] == mark:
                return "".join(parts)
            parts.append(self.escape())

    def escape(self) -> str:
        sign = self.text[self.at : self.at + 1]
        self.at += 1
        if sign in _UNICODE:
            digits = self.text[self.at : self.at + _UNICODE[sign]]
            if not re.fullmatch(rf"[0-9a-fA-F]{{{_UNICODE[sign]}}}", digits) or int(digits, 16) > 0x10FFFF:
                raise UnreadableError(f"has a wrong escape in a string, near {quote(sign + digits)}")
            self.at += len(digits)
            code = int(digits, 16)
            if 0xD800 <= code < 0xE000:
                raise UnreadableError("holds half of a surrogate pair")
            return chr(code)
        return _ESCAPES.get(sign, sign if sign in "'\"\\/" else "\\" + sign)

    def items(self, end: str, depth: int) -> list[Any]:
        found: list[Any] = []
        while not self.took(end):
            found.append(self.value(depth + 1))
            if not self.took(","):
                self.need(end)
                break
        return found

    def object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self.took("}"):
            self.skip()
            if self.bare_keys and not any(self.text.startswith(mark, self.at) for mark in self.quotes):
                written = _KEY.match(self.text, self.at)
                if not written:
                    raise self.problem("a key")
                key, self.at = written[0].strip(), written.end()
            else:
                key = self.value(depth + 1)
                if not isinstance(key, str):
                    raise UnreadableError(f"has a key that is no text: got {quote(repr(key))}")
            self.need(":")
            self.put(found, key, depth + 1)
            if not self.took(","):
                self.need("}")
                break
        return found

    def put(self, into: dict[str, Any], key: str, depth: int) -> None:
        """Read a value into `into`; a key that is there already is a mistake."""
        if key in into:
            raise UnreadableError(f"has the key {quote(key)} twice")
        into[key] = self.value(depth)

    def name(self, what: str) -> str:
        self.skip()
        found = _NAME.match(self.text, self.at)
        if not found:
            raise self.problem(what)
        self.at = found.end()
        return found[0]

    def skip(self) -> None:
        found = _BLANKS.match(self.text, self.at)
        assert found is not None, "the pattern matches the empty text, too"
        self.at = found.end()

    def took(self, sign: str) -> bool:
        self.skip()
        if not self.text.startswith(sign, self.at):
            return False
        self.at += len(sign)
        return True

    def need(self, sign: str) -> None:
        if not self.took(sign):
            raise self.problem(repr(sign))

    def end(self) -> None:
        self.skip()
        if self.at < len(self.text):
            raise self.problem("the end")

    def problem(self, wanted: str) -> UnreadableError:
        near = quote(self.text[max(0, self.at - 10) : self.at + 20])
        return UnreadableError(
            f"is not written right: {wanted} is missing at character {self.at}, near {near}"
        )
