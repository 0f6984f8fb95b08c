"""A small reward model that the tests of this folder share."""

from pathlib import Path
from typing import Any

import pytest
import torch

import quintain

ENVIRONMENT = "guess?low=1&high=4"
SMALL: dict[str, Any] = {
    "environment": ENVIRONMENT, "model": "micro", "demonstrations": 16, "imitation_epochs": 4,
    "expert_noise": 0.3, "tasks": 12, "group_size": 4, "answers": 2, "learning_rate": 3e-3, "batch_size": 8,
    "labeller_temperature": 0.1,
}  # fmt: skip


@pytest.fixture(scope="session")
def reward_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one, called rm."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("rlhf")
    return quintain.train("reward_model", run="rm", root=root, steps=6, eval_every=3, **SMALL)
