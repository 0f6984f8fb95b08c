"""WebGPT: does the reward model know which of a task's answers is best?

Answers (`answers`) of a frozen policy to tasks that no comparison was about: what they are worth is the same function
in all tasks, plus a part of the answer's own that nobody can foresee. Comparisons of two answers, with ties where a
person would not see a difference, teach a reward model through the samples and the loss that ship, a tie being half a
preference either way. The number is the share of what an oracle gains over the mean of the answers that the reward
model's pick gains. The control is a reward model of the same comparisons whose labels are permuted over them. In the
null world a task's answers are all the same.

Beside it: what the pick gains over one by length alone; the log loss on held-out comparisons with ties as halves
against ties broken by a coin; agreement on held-out comparisons without a tie; and what all answers gain over a half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.data.comparisons import Comparisons, Labeller, comparison_samples, label_groups
from quintain.data.pack import pack
from quintain.eval.reward_model import agreement, best_of
from quintain.losses.reward_model import bradley_terry
from quintain.types import Comparison, Outputs, Score, derive_seed
from quintain_evidence.experiments.rlhf.answers import Answers, answers, chances, fitted, normal


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications, each with a world, a policy and comparisons of its own."""
    return [replication(options, derive_seed(seed, number)) for number in range(int(options["seeds"]))]


def replication(options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return what the picks of each reward model gain."""
    rng = np.random.default_rng(seed % (1 << 63))
    made, start = answers(rng, rare=0.0, worse=0.0, spread=float(options["spread"]))
    num = int(options["comparisons"])
    groups = start.sample(size=4 * num, seed=derive_seed(seed, "asked"))
    own = rng.normal(0, float(options["own"]), 4 * num)
    asked = [
        replace(
            group,
            trajectories=tuple(
                replace(each, outcome=Score(value=made.worth[made.index(each)] + extra, is_success=False))
                for each, extra in zip(group.trajectories, own.tolist(), strict=True)
            ),
        )
        for group in groups
    ]
    # each answer stands in one comparison; equal ones have been asked about before
    pairs = [
        replace(group, trajectories=group.trajectories[at : at + 2])
        for group in asked
        for at in range(0, len(group.trajectories), 2)
    ]
    labeller = Labeller(temperature=float(options["temperature"]), tie_band=float(options["tie_band"]))
    said = [c for pair in pairs for c in label_groups([pair], labeller, seed=seed % 1_000_003)]
    learned, held_out = said[:num], said[num : 2 * num]
    coins = [broken(each, rng) for each in learned]
    ranks = [learned[place].ranks for place in rng.permutation(len(learned))]
    shuffled = [replace(each, ranks=own) for each, own in zip(learned, ranks, strict=True)]
    scores = {
        name: fitted(made, Comparisons(tuple(given)))
        for name, given in (("method", learned), ("control", shuffled), ("coins", coins))
    }
    length = normal(np.array([float(len(text)) for text in made.texts]))
    tasks, width = int(options["tasks"]), int(options["answers"])
    drawn = rng.choice(len(made.texts), (tasks, width), p=chances(made, start))
    worth = made.worth[drawn] + rng.normal(0, float(options["own"]), drawn.shape)
    untied = [each for each in held_out if each.ranks[0] != each.ranks[1]]
    return {
        "method": share(worth, scores["method"][drawn]),
        "control": share(worth, scores["control"][drawn]),
        "null_method": share(worth[:, :1].repeat(width, 1), scores["method"][drawn[:, :1].repeat(width, 1)]),
        "null_control": share(
            worth[:, :1].repeat(width, 1), scores["control"][drawn[:, :1].repeat(width, 1)]
        ),
        "extra.over_length": share(worth, scores["method"][drawn])
        - max(share(worth, length[drawn]), share(worth, -length[drawn])),
        "extra.ties": log_loss(made, scores["coins"], held_out) - log_loss(made, scores["method"], held_out),
        "extra.tied": 1 - len(untied) / len(held_out),
        "extra.agreement": agreement(
            [[float(scores["method"][made.index(a)]) for a in each.answers] for each in untied], untied
        ),
        "extra.rises": gained(worth, scores["method"][drawn], width)
        - gained(worth, scores["method"][drawn], width // 2),
    }


def broken(comparison: Comparison, rng: np.random.Generator) -> Comparison:
    """Return `comparison` with a tie broken by a coin."""
    if comparison.ranks[0] != comparison.ranks[1]:
        return comparison
    return replace(comparison, ranks=(1.0, 0.0) if rng.random() < 0.5 else (0.0, 1.0))


def share(worth: NDArray[np.float64], scores: NDArray[np.float64]) -> float:
    """Return the share of the oracle's gain that the picks by `scores` have, [task, answer]."""
    return best_of(worth.tolist(), scores.tolist()).share


def gained(worth: NDArray[np.float64], scores: NDArray[np.float64], num: int) -> float:
    """Return what the pick of the first `num` answers gains over the mean of all."""
    found = best_of(worth[:, :num].tolist(), scores[:, :num].tolist())
    return found.picked - float(worth.mean())


def log_loss(made: Answers, scores: NDArray[np.float64], comparisons: Sequence[Comparison]) -> float:
    """Return the cross-entropy of `scores` [answer] on `comparisons`, ties as halves."""
    batch = pack(comparison_samples(comparisons))
    marks = (batch.turn_id >= 0).nonzero().squeeze(1)
    numbers = [made.index(answer) for each in comparisons for answer in each.answers]
    own = torch.from_numpy(scores[numbers])
    values = own.new_zeros(len(batch.token_ids)).index_copy(0, marks, own)
    return float(bradley_terry()(Outputs(logprobs=values, entropy=values, values=values), batch).loss)
