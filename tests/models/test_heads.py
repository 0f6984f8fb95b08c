from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from quintain.errors import ModelError, StoreError
from quintain.models.heads import ValueHead, load_value_head, save_value_head


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


def test_round_trip(tmp_path: Path) -> None:
    head = ValueHead(8, seed=3)
    file = save_value_head(head, tmp_path / "value_head.safetensors")
    again = load_value_head(file)
    assert torch.equal(again.linear.weight, head.linear.weight)
    assert torch.equal(again.linear.bias, head.linear.bias)


def test_broken_files(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"missing\.safetensors"):
        load_value_head(tmp_path / "missing.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"no")
    with pytest.raises(ModelError, match="value head"):
        load_value_head(tmp_path / "broken.safetensors")
    save_file({"other": torch.ones(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ModelError, match="got tensors other;"):
        load_value_head(tmp_path / "other.safetensors")
    with pytest.raises(StoreError, match="save a value head"):
        save_value_head(ValueHead(2), tmp_path / "no" / "folder.safetensors")
