"""The tabular lab: its gradients are the exact ones in the mean, and its runs are those of the product's stages."""

import numpy as np
import pytest
import torch

from quintain.data.pack import pack
from quintain.data.samples import samples_from
from quintain.errors import UsageError
from quintain.losses.policy import clip_ratio, reinforce
from quintain.methods.rl import gigpo, grpo, loop, policy_gradient, ppo, reinforce_plus_plus
from quintain.types import Stop, flatten_scored
from quintain_evidence.labs.exact import exact_gradient, exact_values
from quintain_evidence.labs.tables import a16, arms, fitted_table, new_table, s3, uniform_start
from quintain_evidence.labs.tabular import (
    TablePolicy,
    actions_of,
    assign,
    cosine,
    cosine_with_exact,
    loss_gradient,
    per_turn,
    states_of,
    train_table,
    true_advantages,
)

PLAIN = policy_gradient.method(
    policy_gradient.Config(credit="return", loss="reinforce", aggregation="constant", constant=1.0)
)
GRPO = grpo.method(grpo.Config(std="none"))


def test_episodes_are_those_of_the_world() -> None:
    world = s3(0)
    groups = new_table(world, 0).sample(size=3, seed=1, tasks=[2, 5, 2])
    assert [group.task for group in groups] == [world.tasks[2], world.tasks[5], world.tasks[2]]
    assert (
        len({t.group for t in flatten_scored(groups)}) == 3
        and len({t.seed for t in flatten_scored(groups)}) == 9
    )
    for t in flatten_scored(groups):
        states, actions = states_of(t), actions_of(t, world)
        assert states[0] == world.start[world.tasks.index(t.task)]
        for k, (state, action) in enumerate(zip(states, actions, strict=True)):
            assert t.turns[k].reward == world.reward[state, action]
            after = states[k + 1] if k + 1 < len(states) else None
            assert after is None or world.next[state, action] == after
        assert len(t.turns) == world.horizon or t.is_success
        assert t.stop == Stop.TERMINATED, "a horizon of the task ends it"


def test_the_table_says_of_a_batch_what_it_said_at_sampling() -> None:
    policy = new_table(s3(0), 0)
    batch = pack(samples_from(assign(policy, PLAIN, policy.sample(size=2, seed=0))))
    outputs = policy(batch)
    assert torch.equal(outputs.logprobs.detach(), batch.logprobs)
    trained = batch.turn_id >= 0
    logs = policy.logs().detach()[batch.token_ids[:-1][trained[1:]]]
    assert torch.allclose(outputs.entropy[trained].detach(), -(logs.exp() * logs).sum(-1))


@pytest.mark.slow
def test_the_mean_of_many_gradients_is_the_exact_one() -> None:
    world = s3(4, num_tasks=4, distances=(1, 2), horizon=4)
    policy = new_table(world, 3)
    _, exact = exact_gradient(world, policy.theta)
    groups = policy.sample(size=1500, seed=0)
    found = loss_gradient(policy, assign(policy, PLAIN, groups), PLAIN.update, loss=reinforce())
    # episodes without any return are left out of the mean, as in training
    share = sum(t.is_success for t in flatten_scored(groups)) / len(flatten_scored(groups))
    assert cosine(found, exact) > 0.99
    assert float((found * share - exact).norm() / exact.norm()) < 0.1


def test_equal_seeds_have_common_random_numbers() -> None:
    world = s3(0)
    one, other = new_table(world, 0), new_table(world, 0)
    with torch.no_grad():
        other.theta[world.start[3]] += 5.0 * torch.randn(4, dtype=torch.float64)
    first, second = (flatten_scored(p.sample(size=4, seed=9)) for p in (one, other))
    same = [a.turns[0].action == b.turns[0].action for a, b in zip(first, second, strict=True)]
    assert all(same[:12] + same[16:]) and [t.action for t in first[0].turns] == [
        t.action for t in second[0].turns
    ]


def test_a_method_learns_and_its_start_stays() -> None:
    start = fitted_table(s3(0), 0)
    before = start.theta.detach().clone()
    assert 0.5 < start.objective() < 0.6
    run = train_table(start, GRPO, num_batches=3, size=4, seed=0, rate=20.0)
    assert run.objective > run.start + 0.01 and len(run.by_batch) == 3
    assert torch.equal(before, start.theta.detach())
    assert run.objective == run.policy.objective()
    again = train_table(start, GRPO, num_batches=3, size=4, seed=0, rate=20.0)
    assert again.by_batch == run.by_batch


def test_one_epoch_of_clipping_is_no_clipping_bit_by_bit() -> None:
    start = a16(0)
    method = loop.method(loop.Config())
    arms_of = [
        train_table(
            start, method, num_batches=5, size=8, tasks_per_batch=8, seed=0, rate=1.0, loss=loss, num_epochs=1
        )
        for loss in (method.update.loss, reinforce())
    ]
    assert torch.equal(arms_of[0].policy.theta, arms_of[1].policy.theta)
    several = train_table(
        start, method, num_batches=5, size=8, tasks_per_batch=8, seed=0, rate=4.0, num_epochs=4
    )
    assert several.mean("policy/clip_fraction") > 0.02
    assert len(several.steps) == 20 and several.steps[-1].batch == 5


def test_gradients_are_rescaled_to_the_norm_of_another_loss() -> None:
    start = a16(1)
    method = loop.method(loop.Config())
    given = {"num_batches": 1, "size": 8, "tasks_per_batch": 8, "seed": 0, "rate": 4.0, "num_epochs": 2}
    free = clip_ratio(1.0, 1e9)
    plain = train_table(start, method, loss=free, **given)  # type: ignore[arg-type]
    scaled = train_table(start, method, loss=free, norm_like=method.update.loss, **given)  # type: ignore[arg-type]
    clip = train_table(start, method, **given)  # type: ignore[arg-type]
    assert scaled.steps[0].norm == pytest.approx(plain.steps[0].norm), "nothing is clipped at first"
    assert scaled.steps[1].norm == pytest.approx(clip.steps[1].norm, rel=1e-5) != plain.steps[1].norm


def test_fitted_tables_reach_what_was_asked_of_each_task() -> None:
    world = s3(2, num_tasks=4)
    policy = fitted_table(world, 0, until=[0.3, 0.6, 0.3, 0.6])
    by_task = exact_values(world, policy.probabilities()).by_task
    assert by_task.tolist() == pytest.approx([0.3, 0.6, 0.3, 0.6], abs=0.002)
    assert fitted_table(world, 1, until=0.2).objective() == pytest.approx(0.2, abs=0.002)
    with pytest.raises(UsageError, match="at best"):
        fitted_table(world, 0, until=1.5)
    with pytest.raises(UsageError, match="got 2; give one for each"):
        fitted_table(world, 0, until=[0.5, 0.5])


def test_a16_is_as_it_is_described() -> None:
    policy = a16(3)
    probabilities = policy.probabilities()[0]
    assert float(probabilities[0]) == pytest.approx(0.02)
    assert float(probabilities[1]) == pytest.approx(0.2)
    assert policy.objective() == pytest.approx(0.02 + 0.5 * 0.2)
    assert policy.objective("success") == pytest.approx(0.02)


def test_distances_of_tasks_are_those_asked_for() -> None:
    world = s3(5, num_tasks=6, distances=(1, 2, 3))
    assert world.distance[world.start].tolist() == [1, 2, 3, 1, 2, 3]
    with pytest.raises(UsageError, match="moves from 1 to the horizon"):
        s3(5, distances=(9,))


def test_true_advantages_are_those_of_the_turns() -> None:
    world = arms([1.0, 0.5, 0.0])
    policy = uniform_start(world)
    groups = policy.sample(size=20, seed=0)
    wanted = {0: 0.5, 1: 0.0, 2: -0.5}
    found = true_advantages(groups, policy)
    assert found.tolist() == pytest.approx([wanted[actions_of(t, world)[0]] for t in flatten_scored(groups)])
    credit = assign(policy, GRPO, groups)
    mean = np.mean(groups[0].returns)
    assert per_turn(credit).tolist() == pytest.approx([x - mean for x in groups[0].returns], abs=1e-6)


def test_a_critic_and_a_reference_are_tables_too() -> None:
    world = s3(0)
    critic = ppo.method(ppo.Config())
    start = TablePolicy(world, new_table(world, 0).theta, torch.zeros(world.num_states))
    run = train_table(start, critic, num_batches=3, size=4, seed=0, rate=10.0)
    assert run.policy.values is not None and run.policy.values.abs().sum() > 0
    with pytest.raises(UsageError, match="a table without them"):
        train_table(new_table(world, 0), critic, num_batches=1, size=4, seed=0, rate=1.0)
    held = reinforce_plus_plus.method(reinforce_plus_plus.Config(kl_coef=0.1))
    with pytest.raises(UsageError, match="log-probs of a reference: got none"):
        assign(new_table(world, 0), held, new_table(world, 0).sample(size=4, seed=0))
    assert train_table(new_table(world, 0), held, num_batches=2, size=4, seed=0, rate=10.0).steps


def test_an_estimate_is_compared_with_the_exact_gradient() -> None:
    start = fitted_table(s3(0), 0)
    groups = start.sample(size=64, seed=0)
    right = cosine_with_exact(start, GRPO, groups)
    none = cosine_with_exact(start, GRPO, groups, change=lambda c: type(c)(
        trajectories=c.trajectories, advantages=tuple(tuple(0 * a for a in x) for x in c.advantages)
    ))  # fmt: skip
    assert right > 0.8 and none == 0.0
    gigpo_credit = cosine_with_exact(start, gigpo.method(gigpo.Config(std="none")), groups)
    assert gigpo_credit > 0.8
    with pytest.raises(UsageError, match="give 1 or more of each"):
        start.sample(size=0, seed=0)
