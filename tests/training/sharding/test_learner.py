"""A learner in two ranks against one in this process; `tests/cluster` has other numbers of ranks, and their deaths."""

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tests.training.sharding.cases import CASES, Case, PLAIN, build, distance, save_start
from tests.training.test_learner import streams
from torch import nn

from quintain.data.pack import micro_batches, pack
from quintain.errors import ConfigError, EngineFault, ModelError, StoreError
from quintain.losses.imitation import imitation
from quintain.training.learner import Learner
from quintain.training.sharding.ranks import Ranks


@pytest.fixture(scope="module")
def ranks() -> Generator[Ranks]:
    made = Ranks(2)
    yield made
    made.close()


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("start"))
