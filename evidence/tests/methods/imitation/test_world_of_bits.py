"""World of Bits: what a late success is worth, what the advantage is, and that the critic is not trained through it."""

import pytest
import torch

from quintain.methods.imitation.world_of_bits import Config, method, worth
from quintain.testing.episodes import Lived, record_cases
from quintain.types import flatten_scored
from quintain_evidence.experiments.imitation.world_of_bits import permuted
from quintain_evidence.labs.tables import fitted_table, s3
from quintain_evidence.labs.tabular import TablePolicy, assign, kept_samples, packed


def test_the_advantage_is_what_comes_less_what_was_expected() -> None:
    world = s3(0, num_tasks=4)
    policy = TablePolicy(world, fitted_table(world, 0).theta, torch.full((world.num_states,), 0.25))
    made = method(Config(max_turns=8))
    credit = assign(policy, made, policy.sample(size=2, seed=0))
    for trajectory, arrays in zip(credit.trajectories, credit.advantages, strict=True):
        value = worth(len(trajectory.turns), 8, is_success=trajectory.is_success)
        assert [float(array[0]) for array in arrays] == pytest.approx([value - 0.25] * len(arrays))


def test_the_policy_gradient_stops_at_the_critic_and_entropy_is_raised() -> None:
    world = s3(0, num_tasks=4)
    policy = TablePolicy(world, fitted_table(world, 0).theta, torch.full((world.num_states,), 0.25))
    groups = policy.sample(size=2, seed=0)
    assert policy.values is not None
    plain, entropic = Config(entropy_coef=0.0, vf_coef=0.0), Config(entropy_coef=0.5, vf_coef=0.0)
    slopes: list[torch.Tensor] = []
    for config in (plain, entropic):
        made = method(config)
        batch = packed(kept_samples(assign(policy, made, groups), made.update), made.update)
        report = made.update.loss(policy(batch), batch)
        found, values = torch.autograd.grad(report.loss, [policy.theta, policy.values], allow_unused=True)
        slopes.append(found)
        assert values is None or not values.any(), "without the critic's own loss nothing moves it"
        assert made.needs.critic
    step = TablePolicy(world, policy.theta - 0.5 * (slopes[1] - slopes[0]))
    rows = torch.as_tensor(sorted({turn.prompt_ids[0] for t in flatten_scored(groups) for turn in t.turns}))

    def entropy(of: TablePolicy) -> float:
        chances = of.probabilities()[rows]
        return float(-(chances * chances.log()).sum())

    assert entropy(step) > entropy(policy)


def test_the_control_pays_the_same_for_other_successes() -> None:
    groups = record_cases(
        [Lived(task=k, value=0.0, is_success=k != 3, num_turns=n) for k, n in enumerate((1, 5, 9, 2))]
    )
    arm = method(Config(max_turns=10))
    one, other = (
        flatten_scored(arm.reward(groups)),
        flatten_scored(permuted(arm, 0).reward(groups)),
    )
    values = [[t.turns[-1].reward for t in side] for side in (one, other)]
    assert sorted(values[0]) == sorted(values[1]) and values[0][3] == values[1][3] == -1.0
    assert all(a != b for a, b in zip(values[0][:3], values[1][:3], strict=True))
