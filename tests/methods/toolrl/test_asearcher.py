"""ASearcher: decoupled equals PPO where nothing moved, bounds hold, and what the cards' traps would do."""

import random
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from quintain_evidence.experiments.toolrl import asearcher as experiment
from quintain_evidence.labs.tables import fitted_table, s3
from quintain_evidence.labs.tabular import TablePolicy, assign, kept_samples, loss_gradient, packed

from quintain.credit.group import group_relative
from quintain.data.pack import pack
from quintain.data.samples import samples_from
from quintain.environments.protocol import Environment, tool_action
from quintain.errors import InvariantError
from quintain.losses.policy import clipped
from quintain.methods.loops import train_by
from quintain.methods.toolrl import asearcher
from quintain.rollout.staleness import judged
from quintain.store.run import Run
from quintain.types import Action, Score, StepResult, Stop, Task, Trajectory
from quintain.worlds.hopqa.game import HopQA

METHOD = asearcher.method(asearcher.Config())


@pytest.fixture(name="table")
def _table() -> TablePolicy:  # pyright: ignore[reportUnusedFunction]
    torch.set_num_threads(1)
    return fitted_table(s3(3, num_tasks=4), 3, until=0.5)


def moved(table: TablePolicy) -> TablePolicy:
    return TablePolicy(table.world, table.theta.detach() * 1.5)


def test_where_nothing_moved_it_is_ppo_and_else_it_is_not(table: TablePolicy) -> None:
    groups = table.sample(size=8, seed=1)
    credit = assign(table, METHOD, groups)
    own = loss_gradient(table, credit, METHOD.update, reference=table)
    assert torch.equal(own, loss_gradient(table, credit, METHOD.update, loss=clipped(0.4, 0.4)))
    other = moved(table)
    decoupled = loss_gradient(other, credit, METHOD.update, reference=other)
    assert not torch.allclose(decoupled, loss_gradient(other, credit, METHOD.update, loss=clipped(0.4, 0.4)))


def test_weights_are_capped_at_5_and_have_no_gradient(table: TablePolicy) -> None:
    other = TablePolicy(table.world, table.theta.detach() * -8)
    credit = assign(table, METHOD, table.sample(size=16, seed=2))
    batch = packed(kept_samples(credit, METHOD.update), METHOD.update, other)
    report = METHOD.update.loss(other(batch), batch)
    assert report.metrics["importance/capped_fraction"] > 0
    assert report.metrics["importance/weight"] <= 5
    with pytest.raises(InvariantError, match="let the update be its own reference"):
        asearcher.proximal(replace(batch, extra=replace(batch.extra, reference_logprobs=None)))


def test_equal_groups_are_left_out_and_advantages_are_centred_alone(table: TablePolicy) -> None:
    groups = table.sample(size=4, seed=5, tasks=[0, 0, 1, 2, 3] * 4)
    kept = METHOD.keep(groups)
    assert 0 < len(kept) < len(groups)
    credit = METHOD.credit(kept, None)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    start = 0
    for group in kept:
        own = [float(turns[0][0]) for turns in credit.advantages[start : start + len(group.trajectories)]]
        paid = [t.outcome.value for t in group.trajectories if isinstance(t.outcome, Score)]
        mean = sum(paid) / len(paid)
        assert own == pytest.approx([value - mean for value in paid]) and sum(own) == pytest.approx(0)
        start += len(own)


def test_an_episode_of_many_streams_weighs_as_much_as_one(table: TablePolicy) -> None:
    groups = table.sample(size=6, seed=7)
    broken = [
        replace(
            group,
            trajectories=tuple(
                replace(t, turns=tuple(replace(turn, starts_segment=True) for turn in t.turns))
                for t in group.trajectories
            ),
        )
        for group in groups
    ]
    whole, parts = (
        pack(samples_from(group_relative(g, std="none")), aggregation="sequence_mean")
        for g in (groups, broken)
    )
    assert len(parts.lengths) > len(whole.lengths)
    for batch in (whole, parts):
        weights = torch.zeros(24).index_add(0, batch.extra.trajectory[batch.sequence_id], batch.loss_weight)
        assert weights.tolist() == pytest.approx([1 / 24] * 24)


@pytest.mark.parametrize("text", ["this is valid", "an invalid question", "appropriate"])
def test_words_of_an_answer_are_not_punished(text: str, table: TablePolicy) -> None:
    (group,) = table.sample(size=2, seed=1, tasks=[0])
    said = [
        replace(t, turns=(*t.turns[:-1], replace(t.turns[-1], action=Action(text=text))))
        for t in group.trajectories
    ]
    paid = METHOD.reward([replace(group, trajectories=tuple(said))])
    assert [t.outcome for t in paid[0].trajectories] == [t.outcome for t in group.trajectories]
    unread = [
        replace(t, turns=(*t.turns[:-1], replace(t.turns[-1], action=Action(text=text, error="no call"))))
        for t in said
    ]
    assert {
        t.outcome.value
        for t in METHOD.reward([replace(group, trajectories=tuple(unread))])[0].trajectories
        if isinstance(t.outcome, Score)
    } == {0.0}


class Slow(Environment):
    """Say a. You are asked up to 128 times."""

    max_turns = 128

    def reset(self, task: Task) -> str:
        self.left, self.rng = 1 + task.rng.randrange(3), random.Random(task.seed)
        return "go"

    def step(self, action: Action) -> StepResult:
        time.sleep(self.rng.random() * 0.004)
        self.left -= 1
        is_right = action.text.strip().startswith("a")
        return StepResult(
            observation="on", reward=float(is_right), is_terminated=self.left == 0, is_success=is_right
        )

    def expert_action(self) -> Action:
        return Action(text="a")


SMALL: dict[str, Any] = {
    "environment": f"{__file__}:Slow", "model": "micro", "demonstrations": 8, "steps": 5, "eval_every": 5,
    "eval_episodes": 2, "tasks": 2, "group_size": 4, "max_turn_tokens": 4, "num_minibatches": 2,
}  # fmt: skip


def trained(
    tmp_path: Path, name: str, **fields: Any
) -> tuple[list[dict[str, Any]], list[tuple[int, Trajectory]], dict[int, str]]:
    settings: dict[str, Any] = {**SMALL, **fields}
    config = asearcher.Config(**settings)
    with Run.create(tmp_path / name, recipe="asearcher", config=asdict(config)) as run:
        train_by(asearcher.method(config), config, run)
        played = [(r.step, r.trajectory) for r in run.recorded(phase="train")]
        return run.metrics(), played, run.weights()


@pytest.mark.slow
def test_workers_delayed_at_random_never_break_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quintain.training.corpus.NUM_EPISODES", 4)
    torch.set_num_threads(1)
    ages: list[int] = []

    def watched(trajectory: Trajectory, age: int, most: int) -> Trajectory:
        found = judged(trajectory, age, most)
        if isinstance(found.outcome, Score):
            ages.append(age)
        return found

    monkeypatch.setattr("quintain.training.ahead.judged", watched)
    rows, played, _ = trained(tmp_path, "async", max_staleness=4, steps=8, monitors="stop_failures=1")
    assert len(rows) == 9 and {"asearcher/differing", "asearcher/versions"} <= rows[-1].keys()
    assert len(ages) >= 40 and 0 < max(ages) <= 4
    assert len({t.group for _, t in played}) == 16 and all(t.task.id for _, t in played)


class Searching(HopQA):
    """You are asked. Whatever you say is searched for, so that nobody answers before the turns are over."""

    def step(self, action: Action) -> StepResult:
        return super().step(tool_action("search", query=action.text))


@pytest.mark.slow
def test_an_episode_searches_for_more_than_a_hundred_turns_in_training_and_evaluation(tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    torch.set_num_threads(1)
    rows, played, _ = trained(
        tmp_path, "long", environment=f"{__file__}:Searching?hops=1&closed=0&max_turns=128",
        agent="window?turns=0+text", demonstrations=0, steps=1, tasks=1, group_size=2, eval_episodes=1,
        eval_every=1,
    )  # fmt: skip
    assert asearcher.Config().max_turns == 128 == rows[-1]["asearcher/most_turns"]
    assert [(len(t.turns), t.stop) for _, t in played] == [(128, Stop.MAX_TURNS)] * 2
    assert all(turn.action.error is None for _, t in played for turn in t.turns)
    with Run.open(tmp_path / "long", writable=False) as run:
        held_out = [len(t.turns) for t in run.trajectories() if t.task.split == "eval"]
    assert held_out and set(held_out) == {128}, "evaluations keep to what the environment allows"


@pytest.mark.slow
def test_with_no_staleness_it_learns_what_lockstep_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quintain.training.corpus.NUM_EPISODES", 4)
    torch.set_num_threads(1)
    found = [
        trained(tmp_path, kind, rollout=kind, max_staleness=0, steps=2)[2] for kind in ("lockstep", "async")
    ]
    assert found[0] == found[1] and len(found[0]) > 1


def test_the_control_deals_the_weights_out_and_the_null_world_is_null() -> None:
    options = {"until": 0.15, "step": 1.5, "size": 8, "clip": 0.4, "seeds": 2}
    rows = experiment.measure(options, 5)
    assert len(rows) == 2
    for row in rows:
        assert row["null_method"] == row["null_control"] and row["method"] != row["control"]
        assert 0 < row["extra.effective"] < 1 and 0.5 < row["extra.objective"] < 0.95


def test_permuted_weights_are_the_same_numbers(table: TablePolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    other = moved(table)
    credit = assign(table, METHOD, table.sample(size=4, seed=2))
    batch = packed(kept_samples(credit, METHOD.update), METHOD.update, other)
    seen: list[torch.Tensor] = []

    def loss(outputs: Any, given: Any) -> Any:
        seen.append((asearcher.proximal(given) - given.logprobs)[given.loss_weight > 0])
        return METHOD.update.loss(outputs, given)

    experiment.permuted(loss, 3)(other(batch), batch)
    loss(other(batch), batch)
    assert torch.allclose(seen[0].sort().values, seen[1].sort().values, atol=1e-6)
    assert not torch.allclose(seen[0], seen[1])
