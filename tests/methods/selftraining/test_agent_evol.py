"""AgentEvol: thresholds by environment, one success of a task, the base in every iteration, from the base model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from quintain_evidence.formulas.rounds import Lived, recorded
from quintain_evidence.labs.rounds import adam, imitate, train_rounds
from quintain_evidence.labs.tables import fitted_table, new_table, s3
from quintain_evidence.labs.tabular import packed
from tests.methods.test_training import rows, train

from quintain.config import build
from quintain.data.pipeline import Chosen, as_example, example_samples
from quintain.errors import ConfigError
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Material
from quintain.methods.selftraining.agent_evol import Config, evolving, method, read_thresholds
from quintain.training.update import Update
from quintain.types import Example, Score, Trajectory, scored


def of(name: str, value: float) -> Trajectory:
    (group,) = recorded([Lived(task=0, value=value, is_success=True, num_turns=2)])
    (trajectory,) = group.trajectories
    return replace(trajectory, task=replace(trajectory.task, environment=name, id=f"{name}/{value}"))


def names(thresholds: str, *trajectories: Trajectory) -> list[str]:
    made = evolving(read_thresholds(thresholds), "filtered").run([as_example(t) for t in trajectories])
    return [example.trajectory.task.id for example in made.examples]


def test_each_environment_has_a_threshold_of_its_own_by_its_whole_name() -> None:
    trajectories = [of("babyai/GoTo", 0.5), of("scienceworld?x=1", 98.0), of("sci", 1.0), of("guess", 0.99)]
    assert names("0.99,babyai=0,scienceworld=99", *trajectories) == ["babyai/GoTo/0.5", "sci/1.0"]


@pytest.mark.parametrize("text", ["babyai=0", "0.9,babyai=x", ""])
def test_thresholds_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="thresholds: got"):
        read_thresholds(text)


def test_flags_are_no_strings_that_are_always_true() -> None:
    values: dict[str, Any] = {"merges": "False"}
    with pytest.raises(ConfigError):
        build(Config, values, "x")
    assert build(Config, {"merges": False}, "x").merges is False


def test_the_base_is_in_every_iteration_and_each_begins_with_the_base_model() -> None:
    world = s3(0, num_tasks=6)
    shown = [t for t in scored(fitted_table(world, 0, until=0.9).sample(size=1, seed=1)) if t.is_success]
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
    assert isinstance(chosen, Chosen)
    assert [e.trajectory for e in data if isinstance(e, Example)][: len(shown)] == shown
    assert len(data) == len(shown) + len(chosen.examples)
    imitate(again, adam(again.parameters, 0.1), data, made.update, 0)
    assert not torch.equal(again.theta, start.theta)
    for parts in run.chosen:
        ids = [example.trajectory.task.id for example in parts[0].examples]
        assert len(ids) == len(set(ids)) and all(e.trajectory.is_success for e in parts[0].examples)
    moved = (run.policy.theta - start.theta).detach().abs()
    assert float(moved.max()) < 4 * 0.1 * 1.2, "four steps of Adam from the base model, not twelve"


def test_without_merging_the_base_is_left_out() -> None:
    shown = [of("guess", 1.0)]
    groups = recorded([Lived(task=1, value=1.0, is_success=True, num_turns=1)])
    ((_, data),) = Material(method(Config(merges=False)), shown).take(groups)
    assert [e.trajectory.task.id for e in data if isinstance(e, Example)] == ["t1"]


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


@pytest.mark.slow
def test_three_worlds_are_explored_and_each_has_a_success_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quintain.training.corpus.NUM_EPISODES", 4)
    worlds = "mix:sums?digits=1&revisions=0,stream?pages=2&facts=1,bandit?arms=2&pulls=2"
    folder = train(
        "agent_evol", tmp_path / "run", environment=worlds, demonstrations=6, tasks=6, num_minibatches=2, num_epochs=1,
        thresholds="0.99,stream=0.5", eval_every=1, eval_episodes=6, max_turn_tokens=6,
    )  # fmt: skip
    start, *rounds = rows(folder)
    assert len(rounds) == 2
    for row in (start, *rounds):
        wins = [row[f"eval/task/{name}/success"] for name in ("sums", "stream", "bandit")]
        assert row["eval/success"] == pytest.approx(sum(wins) / 3)
        assert [row[f"eval/task/{name}/episodes"] for name in ("sums", "stream", "bandit")] == [2, 2, 2]
    for row in rounds:
        wins = [row[f"task/{name}/success"] for name in ("sums", "stream", "bandit")]
        assert row["train/success"] == pytest.approx(sum(wins) / 3), (
            "two tasks of each, two episodes of a task"
        )
        assert row["data/in"] == 12


def test_without_a_base_there_is_nothing_to_merge() -> None:
    with pytest.raises(ConfigError, match="no base to merge"):
        Config(demonstrations=0).check()
