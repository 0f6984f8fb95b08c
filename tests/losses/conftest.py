"""Batches by hand, and a toy softmax policy whose every action can be enumerated."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from quintain.types import Batch, BatchExtra, Loss, LossReport, Outputs


def batch(
    weight: Sequence[float],
    *,
    advantages: Sequence[float] | None = None,
    logprobs: Sequence[float] | None = None,
    returns: Sequence[float] | None = None,
    lengths: Sequence[int] | None = None,
    turn_id: Sequence[int] | None = None,
) -> Batch:
    """A float64 batch of N tokens; one stream unless `lengths` says otherwise."""
    num = len(weight)
    counts = tuple(lengths or (num,))

    def floats(numbers: Sequence[float] | None) -> Tensor:
        return torch.tensor(numbers or [0.0] * num, dtype=torch.float64)

    streams = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    extra = BatchExtra(
        num_trained=sum(w > 0 for w in weight),
        turn_end=torch.zeros(num, dtype=torch.bool),
        trajectory=torch.arange(len(counts)),
        pair=torch.full((len(counts),), -1),
        is_chosen=torch.zeros(len(counts), dtype=torch.bool),
    )
    return Batch(
        token_ids=torch.arange(num),
        sequence_id=streams,
        position_ids=torch.arange(num),
        lengths=counts,
        loss_weight=floats(weight),
        logprobs=floats(logprobs),
        advantages=floats(advantages),
        returns=floats(returns),
        turn_id=torch.tensor(turn_id or [0 if w else -1 for w in weight]),
        extra=extra,
    )


def outputs(logprobs: Sequence[float], *, entropy: Sequence[float] | None = None) -> Outputs:
    """Outputs that can be differentiated with respect to `outputs.logprobs`."""
    return Outputs(
        logprobs=torch.tensor(logprobs, dtype=torch.float64, requires_grad=True),
        entropy=torch.tensor(entropy or [0.0] * len(logprobs), dtype=torch.float64),
    )


def pairs(
    base: Batch, pair: Sequence[int], is_chosen: Sequence[bool], reference: Sequence[float] | None
) -> Batch:
    """`base` with its streams as sides of pairs."""
    extra = replace(
        base.extra,
        pair=torch.tensor(pair),
        is_chosen=torch.tensor(is_chosen),
        num_pairs=len({p for p in pair if p >= 0}),
        reference_logprobs=None if reference is None else torch.tensor(reference, dtype=torch.float64),
    )
    return replace(base, extra=extra)


@dataclass
class Toy:
    """A softmax policy over 3 actions in 2 states, its behaviour policy and the advantage of every action.

    The batch holds every action once, weighted by its behaviour probability: sums over it are
    expectations without noise.
    """

    theta: Tensor
    behaviour: Tensor
    advantages: Tensor

    def batch(self) -> Batch:
        made = batch((self.behaviour.exp() / 2).flatten().tolist(), lengths=[1] * 6)
        logprobs, advantages = self.behaviour.flatten(), self.advantages.flatten()
        return replace(made, logprobs=logprobs, advantages=advantages)

    def gradient(self, loss: Loss, made: Batch | None = None) -> Tensor:
        """The gradient of `loss` with respect to the logits."""
        theta = self.theta.clone().requires_grad_()
        logs = torch.log_softmax(theta, -1)
        entropy = -(logs.exp() * logs).sum(-1, keepdim=True).expand(2, 3)
        made_outputs = Outputs(logprobs=logs.flatten(), entropy=entropy.flatten())
        report: LossReport = loss(made_outputs, made or self.batch())
        return torch.autograd.grad(report.loss, theta)[0]

    def exact(self, objective: Callable[[Tensor], Tensor]) -> Tensor:
        """The gradient of `objective`(probabilities [2, 3]) / 2 states with respect to the logits."""
        theta = self.theta.clone().requires_grad_()
        return torch.autograd.grad(objective(torch.softmax(theta, -1)) / 2, theta)[0]


@pytest.fixture
def toy() -> Toy:
    """The toy policy at its behaviour policy, with advantages of mean 0 in each state."""
    theta = torch.tensor([[0.3, -0.2, 0.9], [-1.0, 0.4, 0.1]], dtype=torch.float64)
    behaviour = torch.log_softmax(theta, -1)
    raw = torch.tensor([[1.0, -0.5, 0.25], [0.0, 2.0, -1.0]], dtype=torch.float64)
    return Toy(theta, behaviour, raw - (behaviour.exp() * raw).sum(-1, keepdim=True))


@pytest.fixture(name="batch")
def _batch() -> Callable[..., Batch]:  # pyright: ignore[reportUnusedFunction]
    return batch


@pytest.fixture(name="outputs")
def _outputs() -> Callable[..., Outputs]:  # pyright: ignore[reportUnusedFunction]
    return outputs


@pytest.fixture(name="pairs")
def _pairs() -> Callable[..., Batch]:  # pyright: ignore[reportUnusedFunction]
    return pairs
