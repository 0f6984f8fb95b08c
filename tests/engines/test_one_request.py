"""What is wrong with one request is that request's failure: the others go on, and nothing leaves `advance`."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from quintain.engines import grammar
from quintain.engines import local as local_engine
from quintain.engines.build import build_engine
from quintain.engines.decoder import FastDecoder, GenericDecoder
from quintain.engines.fused_decoder import FusedDecoder, can_decode
from quintain.engines.grammar import Grammars, TextGuide
from quintain.engines.local import Local
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
    guide.allow_tokens()
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

    def allow_tokens(self) -> NDArray[np.bool_]:
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
        TextGuide(Matcher(error), 8).allow_tokens()


def test_an_interrupt_is_no_error_of_a_grammar() -> None:
    with pytest.raises(KeyboardInterrupt):
        TextGuide(Matcher(KeyboardInterrupt()), 8).allow_tokens()


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


def test_a_script_that_raises_fails_alone() -> None:
    def answer(asked: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        if asked.session == "poisoned":
            raise ZeroDivisionError("division by zero")
        return (5, 1)

    engine = Scripted(answer, max_length=512)
    engine.submit(request("poisoned"))
    engine.submit(request("innocent"))
    found = results(engine, "poisoned", "innocent")
    failure = found["poisoned"]
    assert isinstance(failure, Failure) and (failure.owner, failure.kind) == ("engine", "script")
    assert failure.message == "the script raised ZeroDivisionError: division by zero"
    assert isinstance(found["innocent"], Completion)


SHORTAGES = (
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory: you tried"),
    MemoryError(),
)


def starve(
    engine: Local, monkeypatch: pytest.MonkeyPatch, most: int, error: BaseException, *, name: str = "forward"
) -> list[int]:
    """Let passes of the decoder of `engine` over more than `most` streams run out of memory at their end; return a list
    to which the number of streams of each pass is added.
    """
    passes: list[int] = []
    compute = getattr(engine.decoder, name)

    def run(slots: Sequence[int], new_ids: Sequence[Sequence[int]]) -> Any:
        passes.append(len(slots))
        found = compute(slots, new_ids)
        if len(slots) > most:
            raise error
        return found

    monkeypatch.setattr(engine.decoder, name, run)
    return passes


DECODERS = {"fused": FusedDecoder, "fast": FastDecoder, "generic": GenericDecoder}


@pytest.fixture(params=DECODERS)
def starving(
    request: pytest.FixtureRequest, tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> Local:
    """An engine in this process with each kind of decoder."""
    model = build_tiny(tokenizer, size="micro", seed=0)
    if request.param == "generic":
        monkeypatch.setattr(local_engine, "decoder_for", lambda *_: GenericDecoder(model))
    elif request.param == "fast":
        monkeypatch.setattr(local_engine, "can_decode", lambda _: False)
    elif not can_decode(model):
        pytest.skip("there is no compiler for the kernels")
    engine = Local(model, tokenizer)
    assert isinstance(engine.decoder, DECODERS[request.param])
    return engine


def play(engine: Engine) -> dict[str, Completion | Failure]:
    """Return what becomes of five requests that begin at different times, two of them with the same prompt."""
    found: dict[str, Completion | Failure] = {}
    for number, name in enumerate("abcde"):
        if name == "d":
            found |= {reply.session: reply.result for reply in engine.advance()}
        prompt = (5, 6) if name in "ab" else (5, 6, *range(7, 8 + number))
        sampling = Sampling(max_tokens=2 + number, stop_ids=frozenset(), temperature=1.0)
        engine.submit(Request(session=name, prompt_ids=prompt, seed=number, sampling=sampling))
    return found | results(engine, *({*"abcde"} - found.keys()))


def test_a_pass_without_memory_is_made_in_halves(
    starving: Local, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    alone = play(starving)
    for name in "abcde":
        starving.release(name)
    passes = starve(starving, monkeypatch, 2, SHORTAGES[0])
    found = play(starving)
    assert max(passes) > 2 and caplog.text.count("they are sampled in halves") == 1
    for name, result in alone.items():
        again = found[name]
        assert isinstance(result, Completion) and isinstance(again, Completion)
        assert again.token_ids == result.token_ids
        assert again.logprobs == pytest.approx(result.logprobs, abs=1e-5)
    assert starving.stats().num_failed == 0


@pytest.mark.parametrize("error", SHORTAGES, ids=lambda error: type(error).__name__)
def test_every_word_for_a_shortage_is_one(
    local: Engine, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    assert isinstance(local, Local)
    starve(local, monkeypatch, 0, error)
    local.submit(request("a"))
    failure = results(local, "a")["a"]
    assert isinstance(failure, Failure) and failure.kind == "memory"


def test_requests_that_do_not_fit_alone_fail(starving: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as short:
        starve(starving, short, 0, SHORTAGES[0])
        found = play(starving)
    for failure in found.values():
        assert isinstance(failure, Failure) and (failure.owner, failure.kind) == ("engine", "memory")
        assert failure.message.startswith(
            "sampling 1 streams: got no more memory (tried to allocate 2.00 GiB); lower"
        )
    assert (starving.stats().num_failed, starving.stats().num_running) == (5, 0)
    # Their streams are what they were before, and go on once there is memory.
    assert all(isinstance(result, Completion) for result in play(starving).values())


def test_candidates_without_memory_are_read_in_halves(
    starving: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask() -> dict[str, Completion | Failure]:
        for number, name in enumerate("abc"):
            asked = request(name, candidates=choices((5,), (7, 8), lengths=(1.0, 2.0)))
            starving.submit(replace(asked, prompt_ids=(5, 6, number)))
        return results(starving, *"abc")

    alone = ask()
    for name in "abc":
        starving.release(name)
    passes = starve(starving, monkeypatch, 1, SHORTAGES[1])
    again = ask()
    assert max(passes) > 1
    for name, result in alone.items():
        found = again[name]
        assert isinstance(result, Completion) and isinstance(found, Completion)
        assert found.token_ids == result.token_ids
    starve(starving, monkeypatch, 0, SHORTAGES[1], name="branch")
    failure = ask()["a"]
    assert isinstance(failure, Failure) and failure.kind == "memory"


def test_what_is_no_shortage_is_an_error_of_the_engine(
    local: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(local, Local)
    starve(local, monkeypatch, 0, RuntimeError("shapes cannot be multiplied"))
    local.submit(request("a"))
    with pytest.raises(RuntimeError, match="shapes"):
        local.advance()


def test_a_shortage_under_a_guide_fails_those_that_were_sampled_together(
    local: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_out(*_: object) -> Any:
        raise SHORTAGES[0]

    monkeypatch.setattr(local_engine, "sample_guided", run_out)
    local.submit(request("a", constraint=Grammar(kind="regex", text="yes")))
    failure = results(local, "a")["a"]
    assert isinstance(failure, Failure) and "no more memory" in failure.message


@pytest.mark.parametrize("at", range(6))
def test_a_cache_that_could_grow_in_part_serves_what_it_served(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    decoder = FastDecoder(build_tiny(tokenizer, size="micro", seed=0), max_length=512)
    decoder.forward([0], [[5, 6, 7]])
    made, zeros = 0, torch.zeros

    def run_out(*size: int, **named: Any) -> Any:
        nonlocal made
        made += 1
        if made > at:
            raise SHORTAGES[0]
        return zeros(*size, **named)

    with monkeypatch.context() as short:
        short.setattr(torch, "zeros", run_out)
        for slots, ids in (([0], [[8] * 200]), ([1], [[5]])):
            made = 0
            if at < 2 * len(decoder._keys):  # pyright: ignore[reportPrivateUsage]
                with pytest.raises(torch.OutOfMemoryError):
                    decoder.forward(slots, ids)
    decoder.rewind(0, 3)
    fresh = FastDecoder(decoder.model, max_length=512)
    whole = fresh.forward([0, 1], [[5, 6, 7, 9], [5, 6]])
    torch.testing.assert_close(decoder.forward([0, 1], [[9], [5, 6]]), whole)


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
