"""Merging models of one ancestor, by value."""

import pytest
import torch

from quintain.errors import UsageError
from quintain.models.merge import merge_states


def test_tensors_are_weighted_means_in_their_own_type() -> None:
    first = {"w": torch.tensor([1.0, 2.0], dtype=torch.bfloat16), "n": torch.tensor([3])}
    second = {"w": torch.tensor([3.0, 6.0], dtype=torch.bfloat16), "n": torch.tensor([3])}
    found = merge_states([first, second], [0.75, 0.25])
    assert found["w"].dtype == torch.bfloat16
    assert found["w"].tolist() == [1.5, 3.0]
    assert found["n"].tolist() == [3]
    assert merge_states([first], [1.0])["w"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("states", "weights", "message"),
    [
        ([], [], "models to merge: got 0 with weights"),
        ([{"w": torch.zeros(1)}] * 2, [0.5, 0.4], "adding up to 1"),
        ([{"w": torch.zeros(1)}, {"w": torch.zeros(2)}], [0.5, 0.5], "model 1 to merge: got another w"),
        ([{"w": torch.zeros(1)}, {"v": torch.zeros(1)}], [0.5, 0.5], "model 1 to merge: got another v"),
        ([{"n": torch.tensor([1])}, {"n": torch.tensor([2])}], [0.5, 0.5], "whole numbers that differ"),
    ],
)
def test_what_has_no_common_ancestor_is_refused(
    states: list[dict[str, torch.Tensor]], weights: list[float], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        merge_states(states, weights)
