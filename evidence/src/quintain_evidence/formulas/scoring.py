"""Drawing whole actions by their scores, and learning them as wholes, beside plain second versions.

Where actions are scored, the exact gradient is part of the check: on a state of four actions of one to four words,
whose tokens a table writes, the expectation of what is trained is the gradient of the expected reward, through the
sampler's own probabilities.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import exp
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from quintain.data.pack import pack
from quintain.data.samples import samples_from
from quintain.engines.scoring import action_probabilities
from quintain.losses.policy import clip_ratio
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Action, Batch, Candidate, Credit, Outputs, Turn
from quintain_evidence.formulas.formula import Formula, Rng, flatten

Candidates = list[tuple[list[list[float]], list[float]]]
"""log-probs of the tokens of each candidate, and what its score is divided by"""
Choices = list[tuple[list[list[float]], list[float], list[list[float]], int, float]]
"""log-probs of the tokens of each candidate at sampling, lengths, log-probs now, what was drawn, its advantage"""
WORDS = ((1,), (1, 2), (3, 4, 5), (3, 4, 6, 7))
"""Token ids of the toy's actions."""
EARNED = (0.0, 1.0, 0.2, 0.7)
NUM_TOYS = 4
SHIFT = 2.0
"""What the critic of the toy is wrong by."""


def candidates(rng: Rng) -> Candidates:
    """Return states of two to six candidates of one to five tokens, lengths among them that are not those of tokens."""
    found: Candidates = []
    for _ in range(10):
        logs = [(-rng.exponential(size=int(n))).tolist() for n in rng.integers(1, 6, int(rng.integers(2, 7)))]
        found.append((logs, [float(n) for n in rng.integers(1, 5, len(logs))]))
    return found


def drawn(module: ModuleType, case: Candidates) -> list[float]:
    """Return the probabilities of the code."""
    return flatten([module.action_probabilities(logs, lengths) for logs, lengths in case])


def softmaxed(case: Candidates) -> list[float]:
    """Return each candidate's share of the exponentials of mean log-probs."""
    found: list[float] = []
    for logs, lengths in case:
        odds = [exp(sum(own) / length) for own, length in zip(logs, lengths, strict=True)]
        found += [one / sum(odds) for one in odds]
    return found


def token_logs(logits: Tensor, ids: Sequence[int]) -> Tensor:
    """Return the log-probs [len(ids)] of tokens, each after the one before; the prompt ends with token 0."""
    table = torch.log_softmax(logits, -1)
    return torch.stack([table[before, token] for before, token in zip((0, *ids), ids, strict=False)])


def angle(one: Tensor, other: Tensor) -> float:
    """Return the cosine of two gradients."""
    return float(torch.cosine_similarity(one.flatten(), other.flatten(), dim=0))


def toys() -> list[tuple[Tensor, Tensor, list[list[float]], list[float]]]:
    """Return logits, the exact gradient of the expected reward, token log-probs, and lengths (words) of each toy."""
    found: list[tuple[Tensor, Tensor, list[list[float]], list[float]]] = []
    lengths = [float(len(ids)) for ids in WORDS]
    for seed in range(NUM_TOYS):
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn((8, 8), generator=generator, dtype=torch.float64).requires_grad_()
        scores = [token_logs(logits, ids).sum() / n for ids, n in zip(WORDS, lengths, strict=True)]
        expected = (torch.softmax(torch.stack(scores), 0) * torch.tensor(EARNED, dtype=torch.float64)).sum()
        (wanted,) = torch.autograd.grad(expected, logits)
        logs = [token_logs(logits, ids).tolist() for ids in WORDS]
        found.append((logits, wanted, logs, lengths))
    return found


def pull(logits: Tensor, weights: Sequence[float]) -> Tensor:
    """Return the gradient of Σ_a w_a Σ log p of the tokens of action a."""
    total = torch.stack(
        [w * token_logs(logits, ids).sum() for w, ids in zip(weights, WORDS, strict=True)]
    ).sum()
    (found,) = torch.autograd.grad(total, logits)
    return found


def sampled_gradient(module: ModuleType) -> float:
    """Return the least cosine of Σ π(a) (r - J)/|a| ∇ log p(a) with the exact gradient, π the sampler's own."""
    found: list[float] = []
    for logits, wanted, logs, lengths in toys():
        odds = module.action_probabilities(logs, lengths)
        mean = sum(p * r for p, r in zip(odds, EARNED, strict=True))
        weights = [p * (r - mean) / n for p, r, n in zip(odds, EARNED, lengths, strict=True)]
        found.append(angle(pull(logits, weights), wanted))
    return min(found)


def make_turn(logs: Sequence[Sequence[float]], lengths: Sequence[float], index: int) -> Turn:
    """Return a turn in which the candidate `index` was drawn; ids do not matter beyond being different."""
    made = [
        Candidate(token_ids=(place + 1, *[0] * (len(own) - 1)), logprobs=tuple(own), length=length)
        for place, (own, length) in enumerate(zip(logs, lengths, strict=True))
    ]
    turn = turn_of(made[index].token_ids, Action(text="go"))
    completion = replace(turn.completion, logprobs=made[index].logprobs, candidates=tuple(made))
    return replace(turn, prompt_ids=(9,), completion=completion)


def choices(rng: Rng) -> Choices:
    """Return states, the action that was taken in each, and what the tokens are now."""
    found: Choices = []
    for logs, lengths in candidates(rng):
        now = [(np.array(own) + rng.normal(size=len(own)) * 0.2).tolist() for own in logs]
        found.append((logs, lengths, now, int(rng.integers(len(logs))), float(rng.normal())))
    return found


def batch_of(turns: Sequence[Turn], advantages: Sequence[float]) -> Batch:
    """Return the streams of an episode of `turns`."""
    arrays = tuple(
        np.full(len(turn.completion.token_ids), number, np.float32)
        for turn, number in zip(turns, advantages, strict=True)
    )
    credit = Credit(trajectories=(episode_of(turns, 1.0, is_success=True),), advantages=(arrays,))
    return pack(samples_from(credit, has_candidates=True))


def learn_choices(module: ModuleType, case: Choices) -> list[float]:
    """Return the loss of the code, whose clip is far, and its gradient by the log-prob of each token."""
    turns = [make_turn(logs, lengths, index) for logs, lengths, _, index, _ in case]
    batch = batch_of(turns, [advantage for *_, advantage in case])
    logs = torch.zeros(len(batch.token_ids), dtype=torch.float64)
    places = (batch.turn_id >= 0).nonzero().squeeze(1)
    told = [x for _, _, now, _, _ in case for own in now for x in own]
    logs[places] = torch.tensor(told, dtype=torch.float64)
    logs.requires_grad_()
    outputs = Outputs(logprobs=logs, entropy=torch.zeros_like(logs))
    loss = module.by_action(clip_ratio(0.99, 99.0))(outputs, batch).loss
    (slope,) = torch.autograd.grad(loss, logs)
    _, entropy = module.action_logprobs(logs, batch)
    firsts = [int(place) for place in (batch.loss_weight > 0).nonzero()]
    return flatten([loss.item(), slope[places], [entropy[place].item() for place in firsts]])


def as_wholes(case: Choices) -> list[float]:
    """Return -mean A·ratio of actions, and -A·ratio·(1[b = a] - π(b))/|b| at each token of b; then entropies."""
    total, slopes, entropies = 0.0, list[float](), list[float]()
    for logs, lengths, now, index, advantage in case:
        before, after = (softmaxed([(each, lengths)]) for each in (logs, now))
        ratio = after[index] / before[index]
        total -= float(np.float32(advantage)) * ratio / len(case)
        for place, (own, length) in enumerate(zip(now, lengths, strict=True)):
            pull_on = ((place == index) - after[place]) / length
            slopes += [-float(np.float32(advantage)) * ratio * pull_on / len(case)] * len(own)
        entropies.append(-sum(p * float(np.log(p)) for p in after))
    return [total, *slopes, *entropies]


def compare_gradient(module: ModuleType) -> float:
    """Return the least cosine of what is trained with the exact gradient, where the critic is wrong by `SHIFT`."""
    found: list[float] = []
    for logits, wanted, logs, lengths in toys():
        total = torch.zeros_like(logits)
        for index, (share, reward) in enumerate(
            zip(action_probabilities(logs, lengths), EARNED, strict=True)
        ):
            batch = batch_of([make_turn(logs, lengths, index)], [reward + SHIFT])
            places = (batch.turn_id >= 0).nonzero().squeeze(1)
            said = torch.cat([token_logs(logits, ids) for ids in WORDS])
            empty = torch.zeros(len(batch.token_ids), dtype=torch.float64)
            outputs = Outputs(logprobs=empty.index_copy(0, places, said), entropy=empty)
            loss = module.by_action(clip_ratio())(outputs, batch).loss
            total = total - share * torch.autograd.grad(loss, logits)[0]
        found.append(angle(total, wanted))
    return min(found)


FORMULAS: tuple[Formula, ...] = (
    Formula("sampler.action_probabilities", "engines.scoring", ("action_probabilities",), candidates, drawn,
        softmaxed, exact=sampled_gradient),
    Formula("losses.by_action", "losses.actions", ("by_action", "action_logprobs"), choices, learn_choices, as_wholes,
        exact=compare_gradient),
)  # fmt: skip
