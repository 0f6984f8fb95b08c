"""AgentEvol: thresholds by environment, one success of a task, the base in every iteration, from the base model."""

from dataclasses import replace

import numpy as np
import torch

from quintain.data.pipeline import PipelineResult, example_samples
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Material
from quintain.methods.selftraining.agent_evol import Config, evolving, method, read_thresholds
from quintain.types import Example, Score, flatten_scored
from quintain_evidence.labs.rounds import adam, imitate, train_rounds
from quintain_evidence.labs.tables import fitted_table, new_table, s3
from quintain_evidence.labs.tabular import packed


def test_the_base_is_in_every_iteration_and_each_begins_with_the_base_model() -> None:
    world = s3(0, num_tasks=6)
    shown = [
        t for t in flatten_scored(fitted_table(world, 0, until=0.9).sample(size=1, seed=1)) if t.is_success
    ]
    made = method(Config(tasks=6, group_size=3))
    made = replace(made, update=replace(made.update, num_epochs=4, num_minibatches=1))
    start = new_table(world, 0)
    run = train_rounds(
        start, made, num_rounds=3, seed=0, rate=0.1, shown=shown, explorer=fitted_table(world, 1)
    )
    material = Material(made, shown)
    again = start.copy()
    groups = fitted_table(world, 1).sample(size=3, seed=run.collector.seed("step", 1, 1))
    ((chosen, data),) = material.take(groups)
    assert isinstance(chosen, PipelineResult)
    assert [e.trajectory for e in data if isinstance(e, Example)][: len(shown)] == shown
    assert len(data) == len(shown) + len(chosen.examples)
    imitate(again, adam(again.parameters, 0.1), data, made.update, 0)
    assert not torch.equal(again.theta, start.theta)
    for parts in run.chosen:
        ids = [example.trajectory.task.id for example in parts[0].examples]
        assert len(ids) == len(set(ids)) and all(e.trajectory.is_success for e in parts[0].examples)
    moved = (run.policy.theta - start.theta).detach().abs()
    assert float(moved.max()) < 4 * 0.1 * 1.2, "four steps of Adam from the base model, not twelve"


def test_weights_by_reward_have_the_gradient_of_the_formula_and_for_0_and_1_that_of_the_filter() -> None:
    policy = new_table(s3(0, num_tasks=4), 0)
    groups = policy.sample(size=1, seed=0)

    def gradient(values: list[float], weights: str, least: str) -> torch.Tensor:
        paid = [
            replace(g, trajectories=(replace(g.trajectories[0], outcome=Score(value=v, is_success=True)),))
            for g, v in zip(groups, values, strict=True)
        ]
        made = evolving(read_thresholds(least), weights)(paid)
        batch = packed(example_samples(made.examples), Update(loss=imitation()))
        (found,) = torch.autograd.grad(imitation()(policy(batch), batch).loss, policy.theta)
        return found

    binary = [1.0, 0.0, 1.0, 0.0]
    assert torch.equal(gradient(binary, "reward", "0.5"), gradient(binary, "filtered", "0.5"))
    values = [1.0, 0.25, 2.0, 0.5]
    wanted, tokens = torch.zeros_like(policy.theta), 0
    for group, value in zip(groups, values, strict=True):
        for turn in group.trajectories[0].turns:
            row, column = turn.prompt_ids[0], turn.completion.token_ids[0] - policy.world.num_states
            log = torch.log_softmax(policy.theta, -1)[row, column]
            (slope,) = torch.autograd.grad(-value * log, policy.theta)
            wanted, tokens = wanted + slope, tokens + 1
    ours = gradient(values, "reward", "-1")
    cosine = float((ours * wanted).sum() / (ours.norm() * wanted.norm()))
    assert np.isclose(cosine, 1.0, atol=1e-6)
