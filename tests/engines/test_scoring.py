"""Candidates are drawn from the softmax of their scores, and carry the log-probs of the plain model."""

from collections import Counter
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from tests.engines.conftest import small_model
from transformers import PreTrainedModel

from quintain.engines import scoring
from quintain.engines.local import Local
from quintain.engines.protocol import Candidates, Request, Sampling
from quintain.engines.scoring import action_probabilities, candidate_logits, choose, scores
from quintain.types import Completion, Failure

IDS = ((5,), (6, 7), (8, 9, 10), (5, 11))
STREAMS = ((1, 2, 3), (4,), (1, 2, 3, 4, 5, 6))


def request(name: str, prompt: tuple[int, ...], seed: int = 0, **settings: Any) -> Request:
    candidates = Candidates(token_ids=IDS, lengths=(1.0,) * len(IDS))
    sampling = replace(Sampling(candidates=candidates), **settings)
    return Request(session=name, prompt_ids=prompt, seed=seed, sampling=sampling)


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
    before, after = (candidate_logits(model, [(STREAMS[0], ids)])[STREAMS[0], ids] for ids in (IDS, wider))
    for few, many in zip(before, after[:-1], strict=True):
        assert torch.allclose(few, many, atol=1e-5)
    logprobs = [plain(model, STREAMS[0], ids) for ids in wider]
    shares, with_synonym = (action_probabilities(own, (1,) * len(own)) for own in (logprobs[:-1], logprobs))
    left = 1 - with_synonym[-1]
    assert 0 < left < 1
    assert with_synonym[:-1] == pytest.approx([share * left for share in shares])
    never = action_probabilities([*logprobs[:-1], [-200.0]], (1,) * len(wider))
    assert never == pytest.approx([*shares, 0.0])


def test_log_probs_are_those_of_the_plain_model_whatever_else_is_scored(
    model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most in (16_384, 10):
        monkeypatch.setattr(scoring, "MOST_TOKENS", most)
        found = candidate_logits(model, [(stream, IDS) for stream in STREAMS])
        for stream in STREAMS:
            for ids, logits in zip(IDS, found[stream, IDS], strict=True):
                chosen = torch.log_softmax(logits, -1).gather(1, torch.tensor(ids)[:, None])[:, 0]
                assert chosen.tolist() == pytest.approx(plain(model, stream, ids), abs=1e-4)


def test_candidates_are_drawn_as_often_as_they_are_probable(qwen: PreTrainedModel) -> None:
    lengths = tuple(float(len(ids)) for ids in IDS)
    asked = [
        request("a", (1, 2, 3), seed, candidates=Candidates(token_ids=IDS, lengths=lengths))
        for seed in range(1500)
    ]
    results, num_read = choose(qwen, [(1, 2, 3)] * len(asked), asked, version=2)
    assert num_read == 3 + 8
    counts = Counter(result.token_ids for result in results if isinstance(result, Completion))
    wanted = action_probabilities([plain(qwen, (1, 2, 3), ids) for ids in IDS], lengths)
    for ids, probability in zip(IDS, wanted, strict=True):
        assert counts[ids] / len(asked) == pytest.approx(probability, abs=0.05)
    first = results[0]
    assert isinstance(first, Completion)
    assert (first.stop, first.policy_version) == ("stop", 2)


def test_temperature_0_takes_the_best_and_others_temper_the_tokens(qwen: PreTrainedModel) -> None:
    best = max(IDS, key=lambda ids: sum(plain(qwen, (1, 2, 3), ids)))
    (greedy, tempered), _ = choose(
        qwen,
        [(1, 2, 3)] * 2,
        [request("a", (), temperature=0.0), request("a", (), temperature=0.5)],
        version=0,
    )
    assert isinstance(greedy, Completion)
    assert isinstance(tempered, Completion)
    assert greedy.token_ids == best
    assert greedy.logprobs == pytest.approx(plain(qwen, (1, 2, 3), best), abs=1e-4)
    assert tempered.logprobs == pytest.approx(plain(qwen, (1, 2, 3), tempered.token_ids, 0.5), abs=1e-4)


def test_a_candidate_without_room_is_cut(qwen: PreTrainedModel) -> None:
    (result,), _ = choose(
        qwen,
        [(1, 2)],
        [request("a", (), max_tokens=1, candidates=Candidates(token_ids=((8, 9),), lengths=(1.0,)))],
        version=0,
    )
    assert isinstance(result, Completion)
    assert (result.token_ids, result.stop) == ((8,), "length")


def test_weights_that_are_not_finite_are_the_engines_failure() -> None:
    model = small_model("qwen3")
    with torch.no_grad():
        next(iter(model.parameters())).fill_(float("nan"))
    (result,), _ = choose(model, [(1, 2)], [request("a", ())], version=0)
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
