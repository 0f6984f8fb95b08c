"""ReST: thresholds, what each improve step begins with, and its limits."""

from dataclasses import replace
from math import inf

import torch

from quintain.methods.selftraining.rest import Config, method
from quintain.types import derive_seed, flatten_scored
from quintain_evidence.labs.rounds import cloned, train_rounds
from quintain_evidence.labs.tables import new_table, s3


def test_one_step_without_a_threshold_is_imitation_of_all_own_samples_bit_for_bit() -> None:
    start = new_table(s3(0, num_tasks=4), 0)
    made = method(Config(tasks=4, group_size=2, thresholds=(-inf,)))
    update = replace(made.update, num_epochs=3, num_minibatches=2)
    run = train_rounds(start, replace(made, update=update), num_rounds=1, seed=3, rate=0.1)
    own = run.collector.tasks(1, 4)
    places = [start.world.tasks.index(task) for task in own]
    groups = start.sample(size=2, seed=run.collector.seed("step", 1, 1), tasks=places)
    plain = cloned(start, flatten_scored(groups), update, rate=0.1, seed=derive_seed("round", 3, 1, 0))
    assert torch.equal(run.policy.theta, plain.theta) and not torch.equal(plain.theta, start.theta)


def test_a_threshold_that_keeps_nothing_leaves_the_policy_as_it_was() -> None:
    start = new_table(s3(0, num_tasks=4), 0)
    made = method(Config(tasks=4, group_size=2, thresholds=(5.0, 6.0)))
    run = train_rounds(start, made, num_rounds=2, seed=3, rate=0.1)
    assert torch.equal(run.policy.theta, start.theta)
    assert [[len(one.examples) for one in parts] for parts in run.chosen] == [[0, 0], [0, 0]]
    assert run.collector.sampled == [8, 8], "one collection for all improve steps of a round"
