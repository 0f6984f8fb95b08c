from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from quintain.errors import ModelError
from quintain.models.heads import FILE, ValueHead


def test_values_by_hand() -> None:
    head = ValueHead(2)
    head.load_state_dict({"linear.weight": torch.tensor([[2.0, -1.0]]), "linear.bias": torch.tensor([0.5])})
    hidden = torch.tensor([[1.0, 1.0], [0.0, 3.0]])
    assert head(hidden).tolist() == [1.5, -2.5]
    assert head(hidden.to(torch.bfloat16)).dtype == torch.float32


def test_a_new_head_says_almost_zero_and_follows_its_seed() -> None:
    hidden = torch.randn(500, 64, generator=torch.Generator().manual_seed(0))
    assert ValueHead(64)(hidden).abs().max() < 0.05
    assert ValueHead(64, seed=1)(hidden).std() > 0
    assert torch.equal(ValueHead(64, seed=1)(hidden), ValueHead(64, seed=1)(hidden))
    before = torch.get_rng_state()
    ValueHead(64)
    assert torch.equal(torch.get_rng_state(), before)


def test_before_turns_and_after_them_are_read_each_on_a_scale_of_its_own() -> None:
    """What hardly varies before turns beside what varies after them is told apart as well, once it is standardized."""
    head = ValueHead(2, has_scales=True)
    head.load_state_dict(
        {"linear.weight": torch.tensor([[1.0, 0.0]]), "linear.bias": torch.tensor([0.0])}, strict=False
    )
    hidden = torch.tensor([[0.85, 3.0], [0.0, 3.0], [0.95, 3.0], [2.0, 3.0]])
    is_after = torch.tensor([False, True, False, True])
    assert head(hidden, is_after).tolist() == pytest.approx([0.85, 0.0, 0.95, 2.0])
    head.standardize(hidden, is_after)
    assert head(hidden, is_after).tolist() == pytest.approx([-1.0, -1.0, 1.0, 1.0], abs=1e-4)
    head.renew(seed=3)
    assert head(hidden, is_after).abs().max() < 0.05, "the weights are new"
    assert torch.equal(head.linear.weight, ValueHead(2, seed=3).linear.weight)
    assert head.state_dict()["mean"].tolist() == [[pytest.approx(0.9), 3.0], [1.0, 3.0]], "the scales stay"


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"x", "header"),
        (
            {"linear.weight": torch.ones(1, 3), "linear.bias": torch.ones(1)},
            r"of shape \(1, 3\) for \(1, 4\)",
        ),
        ({"linear.weight": torch.full((1, 4), float("nan")), "linear.bias": torch.ones(1)}, "not finite"),
        ({"linear.weight": torch.ones(1, 4)}, "weights without linear.bias"),
    ],
)
def test_a_head_beside_a_model_that_is_none_is_refused(
    tmp_path: Path, content: bytes | dict[str, torch.Tensor], match: str
) -> None:
    if isinstance(content, bytes):
        (tmp_path / FILE).write_bytes(content)
    else:
        save_file(content, tmp_path / FILE)
    with pytest.raises(
        ModelError, match=rf"value head beside the model .*: got .*{match}.*; take value_head"
    ):
        ValueHead.of(4, tmp_path)
