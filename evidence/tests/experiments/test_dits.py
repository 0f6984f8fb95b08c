"""The claim of DITS: a pair that is swapped changes the opposite, and areas are what they say."""

import numpy as np
import pytest
import torch

from quintain.data.pairs import Pairs
from quintain.losses.preference import dpo
from quintain_evidence.experiments.preference import dits
from quintain_evidence.experiments.preference.blocks import blocks
from quintain_evidence.experiments.preference.eto import erring, fitted, learned


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_influence_tells_what_was_swapped() -> None:
    (row,) = dits.measure({"seeds": 1, "tasks": 8, "updates": 10}, 5)
    assert row["method"] > 0.6 > row["extra.value"] and row["extra.pairs"] > 8
    assert row["extra.block1"] == row["method"] and 1.4 < row["extra.linear"] < 2.6
    assert row["null_method"] < row["method"] and 0 < row["extra.start"] < 1


def test_of_four_pairs_the_swapped_one_comes_last() -> None:
    made = blocks(24, 300)
    start = fitted(made, erring(made, 0.3, 1).sample(size=1, seed=2, tasks=range(12)))
    pairs, values = dits.found(made, start, range(12), {"margin": 0.9}, 4)
    assert len(pairs) == len(values) >= 4 and all(len(pair.chosen.turns) == 1 for pair in pairs)

    def moved(pair: dits.Pair) -> float:
        after = learned(made, start, Pairs((pair,)), dpo(0.1), {"updates": 1, "rate": 0.05})
        return float((dits.by_task(made, after, range(24)) - dits.by_task(made, start, range(24))).mean())

    best = sorted(pairs, key=moved)[-4:]
    given = [*best[:3], dits.swapped(best[3])]
    changes = [moved(pair) for pair in given]
    assert int(np.argmin(changes)) == 3 and changes[3] < 0 < changes[0]
    assert dits.area(np.array(changes), np.array([False, False, False, True])) == 1.0


def test_the_change_of_a_block_is_that_of_its_pairs() -> None:
    spread = dits.spread_over(3, [[2, 0], [1]], [np.array([0.1, 0.2]), np.array([0.3, 0.4])])
    assert spread.tolist() == [[0.1, 0.2], [0.3, 0.4], [0.1, 0.2]]
    assert dits.area(np.array([1.0, 1.0, 0.0]), np.array([True, False, False])) == 0.25
