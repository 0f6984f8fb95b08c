"""Episodes by hand."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from tests.methods.imitation.conftest import made

from quintain.types import Trajectory


@pytest.fixture
def trajectory() -> Callable[..., Trajectory]:
    def make(
        turns: Sequence[tuple[Sequence[int], Sequence[int]]], *, value: float = 1.0, index: int = 0
    ) -> Trajectory:
        return replace(made(turns, value=value), index=index, seed=index)

    return make
