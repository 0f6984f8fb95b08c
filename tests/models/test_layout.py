import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quintain.data.pack import pack
from quintain.models import layout as module
from quintain.models.layout import Layout, layout
from quintain.types import Batch, Sample


def sample(ids: list[int], index: int, first: int) -> Sample:
    """Return a stream whose tokens from `first` on are trained."""
    mask = np.arange(len(ids)) >= first
    ones = mask.astype(np.float32)
    return Sample(
        token_ids=np.array(ids),
        loss_weight=ones,
        logprobs=-ones,
        advantages=ones,
        returns=ones,
        turn_id=np.where(mask, 0, -1),
        turn_end=np.zeros(len(ids), np.bool_),
        trajectory=index,
    )


def batch_of(rows: list[list[int]]) -> Batch:
    return pack([sample(row, index, first=1) for index, row in enumerate(rows)])


def continued(laid: Layout) -> list[list[int]]:
    """Return, for each computed token, the tokens that it and its stream's prefix stand for."""
    families, ids = laid.attention.families, laid.token_ids.tolist()
    open_, found = [], [[0]] * len(ids)
    for start, length, past in zip(
        families.start.tolist(), families.length.tolist(), families.past.tolist(), strict=True
    ):
        open_ = open_[:past] + ids[start : start + length]
        for i in range(length):
            found[start + i] = open_[: past + i + 1]
    return found


def test_what_streams_share_is_computed_once() -> None:
    prompt, turn = list(range(10, 18)), list(range(20, 28))
    rows = [[*prompt, *turn, 1, 2], [*prompt, 3, 4, 5], [*prompt, *turn, 6], [7, 8]]
    laid = layout(batch_of(rows))
    assert len(laid.token_ids) == 8 + 8 + 2 + 3 + 1 + 2
    families = laid.attention.families
    assert families.length.tolist() == [2, 8, 3, 8, 2, 1]
    assert families.past.tolist() == [0, 0, 8, 8, 16, 16]
    assert families.bounds.tolist() == [0, 1, 6]


def test_streams_part_at_the_grain() -> None:
    rows = [[*range(10, 22), 1], [*range(10, 22), 2], [*range(10, 15), 3]]
    assert len(layout(batch_of(rows)).token_ids) == 8 + 5 + 5 + 6


def test_equal_streams_are_computed_once() -> None:
    laid = layout(batch_of([[1, 2, 3]] * 3))
    assert laid.token_ids.tolist() == [1, 2, 3]
    assert laid.predictors.tolist() == [0, 1] * 3


def test_without_sharing_nothing_moves() -> None:
    batch = batch_of([[1, 2, 3]] * 3)
    laid = layout(batch, share=False)
    assert torch.equal(laid.token_ids, batch.token_ids)


@given(rows=st.lists(st.lists(st.integers(0, 1), min_size=2, max_size=12), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_every_target_is_predicted_from_all_that_came_before_it(rows: list[list[int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GRAIN", 1)
        laid = layout(batch_of(rows))
    assert len(laid.token_ids) == len({tuple(row[:i]) for row in rows for i in range(1, len(row) + 1)})
    seen = continued(laid)
    predictors = iter(laid.predictors.tolist())
    for row in rows:
        for i in range(1, len(row)):
            assert seen[next(predictors)] == row[:i]
    positions = laid.position_ids.tolist()
    assert [len(tokens) - 1 for tokens in seen] == positions
