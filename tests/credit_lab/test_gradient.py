"""Gradients of a resting model: those of the learner, restricted as asked, and the weights as they were."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from quintain.credit.group import group_relative
from quintain.credit_lab.gradient import (
    GradientLab,
    cosine,
    effective_episodes,
    leave_out,
    noise_of,
    success_credit,
)
from quintain.credit_lab.material import read_batch
from quintain.data.pack import pack
from quintain.data.samples import samples_from
from quintain.errors import UsageError
from quintain.learning.learner import Forward
from quintain.learning.update import Update
from quintain.losses.compose import combine
from quintain.losses.entropy import entropy_bonus
from quintain.losses.policy import clip_ratio, reinforce
from quintain.models.fingerprint import fingerprint
from quintain.types import Credit, Group, Sample, flatten_scored


@pytest.fixture(scope="module")
def lab(lab_run: Path) -> GradientLab:
    return GradientLab(read_batch(lab_run).model, tokens_per_microbatch=2048)


@pytest.fixture(scope="module")
def groups(lab_run: Path) -> list[Group]:
    return list(read_batch(lab_run).groups)


def by_hand(lab: GradientLab, credit: Credit) -> torch.Tensor:
    """The same by one backward pass of the whole batch, with everything that is left out left in."""
    batch = pack(samples_from(credit))
    outputs = Forward(lab.model)(batch)
    reinforce()(outputs, batch).loss.backward()
    grads = [p.grad.flatten().clone() for p in lab.parameters if p.grad is not None]
    lab.model.zero_grad(set_to_none=True)
    return -torch.cat(grads)


def test_a_gradient_is_that_of_one_plain_pass(lab: GradientLab, groups: list[Group]) -> None:
    credit = group_relative(groups)
    before = fingerprint(lab.model)
    found = lab.gradient(credit)
    assert cosine(found, by_hand(lab, credit)) > 0.9999
    assert found.shape == (lab.size,) and fingerprint(lab.model) == before
    assert all(p.grad is None for p in lab.model.parameters())


def test_losses_are_alike_at_the_weights_that_sampled_and_differ_when_these_moved(
    lab: GradientLab, groups: list[Group]
) -> None:
    credit = group_relative(groups)
    updates = {
        "plain": Update(loss=reinforce()),
        "clip": Update(loss=clip_ratio()),
        "free": Update(loss=clip_ratio(1.0, 1e9)),
    }
    found = lab.gradients(credit, updates)
    assert found["clip"].direction is found["plain"].direction, "equal weights of the tokens share a pass"
    before = fingerprint(lab.model)
    with lab.move(found["plain"].direction, 1e-2):
        assert fingerprint(lab.model) != before
        assert lab.gap(groups) > 0.01
        moved = lab.gradients(credit, updates)
        again = lab.gradient(credit, updates["free"])
    assert torch.allclose(moved["free"].direction, again, atol=1e-6)
    assert cosine(moved["clip"].direction, moved["free"].direction) < 0.999
    assert fingerprint(lab.model) == before and lab.gap(groups) < 1e-4


def test_a_step_along_a_gradient_of_success_raises_the_surrogate(
    lab: GradientLab, groups: list[Group]
) -> None:
    credit = success_credit(groups)
    worth = np.concatenate([array for arrays in credit.advantages for array in arrays])
    with lab.move(lab.gradient(credit), 1e-3):
        assert float((worth * lab.log_ratios(groups)).mean()) > 0


def test_turns_are_left_out_where_asked(lab: GradientLab, groups: list[Group]) -> None:
    credit = group_relative(groups)
    whole = lab.gradient(credit, Update(loss=reinforce(), aggregation="constant", constant=1.0))
    parts = [
        lab.gradient(
            credit,
            Update(loss=reinforce(), aggregation="constant", constant=1.0),
            keep=lambda t, k, odd=odd: k % 2 == odd,
        )
        for odd in (0, 1)
    ]
    trained = [sum(1 for t in credit.trajectories if len(t.turns) > odd) for odd in (0, 1)]
    assert all(trained) and cosine(parts[0], parts[1]) < 0.99
    assert cosine(parts[0] + parts[1], whole) > 0.9, "normalisers differ where a stream has no such turn"
    assert not lab.gradient(credit, keep=lambda t, k: False).any()


def test_gradients_of_some_parameters_lie_where_they_stand(lab: GradientLab, groups: list[Group]) -> None:
    credit = group_relative(groups)
    place = next(k for k, n in enumerate(lab.names) if "layers.0" in n and "down" in n)
    some = GradientLab(lab.model, only=lambda n: n == lab.names[place])
    before = sum(p.numel() for p in lab.parameters[:place])
    own = lab.gradient(credit)[before : before + lab.parameters[place].numel()]
    assert torch.allclose(some.gradient(credit), own, atol=1e-6)
    with pytest.raises(UsageError, match="without such trainable parameters"):
        GradientLab(lab.model, only=lambda n: False)


def test_samples_as_they_are_and_terms_of_entropy(lab: GradientLab, groups: list[Group]) -> None:
    credit = group_relative(groups)
    kept = [sample for sample in samples_from(credit) if sample.advantages.any()]
    assert torch.allclose(lab.of_samples(kept), lab.gradient(credit), atol=1e-6)
    bonus = Update(loss=combine((reinforce(), 1.0), (entropy_bonus(), 0.5)))
    assert cosine(lab.gradient(credit, bonus), lab.gradient(credit)) < 0.9999


def test_a_critic_of_hidden_states_knows_more_than_the_mean(lab: GradientLab, groups: list[Group]) -> None:
    critic = lab.fit_critic(groups, ridge=1e-3)(groups)
    values = np.array([float(turns[0][0]) for turns in critic.values])
    outcomes = np.array([float(t.is_success) for t in flatten_scored(groups)])
    assert np.corrcoef(values, outcomes)[0, 1] > 0.3


def test_effective_episodes_count_weights(groups: list[Group]) -> None:
    samples: list[Sample] = samples_from(group_relative(groups[:1]))
    weights = np.concatenate([np.full(len(s.token_ids), 1.0 / len(s.token_ids), np.float32) for s in samples])
    assert effective_episodes(samples, weights) == pytest.approx(len(groups[0].scored))
    first = np.concatenate([np.full(len(s.token_ids), s.trajectory == 0, np.float32) for s in samples])
    assert effective_episodes(samples, first) == pytest.approx(1.0)
    assert effective_episodes(samples, 0 * first) == 0.0


def test_noise_is_told_from_signal() -> None:
    generator = torch.Generator().manual_seed(0)
    signal = torch.ones(4000)
    parts = [signal + 2 * torch.randn(4000, generator=generator) for _ in range(20)]
    assert noise_of(parts) == pytest.approx(4.0, rel=0.1)
    assert noise_of([signal, -signal]) == float("inf") == noise_of([signal])
    others = leave_out([signal, 2 * signal, 3 * signal], extra=signal)
    assert [float(o[0]) for o in others] == [6.0, 5.0, 4.0]


def turned(credit: Credit) -> Credit:
    return replace(credit, advantages=tuple(tuple(-a for a in arrays) for arrays in credit.advantages))
