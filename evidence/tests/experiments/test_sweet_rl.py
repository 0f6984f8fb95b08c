"""The claim of SWEET-RL: talks as a table, a policy that errs as the world says, and pairs by exact values."""

import numpy as np
import pytest
import torch

from quintain_evidence.experiments.preference import sweet_rl
from quintain_evidence.experiments.preference.blocks import table_of


@pytest.mark.slow
def test_a_critic_that_is_told_orders_guesses_better() -> None:
    torch.set_num_threads(1)
    (row,) = sweet_rl.measure({"seeds": 1, "tasks": 24, "held_out": 8, "updates": 60, "rate": 0.1}, 3)
    assert row["method"] > row["control"] and 0.4 < row["extra.success"] < 0.75
    assert abs(row["extra.asking_gap"]) < 0.3 and row["extra.absent"] < row["method"]
    assert min(row[f"extra.{name}"] for name in ("pairs", "submissions", "questions", "open")) > 10


def test_what_stands_in_a_talk() -> None:
    talks = sweet_rl.talks_of(4, 9)
    world = talks.world
    odds = sweet_rl.erring(talks, 0.5)
    assert odds.sum(1) == pytest.approx(np.ones(world.num_states))
    assert odds[np.arange(world.num_states), world.expert].min() >= 0.5
    asks, submits = world.actions.index("ask size"), world.actions.index("submit red, small, round")
    assert (
        talks.asks[asks] == 1 and talks.submits[submits].tolist() == [0, 0, 0] and talks.asks[submits] == -1
    )
    assert talks.words[asks].nonzero()[0].tolist() == [1] and talks.words[submits].sum() == 4
    read, other = talks.read(talks.wish), talks.read(None)
    assert (
        (read[:, :16] == other[:, :16]).all() and (read[:, 16:].sum(1) == 3).all() and not other[:, 16:].any()
    )
    foreign = sweet_rl.foreign(talks, 2, 0)
    by_task = talks.wish[world.start]
    assert foreign[world.start].tolist() == by_task[[1, 0, 3, 2]].tolist()
    policy = table_of(world, odds)
    open_states = [s for s in range(world.num_states) if talks.known[s].all()]
    drawn = [(s, list(range(len(world.actions)))) for s in open_states[:2]]
    submissions, questions, said = sweet_rl.orders(talks, policy, drawn)
    assert questions == said
    assert all(
        np.mean(talks.submits[b] == talks.wish[s]) > np.mean(talks.submits[w] == talks.wish[s])
        for s, b, w in submissions
    )
    worth = np.zeros(world.is_legal.shape)
    assert sweet_rl.share(worth, submissions) == 0.5
