"""Tables that are trained in rounds: the method's own collection, data and loss."""

from dataclasses import replace

import torch

from quintain.data.pipeline import Pipeline
from quintain.data.stages import keep_solved
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import OptimizerSteps, Rounds
from quintain.methods.method import sample_groups
from quintain.types import flatten_scored
from quintain_evidence.labs.rounds import TableCollector, cloned, train_rounds
from quintain_evidence.labs.tables import fitted_table, new_table, s3

PLAIN = Rounds(
    collect=sample_groups(6, 4),
    build=Pipeline(keep_solved()),
    update=Update(loss=imitation(), is_on_policy=False, num_epochs=5),
)


def test_rounds_of_successes_teach_and_are_repeated_exactly() -> None:
    start = fitted_table(s3(0, num_tasks=6), 0)
    run = train_rounds(start, PLAIN, num_rounds=3, seed=0, rate=0.1)
    again = train_rounds(start, PLAIN, num_rounds=3, seed=0, rate=0.1)
    assert torch.equal(run.policy.theta, again.policy.theta) and len(run.policies) == 3
    objectives = [policy.objective("success") for policy in (start, *run.policies)]
    assert objectives == sorted(objectives) and objectives[-1] > objectives[0] + 0.1
    assert run.collector.sampled == [24, 24, 24]


def test_counted_steps_are_taken_and_starting_over_forgets() -> None:
    start = fitted_table(s3(0, num_tasks=6), 0)
    counted = replace(PLAIN, steps=OptimizerSteps(count=lambda _: 1, batch_size=4), starts_over=True)
    run = train_rounds(start, counted, num_rounds=3, seed=0, rate=0.1)
    for policy in run.policies:
        assert float((policy.theta - start.theta).detach().abs().max()) <= 0.1 + 1e-9, "one step of Adam"


def test_the_collector_draws_tasks_of_its_pool_and_says_what_it_is_given() -> None:
    world = s3(0, num_tasks=6)
    policy = new_table(world, 0)
    shown = list(flatten_scored(policy.sample(size=1, seed=0)))
    collector = TableCollector(
        policy, world.tasks, 3, demonstrated=shown, teach=lambda tasks: shown[: len(tasks)]
    )
    assert sorted(task.id for task in collector.tasks(1, 6)) == sorted(task.id for task in world.tasks)
    assert collector.tasks(1, 3) != collector.tasks(2, 3) and len(collector.tasks(1, 9)) == 9
    assert collector.demonstrations() == shown and collector.expert_episodes(world.tasks[:2]) == shown[:2]
    wrapped = TableCollector(
        policy, world.tasks, 3, play_wrapped=lambda p, tasks, size, seed: p.sample(size=size, seed=0)
    )
    assert len(wrapped.sample(1, world.tasks[:1], size=2, agent=str)) == 6


def test_a_table_is_cloned_from_what_is_shown() -> None:
    world = s3(0, num_tasks=6)
    shown = flatten_scored(fitted_table(world, 0, until=0.95).sample(size=4, seed=0))
    start = new_table(world, 1)
    assert cloned(start, shown, PLAIN.update, rate=0.5).objective() > start.objective() + 0.2
    assert torch.equal(cloned(start, [], PLAIN.update, rate=0.5).theta, start.theta)
