import logging
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from quintain.models.cpu import half
from quintain.models.cpu.native import unavailable
from quintain.models.precision import computing

CPU = torch.device("cpu")
needs_kernels = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))


def rounded(tensor: Tensor) -> Tensor:
    return tensor.bfloat16().double()


def factors(rows: int, depth: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(rows, depth), torch.randn(columns, depth), torch.randn(columns)


@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 2, 1), (7, 33, 20), (300, 64, 150), (13, 48, 16)])
def test_products_are_those_of_the_rounded_factors(rows: int, depth: int, columns: int) -> None:
    inputs, weight, bias = factors(rows, depth, columns)
    expected = (rounded(inputs) @ rounded(weight).t() + bias).float()
    torch.testing.assert_close(half.linear(inputs, weight, bias), expected, atol=1e-4, rtol=1e-5)


def test_without_a_compiler_torch_computes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half, "unavailable", lambda: "no compiler")
    inputs, weight, bias = factors(5, 32, 20)
    expected = F.linear(inputs, weight, bias)
    torch.testing.assert_close(half.linear(inputs, weight, bias), expected, atol=0.2, rtol=0.02)


@needs_kernels
def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    inputs, weight, _ = factors(270, 64, 100)
    whole = half.linear(inputs, weight)
    for row in (0, 5, 255, 256, 269):
        assert torch.equal(half.linear(inputs[row : row + 1], weight)[0], whole[row])


@needs_kernels
def test_residual_and_gate() -> None:
    inputs, gate, _ = factors(9, 32, 40)
    up, residual = torch.randn(40, 32), torch.randn(9, 40)
    expected = (rounded(inputs) @ rounded(gate).t()).float() + residual
    found = half.product(inputs, half.pairs_of(gate), 40, residual=residual)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)
    both = torch.stack([half.pairs_of(gate), half.pairs_of(up)], dim=1)
    opened = F.silu(rounded(inputs) @ rounded(gate).t()) * (rounded(inputs) @ rounded(up).t())
    found = half.product(inputs, both, 40, is_gated=True)
    torch.testing.assert_close(found, opened.float(), atol=1e-4, rtol=1e-5)


@needs_kernels
def test_what_is_no_number_stays_none() -> None:
    inputs, weight, _ = factors(3, 8, 16)
    inputs[1, 2], inputs[2, 0] = float("nan"), float("inf")
    found = half.linear(inputs, weight)
    assert bool(found[0].isfinite().all()) and bool(found[1].isnan().all())
    assert not bool(found[2].isfinite().any())


def test_gradients_are_those_of_the_layer_up_to_rounding() -> None:
    inputs, weight, bias = (part.requires_grad_() for part in factors(24, 32, 20))
    shaped = inputs.view(2, 12, 32)
    grad = torch.randn(2, 12, 20)
    parts = (inputs, weight, bias)
    ours = torch.autograd.grad(half.linear(shaped, weight, bias), parts, grad)
    theirs = torch.autograd.grad(F.linear(shaped, weight, bias), parts, grad)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.shape == other.shape
        assert float((mine - other).norm() / other.norm()) < 0.01


def test_only_linear_layers_in_fp32_are_changed() -> None:
    inputs, weight, _ = factors(4, 32, 20)
    with computing("bf16", CPU):
        assert torch.equal(F.linear(inputs, weight), half.linear(inputs, weight))
        assert torch.equal(torch.nn.Linear(32, 20, bias=False)(inputs).new_zeros(1), torch.zeros(1))
        assert torch.equal(inputs @ weight.t(), torch.mm(inputs, weight.t()))
        assert F.linear(inputs.double(), weight.double()).dtype == torch.float64
    with computing("fp32", CPU):
        exact = F.linear(inputs, weight)
    assert torch.equal(exact, F.linear(inputs, weight))
    assert not torch.equal(exact, half.linear(inputs, weight))


def test_a_processor_without_the_instructions_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(half, "processor", lambda: "flags : sse avx2")
    cast(Any, half.warn_if_slow).cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with computing("bf16", CPU):
                pass
    assert [record.getMessage() for record in caplog.records] == [
        "precision bf16: this processor has no instructions for it (AVX512-BF16), so that it may be slower than fp32"
    ]
    cast(Any, half.warn_if_slow).cache_clear()
