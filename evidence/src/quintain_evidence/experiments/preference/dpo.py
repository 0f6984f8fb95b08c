"""DPO: the policy that preferences teach is the reference tilted by the reward, π_ref exp(r/β)/Z.

Prompts have every string of one to four of three tokens as an answer, each with a drawn reward. A drawn reference
policy writes pairs, and a Bradley-Terry judge says which is better. A table of logits, one row for each prefix, is
trained on them through the samples, the batches and the loss that ship, to a small gradient. The number is the total
variation between what it comes to and π_ref exp(r/β)/Z. The control is the same loss with the uniform policy in the
place of the reference: pairs, β and start are the same. In the null world the reference is the uniform policy.

Beside it, for three β, the slope of log(π/π_ref) on r, times β, which is 1 where the implied reward is the reward; and
how far training on coin flips leads away from the reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.data.pack import pack
from quintain.data.samples import pair_samples
from quintain.losses.preference import dpo
from quintain.types import (
    Action,
    Batch,
    Completion,
    Loss,
    Outputs,
    Pair,
    Score,
    Stop,
    Task,
    Trajectory,
    Turn,
    derive_seed,
)

TOKENS, LONGEST, PROMPTS = 3, 4, 4
END = TOKENS
"""the action that ends a string before its longest"""
SEEN = 20
"""comparisons that a string must have been in to be looked at"""
BETAS = (0.1, 0.5, 1.0)


@dataclass(frozen=True)
class Strings:
    """All strings of one prompt: prefixes are states, numbered from 0 (the empty one)."""

    texts: tuple[tuple[int, ...], ...]
    """tokens of each string, with `END` where it is not of the longest"""
    states: NDArray[np.int64]
    """[string, action], padded with -1: the state before each of its actions"""
    actions: NDArray[np.int64]
    """[string, action], padded with -1"""
    num_states: int


@cache
def strings() -> Strings:
    """Return the strings of a prompt."""
    prefixes = [p for length in range(LONGEST) for p in product(range(TOKENS), repeat=length)]
    number = {prefix: at for at, prefix in enumerate(prefixes)}
    whole = [p for length in range(1, LONGEST + 1) for p in product(range(TOKENS), repeat=length)]
    texts = tuple(t if len(t) == LONGEST else (*t, END) for t in whole)
    states, actions = (np.full((len(texts), LONGEST), -1, np.int64) for _ in range(2))
    for row, text in enumerate(texts):
        for at, action in enumerate(text):
            states[row, at], actions[row, at] = number[text[:at]], action
    return Strings(texts, states, actions, len(prefixes))


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications, each with rewards, a reference and comparisons of its own."""
    beta, num = float(options.get("beta", 0.5)), int(options.get("comparisons", 20_000)) // PROMPTS
    flat = even()
    found: list[Mapping[str, float]] = []
    for replication in range(int(options["seeds"])):
        rng = np.random.default_rng(derive_seed("dpo", seed, replication))
        rewards = rng.normal(0, float(options.get("spread", 0.3)), (PROMPTS, len(strings().texts)))
        reference = torch.from_numpy(rng.normal(0, 1, flat.shape))
        pairs = compared(reference, rewards, num, rng)
        batch, is_seen = batch_of(pairs), seen(pairs)
        learned = {b: trained(batch, reference, reference, b) for b in {*BETAS, beta}}
        twin = trained(batch, reference, flat, beta)
        coins = batch_of([pair if rng.random() < 0.5 else (pair[0], pair[2], pair[1]) for pair in pairs])
        fair = compared(flat, rewards, num, rng)
        fair_batch, fair_seen = batch_of(fair), seen(fair)
        null_method, null_control = (
            distance(trained(fair_batch, flat, one, beta), flat, rewards, beta, fair_seen)
            for one in (flat.clone(), even())
        )
        found.append(
            {
                "method": distance(learned[beta], reference, rewards, beta, is_seen),
                "control": distance(twin, reference, rewards, beta, is_seen),
                "null_method": null_method,
                "null_control": null_control,
                **{f"extra.slope{b:g}": b * slope(learned[b], reference, rewards, is_seen) for b in BETAS},
                "extra.coins": distance(
                    trained(coins, reference, reference, beta), reference, 0 * rewards, beta, is_seen
                ),
                "extra.seen": float(is_seen.mean()),
            }
        )
    return found


Compared = tuple[int, int, int]
"""(prompt, string that won, string that lost)"""


def even() -> Tensor:
    """Return the logits [prompt, state, action] of the policy that gives every string the same probability."""
    whole = strings()
    counts = np.ones((whole.num_states, TOKENS + 1))
    is_there = whole.states >= 0
    np.add.at(counts, (whole.states[is_there], whole.actions[is_there]), 1)
    return torch.from_numpy(np.log(np.maximum(counts - 1, 1.0)))[None].repeat(PROMPTS, 1, 1)


def log_policy(logits: Tensor) -> Tensor:
    """Return log π of every action [prompt, state, action]; nothing said is no string."""
    is_forbidden = torch.zeros_like(logits, dtype=torch.bool)
    is_forbidden[:, 0, END] = True
    return logits.masked_fill(is_forbidden, -torch.inf).log_softmax(-1)


def log_strings(logits: Tensor) -> Tensor:
    """Return log π of every string [prompt, string]."""
    states, actions = (torch.from_numpy(part) for part in (strings().states, strings().actions))
    each = log_policy(logits)[:, states.clamp(min=0), actions.clamp(min=0)]
    return each.where(states >= 0, 0.0).sum(-1)


def compared(
    reference: Tensor, rewards: NDArray[np.float64], num: int, rng: np.random.Generator
) -> list[Compared]:
    """Return `num` comparisons of each prompt of two different strings of `reference`, by Bradley and Terry's judge."""
    found: list[Compared] = []
    for prompt, weights in enumerate(log_strings(reference).exp().numpy()):
        first, second = rng.choice(len(weights), (2, 2 * num), p=weights / weights.sum())
        first, second = (side[first != second][:num] for side in (first, second))
        chance = 1 / (1 + np.exp(rewards[prompt, second] - rewards[prompt, first]))
        is_first = rng.random(len(first)) < chance
        won, lost = np.where(is_first, (first, second), (second, first))
        found += [(prompt, better, worse) for better, worse in zip(won.tolist(), lost.tolist(), strict=True)]
    return found


def seen(pairs: Sequence[Compared]) -> NDArray[np.bool_]:
    """Return which strings [prompt, string] were compared at least `SEEN` times."""
    counts = np.zeros((PROMPTS, len(strings().texts)), np.int64)
    for prompt, won, lost in pairs:
        counts[prompt, [won, lost]] += 1
    return counts >= SEEN


@dataclass(frozen=True)
class Places:
    """A batch with where each of its trained tokens stands in the table."""

    batch: Batch
    tokens: Tensor
    """places in the batch"""
    prompts: Tensor
    states: Tensor
    actions: Tensor

    def of(self, logits: Tensor) -> Tensor:
        """Return log π of the tokens [N] of the batch, 0 where nothing was sampled."""
        chosen = log_policy(logits)[self.prompts, self.states, self.actions]
        return chosen.new_zeros(len(self.batch.token_ids)).index_copy(0, self.tokens, chosen)


def batch_of(pairs: Sequence[Compared]) -> Places:
    """Return `pairs` as one batch, through the samples that ship: a prompt is one token, an answer one turn."""
    whole = strings()

    @cache
    def side(prompt: int, text: int) -> Trajectory:
        ids = tuple(PROMPTS + action for action in whole.texts[text])
        completion = Completion(token_ids=ids, logprobs=(), stop="stop")
        turn = Turn(observation=(), prompt_ids=(prompt,), completion=completion, action=Action())
        return Trajectory(
            task=Task(id=f"strings/{prompt}", environment="strings", seed=prompt), turns=(turn,),
            outcome=Score(value=0.0, is_success=False), stop=Stop.TERMINATED, seed=text, group=str(prompt), index=text,
        )  # fmt: skip

    batch = pack(pair_samples([Pair(chosen=side(x, won), rejected=side(x, lost)) for x, won, lost in pairs]))
    tokens = (batch.turn_id >= 0).nonzero().squeeze(1)
    texts = [(x, text) for x, won, lost in pairs for text in (won, lost)]
    rows = [text for _, text in texts]
    is_there = whole.states[rows] >= 0
    prompts = np.repeat([x for x, _ in texts], is_there.sum(1))
    return Places(
        batch,
        tokens,
        torch.from_numpy(prompts),
        torch.from_numpy(whole.states[rows][is_there]),
        torch.from_numpy(whole.actions[rows][is_there]),
    )


def against(places: Places, reference: Tensor) -> Batch:
    """Return the batch with what `reference` says of its tokens."""
    said = places.of(reference).detach()
    return replace(places.batch, extra=replace(places.batch.extra, reference_logprobs=said))


def trained(places: Places, start: Tensor, reference: Tensor, beta: float) -> Tensor:
    """Return the logits that DPO against `reference` comes to from `start`, to a gradient norm of 1e-4."""
    batch = against(places, reference)
    loss: Loss = dpo(beta)
    logits = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [logits], max_iter=300, tolerance_grad=1e-5, tolerance_change=0.0, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        optimizer.zero_grad()
        logprobs = places.of(logits)
        report = loss(Outputs(logprobs=logprobs, entropy=torch.zeros_like(logprobs)), batch)
        report.loss.backward()
        return float(report.loss.detach())

    optimizer.step(closure)
    return logits.detach()


def distance(
    logits: Tensor, reference: Tensor, rewards: NDArray[np.float64], beta: float, is_seen: NDArray[np.bool_]
) -> float:
    """Return the total variation to reference · exp(reward/β)/Z over the strings seen, the mean over prompts."""
    aim = log_strings(reference) + torch.from_numpy(rewards) / beta
    hidden = torch.from_numpy(~is_seen)
    own, aim = (logs.masked_fill(hidden, -torch.inf).softmax(-1) for logs in (log_strings(logits), aim))
    return float((own - aim).abs().sum(-1).mean() / 2)


def slope(
    logits: Tensor, reference: Tensor, rewards: NDArray[np.float64], is_seen: NDArray[np.bool_]
) -> float:
    """Return the slope of log(π/π_ref) on the reward, within prompts, each string weighed by its probability."""
    ratio = (log_strings(logits) - log_strings(reference)).numpy()
    weights = np.where(is_seen, log_strings(reference).exp().numpy(), 0.0)
    weights /= weights.sum(1, keepdims=True)
    x = rewards - (weights * rewards).sum(1, keepdims=True)
    y = ratio - (weights * ratio).sum(1, keepdims=True)
    return float((weights * x * y).sum() / (weights * x * x).sum())
