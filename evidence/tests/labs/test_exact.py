"""Exact values against hand-made chains, enumeration of all episodes, sampling and finite differences."""

import itertools

import numpy as np
import pytest
import torch

from quintain.environments.catalog import find
from quintain.errors import UsageError
from quintain.types import Task
from quintain_evidence.labs.exact import (
    END,
    World,
    enumerate_world,
    exact_gradient,
    exact_values,
    log_policy,
    visits,
)
from quintain_evidence.labs.tables import arms, new_table, s3


def chain() -> World:
    """Two states: `go` leads from 0 to 1 and from 1 to the end, which pays 1; `stay` pays -.1."""
    return World(
        tasks=(Task(id="chain/train/0", environment="chain", seed=0),),
        actions=("stay", "go"),
        horizon=3,
        start=np.array([0]),
        next=np.array([[0, 1], [1, END]]),
        reward=np.array([[-0.1, 0.0], [-0.1, 1.0]]),
        is_legal=np.ones((2, 2), np.bool_),
        is_success=np.array([[False, False], [False, True]]),
        task_of=np.zeros(2, np.int64),
        keys=("0", "1"),
        expert=np.array([1, 1]),
        distance=np.array([2.0, 1.0]),
    )


def test_values_of_a_chain_by_hand() -> None:
    values = exact_values(chain(), torch.full((2, 2), 0.5, dtype=torch.float64))
    v1 = 0.5 * -0.1 + 0.5 * 1
    assert values.v[1].tolist() == pytest.approx([0.5 * -0.1, v1])
    v2 = (0.5 * (-0.1 - 0.05) + 0.5 * v1, 0.5 * (-0.1 + v1) + 0.5)
    assert values.v[2].tolist() == pytest.approx(v2)
    assert float(values.objective) == pytest.approx(0.5 * (-0.1 + v2[0]) + 0.5 * v2[1])
    assert (0.5 * values.advantage.sum(-1)).abs().max() < 1e-12, "advantages of a policy have mean 0"


def test_success_and_discount_are_told_apart_from_return() -> None:
    policy = torch.full((2, 2), 0.5, dtype=torch.float64)
    success = exact_values(chain(), policy, outcome="success")
    ways = sum(
        0.5 ** (len(w)) for n in (2, 3) for w in itertools.product("sg", repeat=n)
        if w.count("g") == 2 and w[-1] == "g"
    )  # fmt: skip
    assert float(success.objective) == pytest.approx(ways)
    always = torch.tensor([[0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    assert float(exact_values(chain(), always, discount=0.9).objective) == pytest.approx(0.9)


def test_the_gradient_is_that_of_finite_differences() -> None:
    world = s3(0, num_tasks=3, horizon=5)
    theta = new_table(world, 2).theta.detach()
    _, gradient = exact_gradient(world, theta)
    direction = torch.randn(theta.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ends = [
        float(exact_values(world, log_policy(world, theta + step * direction).exp()).objective)
        for step in (1e-5, -1e-5)
    ]
    assert float((gradient * direction).sum()) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6)


def test_values_are_the_mean_of_many_episodes() -> None:
    world = s3(0, num_tasks=2, distances=(1, 2))
    policy = new_table(world, 1)
    groups = policy.sample(size=1000, seed=0)
    exact = exact_values(world, policy.probabilities()).by_task
    for group, value in zip(groups, exact.tolist(), strict=True):
        error = np.std(group.returns) / np.sqrt(1000)
        assert abs(np.mean(group.returns) - value) < 4 * error


def test_visits_add_up_to_episodes_that_are_still_going() -> None:
    found = visits(chain(), torch.full((2, 2), 0.5, dtype=torch.float64))
    assert found[3].tolist() == [1.0, 0.0] and found[2].tolist() == [0.5, 0.5]
    assert found[1].tolist() == pytest.approx([0.25, 0.5]), "a quarter has ended"


def test_sokoban_is_enumerated_with_its_dead_ends() -> None:
    world = s3(0)
    assert len(world.tasks) == 16 and world.actions == ("north", "south", "east", "west")
    dead = np.isinf(world.distance)
    assert dead.any() and not dead[world.start].any()
    best = exact_values(world, torch.ones(world.is_legal.shape, dtype=torch.float64)).q.amax(-1)
    assert (best[:, torch.as_tensor(dead)] == 0).all(), "nothing is worth anything once a box is in a corner"
    expert = torch.zeros(world.is_legal.shape, dtype=torch.float64)
    expert[np.arange(world.num_states), np.clip(world.expert, 0, None)] = 1.0
    assert float(exact_values(world, expert).objective) == 1.0


def test_the_distance_of_every_state_is_the_horizon_at_which_it_is_worth_something() -> None:
    world = s3(3, num_tasks=4)
    expert = torch.zeros(world.is_legal.shape, dtype=torch.float64)
    expert[np.arange(world.num_states), np.clip(world.expert, 0, None)] = 1.0
    values = exact_values(world, expert).v
    for left in range(world.horizon + 1):
        assert (values[left].numpy() > 0).tolist() == (world.distance <= left).tolist()


def test_legal_actions_of_keydoor_and_bandit_are_walked() -> None:
    keydoor = find("keydoor?rooms=1&length=2&height=2&distractors=0")
    tasks = [keydoor().task("train", i) for i in range(2)]
    world = enumerate_world(keydoor, tasks, horizon=4)
    assert not world.is_legal.all() and world.is_legal.any(1).all()
    policy = log_policy(world, torch.zeros(world.is_legal.shape, dtype=torch.float64)).exp()
    assert float(exact_values(world, policy).v[-1].max()) > 0
    bandit = find("bandit?arms=2&pulls=3")
    found = enumerate_world(bandit, [bandit().task("train", 0)], horizon=3)
    assert found.num_states == 6, "pairs of pulls with fewer than three in all"


def test_what_cannot_be_enumerated_is_refused() -> None:
    sokoban = find("sokoban?size=3&walls=0")
    tasks = [sokoban().task("train", 0)]
    with pytest.raises(UsageError, match="more than 5 states"):
        enumerate_world(sokoban, tasks, horizon=3, max_states=5)
    with pytest.raises(UsageError, match="without"):
        enumerate_world(find("sums"), [find("sums")().task("train", 0)], horizon=3)
    with pytest.raises(UsageError, match=r"got shape \(3, 2\)"):
        exact_values(chain(), torch.ones(3, 2))


def test_arms_that_pay_by_chance_have_their_mean_as_value() -> None:
    world = arms([0, 0], chance=[0.2, 0.6])
    policy = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    assert float(exact_values(world, policy).objective) == pytest.approx(0.4)
    assert float(exact_values(world, policy, outcome="success").objective) == pytest.approx(0.4)
