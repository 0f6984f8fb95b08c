"""DMPO: do weights that fall over the turns of a side look at the turn that decides, where that comes early?

Episodes of six turns with two actions each. One turn, the key, sets the chance of success to .75 or .25; the others
do nothing. Pairs are a success against a failure, and a table with a row for each turn learns from them through the
samples and the loss that ship, from an even start. The number is the logarithm of how far the key's logits move apart,
over how far those of the other turns do on average, with the key at the first turn. The control has the same weights,
permuted over the turns of each side. In the null world an episode has one turn, and both arms are the same.

Doses are keys at every turn: the later it comes the less DMPO sees of it, and at the last turn it sees less than the
permuted weights do. Beside it: the probability of the right action at the key, and the same of DPO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quintain.data.pack import pack
from quintain.data.samples import pair_samples
from quintain.losses.preference import dmpo, dpo
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

TURNS, ACTIONS = 6, 2
GOOD = 0.75
"""Chance of success after the right action at the key; after the other one it is 1 - GOOD."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications."""
    return [replication(options, derive_seed("dmpo", seed, k)) for k in range(int(options["seeds"]))]


def replication(options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return what one draw of pairs, for every key, comes to."""
    gamma = float(options.get("discount", 0.7))
    effects, first = list[float](), dict[str, float]()
    for key in range(TURNS):
        batch = drawn(TURNS, key, options, seed)
        own, other = (
            learned(each, dmpo(0.1, discount=gamma), TURNS, options)
            for each in (batch, permuted(batch, seed))
        )
        effects.append(ratio(own, key) - ratio(other, key))
        if key == 0:
            plain = learned(batch, dpo(0.1), TURNS, options)
            first = {
                "method": ratio(own, key),
                "control": ratio(other, key),
                "extra.right": right(own, key),
                "extra.right_dpo": right(plain, key),
                "extra.ratio_dpo": ratio(plain, key),
            }
    one = drawn(1, 0, options, seed)
    alone = [
        float(moved(learned(each, dmpo(0.1, discount=gamma), 1, options))[0])
        for each in (one, permuted(one, seed))
    ]
    return {
        **first,
        "null_method": alone[0],
        "null_control": alone[1],
        **{f"extra.key{key + 1}": effect for key, effect in enumerate(effects)},
    }


def drawn(num_turns: int, key: int, options: Mapping[str, Any], seed: int) -> Batch:
    """Return pairs of a success and a failure as a batch, against an even reference."""
    rng = np.random.default_rng(derive_seed(seed, "pairs", num_turns, key) % (1 << 63))
    num = int(options.get("pairs", 100))
    actions = rng.integers(0, ACTIONS, (8 * num, num_turns))
    chance = np.where(actions[:, key] == 0, GOOD, 1 - GOOD)
    is_won = rng.random(len(actions)) < chance
    won, lost = (actions[is_won == side][:num] for side in (True, False))
    pairs = [
        Pair(chosen=episode(one, 1.0, 2 * k), rejected=episode(other, 0.0, 2 * k + 1), margin=1.0)
        for k, (one, other) in enumerate(zip(won.tolist(), lost.tolist(), strict=True))
    ]
    batch = pack(pair_samples(pairs))
    even = torch.full(batch.turn_id.shape, -float(np.log(ACTIONS)))
    return replace(batch, extra=replace(batch.extra, reference_logprobs=even))


def episode(actions: Sequence[int], value: float, index: int) -> Trajectory:
    """Return an episode that took `actions`: a turn is shown its number and takes one token."""
    turns = tuple(
        Turn(
            observation=(),
            prompt_ids=(number,),
            completion=Completion(token_ids=(TURNS + action,), logprobs=(), stop="stop"),
            action=Action(),
        )
        for number, action in enumerate(actions)
    )
    return Trajectory(
        task=Task(id="key", environment="key", seed=0),
        turns=turns,
        outcome=Score(value=value, is_success=value > 0),
        stop=Stop.TERMINATED,
        seed=index,
        group="key",
        index=index,
    )


def permuted(batch: Batch, seed: int) -> Batch:
    """Return `batch` whose turns have exchanged their numbers within each side, and with them their weights."""
    rng = np.random.default_rng(derive_seed(seed, "permuted") % (1 << 63))
    found = batch.turn_id.clone()
    for stream in range(len(batch.lengths)):
        own = ((batch.sequence_id == stream) & (batch.turn_id >= 0)).nonzero().squeeze(1)
        found[own] = batch.turn_id[own][torch.from_numpy(rng.permutation(len(own)))]
    return replace(batch, turn_id=found)


def learned(batch: Batch, loss: Loss, num_turns: int, options: Mapping[str, Any]) -> Tensor:
    """Return the logits [turn, action] that gradient descent comes to from an even table."""
    logits = torch.zeros(num_turns, ACTIONS, requires_grad=True)
    places = (batch.loss_weight > 0).nonzero().squeeze(1)
    turns, actions = batch.token_ids[places - 1], batch.token_ids[places] - TURNS
    for _ in range(int(options.get("updates", 20))):
        said = logits.log_softmax(-1)[turns, actions]
        logprobs = said.new_zeros(len(batch.token_ids)).index_copy(0, places, said)
        report = loss(Outputs(logprobs=logprobs, entropy=torch.zeros_like(logprobs)), batch)
        (slopes,) = torch.autograd.grad(report.loss, logits)
        logits = (logits - float(options.get("rate", 2.0)) * slopes).detach().requires_grad_()
    return logits.detach()


def moved(logits: Tensor) -> Tensor:
    """Return how far the logits of each turn have moved apart, towards its first action."""
    return logits[:, 0] - logits[:, 1]


def ratio(logits: Tensor, key: int) -> float:
    """Return the logarithm of the key's move over the mean size of the others'; a move the wrong way counts as tiny."""
    found = moved(logits)
    others = torch.cat([found[:key], found[key + 1 :]]).abs().mean()
    return float((found[key].clamp(min=1e-3) / others).log())


def right(logits: Tensor, key: int) -> float:
    """Return the probability of the right action at the key."""
    return float(logits.softmax(-1)[key, 0])
