"""States come back bit by bit, tied weights once on disk and still tied; those of another model are refused."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from quintain.errors import StoreError
from quintain.learning.checkpoint import NUMBERS, load_state, save_state


class Tied(nn.Module):
    """An embedding whose weights are those of the head, too; `size` differs between models."""

    def __init__(self, size: int = 4, *, is_tied: bool = True) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(size, 3), nn.Linear(3, size, bias=False)
        self.register_buffer("seen", torch.arange(5))
        if is_tied:
            self.head.weight = self.embed.weight


def trained(module: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of `module` after a step."""
    optimizer = torch.optim.AdamW(module.parameters())
    sum(parameter.sum() for parameter in module.parameters()).backward()  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
    optimizer.step()
    return optimizer


def test_a_state_comes_back_bit_by_bit_and_tied(tmp_path: Path) -> None:
    first, second = Tied(), Tied()
    before = trained(first)
    save_state(tmp_path, [first], before, {"version": 3})
    after = trained(second)
    assert load_state(tmp_path, [second], after) == {"version": 3}
    assert all(
        torch.equal(a, b)
        for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )
    assert second.head.weight is second.embed.weight
    assert len(load_file(tmp_path / "weights-0.safetensors")) == 2
    moments = [each.state[each.param_groups[0]["params"][0]] for each in (before, after)]
    assert all(torch.equal(moments[0][key], moments[1][key]) for key in ("step", "exp_avg", "exp_avg_sq"))


@pytest.mark.parametrize("kept", ["embed.weight", "head.weight"])
def test_either_name_of_a_tied_weight_may_be_the_one_on_disk(tmp_path: Path, kept: str) -> None:
    first, second = Tied(), Tied()
    optimizer = trained(first)
    save_state(tmp_path, [first], optimizer, {})
    tensors = {kept: first.head.weight.detach(), "seen": torch.arange(5)}
    save_file(tensors, tmp_path / "weights-0.safetensors")
    load_state(tmp_path, [second], optimizer)
    assert torch.equal(second.embed.weight, first.embed.weight)


@pytest.mark.parametrize("other", [Tied(5), Tied(is_tied=False), nn.Linear(3, 4)])
def test_a_state_of_another_model_is_refused_in_a_line(tmp_path: Path, other: nn.Module) -> None:
    module = Tied()
    save_state(tmp_path, [module], trained(module), {})
    with pytest.raises(StoreError, match=r"checkpoint .*: got .*; resume from another checkpoint") as caught:
        load_state(tmp_path, [other], torch.optim.AdamW(other.parameters()))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"version": 1e999}', '{"version": [1]}', "[" * 100_000, '{"version": "x"}']
)
def test_numbers_that_are_none_are_a_broken_checkpoint(tmp_path: Path, text: str) -> None:
    module = Tied()
    optimizer = trained(module)
    save_state(tmp_path, [module], optimizer, {"version": 3})
    (tmp_path / NUMBERS).write_text(text)
    with pytest.raises(StoreError, match=r"checkpoint .*: got learner.json that cannot be read") as caught:
        load_state(tmp_path, [module], optimizer)
    assert "\n" not in str(caught.value)
