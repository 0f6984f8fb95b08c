"""ArCHer: does a critic of turns that learned from older policies' episodes point the actor the right way?

On S3-mid a critic learns by TD from a buffer: 16 batches of 64 episodes, 15 of them by older tables, which solve less.
The actor then says one action anew at every state of the buffer, and the cosine of its gradient with ∇J is measured.
The control learns from the same buffer in which the episodes have each other's returns. In the null world returns have
nothing to do with what was done in either arm. Beside it: REINFORCE on the newest 64 episodes with a V that was fitted
to the returns of the same buffer; and the right critic with the actions of the buffer in the place of fresh ones.

The critic is a table of (turn, state) and action, as a critic that reads the whole episode knows the turn; of an action
that it never saw it says what it says of the state.
"""

# pyright: reportPossiblyUnboundVariable=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.credit.discounted import returns_to_go
from quintain.credit.layout import turn_rewards
from quintain.credit.turn_td import Numbers, by_way, q_targets, state_targets, way_advantages
from quintain.credit_lab.permute import permute_outcomes
from quintain.data.turn_values import last_turn_samples
from quintain.learning.update import Update
from quintain.methods.critic import archer
from quintain.types import Action, Completion, Group, Sample, Trajectory, Turn, derive_seed, flatten_scored
from quintain_evidence.labs.exact import exact_gradient
from quintain_evidence.labs.tables import fitted_table, s3
from quintain_evidence.labs.tabular import TablePolicy, actions_of, cosine, packed, states_of

DOSES = (1, 4, 16)
"""Batches of the buffer."""
SWEEPS = 12
"""Times that the critic goes through the buffer: more than an episode has turns."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` buffers of one table: cosines of gradients with ∇J by each way of learning."""
    world = s3(seed)
    start = fitted_table(world, seed, until=float(options.get("until", 0.55)))
    levels = np.linspace(float(options.get("from", 0.2)), float(options.get("until", 0.55)), max(DOSES))
    older = [fitted_table(world, seed, until=level) for level in levels[:-1].tolist()]
    _, exact = exact_gradient(world, start.theta)
    size = int(options.get("size", 4))
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("archer", seed, number)
        tables = [*older, start]
        batches = [table.sample(size=size, seed=derive_seed(own, k)) for k, table in enumerate(tables)]
        cosines: dict[str, float] = {}
        for dose in DOSES:
            buffer = [group for batch in batches[-dose:] for group in batch]
            permuted, _ = permute_outcomes(buffer, seed=own, across=True)
            right, wrong = (cosine(gradient(start, groups, own), exact) for groups in (buffer, permuted))
            cosines[f"extra.dose{dose}"] = right - wrong
        again, _ = permute_outcomes(permuted, seed=own + 1, across=True)
        found.append(
            {
                "method": right,
                "control": wrong,
                "null_method": wrong,
                "null_control": cosine(gradient(start, again, own), exact),
                "extra.start": start.objective(),
                "extra.over_reinforce": right - cosine(reinforced(start, batches[-1], buffer), exact),
                "extra.over_stored": right - cosine(gradient(start, buffer, own, is_fresh=False), exact),
                **cosines,
            }
        )
    return found


@dataclass(slots=True)
class TableCritic:
    """V [H, S] and Q [H, S, A] of a table, learned by TD from episodes that tables played."""

    policy: TablePolicy
    v: NDArray[np.float64]
    q: NDArray[np.float64]
    is_seen: NDArray[np.bool_]

    @classmethod
    def learned(cls, policy: TablePolicy, episodes: Sequence[Trajectory], discount: float) -> TableCritic:
        """Return the critic after `SWEEPS` regressions on its own targets, each over all of `episodes`."""
        world = policy.world
        shape = (world.horizon, *world.is_legal.shape)
        critic = cls(policy, np.zeros(shape[:2]), np.zeros(shape), np.zeros(shape, np.bool_))
        turns, states, actions = places(episodes, policy)
        counts = np.zeros(shape)
        np.add.at(counts, (turns, states, actions), 1.0)
        critic.is_seen = counts > 0
        odds = policy.probabilities().numpy()[states]
        for _ in range(SWEEPS):
            targets = np.array(
                [y for own in q_targets(episodes, critic.before(episodes), discount) for y in own]
            )
            sums = np.zeros(shape)
            np.add.at(sums, (turns, states, actions), targets)
            critic.q = sums / np.maximum(counts, 1)
            after = critic.after(turns, states)
            told = state_targets([odds.tolist()], [after.tolist()])[0]
            critic.v[turns, states] = told
        return critic

    def before(self, episodes: Sequence[Trajectory]) -> Numbers:
        """Return V before every turn."""
        return [self.v[np.arange(len(t.turns)), states_of(t)].tolist() for t in episodes]

    def after(self, turns: NDArray[np.int64], states: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return Q of every action [places, A]; V where it was never seen."""
        return np.where(self.is_seen[turns, states], self.q[turns, states], self.v[turns, states][:, None])


def places(
    episodes: Sequence[Trajectory], policy: TablePolicy
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return number, state and action of every turn of `episodes`, in order."""
    turns = np.concatenate([np.arange(len(t.turns)) for t in episodes])
    states = np.concatenate([np.array(states_of(t)) for t in episodes])
    return turns, states, np.concatenate([np.array(actions_of(t, policy.world)) for t in episodes])


def gradient(policy: TablePolicy, groups: Sequence[Group], seed: int, *, is_fresh: bool = True) -> Tensor:
    """Return the direction in which ArCHer's actor moves `policy` at the states of `groups`, its critic learned there.

    Not `is_fresh`: the actions of the episodes stand in the place of the policy's own.
    """
    update = archer.method(archer.Config()).updates[-1].update
    episodes = flatten_scored(groups)
    critic = TableCritic.learned(policy, episodes, 1.0)
    turns, states, actions = places(episodes, policy)
    if is_fresh:
        sums = policy.probabilities().numpy().cumsum(1)[states]
        drawn = np.random.default_rng(derive_seed(seed, "fresh")).random(len(states)) * sums[:, -1]
        actions = (drawn[:, None] >= sums).sum(1)
    said = critic.after(turns, states)[np.arange(len(states)), actions]
    weights = [[[1.0]] * len(t.turns) for t in episodes]
    advantages = way_advantages(weights, by_way(weights, said.tolist()), critic.before(episodes))
    shared = episodes[0]
    ways = [
        replace(shared, turns=(said_at(policy, state, action),))
        for state, action in zip(states.tolist(), actions.tolist(), strict=True)
    ]
    return direction(policy, last_turn_samples(ways, advantages), update)


def said_at(policy: TablePolicy, state: int, action: int) -> Turn:
    """Return the turn that takes `action` in `state`."""
    world = policy.world
    completion = Completion(token_ids=(world.num_states + action,), logprobs=(0.0,), stop="stop")
    return Turn(
        observation=(), prompt_ids=(state,), completion=completion, action=Action(), starts_segment=True
    )


def direction(policy: TablePolicy, samples: Sequence[Sample], update: Update) -> Tensor:
    """Return minus the gradient of the loss of `update` on `samples`."""
    batch = packed(samples, update)
    (found,) = torch.autograd.grad(update.loss(policy(batch), batch).loss, policy.theta)
    return -found


def reinforced(policy: TablePolicy, newest: Sequence[Group], buffer: Sequence[Group]) -> Tensor:
    """Return REINFORCE's direction on the `newest` episodes, less a V fitted to the returns of the `buffer`."""
    fitted = flatten_scored(buffer)
    turns, states, _ = places(fitted, policy)
    shape = (policy.world.horizon, policy.world.num_states)
    sums, counts = np.zeros(shape), np.zeros(shape)
    np.add.at(sums, (turns, states), [g for t in fitted for g in returns_to_go(turn_rewards(t), 1.0)])
    np.add.at(counts, (turns, states), 1.0)
    v = sums / np.maximum(counts, 1)
    episodes = flatten_scored(newest)
    turns, states, actions = places(episodes, policy)
    returns = np.array([g for t in episodes for g in returns_to_go(turn_rewards(t), 1.0)])
    ways = [
        replace(episodes[0], turns=(said_at(policy, state, action),))
        for state, action in zip(states.tolist(), actions.tolist(), strict=True)
    ]
    update = archer.method(archer.Config()).updates[-1].update
    return direction(policy, last_turn_samples(ways, (returns - v[turns, states]).tolist()), update)
