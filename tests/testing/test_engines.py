"""Every engine passes the suite, and for each check there is a broken engine that does not."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tests.engines.conftest import SHAPE, small_model
from tests.engines.scripts import scripted, talk
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from quintain.engines.decoder import FastDecoder, GenericDecoder
from quintain.engines.local import Local
from quintain.engines.protocol import (
    Capability,
    Engine,
    EngineStats,
    Grammar,
    PauseMode,
    Reply,
    Request,
    Sampling,
)
from quintain.engines.scripted import Scripted
from quintain.testing.engines import CHECKS, check_engine
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Completion, Failure
from quintain.types.findings import Finding

IDS = range(10, 40)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(["open the red door, go to the blue ball"] * 20, 300)


def model_for(
    tokenizer: PreTrainedTokenizerFast, family: str, monkeypatch: pytest.MonkeyPatch
) -> PreTrainedModel:
    monkeypatch.setitem(SHAPE, "vocab_size", len(tokenizer))
    return small_model(family)


def shake(model: PreTrainedModel) -> None:
    """Change the weights of `model`."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn(weight.shape))


def stop_of(tokenizer: PreTrainedTokenizerFast) -> int:
    return cast(int, tokenizer.eos_token_id)


def failed(findings: Sequence[Finding]) -> list[str]:
    return [str(finding) for finding in findings if finding.state == "fail"]


@pytest.mark.parametrize("family", ["qwen3", "gemma", "fast"])
@pytest.mark.slow
def test_the_local_engine_passes_on_every_path(
    tokenizer: PreTrainedTokenizerFast, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quintain.testing.engines.LENGTHS", (24, 64))
    if family == "fast":
        monkeypatch.setattr("quintain.engines.local.can_decode", lambda _: False)
    model = model_for(tokenizer, "gemma" if family == "gemma" else "qwen3", monkeypatch)
    engine = Local(model, tokenizer)
    assert isinstance(engine.decoder, GenericDecoder) == (family == "gemma")
    assert isinstance(engine.decoder, FastDecoder) == (family == "fast")

    def spoil() -> None:
        with torch.no_grad():
            next(model.parameters()).fill_(float("nan"))
        engine.load_weights(99, None)

    findings = list(
        check_engine(
            engine,
            ids=IDS,
            stop_id=stop_of(tokenizer),
            decode=lambda ids: str(tokenizer.decode(list(ids))),
            update=lambda: shake(model),
            spoil=spoil,
        )
    )
    assert [finding.name for finding in findings] == list(CHECKS)
    assert [str(finding) for finding in findings if finding.state != "pass"] == []


@pytest.mark.parametrize("tokens_per_round", [None, 1, 3])
def test_the_scripted_engine_passes(tokens_per_round: int | None) -> None:
    findings = list(check_engine(scripted(tokens_per_round=tokens_per_round)))
    assert failed(findings) == []
    skipped = {finding.name: finding.detail for finding in findings if finding.state == "skip"}
    expected = {"grammars of text", "new weights are served", "failures are data"}
    at_once = {"a pause keeps requests", "an abort leaves nothing", "an update under way is told"}
    assert set(skipped) == expected | (at_once if tokens_per_round is None else set())
    assert skipped["grammars of text"] == "the engine has not grammar"


class Moody(Scripted):
    """Says something else every time."""

    def __init__(self) -> None:
        self.count = 0
        super().__init__(self.say)

    def say(self, request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        self.count += 1
        return (self.count % 40,) * request.sampling.max_tokens


class Stubborn(Scripted):
    """Ignores seeds."""

    def __init__(self) -> None:
        super().__init__(lambda request, stream: talk(replace(request, seed=0), stream))


class Social(Scripted):
    """Says what depends on how many ask at once."""

    def __init__(self) -> None:
        super().__init__(
            lambda request, stream: talk(replace(request, seed=request.seed + self.crowd), stream)
        )

    def advance(self) -> list[Reply]:
        self.crowd = 100 * len(self._queue)
        return super().advance()


class Forgetful(Scripted):
    """Answers the last prompt only."""

    def __init__(self) -> None:
        super().__init__(lambda request, stream: talk(request, request.prompt_ids))


class Boastful(Scripted):
    """Scores what it never said."""

    def __init__(self) -> None:
        super().__init__(talk)

    def score(self, token_ids: Sequence[Sequence[int]], temperature: float = 1.0) -> list[tuple[float, ...]]:
        return [(0.0, *[-2.0] * (len(ids) - 1)) for ids in token_ids]


class Endless(Scripted):
    """Does not hear stop ids."""

    def __init__(self) -> None:
        deaf = frozenset[int]()
        super().__init__(
            lambda request, stream: talk(
                replace(request, sampling=replace(request.sampling, stop_ids=deaf)), stream
            )
        )


class Chatty(Scripted):
    """Says a token more than it may."""

    def __init__(self) -> None:
        super().__init__(lambda request, stream: (*talk(request, stream), 1))


class Free(Scripted):
    """Says what it likes instead of candidates and fixed tokens."""

    def __init__(self) -> None:
        super().__init__(talk)

    def submit(self, request: Request) -> None:
        free = replace(request.sampling, candidates=None, constraint=None)
        super().submit(replace(request, sampling=free))


class Unbound(Local):
    """Does not keep to grammars."""

    def submit(self, request: Request) -> None:
        super().submit(replace(request, sampling=replace(request.sampling, constraint=None)))


class Hoarding(Scripted):
    """Keeps released sessions."""

    def __init__(self) -> None:
        super().__init__(talk)

    def release(self, session: str) -> None:
        stream = self._streams.get(session)
        super().release(session)
        if stream is not None:
            self._streams[session] = stream


class Strict(Scripted):
    """Does not know of sessions that it does not know."""

    def __init__(self) -> None:
        super().__init__(talk)

    def release(self, session: str) -> None:
        if session not in self._streams and session not in self._tally.unanswered:
            raise KeyError(session)
        super().release(session)


class Patient(Scripted):
    """Takes on what it cannot answer."""

    def __init__(self) -> None:
        super().__init__(talk)

    def submit(self, request: Request) -> None:
        if request.prompt_ids:
            super().submit(request)


class Modest(Local):
    """Can more than it says."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        return super().capabilities - {"score"}


class Nameless(Scripted):
    """Names another policy."""

    def __init__(self) -> None:
        super().__init__(talk)

    def advance(self) -> list[Reply]:
        return [
            replace(reply, result=replace(reply.result, policy="another"))
            if isinstance(reply.result, Completion)
            else reply
            for reply in super().advance()
        ]


class Miscounting(Scripted):
    """Loses count of what is done."""

    def __init__(self) -> None:
        super().__init__(talk)

    def stats(self) -> EngineStats:
        return replace(super().stats(), num_finished=0)


class Restless(Scripted):
    """Cannot stand still."""

    def __init__(self) -> None:
        super().__init__(talk, tokens_per_round=1)

    def pause(self, mode: PauseMode = "keep") -> None:
        return None


class Clinging(Scripted):
    """Does not give up requests."""

    def __init__(self) -> None:
        super().__init__(talk)

    def pause(self, mode: PauseMode = "keep") -> None:
        super().pause("keep")


class Untidy(Local):
    """Leaves tokens of aborted requests in the stream."""

    def _take_back(self, job: Any) -> None:
        return None


class Stale(Local):
    """Goes on with the keys and values of old weights."""

    def load_weights(self, version: int, source: Path | None) -> None:
        decoder: Any = self.decoder
        lengths, cached = list(decoder.lengths), {name: s.num_cached for name, s in self._sessions.items()}
        super().load_weights(version, source)
        decoder.lengths = lengths
        for name, session in self._sessions.items():
            session.num_cached = cached[name]


class Lazy(Local):
    """Says that it serves new weights."""

    def load_weights(self, version: int, source: Path | None) -> None:
        self._version = version


class Forgiving(Local):
    """Does not say that weights changed under way."""

    def load_weights(self, version: int, source: Path | None) -> None:
        super().load_weights(version, source)
        for job in self._jobs:
            job.versions = [(0, version)]


class Fragile(Scripted):
    """Raises where it should answer."""

    def __init__(self) -> None:
        super().__init__(talk, tokens_per_round=1)
        self.is_broken = False

    def advance(self) -> list[Reply]:
        if self.is_broken:
            raise RuntimeError("out of memory")
        return super().advance()


LOCAL = (Unbound, Modest, Untidy, Stale, Lazy, Forgiving)
BROKEN: dict[str, Callable[..., Engine]] = {
    "greedy repeats": Moody,
    "seeds repeat": Stubborn,
    "batch mates change nothing": Social,
    "turns equal one long prompt": Forgetful,
    "log-probs equal score": Boastful,
    "stop ids end completions": Endless,
    "limits hold": Chatty,
    "candidates": Free,
    "fixed tokens": Free,
    "grammars of text": Unbound,
    "release frees": Hoarding,
    "unknown release is ignored": Strict,
    "bad requests are refused": Patient,
    "what it cannot do is refused": Modest,
    "completions name the policy": Nameless,
    "stats add up": Miscounting,
    "a pause keeps requests": Restless,
    "a pause aborts requests": Clinging,
    "an abort leaves nothing": Untidy,
    "new weights drop caches": Stale,
    "new weights are served": Lazy,
    "an update under way is told": Forgiving,
    "failures are data": Fragile,
}


@pytest.mark.parametrize("name", CHECKS)
def test_each_check_sees_an_engine_that_breaks_it(
    name: str, tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = BROKEN[name]
    options: dict[str, Any] = {"only": [name], "seconds": 0.5}
    if kind in LOCAL:
        model = model_for(tokenizer, "qwen3", monkeypatch)
        engine: Engine = kind(model, tokenizer)
        options |= {
            "ids": IDS,
            "stop_id": stop_of(tokenizer),
            "decode": lambda ids: str(tokenizer.decode(list(ids))),
            "seconds": 30.0,
        }
        options["update"] = lambda: shake(model)
    else:
        engine = kind()
        options["spoil"] = lambda: setattr(engine, "is_broken", True)
    (finding,) = check_engine(engine, **options)
    assert (finding.name, finding.state) == (name, "fail"), str(finding)
    assert finding.detail and str(finding).startswith(f"fail  {name}: ")


def test_an_engine_whose_failures_are_not_its_own_is_seen() -> None:
    blaming = Failure(owner="policy", kind="odd", message="it was you")
    engine = Scripted(lambda request, stream: blaming)
    (finding,) = check_engine(engine, only=["failures are data"], spoil=lambda: None)
    assert finding.state == "fail"


def test_a_script_is_held_to_its_grammar(tokenizer: PreTrainedTokenizerFast) -> None:
    stops = frozenset({stop_of(tokenizer)})
    for word, is_right in (("red", True), ("blue", False)):
        said = (*tokenizer.encode(word, add_special_tokens=False), stop_of(tokenizer))
        engine = Scripted(lambda request, stream, said=said: said, tokenizer)
        sampling = Sampling(stop_ids=stops, constraint=Grammar(kind="regex", text="red|green"))
        engine.submit(Request(session="a", prompt_ids=(1,), seed=1, sampling=sampling))
        (reply,) = engine.advance()
        assert isinstance(reply.result, Completion) == is_right
        assert isinstance(reply.result, Completion) or reply.result.kind == "script"
