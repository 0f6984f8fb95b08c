"""What is wrong with one request is that request's failure: the others go on, and nothing leaves `advance`."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from quintain.engines import grammar
from quintain.engines.build import build_engine
from quintain.engines.grammar import Grammars, TextGuide
from quintain.engines.protocol import Candidates, Engine, Grammar, Request, Sampling
from quintain.engines.scripted import Scripted
from quintain.engines.settings import EngineSettings
from quintain.errors import EngineFault, UsageError
from quintain.models.tiny import build_tiny
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Completion, Failure

STOP = frozenset({1})
WIDE = Grammar(
    kind="json_schema",
    text=json.dumps({"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(500)}}),
)
"""More properties than the library looks at in one place, which it says when an object is begun."""


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(['yes no {"p1": "a"}'] * 20, 300)


@pytest.fixture
def local(tokenizer: PreTrainedTokenizerFast) -> Engine:
    return build_engine(EngineSettings(), build_tiny(tokenizer, size="micro", seed=0), tokenizer)


def request(name: str, **sampling: Any) -> Request:
    named: dict[str, Any] = {"max_tokens": 8, "stop_ids": STOP, **sampling}
    settings = Sampling(**named)
    return Request(session=name, prompt_ids=(5, 6), seed=3, sampling=settings)


def results(engine: Engine, *names: str) -> dict[str, Completion | Failure]:
    found: dict[str, Completion | Failure] = {}
    for _ in range(200):
        found |= {reply.session: reply.result for reply in engine.advance()}
        if found.keys() >= set(names):
            return found
    raise AssertionError(f"only {sorted(found)} of {names} came")


def opened(guide: Any, tokenizer: PreTrainedTokenizerFast) -> None:
    """Begin the object that the grammar `WIDE` is of."""
    guide.allowed()
    guide.take(tokenizer.encode("{", add_special_tokens=False)[0])


def test_a_limit_that_is_met_at_a_token_is_an_error_of_the_engine(tokenizer: PreTrainedTokenizerFast) -> None:
    compiled = Grammars(len(tokenizer), tokenizer)
    with pytest.raises(
        EngineFault, match=r"^following a grammar: got [^\n]*max is 2000[^\n]*; simplify"
    ) as found:
        opened(compiled.begin(WIDE, STOP), tokenizer)
    assert "<state>" not in str(found.value) and len(str(found.value)) < 330
    opened(compiled.begin(Grammar(kind="json_schema", text='{"type": "object"}'), STOP), tokenizer)


def test_a_request_past_a_limit_fails_alone(local: Engine, tokenizer: PreTrainedTokenizerFast) -> None:
    local.submit(request("innocent", max_tokens=30, stop_ids=frozenset[int]()))
    alone = results(local, "innocent")["innocent"]
    local.release("innocent")
    local.submit(request("innocent", max_tokens=30, stop_ids=frozenset[int]()))
    local.submit(request("poisoned", constraint=WIDE, max_tokens=20))
    found = results(local, "innocent", "poisoned")
    failure = found["poisoned"]
    assert isinstance(failure, Failure) and (failure.owner, failure.kind) == ("engine", "grammar")
    assert found["innocent"] == alone, "the other request noticed"
    assert (local.stats().num_failed, local.stats().num_finished) == (1, 2)
    # The stream of the one that failed is what it was before, and can be gone on from.
    local.submit(request("poisoned"))
    assert isinstance(results(local, "poisoned")["poisoned"], Completion)


def test_a_grammar_that_is_refused_late_fails_alone(local: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    local.submit(request("poisoned", constraint=Grammar(kind="regex", text="yes")))
    local.submit(request("innocent"))

    def refuse(*_: object) -> Any:
        raise UsageError("it was let go, and cannot be compiled again")

    monkeypatch.setattr(Grammars, "begin", refuse)
    found = results(local, "poisoned", "innocent")
    assert isinstance(found["poisoned"], Failure) and isinstance(found["innocent"], Completion)


class Broken:
    """A guide whose library gives up where `at` says."""

    is_over = False

    def __init__(self, at: str) -> None:
        self.at = at

    def allowed(self) -> NDArray[np.bool_]:
        if self.at == "allowed":
            raise EngineFault("nothing can be said of what may come next")
        return np.full(300, self.at == "take")

    def take(self, token: int) -> None:
        raise EngineFault(f"{token} cannot be taken")


@pytest.mark.parametrize("at", ["allowed", "take", "nothing is"])
def test_a_guide_that_breaks_fails_alone(local: Engine, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    local.submit(request("poisoned", constraint=Grammar.of_tokens((5, 7))))
    local.submit(request("innocent"))
    monkeypatch.setattr(Grammars, "begin", lambda *_: Broken(at))
    found = results(local, "poisoned", "innocent")
    assert isinstance(found["poisoned"], Failure) and isinstance(found["innocent"], Completion)


class PanicException(BaseException):
    """What a library written in Rust raises when it gives up."""


class Matcher:
    """A matcher of the library that raises what it is told to."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def compute_bitmask(self) -> bytes:
        raise self.error

    def is_error(self) -> bool:
        return False


@pytest.mark.parametrize("error", [PanicException("called unwrap"), RuntimeError("out of fuel")])
def test_a_library_that_gives_up_is_an_error_of_the_engine(error: BaseException) -> None:
    with pytest.raises(EngineFault, match=r"following a grammar: got .*(unwrap|fuel)"):
        TextGuide(Matcher(error), 8).allowed()


def test_an_interrupt_is_no_error_of_a_grammar() -> None:
    with pytest.raises(KeyboardInterrupt):
        TextGuide(Matcher(KeyboardInterrupt()), 8).allowed()


def test_a_library_that_gives_up_when_it_compiles_refuses(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Library:
        LLTokenizer = staticmethod(lambda *_, **__: None)

        class LLMatcher:
            def __init__(self, *_: object, **__: object) -> None:
                raise PanicException("called unwrap")

            @staticmethod
            def validate_grammar(*_: object) -> str:
                raise PanicException("called unwrap")

    monkeypatch.setattr(grammar, "_library", lambda: Library)
    text = Grammar(text='start: "never compiled before"')
    for refuse in (grammar.check_grammar, lambda one: Grammars(300, tokenizer).begin(one, STOP)):
        with pytest.raises(UsageError, match="got called unwrap"):
            refuse(text)


def test_a_script_past_a_limit_fails_alone(tokenizer: PreTrainedTokenizerFast) -> None:
    ids = tuple(tokenizer.encode('{"p1": "a"}', add_special_tokens=False))
    engine = Scripted(lambda asked, stream: (*ids, 1), tokenizer)
    engine.submit(request("poisoned", constraint=WIDE, max_tokens=99))
    engine.submit(request("innocent", max_tokens=99))
    found = results(engine, "poisoned", "innocent")
    assert isinstance(found["poisoned"], Failure) and found["poisoned"].kind == "grammar"
    assert isinstance(found["innocent"], Completion)


def test_a_script_that_says_what_is_no_token_does_not_keep_to_its_grammar(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    engine = Scripted(lambda asked, stream: (10_000,), tokenizer)
    engine.submit(request("a", constraint=Grammar(kind="regex", text="yes")))
    failure = results(engine, "a")["a"]
    assert isinstance(failure, Failure) and failure.kind == "script"


@pytest.fixture(params=["local", "scripted"])
def engine(request: pytest.FixtureRequest, local: Engine) -> Iterator[Engine]:
    yield local if request.param == "local" else Scripted(lambda asked, stream: (5, 1), max_length=512)


def choices(*token_ids: tuple[int, ...], lengths: tuple[float, ...]) -> Candidates:
    return Candidates(token_ids=token_ids, lengths=lengths)


@pytest.mark.parametrize(
    ("seed", "sampling"),
    [
        (-1, {}),
        (1 << 64, {}),
        (1, {"temperature": float("nan")}),
        (1, {"temperature": float("inf")}),
        (1, {"temperature": -1.0}),
        (1, {"top_p": 0.0}),
        (1, {"top_p": 1.5}),
        (1, {"max_tokens": 0}),
        (1, {"candidates": choices(lengths=())}),
        (1, {"candidates": choices((5,), lengths=(1.0, 2.0))}),
        (1, {"candidates": choices((5,), lengths=(0.0,))}),
        (1, {"candidates": choices((5,), lengths=(float("nan"),))}),
        (1, {"candidates": choices((5,) * 9000, lengths=(1.0,)), "max_tokens": 9000}),
    ],
)
def test_numbers_that_nothing_can_be_sampled_by_are_refused(
    engine: Engine, seed: int, sampling: dict[str, Any]
) -> None:
    named: dict[str, Any] = {"stop_ids": STOP, **sampling}
    wrong = Request(session="a", prompt_ids=(5,), seed=seed, sampling=Sampling(**named))
    with pytest.raises(EngineFault, match=r"^session a: got (seed|temperature|top_p|max_tokens|candidates) "):
        engine.submit(wrong)
    engine.submit(request("a"))
    assert isinstance(results(engine, "a")["a"], Completion), "what was refused is not there"
