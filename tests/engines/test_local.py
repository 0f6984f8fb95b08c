from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest
import torch
from tests.engines.conftest import small_model
from transformers import PreTrainedModel

from quintain.engines import local
from quintain.engines.decoder import FastDecoder
from quintain.engines.local import Local
from quintain.engines.protocol import Request, Sampling
from quintain.errors import EngineFault
from quintain.types import Completion, Failure

STOP = frozenset({3, 4})


def ask(engine: Local, name: str, prompt: tuple[int, ...], seed: int = 1, **sampling: Any) -> None:
    settings = replace(Sampling(max_tokens=8, stop_ids=STOP, temperature=0.8), **sampling)
    engine.submit(Request(session=name, prompt_ids=prompt, seed=seed, sampling=settings))


def collect(engine: Local, names: list[str]) -> dict[str, Completion]:
    replies: dict[str, Completion] = {}
    for _ in range(100):
        for reply in engine.advance():
            assert isinstance(reply.result, Completion)
            replies[reply.session] = reply.result
        if len(replies) == len(names):
            return replies
    raise AssertionError(f"only {sorted(replies)} of {names} came")


def expect_alone(
    model: PreTrainedModel, prompt: tuple[int, ...], found: Completion, seed: int, **sampling: Any
) -> None:
    """Fail unless an engine of its own says the same to `prompt`."""
    engine = Local(model)
    ask(engine, "alone", prompt, seed, **sampling)
    expected = collect(engine, ["alone"])["alone"]
    assert found.token_ids == expected.token_ids
    assert found.logprobs == pytest.approx(expected.logprobs, abs=1e-5)


def reference(
    model: PreTrainedModel, stream: list[int], completion: Completion, temperature: float
) -> list[float]:
    logits = cast(Any, model)(torch.tensor([[*stream, *completion.token_ids]])).logits[0]
    logprobs = torch.log_softmax(logits / temperature, dim=-1)
    return [float(logprobs[len(stream) + i - 1, token]) for i, token in enumerate(completion.token_ids)]


@torch.no_grad()
def change(model: PreTrainedModel) -> None:
    for parameter in model.parameters():
        parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))


@torch.no_grad()
def test_log_probs_over_three_turns_are_those_of_the_plain_model(model: PreTrainedModel) -> None:
    engine = Local(model)
    prompts = {"a": (10, 11, 12), "b": (20,), "c": (30, 31, 32, 33, 34, 35)}
    streams: dict[str, list[int]] = {name: [] for name in prompts}
    for turn in range(3):
        for name, prompt in prompts.items():
            ask(engine, name, prompt, seed=turn * 10 + ord(name))
        for name, completion in collect(engine, list(prompts)).items():
            stream = [*streams[name], *prompts[name]]
            assert completion.logprobs == pytest.approx(reference(model, stream, completion, 0.8), abs=1e-4)
            streams[name] = [*stream, *completion.token_ids]


def test_families_say_which_path_they_run_on(
    model: PreTrainedModel, caplog: pytest.LogCaptureFixture
) -> None:
    reason = Local(model).fallback_reason
    if model.config.model_type == "gemma":
        assert reason is not None and "gemma" in reason
        assert f"generic, slower path: {reason}" in caplog.text
    else:
        assert reason is None and not caplog.text


def test_tokens_do_not_depend_on_who_else_is_in_the_batch(qwen: PreTrainedModel) -> None:
    alone = Local(qwen)
    ask(alone, "x", (10, 11, 12), seed=7)
    crowded = Local(qwen)
    for i in range(5):
        ask(crowded, f"n{i}", tuple(range(10, 14 + i)), seed=i)
    ask(crowded, "x", (10, 11, 12), seed=7)
    expected = collect(alone, ["x"])["x"]
    got = collect(crowded, ["x", *(f"n{i}" for i in range(5))])["x"]
    assert got.token_ids == expected.token_ids
    assert got.logprobs == pytest.approx(expected.logprobs, abs=1e-5)


def test_equal_prompts_are_read_once(qwen: PreTrainedModel) -> None:
    engine = Local(qwen)
    for i in range(8):
        ask(engine, f"s{i}", (10, 11, 12, 13), seed=i, max_tokens=1)
    together = collect(engine, [f"s{i}" for i in range(8)])
    assert engine.stats().num_prefilled == 4
    assert engine.stats().num_sampled == 8
    for i in range(8):
        single = Local(qwen)
        ask(single, "s", (10, 11, 12, 13), seed=i, max_tokens=1)
        assert collect(single, ["s"])["s"].token_ids == together[f"s{i}"].token_ids


def test_what_prompts_begin_alike_is_read_once(qwen: PreTrainedModel) -> None:
    engine = Local(qwen)
    beginning = tuple(5 + k % 50 for k in range(100))
    for i in range(8):
        ask(engine, f"s{i}", (*beginning, 10 + i, *range(20, 39)), seed=i, max_tokens=4)
    together = collect(engine, [f"s{i}" for i in range(8)])
    assert engine.stats().num_prefilled == 100 + 8 * 20
    for i in range(8):
        prompt = (*beginning, 10 + i, *range(20, 39))
        expect_alone(qwen, prompt, together[f"s{i}"], seed=i, max_tokens=4)


def test_a_new_stream_takes_over_what_a_live_one_begins_with_whoever_it_belongs_to() -> None:
    model = small_model("qwen3")
    engine = Local(model)
    beginning = tuple(5 + k % 50 for k in range(40))
    ask(engine, "a", (*beginning, 50), max_tokens=4)
    collect(engine, ["a"])
    ask(engine, "b", (*beginning, 51, 52), seed=2, max_tokens=4)
    expect_alone(model, (*beginning, 51, 52), collect(engine, ["b"])["b"], seed=2, max_tokens=4)
    assert engine.stats().num_prefilled == 41 + 2
    ask(engine, "c", beginning, seed=3, max_tokens=4)
    expect_alone(model, beginning, collect(engine, ["c"])["c"], seed=3, max_tokens=4)
    assert engine.stats().num_prefilled == 43 + 1, "the last token is read, since it is asked what follows it"
    change(model)
    engine.load_weights(1, None)
    ask(engine, "d", (*beginning, 51), seed=2, max_tokens=4)
    found = collect(engine, ["d"])["d"]
    assert engine.stats().num_prefilled == 44 + 41, "nothing of the old weights is taken over"
    with torch.no_grad():
        expected = reference(model, [*beginning, 51], found, 0.8)
    assert found.logprobs == pytest.approx(expected, abs=1e-4)
    for name in "abcd":
        engine.release(name)
    ask(engine, "e", (*beginning, 51), seed=2, max_tokens=4)
    assert collect(engine, ["e"])["e"].token_ids == found.token_ids
    assert engine.stats().num_prefilled == 85 + 41, "nobody holds it any more"


def test_random_streams_that_share_what_they_begin_with_say_what_each_says_alone(
    qwen: PreTrainedModel,
) -> None:
    rng = Random(0)
    for _ in range(12):
        engine = Local(qwen)
        engine.min_shared = rng.choice([1, 3, 16])
        prompts: dict[str, tuple[int, ...]] = {}
        for number in range(rng.randint(2, 9)):
            others = [*prompts.values(), ()]
            before = rng.choice(others)
            cut = before[: rng.randint(0, len(before))]
            prompts[f"s{number}"] = (*cut, *(rng.randrange(5, 60) for _ in range(rng.randint(1, 40))))
        for number, (name, prompt) in enumerate(prompts.items()):
            ask(engine, name, prompt, seed=number, max_tokens=9, stop_ids=frozenset())
            if rng.random() < 0.5:
                engine.advance()  # none is over before the last is asked
        found = collect(engine, list(prompts))
        for number, (name, prompt) in enumerate(prompts.items()):
            expect_alone(qwen, prompt, found[name], number, max_tokens=9, stop_ids=frozenset())


def test_completion_ends_with_the_stop_token_or_at_the_limit(qwen: PreTrainedModel) -> None:
    engine = Local(qwen)
    ask(engine, "all", (10,), stop_ids=frozenset(range(60)))
    ask(engine, "none", (10,), stop_ids=frozenset(), max_tokens=5)
    replies = collect(engine, ["all", "none"])
    assert (replies["all"].stop, len(replies["all"].token_ids)) == ("stop", 1)
    assert (replies["none"].stop, len(replies["none"].token_ids)) == ("length", 5)


def test_new_weights_are_served_after_sync_and_no_old_key_is_used() -> None:
    model = small_model("qwen3")
    engine = Local(model)
    ask(engine, "a", (10, 11, 12))
    first = collect(engine, ["a"])["a"]
    change(model)
    engine.load_weights(1, None)
    ask(engine, "a", (13,))
    second = collect(engine, ["a"])["a"]
    assert second.policy_version == 1
    stream = [10, 11, 12, *first.token_ids, 13]
    with torch.no_grad():
        assert second.logprobs == pytest.approx(reference(model, stream, second, 0.8), abs=1e-4)


def test_a_deliberately_stale_cache_is_seen_in_the_log_probs() -> None:
    model = small_model("qwen3")
    engine = Local(model)
    ask(engine, "a", (10, 11, 12))
    first = collect(engine, ["a"])["a"]
    change(model)
    decoder = cast(FastDecoder, engine.decoder)
    lengths = list(decoder.lengths)
    decoder.refresh()
    decoder.lengths = lengths
    ask(engine, "a", (13,))
    second = collect(engine, ["a"])["a"]
    stream = [10, 11, 12, *first.token_ids, 13]
    with torch.no_grad():
        assert second.logprobs != pytest.approx(reference(model, stream, second, 0.8), abs=1e-3)


def test_released_slots_are_used_again(qwen: PreTrainedModel) -> None:
    engine = Local(qwen)
    for i in range(12):
        ask(engine, f"s{i}", (10 + i, 11), seed=i)
        collect(engine, [f"s{i}"])
        engine.release(f"s{i}")
    assert len(cast(FastDecoder, engine.decoder).lengths) == 1


def test_a_large_cache_is_let_go_when_nothing_is_sampled(
    qwen: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(engine: Local) -> list[Completion]:
        found: list[Completion] = []
        for names in (["a", "b"], ["c"], ["d", "e", "f"]):
            for number, name in enumerate(names):
                ask(engine, name, (10 + number, 11, 12), seed=number)
            found += collect(engine, names).values()
            assert cast(FastDecoder, engine.decoder).num_bytes > 0
            for name in names:
                engine.release(name)
        return found

    small, large = Local(qwen), Local(qwen)
    kept = play(small)
    assert cast(FastDecoder, small.decoder).num_bytes > 0
    monkeypatch.setattr(local, "SMALL_CACHE", 0)
    assert play(large) == kept
    assert cast(FastDecoder, large.decoder).num_bytes == 0


def test_a_released_session_gives_no_reply(qwen: PreTrainedModel) -> None:
    engine = Local(qwen)
    ask(engine, "gone", (10, 11), stop_ids=frozenset())
    engine.advance()
    engine.release("gone")
    engine.release("never was")
    assert engine.advance() == []


def test_sparse_slots_are_gathered_and_give_the_same(qwen: PreTrainedModel) -> None:
    engine = Local(qwen)
    for i in range(10):
        ask(engine, f"s{i}", (10 + i, 20, 30), seed=i, max_tokens=1)
    first = collect(engine, [f"s{i}" for i in range(10)])
    ask(engine, "s9", (40,), seed=99)
    completion = collect(engine, ["s9"])["s9"]
    stream = [19, 20, 30, *first["s9"].token_ids, 40]
    with torch.no_grad():
        assert completion.logprobs == pytest.approx(reference(qwen, stream, completion, 0.8), abs=1e-4)


def test_weights_that_are_not_finite_are_the_engines_failure() -> None:
    model = small_model("qwen3")
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    engine = Local(model)
    ask(engine, "a", (10,))
    (reply,) = engine.advance()
    assert isinstance(reply.result, Failure)
    assert (reply.result.owner, reply.result.kind) == ("engine", "not_finite")


def test_bad_requests_are_refused(qwen: PreTrainedModel) -> None:
    engine = Local(qwen, max_length=10)
    with pytest.raises(EngineFault, match="empty prompt"):
        ask(engine, "a", ())
    with pytest.raises(EngineFault, match="got 10 tokens; the engine holds 10"):
        ask(engine, "a", tuple(range(10, 20)))
    ask(engine, "a", (10,), stop_ids=frozenset())
    engine.advance()
    with pytest.raises(EngineFault, match="already running"):
        ask(engine, "a", (11,))


def test_a_full_stream_ends_the_completion(qwen: PreTrainedModel) -> None:
    engine = Local(qwen, max_length=5)
    ask(engine, "a", (10, 11), stop_ids=frozenset())
    completion = collect(engine, ["a"])["a"]
    assert (len(completion.token_ids), completion.stop) == (3, "length")


def test_weights_loaded_in_the_middle_of_a_completion_are_named_from_their_first_token_on() -> None:
    model = small_model("qwen3")
    engine = Local(model)
    ask(engine, "a", (10, 11, 12), max_tokens=9)
    for _ in range(4):
        assert engine.advance() == []
    change(model)
    engine.load_weights(1, None)
    for _ in range(3):
        assert engine.advance() == []
    engine.load_weights(2, None)
    engine.load_weights(5, None)
    (found,) = collect(engine, ["a"]).values()
    assert (found.version_spans, found.policy_version) == (((0, 0), (4, 1), (7, 5)), 5)
    with torch.no_grad():
        late = reference(model, [10, 11, 12], found, 0.8)[4:]
    assert found.logprobs[4:] == pytest.approx(late, abs=1e-4)
