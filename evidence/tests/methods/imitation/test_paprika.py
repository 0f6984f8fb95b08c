"""Paprika: which episodes are paired, what the loss compares, and which kind of tasks comes next."""

from dataclasses import replace

import torch
from tests.methods.imitation.test_paprika import group

from quintain.data.pairs import Pairs
from quintain.data.samples import pair_samples
from quintain.learning.update import Update
from quintain.losses.preference import dpo, rpo
from quintain.methods.imitation.paprika import Config, best_against_worse, method
from quintain.types import Pair, flatten_scored
from quintain_evidence.labs.rounds import train_rounds
from quintain_evidence.labs.tables import fitted_table, s3
from quintain_evidence.labs.tabular import packed


def test_the_best_is_solved_in_fewest_turns_and_the_others_are_worse() -> None:
    pairs = best_against_worse(group((True, 5), (False, 2), (True, 3), (True, 3), (False, 9)), 10)
    assert {pair.chosen.index for pair in pairs} == {2}
    assert {pair.rejected.index: pair.margin for pair in pairs} == {0: 0.0, 1: 1.0, 4: 1.0}
    assert len(best_against_worse(group((True, 1), *[(False, 1)] * 9), 4)) == 4


def pair() -> list[Pair]:
    policy = fitted_table(s3(0, num_tasks=6), 0)
    groups = policy.sample(size=8, seed=0)
    return [made for g in groups for made in best_against_worse(g, 2)]


def test_ends_of_turns_are_imitated_and_not_compared() -> None:
    policy, reference = fitted_table(s3(0, num_tasks=6), 0), fitted_table(s3(0, num_tasks=6), 1)
    update = Update(loss=dpo(), has_reference=True)
    batch = packed(pair_samples(pair()), update, reference)
    alpha = 0.7
    nll = rpo(alpha=alpha)(policy(batch), batch).loss - dpo()(policy(batch), batch).loss
    without = rpo(alpha=alpha, compares_ends=False)(policy(batch), batch).loss
    log2 = torch.log(torch.tensor(2.0))
    assert torch.allclose(without - nll, log2), "every token of a table ends a turn: nothing is compared"
    inside = replace(batch, extra=replace(batch.extra, turn_end=torch.zeros_like(batch.extra.turn_end)))
    found = rpo(alpha=alpha, compares_ends=False)(policy(inside), inside).loss
    assert torch.allclose(found, rpo(alpha=alpha)(policy(inside), inside).loss)


def test_without_imitation_it_is_dpo() -> None:
    policy, reference = fitted_table(s3(0, num_tasks=6), 0), fitted_table(s3(0, num_tasks=6), 1)
    made = method(Config(imitation_weight=0.0, compares_ends=True))
    batch = packed(pair_samples(pair()), made.update, reference)
    assert torch.equal(made.update.loss(policy(batch), batch).loss, dpo(0.1)(policy(batch), batch).loss)


def test_it_trains_on_pairs_in_rounds() -> None:
    world = s3(0, num_tasks=6)
    start = fitted_table(world, 0)
    made = method(Config(tasks=6, group_size=8, compares_ends=True, oversample_factor=1))
    run = train_rounds(start, made, num_rounds=2, seed=0, rate=0.1)
    first = run.made[0][0]
    assert isinstance(first, Pairs) and isinstance(first[0], Pair)
    assert run.policy.objective("success") > start.objective("success")
    assert len(flatten_scored(made.collect(run.collector, 3))) == 48  # type: ignore[arg-type] # pyright: ignore
