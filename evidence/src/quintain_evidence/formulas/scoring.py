"""Drawing whole actions by their scores, and what their tokens are credited for it, beside plain second versions.

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

from quintain.credit.discounted import discounted_return
from quintain.engines.scoring import action_probabilities
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Action, Credit, Trajectory
from quintain_evidence.formulas.credit import Case, Tokens, draw
from quintain_evidence.formulas.formula import Formula, Rng, flatten

Candidates = list[tuple[list[list[float]], list[float]]]
"""log-probs of the tokens of each candidate, and what its score is divided by"""
WORDS = ((1,), (1, 2), (3, 4, 5), (3, 4, 6, 7))
"""Token ids of the toy's actions."""
EARNED = (0.0, 1.0, 0.2, 0.7)
NUM_TOYS = 4


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


def divided(module: ModuleType, case: Case) -> list[float]:
    """Return the credit of the code, lengths being the tokens of a turn and one more."""
    credit = discounted_return(case.groups, discount=0.9)
    return flatten(module.per_length(thoughtful(credit), lambda _task, _text, ids: len(ids) + 1.0).advantages)


def thoughtful(credit: Credit) -> Credit:
    """Return `credit` of the same episodes whose third turns, where there are any, are thoughts."""
    trajectories = tuple(
        replace(t, turns=tuple(replace(u, seat="a/plan") if k == 2 else u for k, u in enumerate(t.turns)))
        for t in credit.trajectories
    )
    return replace(credit, trajectories=trajectories)


def shared(case: Case) -> Tokens:
    """Return returns to go over the length of the turn, thoughts whole, in single precision as credit is stored."""
    found: list[list[float]] = []
    for play in case.plays:
        row: list[float] = []
        for k, count in enumerate(play.tokens):
            rest = sum(0.9 ** (j - k) * play.rewards[j] for j in range(k, len(play.rewards)))
            row.append(float(np.float32(rest)) / (1 if k == 2 else count + 1))
        found.append(row)
    return case.spread(found)


def credited_gradient(module: ModuleType) -> float:
    """Return the least cosine of what TWOSOME trains, in expectation over its own sampler, with the exact gradient."""
    found: list[float] = []
    for logits, wanted, logs, lengths in toys():
        odds = action_probabilities(logs, lengths)
        mean = sum(p * r for p, r in zip(odds, EARNED, strict=True))
        trajectories = [lived(ids, reward - mean) for ids, reward in zip(WORDS, EARNED, strict=True)]
        arrays = tuple(
            (np.full(len(ids), reward - mean, np.float32),) for ids, reward in zip(WORDS, EARNED, strict=True)
        )
        credit = Credit(trajectories=tuple(trajectories), advantages=arrays)
        given = module.per_length(credit, lambda _task, _text, ids: float(len(ids))).advantages
        weights = [p * float(turns[0][0]) for p, turns in zip(odds, given, strict=True)]
        found.append(angle(pull(logits, weights), wanted))
    return min(found)


def lived(ids: Sequence[int], reward: float) -> Trajectory:
    """Return an episode of one action."""
    return episode_of([turn_of(ids, Action(text="go"), reward=reward)], reward, is_success=True)


FORMULAS: tuple[Formula, ...] = (
    Formula("sampler.action_probabilities", "engines.scoring", ("action_probabilities",), candidates, drawn,
        softmaxed, exact=sampled_gradient),
    Formula("methods.per_length", "methods.rl.twosome", ("per_length",), draw, divided,
        lambda c: flatten(shared(c)), exact=credited_gradient),
)  # fmt: skip
