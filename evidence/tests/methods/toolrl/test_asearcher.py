"""ASearcher: decoupled equals PPO where nothing moved, bounds hold, and what the cards' traps would do."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from quintain.credit.group import group_relative
from quintain.data.pack import pack
from quintain.data.samples import samples_from
from quintain.errors import InvariantError
from quintain.losses.policy import clip_ratio
from quintain.methods.toolrl import asearcher
from quintain.types import Action, Score
from quintain_evidence.experiments.toolrl import asearcher as experiment
from quintain_evidence.labs.tables import fitted_table, s3
from quintain_evidence.labs.tabular import TablePolicy, assign, kept_samples, loss_gradient, packed

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
    assert torch.equal(own, loss_gradient(table, credit, METHOD.update, loss=clip_ratio(0.4, 0.4)))
    other = moved(table)
    decoupled = loss_gradient(other, credit, METHOD.update, reference=other)
    assert not torch.allclose(
        decoupled, loss_gradient(other, credit, METHOD.update, loss=clip_ratio(0.4, 0.4))
    )


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
