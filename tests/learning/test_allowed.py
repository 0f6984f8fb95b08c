"""Log-probs among what a grammar allows: the learner finds the engine's, and the gradient is the masked policy's."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from quintain.credit.group import group_relative
from quintain.data.pack import micro_batches, pack
from quintain.data.samples import samples_from, unrelated_samples
from quintain.engines.grammar import is_available
from quintain.engines.local import Local
from quintain.engines.protocol import Request, Sampling
from quintain.errors import InvariantError, UsageError
from quintain.learning.learner import Forward, Learner, Optimization
from quintain.learning.sharding.wire import streams_of
from quintain.losses.policy import reinforce
from quintain.models.tiny import build_tiny
from quintain.store.codec import decode, encode
from quintain.testing.episodes import TASK, episode_of, turn_of
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Completion, Constraint, Credit, Grammar, Group, Trajectory

pytestmark = pytest.mark.skipif(not is_available(), reason="the extra constrained is not installed")
HEAT = 0.7
WORDS = Grammar(kind="regex", text="[ab][cd]")


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(["a b c d e f"], 300)


@pytest.fixture
def model(tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    return build_tiny(tokenizer, size="micro", seed=3)


def token_of(tokenizer: PreTrainedTokenizerFast, letter: str) -> int:
    (found,) = tokenizer.encode(letter, add_special_tokens=False)
    return found


def constraint_of(tokenizer: PreTrainedTokenizerFast) -> Constraint:
    assert isinstance(tokenizer.eos_token_id, int)
    return Constraint(grammar=WORDS, stop_ids=frozenset({tokenizer.eos_token_id}))


def sample_under(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, *, is_masked: bool, count: int = 8
) -> list[Completion]:
    """Return what the engine says under `WORDS`, each time after another prompt."""
    engine = Local(model, tokenizer)
    under = constraint_of(tokenizer)
    for place in range(count):
        sampling = Sampling(temperature=HEAT, max_tokens=6, stop_ids=under.stop_ids)
        sampling = sampling.under(under.grammar, is_masked=is_masked)
        engine.submit(Request(session=str(place), prompt_ids=(5, 6 + place), seed=place, sampling=sampling))
    found: dict[str, Completion] = {}
    while len(found) < count:
        for reply in engine.advance():
            assert isinstance(reply.result, Completion)
            found[reply.session] = reply.result
    return [found[str(place)] for place in range(count)]


def group_of(completions: Sequence[Completion]) -> Group:
    """Return episodes of two turns: the second is free, and its stream continues that of the first."""
    turns = [
        (replace(turn_of(), completion=each, prompt_ids=(5, 6 + place)), turn_of((7,), prompt_ids=(8,)))
        for place, each in enumerate(completions)
    ]
    episodes = [
        episode_of(own, value=float(place % 2), index=place, is_success=bool(place % 2))
        for place, own in enumerate(turns)
    ]
    return Group(task=TASK, trajectories=tuple(episodes))


@pytest.mark.parametrize("path", ["shared", "cut", "padded"])
def test_the_ratio_is_one_at_step_0(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, path: str
) -> None:
    completions = sample_under(model, tokenizer, is_masked=True)
    assert all(each.constraint == constraint_of(tokenizer) for each in completions)
    forward = Forward(model, temperature=HEAT, shares_prefixes=path == "shared", tokenizer=tokenizer)
    forward.fallback_reason = "a test" if path == "padded" else ""
    samples = samples_from(group_relative([group_of(completions)]))
    for batch in micro_batches(samples, max_tokens=15 if path == "cut" else 10_000):
        outputs = forward.infer(batch)
        under = (batch.turn_id == 0).nonzero().squeeze(1)
        assert torch.allclose(outputs.logprobs[under], batch.logprobs[under], atol=2e-5)
        assert (
            outputs.entropy.isfinite().all() and float(outputs.entropy[under].max()) < 0.70
        )  # two tokens: log 2
        free = (batch.turn_id == 1).nonzero().squeeze(1)
        plain = forward.infer(replace(batch, extra=replace(batch.extra, constraints=())))
        assert torch.equal(plain.logprobs[free], outputs.logprobs[free])
        assert float((outputs.logprobs - plain.logprobs)[under].mean()) > 1, "Z of a new model is small"


def test_off_by_default(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
    masked, plain = (sample_under(model, tokenizer, is_masked=each) for each in (True, False))
    assert [each.token_ids for each in masked] == [each.token_ids for each in plain]
    assert all(each.constraint is None for each in plain)
    assert samples_from(group_relative([group_of(plain)]))[0].constraints == ()
    for with_mask, without in zip(
        masked, plain, strict=True
    ):  # a stop token alone is allowed after two letters
        assert with_mask.logprobs[-1] == pytest.approx(0, abs=1e-6) and without.logprobs[-1] < -1


def test_the_gradient_is_that_of_the_masked_policy_in_a_game_of_four_words(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast
) -> None:
    letters = {each: token_of(tokenizer, each) for each in "abcd"}
    rewards = {"ac": 1.0, "ad": -0.5, "bc": 0.25, "bd": 2.0}
    (stop,) = constraint_of(tokenizer).stop_ids
    prompt = (5, 6)

    def logits(ids: Sequence[int]) -> Tensor:
        return model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, -1].double() / HEAT

    def among(ids: Sequence[int], options: str, chosen: str) -> Tensor:
        picked = torch.log_softmax(logits(ids)[[letters[each] for each in options]], dim=0)
        return picked[options.index(chosen)]

    expected = torch.zeros((), dtype=torch.float64)
    chances: dict[str, float] = {}
    for first, second in product("ab", "cd"):
        log = among((), "ab", first) + among((letters[first],), "cd", second)
        chances[first + second] = float(log.detach().exp())
        expected = expected + log.exp() * rewards[first + second]
    model.zero_grad()
    expected.backward()
    want = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad()

    def episode(word: str) -> Trajectory:
        ids = (*(letters[each] for each in word), stop)
        said = Completion(
            token_ids=ids, logprobs=(-1.0,) * 3, stop="stop", constraint=constraint_of(tokenizer)
        )
        return episode_of([replace(turn_of(), completion=said, prompt_ids=prompt)])

    episodes = tuple(map(episode, rewards))
    scale = [torch.full((3,), chances[word] * rewards[word]).numpy() for word in rewards]
    credit = Credit(trajectories=episodes, advantages=tuple((each,) for each in scale))

    def gradient(*, is_masked: bool) -> Tensor:
        samples = samples_from(credit)
        if not is_masked:
            samples = [replace(each, constraints=()) for each in samples]
        batch = pack(samples, aggregation="constant", constant=1 / len(episodes))
        forward = Forward(model, temperature=HEAT, tokenizer=tokenizer)
        model.zero_grad()
        reinforce()(forward(batch), batch).loss.backward()
        return -torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    found, plain = gradient(is_masked=True), gradient(is_masked=False)
    assert torch.allclose(found.double(), want.double(), atol=1e-5 * float(want.abs().max()), rtol=1e-4)
    cosine = torch.nn.functional.cosine_similarity(plain.double(), want.double(), dim=0)
    assert float(cosine) < 0.99, "without the mask it is another gradient"


def test_a_learner_trains_on_it_and_its_gap_is_0(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast
) -> None:
    samples = samples_from(group_relative([group_of(sample_under(model, tokenizer, is_masked=True))]))
    samples = [replace(each, loss_weight=each.loss_weight * (each.turn_id == 0)) for each in samples]
    batch = pack([replace(each, turn_id=each.turn_id.clip(max=0) - (each.turn_id == 1)) for each in samples])
    learner = Learner(model, Optimization(temperature=HEAT), tokenizer=tokenizer)
    report = learner.step([batch], reinforce(), is_on_policy=True)
    assert report.metrics["gap/max"] < 2e-5 and report.grad_norm > 0


def test_streams_that_are_moved_keep_their_places(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast
) -> None:
    samples = samples_from(group_relative([group_of(sample_under(model, tokenizer, is_masked=True))]))
    for sample in [*samples, *unrelated_samples(samples)]:
        ((place, _),) = sample.constraints
        assert sample.turn_id[place] == 0 and sample.turn_id[place - 1] == -1


def test_a_journal_keeps_it(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
    for is_masked in (True, False):
        (episode, *_) = group_of(sample_under(model, tokenizer, is_masked=is_masked)).trajectories
        assert decode(encode(episode)).turns == episode.turns


def test_what_cannot_be(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
    completions = sample_under(model, tokenizer, is_masked=True)
    batch = pack(samples_from(group_relative([group_of(completions)])))
    with pytest.raises(UsageError, match=r"got 8 turns with .*; give --learner-ranks 0"):
        streams_of(batch)
    with pytest.raises(UsageError, match="without a tokenizer"):
        Forward(model).infer(batch)
    other = replace(completions[0], token_ids=(token_of(tokenizer, "e"), *completions[0].token_ids[1:]))
    with pytest.raises(InvariantError, match="which is not allowed here"):
        Forward(model, tokenizer=tokenizer).infer(
            pack(samples_from(group_relative([group_of([other, *completions[1:]])])))
        )
