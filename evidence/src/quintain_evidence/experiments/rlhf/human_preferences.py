"""Deep RL from Human Preferences: do sums over segments, compared with errors, say which single turn was worth it?

A table plays random worlds of a few states in which every action pays something, for twelve turns that always come to
their end. Segments of four turns are compared by their true sums, and a tenth of the answers is wrong. Three reward
models, small transformers that read a state and an action, are fitted as they ship, and turns are paid what they say.
The number is the cosine of the gradient that PPO takes from episodes so paid with the exact gradient of the true
return. The control is fitted to the same answers, permuted over the questions. In the null world all turns pay the
same, so that answers are a coin's.

Beside it: the rank correlation of what is paid with the truth on episodes that nobody compared, and the cosine with
true rewards. With the option ``explore`` also, claiming nothing: whole episodes compared, as often; and of fifty
comparisons those on which the members differ most against random ones.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from quintain.credit_lab.permute import permute
from quintain.data.comparisons import Labeller
from quintain.eval.reward_model import by_dispute
from quintain.learning.policies import build_policies
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.rlhf import human_preferences
from quintain.methods.rlhf.comparing import LearnedReward, Members, Segment, draw_segments
from quintain.models.save import save
from quintain.models.tiny import build_tiny
from quintain.runs.context import make_engine
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Comparison, Group, Task, Trajectory, derive_seed, flatten_scored
from quintain_evidence.labs.exact import World, exact_gradient
from quintain_evidence.labs.tabular import TablePolicy, cosine_with_exact
from quintain_evidence.layers.inference import rank_correlation

TASKS, STATES, ACTIONS, HORIZON, SEGMENT = 4, 5, 4, 12, 4
FEW = 50
"""Comparisons of the exploratory arms."""


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A table that plays, and reward models that are fitted to what is said of it."""

    start: TablePolicy
    exact: torch.Tensor
    method: OnPolicy
    members: Members

    def fit(self, comparisons: Sequence[Comparison], seed: int) -> None:
        """Fit the reward models anew."""
        self.members.fit(comparisons, step=1, seed=seed)

    def angle(self, groups: Sequence[Group]) -> float:
        """Return the cosine of the gradient from `groups`, paid as they are, with that of the true return."""
        return cosine_with_exact(self.start, self.method, groups, exact=self.exact)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one world."""
    labels, size = int(options.get("labels", 200)), int(options.get("size", 8))
    with tempfile.TemporaryDirectory() as folder:
        lab = opened(options, seed, Path(folder))
        batches = [
            lab.start.sample(size=size, seed=derive_seed("batch", seed, k))
            for k in range(int(options["seeds"]))
        ]
        seen = [(1, t) for t in flatten_scored(lab.start.sample(size=64, seed=derive_seed("compared", seed)))]
        rng = np.random.default_rng(seed)
        pairs = draw_segments(seen, size=SEGMENT, count=labels, rng=rng)
        labeller = Labeller(error_rate=2 * float(options.get("wrong", 0.1)))
        told = labelled(pairs, labeller, seed)
        coins = labelled(pairs, Labeller(error_rate=1.0), seed)
        arms = {
            "method": told,
            "control": dealt(told, seed),
            "null_method": coins,
            "null_control": dealt(coins, seed),
        }
        if explores := bool(options.get("explore", False)):
            whole = draw_segments(seen, size=HORIZON, count=labels, rng=rng)
            arms |= {"extra.episodes": labelled(whole, labeller, seed), "extra.random": told[:FEW]}
        found: list[dict[str, float]] = [{} for _ in batches]

        def note(name: str, paid: Sequence[Sequence[Group]]) -> None:
            for row, groups in zip(found, paid, strict=True):
                row[name] = lab.angle(groups)

        note("extra.true", batches)
        for name, comparisons in arms.items():
            lab.fit(comparisons, seed)
            paid = [lab.members.pay(groups) for groups in batches]
            note(name, paid)
            if name == "method":
                for row, before, after in zip(found, batches, paid, strict=True):
                    row["extra.rank"] = rank_correlation(rewards(before), rewards(after))
        if explores:
            lab.fit(told[: FEW // 2], seed)
            asked = draw_segments(seen, size=SEGMENT, count=8 * FEW, rng=rng)
            best = by_dispute(lab.members.differences(asked))[: FEW - FEW // 2]
            lab.fit([*told[: FEW // 2], *labelled([asked[k] for k in best], labeller, seed)], seed)
            note("extra.active", [lab.members.pay(groups) for groups in batches])
    return found


def opened(options: Mapping[str, Any], seed: int, folder: Path) -> Lab:
    """Return a drawn world, a policy of it, and reward models that begin from a small transformer in `folder`."""
    rng = np.random.default_rng(seed)
    num = TASKS * STATES
    first = np.repeat(np.arange(TASKS) * STATES, STATES)
    following = first[:, None] + rng.integers(0, STATES, (num, ACTIONS))
    world = World(
        tasks=tuple(Task(id=f"drawn/train/{k}", environment="drawn", seed=k) for k in range(TASKS)),
        actions=tuple(f"action {k}" for k in range(ACTIONS)),
        horizon=HORIZON,
        start=np.arange(TASKS) * STATES,
        next=following,
        reward=rng.normal(size=(num, ACTIONS)),
        is_legal=np.ones((num, ACTIONS), np.bool_),
        is_success=np.zeros((num, ACTIONS), np.bool_),
        task_of=np.repeat(np.arange(TASKS), STATES),
        keys=tuple(f"state {k}" for k in range(num)),
        expert=np.zeros(num, np.int64),
        distance=np.full(num, np.nan),
    )
    start = TablePolicy(world, torch.as_tensor(0.5 * rng.normal(size=(num, ACTIONS))), torch.zeros(num))
    tokenizer = train_tokenizer(["a state and an action"])
    save(
        build_tiny(tokenizer, size="micro", seed=derive_seed("member", seed) % (1 << 31)),
        tokenizer,
        folder / "start",
    )
    config = human_preferences.Config(
        environment="bandit",
        device="cpu",
        learning_rate=1e-3,
        lr_schedule="constant",
        reward_lr=float(options.get("rate", 3e-3)),
        reward_epochs=int(options.get("epochs", 8)),
    )
    method = human_preferences.method(config)
    assert isinstance(method.companion, LearnedReward), "that is what it is about"
    policies = build_policies(
        config, folder / "start", method.needs.others, has_critic=False, make_engine=make_engine
    )
    return Lab(
        start=start,
        exact=exact_gradient(world, start.theta)[1],
        method=replace(method, companion=None),
        members=Members(policies, method.companion, config),
    )


def labelled(pairs: Sequence[tuple[Segment, Segment]], labeller: Labeller, seed: int) -> list[Comparison]:
    """Return what `labeller` says of `pairs` by what their turns paid."""
    return [
        Comparison(
            answers=(one.turns, other.turns), ranks=labeller.rank((one.reward, other.reward), seed, place)
        )
        for place, (one, other) in enumerate(pairs)
    ]


def dealt(comparisons: Sequence[Comparison], seed: int) -> list[Comparison]:
    """Return `comparisons` with the answers of others."""
    ranks = permute([each.ranks for each in comparisons], seed=derive_seed("dealt", seed)).values
    return [replace(each, ranks=own) for each, own in zip(comparisons, ranks, strict=True)]


def rewards(groups: Sequence[Group]) -> list[float]:
    """Return what every turn of `groups` pays, in order."""
    found: list[Trajectory] = list(flatten_scored(groups))
    return [turn.reward for trajectory in found for turn in trajectory.turns]
