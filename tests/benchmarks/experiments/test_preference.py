"""Experiments of the family `preference`: the tables are the strings' distributions, and null worlds are null."""

import numpy as np
import pytest
import torch

from quintain.benchmarks.experiments.preference import dpo
from quintain.types import Outputs


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_a_table_is_a_distribution_over_all_strings() -> None:
    whole = dpo.strings()
    assert len(whole.texts) == 3 + 9 + 27 + 81 == len(set(whole.texts)) and whole.num_states == 1 + 3 + 9 + 27
    drawn = torch.from_numpy(np.random.default_rng(0).normal(0, 1, dpo.even().shape))
    assert dpo.log_strings(drawn).exp().sum(-1).tolist() == pytest.approx([1.0] * dpo.PROMPTS)
    assert dpo.log_strings(dpo.even()).exp().min().item() == pytest.approx(1 / 120)
    assert dpo.log_strings(dpo.even()).exp().max().item() == pytest.approx(1 / 120)


def test_a_batch_says_of_each_side_what_the_table_says() -> None:
    drawn = torch.from_numpy(np.random.default_rng(1).normal(0, 1, dpo.even().shape))
    places = dpo.batch_of([(0, 5, 100), (3, 119, 0)])
    logs = places.of(drawn)
    streams = [part.sum().item() for part in logs.split(places.batch.lengths)]
    texts = dpo.log_strings(drawn)
    assert streams == pytest.approx(texts[[0, 0, 3, 3], [5, 100, 119, 0]].tolist())
    at_start = dpo.dpo(0.5)(
        Outputs(logprobs=logs, entropy=torch.zeros_like(logs)), dpo.against(places, drawn)
    )
    assert at_start.loss.item() == pytest.approx(np.log(2)) and at_start.metrics["preference/accuracy"] == 0


def test_the_reference_is_what_is_tilted_and_an_even_one_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpo, "BETAS", (1.0,))
    monkeypatch.setattr(dpo, "SEEN", 10)
    (row,) = dpo.measure({"seeds": 1, "comparisons": 5_000, "beta": 1.0}, seed=3)
    assert row["method"] < row["control"] - 0.1
    assert row["null_method"] == row["null_control"]
    assert 0.5 < row["extra.slope1"] < 1.5 and row["extra.coins"] < row["control"]
