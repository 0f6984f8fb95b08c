"""The policy that a benchmark starts from is imitated until it is good enough, and no further."""

from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from quintain.learning.saved import START
from quintain.learning.train_config import TrainConfig
from quintain.models.fingerprint import fingerprint
from quintain.models.load import load
from quintain.rollout.progress import Display
from quintain.store.run import Run
from quintain.warm_start.probe import probe_steps
from quintain_evidence.start import imitated

JOB = TrainConfig(
    environment="guess?max_turns=1&high=3",
    model="micro",
    demonstrations=8,
    imitation_epochs=12,
    imitation_lr=1e-2,
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr("quintain.warm_start.corpus.NUM_EPISODES", 2)
    monkeypatch.setattr("quintain.warm_start.probe.NUM_PROBED", 6)


def made(folder: Path, enough: float) -> tuple[float, str, int]:
    """The success it stopped at, the policy, and how often it was measured."""
    with Run.create(folder, recipe="start", config=asdict(JOB)) as run, Display("start", 1, 0) as display:
        success = imitated(JOB, run, display, enough=enough)
        assert len(list(run.trajectories(phase="demonstrations"))) == 8
    return success, fingerprint(load(str(folder / START)).model), len(probe_steps(12))


def test_imitation_ends_at_enough_and_repeats(tmp_path: Path) -> None:
    early = made(tmp_path / "a", 0.0)
    again = made(tmp_path / "b", 0.0)
    late = made(tmp_path / "c", 2.0)
    assert early == again
    assert early[1] != late[1]


def test_probes_come_less_and_less_often() -> None:
    assert sorted(probe_steps(40)) == [8, 12, 16, 20, 25, 31, 38, 40]
    assert probe_steps(3) == {3}
