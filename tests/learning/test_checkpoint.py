"""States come back bit by bit, tied weights once on disk and still tied; those of another model are refused."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import AdamW

from quintain.errors import StoreError
from quintain.learning.checkpoint import (
    MOMENTS,
    NUMBERS,
    head_in,
    load_modules,
    load_numbers,
    load_shards,
    load_state,
    save_shards,
    save_state,
)
from quintain.learning.optimizers import OptimizerName, make_optimizer, moment_shapes


class Tied(nn.Module):
    """An embedding whose weights are those of the head, too; `size` differs between models."""

    def __init__(self, size: int = 4, *, is_tied: bool = True) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(size, 3), nn.Linear(3, size, bias=False)
        self.register_buffer("seen", torch.arange(5))
        if is_tied:
            self.head.weight = self.embed.weight


def trained(module: nn.Module) -> AdamW:
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
    load_state(tmp_path, [second], after)
    assert load_numbers(tmp_path, ["version"]) == {"version": 3}
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
    "text",
    [
        "", "[]", "5", "{}", '{"version": 1e999}', '{"version": [1]}', "[" * 100_000, '{"version": "x"}', "\xff",
        '{"version": true}', '{"version": -1}', '{"version": 1.0}', '{"version": NaN}', '{"other": 1}',
        '{"version": 1, "other": 1}', f'{{"version": {2**70}}}', f'{{"version": {"9" * 5000}}}',
    ],
)  # fmt: skip
def test_numbers_that_are_none_are_a_broken_checkpoint(tmp_path: Path, text: str) -> None:
    (tmp_path / NUMBERS).write_text(text, encoding="latin-1")
    with pytest.raises(StoreError, match=r"checkpoint .*: got learner.json that cannot be read") as caught:
        load_numbers(tmp_path, ["version"])
    assert "\n" not in str(caught.value)


def change(file: Path, tensors: Mapping[str, Tensor | None]) -> None:
    """Change `tensors` in `file`, or take them away."""
    kept = {**load_file(file), **tensors}
    save_file({name: tensor for name, tensor in kept.items() if tensor is not None}, file)


SPOILS: dict[str, tuple[dict[str, Tensor | None], str]] = {
    "of one number, which would be spread": (
        {"0.exp_avg": torch.ones(1)},
        r"0.exp_avg of shape \(1,\) for \(4, 3\)",
    ),
    "turned": ({"0.exp_avg": torch.ones(3, 4)}, r"0.exp_avg of shape \(3, 4\) for \(4, 3\)"),
    "large": ({"0.exp_avg": torch.ones(4000, 3000)}, r"0.exp_avg of shape \(4000, 3000\) for"),
    "halves": ({"0.exp_avg": torch.ones(4, 3).half()}, "0.exp_avg of float16 for float32"),
    "whole": ({"0.exp_avg": torch.ones(4, 3, dtype=torch.int64)}, "0.exp_avg of int64 for float32"),
    "no number": (
        {"0.exp_avg": torch.full((4, 3), float("nan"))},
        "0.exp_avg with numbers that are not finite",
    ),
    "endless": ({"0.exp_avg_sq": torch.full((4, 3), float("inf"))}, "0.exp_avg_sq with numbers that are not"),
    "below 0": ({"0.exp_avg_sq": torch.full((4, 3), -1.0)}, "0.exp_avg_sq with numbers below 0"),
    "a step below 0": ({"0.step": torch.tensor(-1.0)}, "0.step with numbers below 0"),
    "a step that is none": (
        {"0.step": torch.tensor(float("nan"))},
        "0.step with numbers that are not finite",
    ),
    "a whole step": ({"0.step": torch.tensor(3)}, "0.step of int64 for float32"),
    "steps": ({"0.step": torch.ones(4)}, r"0.step of shape \(4,\) for \(\)"),
    "missing": ({"0.exp_avg_sq": None}, "an optimizer that knows .* of 0, but not exp_avg_sq"),
    "more": ({"0.evil": torch.ones(4, 3)}, "with 0.evil, which the optimizer has not"),
    "of another parameter": ({"7.step": torch.ones(())}, "with 7.step, which the optimizer has not"),
    "without a place": ({"step": torch.ones(())}, "with step, which the optimizer has not"),
}


@pytest.mark.parametrize("kind", SPOILS)
def test_an_optimizer_with_which_no_step_can_be_made_is_refused_and_changes_nothing(
    tmp_path: Path, kind: str
) -> None:
    module, other = Tied(), Tied()
    save_state(tmp_path, [module], trained(module), {})
    tensors, match = SPOILS[kind]
    change(tmp_path / MOMENTS, tensors)
    optimizer = trained(other)
    before = [value.clone() for value in (*other.state_dict().values(), *_moments(optimizer))]
    with pytest.raises(
        StoreError, match=rf"checkpoint .*: got .*{match}.*; resume from another check"
    ) as caught:
        load_state(tmp_path, [other], optimizer)
    assert "\n" not in str(caught.value)
    after = [*other.state_dict().values(), *_moments(optimizer)]
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))


def _moments(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    states = [optimizer.state[parameter] for parameter in optimizer.param_groups[0]["params"]]
    return [own[key] for own in states for key in sorted(own)]


@pytest.mark.parametrize(
    ("tensors", "match"),
    [
        ({"seen": torch.ones(5)}, "seen of float32 for int64"),
        ({"seen": torch.arange(6)}, r"seen of shape \(6,\) for \(5,\)"),
        ({"embed.weight": torch.full((4, 3), float("nan"))}, "embed.weight with numbers that are not finite"),
        ({"embed.weight": torch.ones(4, 3).double()}, "embed.weight of float64 for float32"),
        ({"embed.weight": torch.ones(4, 1)}, r"embed.weight of shape \(4, 1\) for \(4, 3\)"),
        ({"evil": torch.ones(1)}, "a tensor evil that the model has not"),
        ({"seen": None}, r"weights without seen \(1 missing\)"),
    ],
)
def test_weights_and_buffers_with_which_nothing_can_be_computed_are_refused(
    tmp_path: Path, tensors: dict[str, Tensor | None], match: str
) -> None:
    module = Tied()
    optimizer = trained(module)
    save_state(tmp_path, [module], optimizer, {})
    change(tmp_path / "weights-0.safetensors", tensors)
    before = [value.clone() for value in module.state_dict().values()]
    with pytest.raises(StoreError, match=rf"checkpoint .*: got .*{match}") as caught:
        load_state(tmp_path, [module], optimizer)
    assert "\n" not in str(caught.value)
    assert all(torch.equal(one, two) for one, two in zip(before, module.state_dict().values(), strict=True))


@pytest.mark.parametrize("name", get_args(OptimizerName))
def test_what_an_optimizer_keeps_has_the_shapes_that_are_asked_for(
    tmp_path: Path, name: OptimizerName
) -> None:
    module = nn.Linear(3, 4)
    optimizer = make_optimizer(name, [*module.parameters()], rate=0.1, betas=(0.9, 0.99), weight_decay=0.0)
    module(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    for parameter in module.parameters():
        kept = {key: tuple(value.shape) for key, value in optimizer.state[parameter].items()}
        assert kept == moment_shapes(optimizer, parameter)
    save_state(tmp_path, [module], optimizer, {})
    before = [value.clone() for value in _moments(optimizer)]
    optimizer.state.clear()
    load_state(tmp_path, [module], optimizer)
    assert all(torch.equal(one, two) for one, two in zip(before, _moments(optimizer), strict=True))
    for other in {*get_args(OptimizerName)} - {name}:
        wrong = make_optimizer(other, [*module.parameters()], rate=0.1, betas=(0.9, 0.99), weight_decay=0.0)
        with pytest.raises(StoreError, match="which the optimizer has not"):
            load_state(tmp_path, [module], wrong)


@pytest.mark.parametrize(
    ("tensors", "match"),
    [
        ({"linear.weight": torch.ones(1, 8)}, r"weights without linear.bias"),
        ({"linear.weight": torch.ones(8)}, "a value head without its weights"),
        ({"other": torch.ones(8)}, "a value head without its weights"),
        (
            {"inner.0.weight": torch.ones(3), "linear.weight": torch.ones(1, 8)},
            "a value head without its weights",
        ),
    ],
)
def test_a_value_head_that_is_none_is_refused(tmp_path: Path, tensors: dict[str, Tensor], match: str) -> None:
    body = nn.Linear(1, 1)
    save_file(body.state_dict(), tmp_path / "weights-0.safetensors")
    save_file(tensors, tmp_path / "weights-1.safetensors")
    with pytest.raises(StoreError, match=rf"checkpoint .*: got .*{match}") as caught:
        head = head_in(tmp_path)
        assert head is not None
        load_modules(tmp_path, [body, head])
    assert "\n" not in str(caught.value)


def save_ranks(
    folder: Path, *, key: str = "exp_avg", moment: Tensor | None = None
) -> tuple[nn.Linear, AdamW]:
    """Write what ranks do of a module, with one of the moments of its weights exchanged."""
    module = nn.Linear(3, 4)
    optimizer = trained(module)
    if moment is not None:
        optimizer.state[module.weight][key] = moment
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save_shards(folder, dict(module.named_parameters()), optimizer)
    return module, optimizer


def test_what_ranks_wrote_comes_back(tmp_path: Path) -> None:
    module, optimizer = save_ranks(tmp_path)
    other = nn.Linear(3, 4)
    after = trained(other)
    load_shards(tmp_path, dict(other.named_parameters()), None)
    assert torch.equal(other.weight, module.weight)
    load_shards(tmp_path, dict(other.named_parameters()), after)
    assert all(torch.equal(one, two) for one, two in zip(_moments(optimizer), _moments(after), strict=True))


@pytest.mark.parametrize(
    ("key", "moment", "match"),
    [
        ("exp_avg", torch.ones(1), r"of \(1,\) float32 for \(4, 3\) float32"),
        ("exp_avg", torch.ones(4, 3, dtype=torch.int64), r"of \(4, 3\) int64 for \(4, 3\) float32"),
        ("exp_avg", torch.full((4, 3), float("nan")), "exp_avg.weight with numbers that are not finite"),
        ("exp_avg_sq", torch.full((4, 3), -1.0), "exp_avg_sq.weight with numbers below 0"),
        ("evil", torch.ones(4, 3), "optimizer.evil.weight, which is nothing of this model"),
    ],
)
def test_shards_with_which_no_step_can_be_made_are_refused(
    tmp_path: Path, key: str, moment: Tensor, match: str
) -> None:
    module, _ = save_ranks(tmp_path, key=key, moment=moment)
    with pytest.raises(StoreError, match=rf"checkpoint .*: got .*{match}.*; resume from another") as caught:
        load_shards(tmp_path, dict(module.named_parameters()), trained(module))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change_shape", [False, True])
def test_shards_that_claim_more_than_they_hold_are_refused(tmp_path: Path, change_shape: bool) -> None:
    """Where a part lies in its tensor stands in the file, and may be anything."""
    module, optimizer = save_ranks(tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    with safe_open(file, framework="pt") as opened:
        told = json.loads(opened.metadata()["DCP_SHARDING_INFO"])
    told["weight"]["saved_offsets"] = [1 << 40, 0] if change_shape else [-4, 0]
    save_file(load_file(file), file, metadata={"DCP_SHARDING_INFO": json.dumps(told)})
    with pytest.raises(StoreError, match=r"checkpoint .*: got .*; resume from another"):
        load_shards(tmp_path, dict(module.named_parameters()), optimizer)


def test_shards_of_another_model_are_refused(tmp_path: Path) -> None:
    module, optimizer = save_ranks(tmp_path)
    cases: list[tuple[dict[str, nn.Parameter], str]] = [
        ({"weight": nn.Parameter(torch.ones(4, 3))}, "bias, which is nothing of this model"),
        (
            {**dict(module.named_parameters()), "more": nn.Parameter(torch.ones(1))},
            r"weights without more \(1 missing\)",
        ),
    ]
    for named, match in cases:
        with pytest.raises(StoreError, match=rf"checkpoint .*: got .*{match}.*; resume from another"):
            load_shards(tmp_path, named, None)
    del optimizer.state[module.bias]["exp_avg"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save_shards(tmp_path, dict(module.named_parameters()), optimizer)
    with pytest.raises(StoreError, match="knows exp_avg_sq, step of bias, but not exp_avg"):
        load_shards(tmp_path, dict(module.named_parameters()), trained(module))


def test_a_value_head_in_ranks_that_claims_more_than_its_files_hold_is_not_made(tmp_path: Path) -> None:
    told = {"value_head.linear.weight": {"saved_offsets": [0, 1 << 50]}}
    save_file(
        {"value_head.linear.weight": torch.ones(1, 8)}, tmp_path / "shard-0-model.safetensors",
        metadata={"DCP_SHARDING_INFO": json.dumps(told)},
    )  # fmt: skip
    with pytest.raises(StoreError, match=r"a value head of 0 by \d+, more than its files hold"):
        head_in(tmp_path)
