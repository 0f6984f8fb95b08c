"""The lab of `human_preferences`: worlds whose turns all pay, answers that are dealt to others, rows of numbers."""

from pathlib import Path

import numpy as np
import pytest
import torch

from quintain.data.comparisons import Labeller
from quintain.methods.rlhf.comparing import draw_segments
from quintain.types import flatten_scored
from quintain_evidence.experiments.rlhf import human_preferences


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_answers_are_right_as_often_as_they_say_and_are_dealt_whole(tmp_path: Path) -> None:
    lab = human_preferences.opened({"rate": 3e-3, "epochs": 1}, 5, tmp_path)
    groups = lab.start.sample(size=16, seed=1)
    assert all(len(t.turns) == human_preferences.HORIZON for t in flatten_scored(groups))
    seen = [(1, t) for t in flatten_scored(groups)]
    pairs = draw_segments(seen, size=4, count=600, rng=np.random.default_rng(0))
    told = human_preferences.labelled(pairs, Labeller(error_rate=0.2), 5)
    right = [
        (c.ranks[0] > c.ranks[1]) == (a.reward > b.reward) for c, (a, b) in zip(told, pairs, strict=True)
    ]
    assert np.mean(right) == pytest.approx(0.9, abs=0.04)
    dealt = human_preferences.dealt(told, 5)
    assert sorted(c.ranks for c in dealt) == sorted(c.ranks for c in told)
    assert [c.answers for c in dealt] == [c.answers for c in told]
    assert lab.angle(groups) > 0.5, "true rewards point to the true return"


@pytest.mark.slow
def test_rows_of_a_small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(human_preferences, "FEW", 6)
    (row,) = human_preferences.measure({"seeds": 1, "labels": 12, "epochs": 1, "explore": True}, 3)
    assert -1 <= row["method"] <= 1 and row["extra.rank"] == pytest.approx(row["extra.rank"])
    assert {
        "control",
        "null_method",
        "null_control",
        "extra.true",
        "extra.episodes",
        "extra.random",
    } <= row.keys()
    assert -1 <= row["extra.active"] <= 1
