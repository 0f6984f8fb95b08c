"""Log-probs and entropies of tokens from logits, by one node of the graph."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from quintain.models.cpu import fused
from quintain.models.cpu.native import fits


def distributions(logits: Tensor, chosen: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the log-prob of `chosen` [M] and the entropy, [M] each, of softmax(`logits` [M, V] / temperature).

    The logits alone are kept for the gradient. Of torch's own operations those of the entropy would keep two more such
    matrices in fp32, and where a loss has no entropy nothing lets them go before the whole backward pass has ended.
    """
    if fits(logits):
        return fused.logprobs(logits, chosen, temperature)
    return cast("tuple[Tensor, Tensor]", cast(Any, _Distributions).apply(logits, chosen, temperature))


class _Distributions(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, chosen: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.temperature = temperature
        logs = _log_softmax(logits, temperature)
        logprobs = logs.gather(1, chosen[:, None]).squeeze(1)
        entropy = -(logs.exp().mul_(logs)).sum(dim=-1)
        ctx.save_for_backward(logits, chosen, entropy)
        return logprobs, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        by_logprob, by_entropy = grads
        logits, chosen, entropy = ctx.saved_tensors
        logs = _log_softmax(logits, ctx.temperature)
        found = logs.exp()  # d log p(a) / d z = [a] - p, and d H / d z = -p (log p + H)
        factor = torch.zeros_like(entropy) if by_logprob is None else -by_logprob
        if by_entropy is None:
            found.mul_(factor[:, None])
        else:
            found.mul_(factor[:, None] - by_entropy[:, None] * logs.add_(entropy[:, None]))
        if by_logprob is not None:
            found.scatter_add_(1, chosen[:, None], by_logprob[:, None].to(found.dtype))
        return found.div_(ctx.temperature).to(logits.dtype), None, None


def _log_softmax(logits: Tensor, temperature: float) -> Tensor:
    """Return the log-probs [M, V] in fp32 at least."""
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return torch.log_softmax(wide if temperature == 1 else wide / temperature, dim=-1)
