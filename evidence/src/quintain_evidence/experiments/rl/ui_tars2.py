"""UI-TARS-2: a critic that learned the policy's own returns first makes the first update of the policy a better one.

On S3-mid the critic, a table of zeros, learns as in the first steps of a run: several batches of a policy that stands
still, each gone through several times by the method's critic loss, on its targets with λ = 1. The number is the cosine
with ∇J of the gradient of the first update after that, on other episodes. The control's critic learned as long from the
same episodes whose outcomes were dealt to each other: numbers of the same size that say nothing of the state. In the
null world a task is one choice in one state, so a value tells no episode from another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from quintain.credit_lab.permute import permute_outcomes
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.rl import ui_tars2
from quintain.types import Group, derive_seed
from quintain_evidence.labs.exact import exact_gradient
from quintain_evidence.labs.tables import arms, fitted_table, new_table, s3
from quintain_evidence.labs.tabular import (
    TablePolicy,
    assign,
    cosine_with_exact,
    kept_samples,
    packed,
)

ARMS = [1.0, *[0.0] * 3]


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one table, after one pre-training of each critic."""
    size = int(options.get("size", 4))
    config = ui_tars2.Config(
        adaptive=float(options.get("adaptive", 0.25)), critic_steps=int(options.get("critic_steps", 10))
    )
    method = ui_tars2.method(config)
    table = fitted_table(s3(seed), seed, until=float(options.get("until", 0.55)))
    alone = new_table(arms(ARMS), seed)
    rows: list[dict[str, float]] = [{} for _ in range(int(options["seeds"]))]
    for start, tasks, prefix in ((table, None, ""), (alone, [0] * len(table.world.tasks), "null_")):
        new = TablePolicy(start.world, start.theta, torch.zeros(start.world.num_states))
        past = [
            new.sample(
                size=int(options.get("past", 16)), seed=derive_seed("ui_tars2", "past", seed, k), tasks=tasks
            )
            for k in range(config.critic_steps)
        ]
        dealt = [permute_outcomes(groups, seed=derive_seed("dealt", seed, k), across=True)[0]
                 for k, groups in enumerate(past)]  # fmt: skip
        rate = float(options.get("rate", 0.03))
        right, wrong = pre_trained(new, method, past, rate), pre_trained(new, method, dealt, rate)
        _, exact = exact_gradient(start.world, start.theta)
        for batch, row in enumerate(rows):
            groups = new.sample(size=size, seed=derive_seed("ui_tars2", seed, batch), tasks=tasks)
            for name, policy in (("method", right), ("control", wrong)):
                row[prefix + name] = cosine_with_exact(policy, method, groups, exact=exact)
            if not prefix:
                row["extra.new"] = cosine_with_exact(new, method, groups, exact=exact)
                row["extra.gain"] = row["method"] - row["extra.new"]
                for name, policy in (("explained", right), ("dealt", wrong), ("unlearned", new)):
                    row[f"extra.{name}"] = assign(policy, method, groups).metrics["value/explained_variance"]
                row["extra.start"] = new.objective()
    return rows


def pre_trained(
    start: TablePolicy, method: OnPolicy, batches: Sequence[Sequence[Group]], rate: float
) -> TablePolicy:
    """Return `start` whose critic learned from `batches`, one after the other, while the policy stood still."""
    policy, update = start.copy(), method.update
    assert policy.values is not None and update.critic_loss is not None, "the method has a critic"
    optimizer = torch.optim.Adam([policy.values], lr=rate)
    for groups in batches:
        batch = packed(kept_samples(assign(policy, method, groups), update), update)
        for _ in range(update.critic_epochs):
            optimizer.zero_grad()
            update.critic_loss(policy(batch), batch).loss.backward()
            optimizer.step()
    return policy
