"""DARE: batches, what is held out, what is measured, runs that are resumed, and what is wrong with pairs."""

from random import Random

import pytest
import torch

from quintain.worlds.shelf.game import Shelf
from quintain_evidence.experiments.toolrl import dare as experiment


@pytest.fixture(autouse=True)
def _one_thread() -> None:  # pyright: ignore[reportUnusedFunction]
    torch.set_num_threads(1)


@pytest.mark.slow
def test_the_profile_is_learned_and_only_from_pairs_that_tell_it() -> None:
    options = {"tools": 60, "steps": 20, "batch_size": 24, "hard": 3, "temperature": 0.05, "rate": 0.03}
    (row,) = experiment.measure(options, 5)
    assert row["method"] > row["control"] + 0.2 and row["method"] > row["null_method"] + 0.2
    assert row["extra.blind"] == 0.25 and row["extra.ndcg_gap"] > 0.05


def test_queries_of_the_control_tell_data_of_the_group() -> None:
    shelf = Shelf(tools=40, retriever="none")
    own, permuted, blind = (experiment.Asked(shelf, told) for told in ("own", "permuted", "none"))
    assert own.query(3, Random(0)).partition(":")[0] == permuted.query(3, Random(0)).partition(":")[0]
    assert len({permuted.query(3, Random(k)) for k in range(40)}) == 40
    assert blind.query(3, Random(0)) == shelf.stock[3].does == blind.documents()[3]
    dealt = experiment.Asked(shelf, "own", deals=Random(0))
    assert sorted(dealt.documents()) == sorted(own.documents()) and dealt.documents() != own.documents()
