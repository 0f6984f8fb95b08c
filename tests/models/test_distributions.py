"""Log-probs and entropies from logits: values, gradients, and what is kept for them."""

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from quintain.models import distributions as module
from quintain.models.distributions import distributions


@pytest.fixture(autouse=True)
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "fits", lambda _: False)


def by_torch(logits: Tensor, chosen: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    logs = torch.log_softmax(logits / temperature, dim=-1)
    return logs.gather(1, chosen[:, None]).squeeze(1), -(logs.exp() * logs).sum(dim=-1)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("parts", [(1.0, 0.0), (0.0, 1.0), (0.6, -0.3)])
def test_values_and_gradients_are_those_of_torch(temperature: float, parts: tuple[float, float]) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, 11, generator=generator, dtype=torch.float64) * 3
    chosen = torch.randint(0, 11, (7,), generator=generator)
    weights = torch.randn(7, generator=generator, dtype=torch.float64)
    gradients: list[Tensor] = []
    for function in (distributions, by_torch):
        own = logits.clone().requires_grad_()
        logprobs, entropy = function(own, chosen, temperature)
        terms = [
            factor * (weights * part).sum()
            for factor, part in zip(parts, (logprobs, entropy), strict=True)
            if factor
        ]
        torch.stack(terms).sum().backward()
        assert own.grad is not None
        gradients.append(own.grad)
        expected = by_torch(logits, chosen, temperature)
        torch.testing.assert_close(logprobs.detach(), expected[0])
        torch.testing.assert_close(entropy.detach(), expected[1])
    torch.testing.assert_close(gradients[0], gradients[1])


def test_logits_in_16_bits_are_summed_in_32() -> None:
    logits = torch.linspace(-4, 4, 1000).repeat(2, 1).bfloat16().requires_grad_()
    logprobs, entropy = distributions(logits, torch.tensor([3, 999]), 1.0)
    assert logprobs.dtype == entropy.dtype == torch.float32
    logprobs.sum().backward()
    assert logits.grad is not None and logits.grad.dtype == torch.bfloat16
    assert float(logits.grad.float().sum()) == pytest.approx(0, abs=1e-2)


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of tensors that were made within it and are still there, and the most that there were."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self.seen: set[int] = set()

    def leave(self, key: int, size: int) -> None:
        self.live -= size
        self.seen.discard(key)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = function(*args, **(kwargs or {}))
        for tensor in output if isinstance(output, tuple) else (output,):  # pyright: ignore[reportUnknownVariableType]
            if isinstance(tensor, Tensor):
                storage: Any = tensor.untyped_storage()
                key, size = storage._cdata, storage.nbytes()
                if key not in self.seen:
                    self.seen.add(key)
                    self.live += size
                    self.peak = max(self.peak, self.live)
                    weakref.finalize(storage, self.leave, key, size)
        return output


@pytest.mark.parametrize("pieces", [2, 16])
def test_pieces_that_are_computed_again_let_go_of_theirs(pieces: int) -> None:
    """Without entropy in the loss nothing of a piece stays while the others are computed again."""
    weight = torch.randn(4, 1000)
    hidden = torch.randn(10 * pieces, 4, requires_grad=True)
    chosen = torch.zeros(10, dtype=torch.int64)

    def compute(part: Tensor) -> tuple[Tensor, Tensor]:
        return distributions(part @ weight, chosen, 1.0)

    with LiveBytes() as counted:
        found: list[Any] = [checkpoint(compute, part, use_reentrant=False) for part in hidden.split(10)]
        torch.cat([logprobs for logprobs, _ in found]).sum().backward()
    assert hidden.grad is not None
    assert counted.peak < 6 * 10 * 1000 * 4
