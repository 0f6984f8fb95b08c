"""What learners are compared on: losses of three kinds, and a model in a folder that ranks can build it from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tests.learning.test_learner import SHAPE, streams
from torch import Tensor
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from quintain.data.pack import micro_batches
from quintain.learning.learner import Learner, Optimization
from quintain.learning.sharding.learner import ShardedLearner
from quintain.learning.sharding.ranks import RankGroup
from quintain.losses.compose import combine
from quintain.losses.imitation import imitation
from quintain.losses.policy import clip_ratio
from quintain.losses.preference import dpo
from quintain.losses.value import value
from quintain.models.heads import ValueHead
from quintain.models.save import save
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Batch, Loss, Sample

RATE = 100.0
PLAIN = Optimization(learning_rate=RATE, optimizer="sgd", max_grad_norm=1e9)
"""The first change of the weights is the gradient, times so much that rounding the weights does not hide it."""


@dataclass(frozen=True)
class Case:
    """A loss, whether it needs a value head, and batches for it."""

    loss: Callable[[], Loss]
    has_head: bool
    batches: Callable[[], list[Batch]]


def few() -> list[Batch]:
    """Three micro-batches of unlike size: in two or four ranks some have nothing to do in the last round."""
    found = micro_batches(streams(1, num=7), max_tokens=45)
    assert len({sum(batch.lengths) for batch in found}) > 1
    assert len(found) % 2
    return found


def pairs() -> list[Batch]:
    """Four pairs in micro-batches that keep the sides of a pair together, with log-probs of a reference."""
    samples: Sequence[Sample] = [
        replace(sample, pair=number // 2, is_chosen=bool(number % 2))
        for number, sample in enumerate(streams(2, num=8))
    ]
    found = micro_batches(samples, max_tokens=90)
    return [
        replace(batch, extra=replace(batch.extra, reference_logprobs=batch.logprobs.clone()))
        for batch in found
    ]


CASES = {
    "sft": Case(imitation, False, few),
    "dpo": Case(dpo, False, pairs),
    "ppo": Case(lambda: combine((clip_ratio(), 1.0), (value(), 0.5)), True, few),
}


def make_model(vocabulary: int = 300) -> PreTrainedModel:
    """Return a model with tied embeddings, and more than one head for each key."""
    torch.manual_seed(1)
    shape: dict[str, Any] = {**SHAPE, "vocab_size": vocabulary}
    return Qwen3ForCausalLM(Qwen3Config(**shape, tie_word_embeddings=True)).eval()


def save_start(folder: Path) -> Path:
    """Save the model, with a tokenizer, and return its folder."""
    return save(make_model(), train_tokenizer(["a few words to cut"]), folder / "start")


def sharded(
    ranks: RankGroup,
    start: Path,
    name: str,
    *,
    optimization: Optimization = PLAIN,
    has_head: bool = False,
    context_ranks: int = 1,
) -> ShardedLearner:
    """Return a learner of the model in `start` in `ranks`."""
    head = ValueHead(SHAPE["hidden_size"]) if has_head else None
    return ShardedLearner(
        make_model(), optimization, ranks=ranks, name=name, folder=str(start), value_head=head,
        context_ranks=context_ranks,
    )  # fmt: skip


def alone(*, optimization: Optimization = PLAIN, has_head: bool = False) -> Learner:
    """Return the learner of the same model in this process."""
    return Learner(
        make_model(), optimization, value_head=ValueHead(SHAPE["hidden_size"]) if has_head else None
    )


def distance(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """Return the norm of the difference of two lists of tensors, as a part of the norm of the second."""
    pairs = [(a.detach(), b.detach()) for a, b in zip(one, other, strict=True)]
    return float(
        sum((a - b).square().sum() for a, b in pairs) ** 0.5 / sum(b.square().sum() for _, b in pairs) ** 0.5
    )


def check_case(ranks: RankGroup, start: Path, name: str, *, context_ranks: int = 1) -> None:
    """Compare a step of the case `name` in `ranks` with one in this process: its loss, its numbers and its gradient."""
    case = CASES[name]
    policy = f"{name}/{ranks.count}/{context_ranks}"
    many = sharded(ranks, start, policy, has_head=case.has_head, context_ranks=context_ranks)
    one = alone(has_head=case.has_head)
    begin = [parameter.detach().clone() for parameter in one.parameters]
    batches = case.batches()
    got, want = many.step(batches, case.loss()), one.step(batches, case.loss())
    assert abs(got.loss - want.loss) <= 1e-6 * abs(want.loss)
    assert abs(got.grad_norm - want.grad_norm) <= 1e-6 * want.grad_norm
    assert got.metrics.keys() == want.metrics.keys()
    gradients = [
        [(before - after.detach()) / RATE for before, after in zip(begin, each.parameters, strict=True)]
        for each in (many, one)
    ]
    assert distance(*gradients) <= 2e-6
    assert want.grad_norm > 1e-3, "a gradient of nothing would prove nothing"
