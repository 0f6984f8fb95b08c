"""A small run whose start sampled a batch, for the labs that need a model."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.build import shorten_corpus

from quintain.credit_lab.material import collect_batch
from quintain.methods.rl import grpo
from quintain.rollout.progress import Display

CONFIG = grpo.Config(
    environment="sokoban?size=3&walls=0&scramble=10",
    model="micro",
    demonstrations=24,
    imitation_epochs=6,
    imitation_lr=1e-2,
)


@pytest.fixture(scope="session")
def lab_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run with eight groups of four episodes, some of them solved."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("labs") / "batch"
    with pytest.MonkeyPatch.context() as patch:
        shorten_corpus(patch)
        with Display("lab", 1) as display:
            collect_batch("grpo", CONFIG, folder, groups=8, size=4, display=display)
    yield folder
