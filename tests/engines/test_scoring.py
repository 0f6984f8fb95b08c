"""Candidates are drawn from the softmax of their scores, and carry the log-probs of the plain model."""

from collections import Counter
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from tests.engines.conftest import small_model
from transformers import PreTrainedModel

from quintain.engines import scoring
from quintain.engines.local import Local, decoder_for
from quintain.engines.protocol import Candidates, Request, Sampling
from quintain.engines.scoring import (
    CandidateRequest,
    action_probabilities,
    candidate_logprobs,
    choose,
    continuations,
    longest,
    scores,
)
from quintain.types import Completion, Failure

IDS = ((5,), (6, 7), (8, 9, 10), (5, 11))
STREAMS = ((1, 2, 3), (4,), (1, 2, 3, 4, 5, 6))


def request(name: str, prompt: tuple[int, ...], seed: int = 0, **settings: Any) -> Request:
    candidates = Candidates(token_ids=IDS, lengths=(1.0,) * len(IDS))
    sampling = replace(Sampling(candidates=candidates), **settings)
    return Request(session=name, prompt_ids=prompt, seed=seed, sampling=sampling)


def chosen(
    model: PreTrainedModel, streams: list[tuple[int, ...]], requests: list[Request], version: int = 0
) -> tuple[list[Completion | Failure], int]:
    decoder = decoder_for(model, 200)
    logits = decoder.forward(range(len(streams)), streams)
    asked = [
        CandidateRequest(request=one, slot=slot, stream=stream, after=after)
        for slot, (one, stream, after) in enumerate(zip(requests, streams, logits, strict=True))
    ]
    return choose(decoder, asked, version=version)


def logprobs_of(
    model: PreTrainedModel, streams: list[tuple[int, ...]], ids: tuple[tuple[int, ...], ...] = IDS
) -> list[list[list[float]]]:
    decoder = decoder_for(model, 200)
    logits = decoder.forward(range(len(streams)), streams)
    one = request("a", (), candidates=Candidates(token_ids=ids, lengths=(1.0,) * len(ids)))
    asked = [
        CandidateRequest(request=one, slot=slot, stream=stream, after=logits[slot])
        for slot, stream in enumerate(streams)
    ]
    return candidate_logprobs(decoder, asked)[0]


def plain(
    model: PreTrainedModel, stream: tuple[int, ...], ids: tuple[int, ...], temperature: float = 1.0
) -> list[float]:
    with torch.no_grad():
        logits = cast(Any, model)(torch.tensor([[*stream, *ids]])).logits[0]
    logprobs = torch.log_softmax(logits / temperature, dim=-1)
    return [float(logprobs[len(stream) + i - 1, token]) for i, token in enumerate(ids)]


def test_scores_by_hand() -> None:
    one, two = [-1.0], [-0.5, -0.5]
    assert scores([one, two], (1, 1)) == [-1.0, -1.0]
    assert action_probabilities([one, two], (1, 1)) == pytest.approx([0.5, 0.5])
    long = [[-1.0, -1.0], [-0.6] * 4]
    assert action_probabilities(long, (1, 1)) == pytest.approx([0.5987, 0.4013], abs=1e-4)
    assert action_probabilities(long, (2, 4)) == pytest.approx([0.4013, 0.5987], abs=1e-4)


def test_a_synonym_takes_its_share_and_changes_nothing_else(model: PreTrainedModel) -> None:
    """GLAM: another name for an action changes the others through the softmax alone, one never chosen not at all."""
    wider = (*IDS, (12, 13))
    (before,), (after,) = (logprobs_of(model, [STREAMS[0]], ids) for ids in (IDS, wider))
    for few, many in zip(before, after[:-1], strict=True):
        assert few == pytest.approx(many, abs=1e-5)
    logprobs = [plain(model, STREAMS[0], ids) for ids in wider]
    shares, with_synonym = (action_probabilities(own, (1,) * len(own)) for own in (logprobs[:-1], logprobs))
    left = 1 - with_synonym[-1]
    assert 0 < left < 1
    assert with_synonym[:-1] == pytest.approx([share * left for share in shares])
    never = action_probabilities([*logprobs[:-1], [-200.0]], (1,) * len(wider))
    assert never == pytest.approx([*shares, 0.0])


@pytest.mark.parametrize("most", [64, 1])
def test_log_probs_are_those_of_the_plain_model_whatever_else_is_scored(
    model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(scoring, "MAX_BRANCHES", most)
    found = logprobs_of(model, list(STREAMS))
    for stream, logprobs in zip(STREAMS, found, strict=True):
        for ids, own in zip(IDS, logprobs, strict=True):
            assert own == pytest.approx(plain(model, stream, ids), abs=1e-5)


def test_in_double_precision_the_cache_changes_no_log_prob(model: PreTrainedModel) -> None:
    stream = tuple(7 * i % 60 for i in range(40))
    (found,) = logprobs_of(model.double(), [stream])
    for ids, own in zip(IDS, found, strict=True):
        assert own == pytest.approx(plain(model, stream, ids), abs=1e-6)


def test_what_candidates_begin_alike_is_computed_once() -> None:
    ids = ((5,), (5, 9), (5, 9, 1), (5, 9, 2), (6, 7), (6, 7))
    after = continuations(ids)
    assert {beginning: set(tokens) for beginning, tokens in after.items()} == {
        (): {5, 6},
        (5,): {9},
        (5, 9): {1, 2},
        (6,): {7},
    }
    assert longest(after) == [(5, 9), (6,)]
    assert longest(continuations([(), (5,)])) == []


@pytest.mark.slow
def test_candidates_are_drawn_as_often_as_they_are_probable(qwen: PreTrainedModel) -> None:
    lengths = tuple(float(len(ids)) for ids in IDS)
    asked = [
        request("a", (1, 2, 3), seed, candidates=Candidates(token_ids=IDS, lengths=lengths))
        for seed in range(1500)
    ]
    engine = Local(qwen)
    engine.load_weights(2, None)
    for number, one in enumerate(asked):
        engine.submit(replace(one, session=str(number)))
    results = [reply.result for reply in engine.advance()]
    assert engine.stats().num_prefilled == 3 + 1 + 2 + 1
    counts = Counter(result.token_ids for result in results if isinstance(result, Completion))
    wanted = action_probabilities([plain(qwen, (1, 2, 3), ids) for ids in IDS], lengths)
    for ids, probability in zip(IDS, wanted, strict=True):
        assert counts[ids] / len(asked) == pytest.approx(probability, abs=0.05)
    first = results[0]
    assert isinstance(first, Completion)
    assert (first.stop, first.policy_version) == ("stop", 2)


def test_temperature_0_takes_the_best_and_others_temper_the_tokens(qwen: PreTrainedModel) -> None:
    best = max(IDS, key=lambda ids: sum(plain(qwen, (1, 2, 3), ids)))
    asked = [request("a", (), temperature=0.0), request("a", (), temperature=0.5)]
    (greedy, tempered), _ = chosen(qwen, [(1, 2, 3)] * 2, asked)
    assert isinstance(greedy, Completion)
    assert isinstance(tempered, Completion)
    assert greedy.token_ids == best
    assert greedy.logprobs == pytest.approx(plain(qwen, (1, 2, 3), best), abs=1e-4)
    assert tempered.logprobs == pytest.approx(plain(qwen, (1, 2, 3), tempered.token_ids, 0.5), abs=1e-4)


def test_a_candidate_without_room_is_cut(qwen: PreTrainedModel) -> None:
    candidates = Candidates(token_ids=((8, 9),), lengths=(1.0,))
    (result,), num_read = chosen(qwen, [(1, 2)], [request("a", (), max_tokens=1, candidates=candidates)])
    assert num_read == 0
    assert isinstance(result, Completion)
    assert (result.token_ids, result.stop) == ((8,), "length")


def test_weights_that_are_not_finite_are_the_engines_failure() -> None:
    model = small_model("qwen3")
    with torch.no_grad():
        next(iter(model.parameters())).fill_(float("nan"))
    (result,), _ = chosen(model, [(1, 2)], [request("a", ())])
    assert isinstance(result, Failure)
    assert (result.owner, result.kind) == ("engine", "not_finite")


def test_the_engine_chooses_and_samples_in_one_session(model: PreTrainedModel) -> None:
    engine = Local(model)
    engine.submit(request("a", (1, 2, 3), seed=1))
    engine.submit(Request(session="b", prompt_ids=(1, 2), seed=2, sampling=Sampling(max_tokens=1)))
    first, other = engine.advance()
    assert (first.session, other.session) == ("a", "b")
    assert isinstance(first.result, Completion)
    assert first.result.token_ids in IDS
    engine.submit(Request(session="a", prompt_ids=(12,), seed=3, sampling=Sampling(max_tokens=1)))
    (second,) = engine.advance()
    assert isinstance(second.result, Completion)
    stream = (1, 2, 3, *first.result.token_ids, 12)
    assert second.result.logprobs == pytest.approx(plain(model, stream, second.result.token_ids), abs=1e-4)


def episode(engine: Local, prompts: list[tuple[int, ...]], *, keeps: bool) -> list[Completion]:
    """Choose after each of `prompts`, in one session that `keeps` its cache, or in a new one for every turn."""
    stream: tuple[int, ...] = ()
    found: list[Completion] = []
    for turn, prompt in enumerate(prompts):
        if keeps:
            engine.submit(request("kept", prompt, seed=turn))
        else:
            engine.submit(request(str(turn), (*stream, *prompt), seed=turn))
        (reply,) = engine.advance()
        assert isinstance(reply.result, Completion)
        found.append(reply.result)
        stream = (*stream, *prompt, *reply.result.token_ids)
    return found


def test_a_stream_stays_in_the_cache_between_turns_and_nothing_else_changes(model: PreTrainedModel) -> None:
    prompts = [tuple(7 * i % 60 for i in range(start, start + 14)) for start in range(8)]
    kept, anew = Local(model), Local(model)
    anew.min_shared = 1 << 30
    ours, theirs = episode(kept, prompts, keeps=True), episode(anew, prompts, keeps=False)
    assert [one.token_ids for one in ours] == [one.token_ids for one in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    branches = 4 * len(prompts)
    said = sum(len(one.token_ids) for one in ours[:-1])
    assert kept.stats().num_prefilled == sum(map(len, prompts)) + said + branches
    assert anew.stats().num_prefilled > 3 * kept.stats().num_prefilled


def test_new_weights_score_the_whole_stream_again() -> None:
    model = small_model("qwen3")
    engine = Local(model)
    engine.submit(request("a", (1, 2, 3)))
    (first,) = engine.advance()
    assert isinstance(first.result, Completion)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.3)
    engine.load_weights(1, None)
    engine.submit(request("a", (4,)))
    (second,) = engine.advance()
    assert isinstance(second.result, Completion)
    assert second.result.policy_version == 1
    stream = (1, 2, 3, *first.result.token_ids, 4)
    assert second.result.logprobs == pytest.approx(plain(model, stream, second.result.token_ids), abs=1e-5)
