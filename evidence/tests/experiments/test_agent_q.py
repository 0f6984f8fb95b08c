"""The claim of Agent Q: one tree for all arms, a critic as good as outcomes, and a null world that is one."""

import numpy as np
import pytest

from quintain_evidence.experiments.preference import agent_q
from quintain_evidence.experiments.preference.agent_q import Family
from quintain_evidence.experiments.preference.blocks import irreversible, noisy_policy


def test_mixed_sources_order_siblings_better_than_permuted_ranks() -> None:
    rows = agent_q.measure({"seeds": 2, "tasks": 12, "branches": 4}, 7)
    for row in rows:
        assert row["null_method"] == row["null_control"] == row["extra.search"]
        assert row["extra.over_search"] == pytest.approx(row["method"] - row["extra.search"])
        assert row["extra.matched"] < 0.05 and row["extra.stakes"] > 0.1 and row["extra.nodes"] > 10
    assert np.mean([row["method"] - row["control"] for row in rows]) > 0.08


def test_pairs_are_counted_by_exact_values() -> None:
    family = Family(np.array([1.0, 0.0, 0.0]), np.array([0.2, 0.9, 0.89]), np.zeros(3))
    assert family.pairs == [(1, 0), (2, 0)], "what differs by .01 has no order"
    assert agent_q.order(family, np.array([0.5, 0.7, 0.5])) == [(pytest.approx(0.2), 1.0), (0.0, 0.5)]
    assert agent_q.share([family], [family.means]) == 0.0
    assert agent_q.share([family], [family.exact]) == agent_q.widest([family], [family.exact]) == 1.0
    assert agent_q.q(np.array([2 / 3]), np.array([0.9]), 0.5) == pytest.approx([0.7833333])
    assert agent_q.halved(lambda x: 1 - x, 0.25, 0.0, 1.0) == pytest.approx(0.75)


def test_a_tree_knows_when_the_turns_are_over() -> None:
    world = irreversible(2, 50)
    policy = noisy_policy(world, 0.3)
    tree = agent_q.grown(world, policy.cumsum(1), int(world.start[0]), {}, np.random.default_rng(0))
    assert tree.root.visits == 16
    waiting = [tree.root]
    for node in waiting:
        waiting += node.children.values()
        assert node.depth <= agent_q.HORIZON and (node.depth < agent_q.HORIZON or node.seen.is_over)
