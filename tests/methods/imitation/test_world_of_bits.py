"""World of Bits: what a late success is worth, what the advantage is, and that the critic is not trained through it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from quintain_evidence.experiments.imitation.world_of_bits import permuted
from quintain_evidence.formulas.rounds import Lived, recorded
from quintain_evidence.labs.tables import fitted_table, s3
from quintain_evidence.labs.tabular import TablePolicy, assign, kept_samples, packed

from quintain.credit.gae import Critic
from quintain.methods.imitation.world_of_bits import Config, above_value, decayed, method, worth
from quintain.methods.method import Estimates
from quintain.types import Group, Score, Stop, scored


@pytest.mark.parametrize(
    ("turns", "is_success", "value"),
    [(3, True, 0.7), (10, True, 0.0), (1, True, 0.9), (10, False, -1.0), (2, False, -1.0)],
)
def test_a_success_is_worth_what_time_is_left(turns: int, is_success: bool, value: float) -> None:
    assert worth(turns, 10, is_success=is_success) == pytest.approx(value)
    groups = recorded([Lived(task=0, value=0.3, is_success=is_success, num_turns=turns)])
    (paid,) = scored(decayed(10)(groups))
    assert isinstance(paid.outcome, Score) and paid.outcome.value == pytest.approx(value)
    assert [turn.reward for turn in paid.turns] == pytest.approx([0.0] * (turns - 1) + [value])
    assert paid.is_success is is_success


def test_the_advantage_is_what_comes_less_what_was_expected() -> None:
    world = s3(0, num_tasks=4)
    policy = TablePolicy(world, fitted_table(world, 0).theta, torch.full((world.num_states,), 0.25))
    made = method(Config(max_turns=8))
    credit = assign(policy, made, policy.sample(size=2, seed=0))
    for trajectory, arrays in zip(credit.trajectories, credit.advantages, strict=True):
        value = worth(len(trajectory.turns), 8, is_success=trajectory.is_success)
        assert [float(array[0]) for array in arrays] == pytest.approx([value - 0.25] * len(arrays))


@pytest.mark.parametrize("stop", [Stop.CUT, Stop.MAX_TURNS, Stop.TERMINATED])
def test_running_out_of_turns_costs_one_whoever_sets_the_limit(stop: Stop) -> None:
    """A critic that says .4 everywhere, beyond the last turn as well: the return of a failure is -1, not -1 + .4."""
    (failed,) = scored(decayed(10)(recorded([Lived(task=0, value=0.0, is_success=False, num_turns=3)])))
    group = Group(task=failed.task, trajectories=(replace(failed, stop=stop),))
    values = [[np.full(len(turn.completion.token_ids), 0.4, np.float32) for turn in failed.turns]]
    credit = above_value([group], Estimates(values=Critic(values=values, final=[0.4])))
    for arrays in credit.advantages:
        assert [float(array[0]) for array in arrays] == pytest.approx([-1.4] * 3)
    assert credit.returns is not None
    assert [float(array[0]) for array in credit.returns[0]] == pytest.approx([-1.0] * 3)


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
    rows = torch.as_tensor(sorted({turn.prompt_ids[0] for t in scored(groups) for turn in t.turns}))

    def entropy(of: TablePolicy) -> float:
        chances = of.probabilities()[rows]
        return float(-(chances * chances.log()).sum())

    assert entropy(step) > entropy(policy)


def test_time_is_counted_in_turns_and_limits_training_alone() -> None:
    seen: list[int | None] = []

    class Asked:
        def tasks(self, step: int, count: int) -> list[int]:
            return [0] * count

        def sample(self, step: int, tasks: list[int], *, max_turns: int | None, **_: object) -> list[object]:
            seen.append(max_turns)
            return []

    made = method(Config(max_turns=7, episodes=3))
    assert made.collect(Asked(), 1) == []  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    assert seen == [7]


def test_the_control_pays_the_same_for_other_successes() -> None:
    groups = recorded(
        [Lived(task=k, value=0.0, is_success=k != 3, num_turns=n) for k, n in enumerate((1, 5, 9, 2))]
    )
    arm = method(Config(max_turns=10))
    one, other = scored(arm.reward(groups)), scored(permuted(arm, 0).reward(groups))
    values = [[t.turns[-1].reward for t in side] for side in (one, other)]
    assert sorted(values[0]) == sorted(values[1]) and values[0][3] == values[1][3] == -1.0
    assert all(a != b for a, b in zip(values[0][:3], values[1][:3], strict=True))
