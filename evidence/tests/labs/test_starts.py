"""Starts are made once, named by what they are made of, and refused where they are not what was asked for."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from quintain.errors import DataError
from quintain.learning.train_config import TrainConfig
from quintain.models.fingerprint import fingerprint
from quintain.models.load import load
from quintain_evidence.labs import starts
from quintain_evidence.labs.starts import cached_start, start_name

JOB = TrainConfig(environment="guess?max_turns=1&high=3", model="micro", demonstrations=8, imitation_epochs=4)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr("quintain.warm_start.corpus.NUM_EPISODES", 2)
    monkeypatch.setattr("quintain.warm_start.probe.NUM_PROBED", 6)


def test_a_start_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cached_start(JOB, enough=0.0, root=tmp_path)
    weights = fingerprint(load(str(first.folder)).model)
    monkeypatch.setattr(starts, "imitated", lambda *_, **__: pytest.fail("it is there"))
    again = cached_start(JOB, enough=0.0, root=tmp_path)
    assert again == first and fingerprint(load(str(again.folder)).model) == weights
    with pytest.raises(DataError, match=r"where 0.00 to -1.00 was asked"):
        cached_start(JOB, enough=0.0, most=-1.0, root=tmp_path)
    assert [folder.name for folder in tmp_path.iterdir()] == [start_name(JOB, 0.0)]


def test_settings_name_other_starts() -> None:
    names = {start_name(JOB, 0.0), start_name(JOB, 0.1), start_name(replace(JOB, expert_noise=0.4), 0.0)}
    assert len(names) == 3
    assert start_name(replace(JOB, steps=7), 0.0) in names, "training is no part of a start"
