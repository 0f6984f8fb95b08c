"""Agent models: rates by hand on scripted episodes, what a look costs, plans that are edited, and the experiment."""

import pytest
import torch

from quintain_evidence.experiments.toolrl import deep_research as experiment

WORLD = "stream?facts=1&pages=4&closed_book=0.5&decoys=1&cost=0.05"


@pytest.mark.slow
def test_the_experiment_deals_out_as_many_reads_and_nulls_are_null() -> None:
    torch.set_num_threads(1)
    rows = experiment.measure({"world": WORLD, "rate": 30.0, "batches": 12, "held_out": 64, "seeds": 1}, 3)
    (row,) = rows
    assert row["method"] > row["control"] + 0.05 and row["extra.gain"] > 0.1
    assert row["extra.closed"] < 0.3 and row["extra.open"] > 0.8
    assert row["null_method"] == pytest.approx(row["null_control"], abs=0.05)
    assert experiment.share([0, 1], [False, False]) == 0.0
