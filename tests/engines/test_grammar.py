"""Grammars are plain text that each engine compiles for itself; what cannot be compiled is refused in one line."""

import copy
import dataclasses
import json
import sys

import pytest
from transformers import PreTrainedTokenizerFast

from quintain.engines import grammar
from quintain.engines.grammar import Grammars, check_grammar, is_available
from quintain.engines.protocol import Grammar
from quintain.errors import InvariantError, MissingExtra, UsageError
from quintain.text.tokenizer import train_tokenizer

STOP = frozenset({1})


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(["yes no"] * 20, 300)


def test_a_grammar_is_a_value() -> None:
    one, other = Grammar.of_choices(["a", "ü"]), Grammar(kind="choice", text='["a", "\\u00fc"]')
    assert one == other and hash(one) == hash(other) and one != Grammar(text=one.text)
    assert Grammar(**json.loads(json.dumps(dataclasses.asdict(one)))) == one
    assert copy.deepcopy(one) == one
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.text = "b"  # type: ignore[misc] # pyright: ignore


def test_fixed_tokens_are_said_one_after_the_other() -> None:
    guide = Grammars(8, None).begin(Grammar.of_tokens((3, 5)), frozenset())
    assert guide.allow_tokens().tolist() == [place == 3 for place in range(8)]
    guide.take(3)
    assert (guide.allow_tokens().nonzero()[0].tolist(), guide.is_over) == ([5], False)
    with pytest.raises(InvariantError, match="a token of a fixed sequence: got 3, which is not the next"):
        guide.take(3)
    assert guide.is_over


@pytest.mark.parametrize("text", ["[]", "[8]", "[-1]", '["a"]', "[true]", "3", "[1", '{"a": 1}'])
def test_what_is_no_sequence_of_tokens(text: str) -> None:
    with pytest.raises(UsageError, match=r"^grammar of a completion: got .*; simplify the grammar"):
        Grammars(8, None).begin(Grammar(kind="tokens", text=text), STOP)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("lark", "start: ("),
        ("lark", 'start: "a" unknown'),
        ("regex", "a(+"),
        ("json_schema", '{"type": "nothing"}'),
        ("json_schema", "{"),
        ("choice", "[]"),
        ("choice", '["a", 3]'),
        ("choice", '[""]'),
        ("tokens", "{}"),
    ],
)
def test_what_cannot_be_compiled(kind: grammar.Any, text: str, tokenizer: PreTrainedTokenizerFast) -> None:
    wrong = Grammar(kind=kind, text=text)
    for refuse in (check_grammar, lambda one: Grammars(300, tokenizer).begin(one, STOP)):
        with pytest.raises(
            UsageError, match=r"^grammar of a completion: got [^\n]*; simplify the grammar"
        ) as found:
            refuse(wrong)
        assert len(str(found.value)) < 330


def test_only_what_may_come_next_is_allowed(tokenizer: PreTrainedTokenizerFast) -> None:
    compiled = Grammars(len(tokenizer), tokenizer)
    yes = Grammar(kind="regex", text="yes")
    assert check_grammar(yes) is None
    guide, other = compiled.begin(yes, STOP), compiled.begin(yes, STOP)
    ids = tokenizer.encode("yes", add_special_tokens=False)
    for token in ids:
        assert guide.allow_tokens()[token]
        guide.take(token)
    assert guide.allow_tokens().nonzero()[0].tolist() == [1] and not guide.is_over
    with pytest.raises(InvariantError, match="a token under a grammar: got 5, which is not allowed here"):
        guide.take(5)
    assert other.allow_tokens()[ids[0]], "a guide is of one completion"


def test_grammars_are_compiled_once(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = Grammars(len(tokenizer), tokenizer)
    seen: list[Grammar] = []
    whole = compiled._compile  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(compiled, "_compile", lambda one, stops: seen.append(one) or whole(one, stops))
    monkeypatch.setattr(grammar, "MAX_COMPILED", 2)
    words = [Grammar(kind="regex", text=text) for text in ("a", "b", "c")]
    for word in (words[0], words[0], words[1], words[0], words[2], words[2], words[0]):
        compiled.begin(word, STOP)
    assert seen == [words[0], words[1], words[2], words[0]], "the oldest goes when there are too many"


def test_without_tokenizer_or_library(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_available()
    text = Grammar(kind="regex", text="never seen before")
    with pytest.raises(
        UsageError, match=r"a grammar \(regex\): got an engine without a tokenizer; build it with"
    ):
        Grammars(300, None).begin(text, STOP)
    monkeypatch.setitem(sys.modules, "llguidance", None)
    for refuse in (check_grammar, lambda one: Grammars(300, tokenizer).begin(one, STOP)):
        with pytest.raises(MissingExtra, match=r'pip install -e "\.\[constrained\]"'):
            refuse(text)
