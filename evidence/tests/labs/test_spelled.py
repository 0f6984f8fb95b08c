"""Words that spell actions: J and log-probs are those of episodes, and gradients those of the policy that draws."""

import numpy as np
import pytest
import torch

from quintain.credit.discounted import discounted_return
from quintain.data.samples import samples_from
from quintain.errors import UsageError
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.rl import twosome
from quintain_evidence.labs.spelled import SpelledPolicy, spelled, train_spelled, with_nothing
from quintain_evidence.labs.tables import s3
from quintain_evidence.labs.tabular import packed

WORLD = s3(1, num_tasks=3)


def policy(pad: int = 0, distractors: int = 0, *, is_whole: bool = True) -> SpelledPolicy:
    spelling = spelled(WORLD, pad=pad, distractors=distractors)
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn((spelling.num_rows, spelling.num_words), generator=generator, dtype=torch.float64)
    lengths = 1.0 + spelling.num_pads
    return SpelledPolicy(spelling, theta, divide=(lambda s, a: float(lengths[s, a])) if is_whole else None)


@pytest.mark.parametrize(("pad", "distractors", "is_whole"), [(2, 0, True), (0, 5, True), (0, 5, False)])
@pytest.mark.slow
def test_j_is_the_mean_of_many_episodes(pad: int, distractors: int, is_whole: bool) -> None:
    found = policy(pad, distractors, is_whole=is_whole)
    groups = found.sample(size=200, seed=1)
    mean = float(np.mean([t.is_success for g in groups for t in g.trajectories]))
    assert mean == pytest.approx(float(found.objective().detach()), abs=0.06)


def test_what_was_recorded_is_what_is_computed() -> None:
    found = policy(pad=2)
    groups = found.sample(size=3, seed=1)
    credit = discounted_return(groups)
    batch = packed(samples_from(credit), Update(loss=clip_ratio()))
    outputs = found(batch)
    is_sampled = batch.turn_id >= 0
    assert torch.allclose(outputs.logprobs[is_sampled], batch.logprobs[is_sampled], atol=1e-5)
    assert {len(turn.completion.token_ids) for g in groups for t in g.trajectories for turn in t.turns} == {
        1,
        3,
    }


def test_lengths_undo_what_words_cost() -> None:
    found = policy(pad=2)
    sums = SpelledPolicy(found.spelling, found.theta, divide=lambda _s, _a: 1.0)
    is_padded = torch.as_tensor(found.spelling.num_pads > 0)
    share = [float((p.probabilities().detach() * is_padded).sum()) for p in (found, sums)]
    assert share[0] > share[1]
    assert torch.allclose(found.probabilities().sum(1), torch.ones(WORLD.num_states, dtype=torch.float64))


def test_training_moves_a_copy_and_padding_cannot_be_written_freely() -> None:
    found = policy(pad=2)
    before = found.theta.detach().clone()
    method = twosome.method(twosome.Config(environment="sokoban", agent="twosome?pad=2"))
    run = train_spelled(found, method, num_batches=4, size=8, seed=0, rate=0.2, optimizer="sgd")
    assert torch.equal(found.theta, before) and not torch.equal(run.theta, before)
    with pytest.raises(UsageError, match="padded actions"):
        policy(pad=2, is_whole=False).sample(size=2, seed=0)


def test_doing_nothing_is_one_more_action() -> None:
    more = with_nothing(WORLD)
    assert more.next[:, -1].tolist() == list(range(WORLD.num_states))
    assert not more.reward[:, -1].any() and len(more.actions) == 5
