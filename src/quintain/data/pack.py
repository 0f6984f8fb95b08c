"""Samples to batches: end to end without padding, weights normalised over the whole step.

Because the weights of a step are fixed before it is cut into micro-batches, a loss is a plain sum of `loss_weight` ·
term, and the gradients of micro-batches add up to that of the step whatever the cut. The normaliser belongs to the
step, never to the micro-batch; pairs are never split.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from quintain.data.samples import imitation_samples, limit_length, pair_samples, samples_from
from quintain.errors import DataError, UsageError, suggestion
from quintain.types import Batch, BatchExtra, Sample

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Aggregation",
    "imitation_samples",
    "limit_length",
    "micro_batches",
    "pack",
    "pair_samples",
    "samples_from",
]

Aggregation = Literal["token_mean", "sequence_mean", "turn_mean", "constant"]


def pack(
    samples: Sequence[Sample], *, aggregation: Aggregation = "token_mean", constant: float | None = None
) -> Batch:
    """Return all of `samples` as one `Batch`.

    With w a token's own weight, B the trajectories and n the trained tokens of the step: "token_mean" weighs
    a token w/n (DAPO, 2503.14476), "sequence_mean" w/(B·n of its trajectory) (GRPO, 2402.03300), "turn_mean"
    w/(T·n of its turn), T the turns of the step with trained tokens (for a loss of whole turns: WebRL, 2411.02337),
    "constant" w/(B·`constant`) (Dr. GRPO, 2503.20783). The sequence is the trajectory, over all its streams.
    Raises `DataError` when there is nothing to train on.
    """
    weights = _normalise_weights(samples, (), aggregation, constant)
    return _batch(samples, weights, _num_trained(samples), _num_pairs(samples))


@dataclass(frozen=True, slots=True)
class PassSize:
    """How many tokens are computed at once: ``PassSize(16_384)``."""

    max_tokens: int
    num_parts: int = 1
    """passes that are computed at once, by ranks"""


def micro_batches(
    samples: Sequence[Sample],
    *,
    max_tokens: int,
    aggregation: Aggregation = "token_mean",
    constant: float | None = None,
    left_out: Sequence[Sample] = (),
    num_parts: int = 1,
) -> list[Batch]:
    """Return `samples`, in order, in batches of at most `max_tokens` tokens, weighted as `pack` does.

    Where `num_parts` of them are computed at once, there are a multiple of as many, as far as there are streams, and
    none has many more tokens than another.

    Streams that are `left_out` are in none of them and count in the divisors, as they would with an advantage of 0.
    Raises `DataError` when a stream (or both sides of a pair) is longer, or nothing is trained.
    """
    weights = _normalise_weights(samples, left_out, aggregation, constant)
    num_trained, num_pairs = _num_trained(samples), _num_pairs(samples)
    return [
        _batch([samples[i] for i in cut], [weights[i] for i in cut], num_trained, num_pairs)
        for cut in _even_cuts(samples, max_tokens, num_parts)
    ]


def _even_cuts(samples: Sequence[Sample], max_tokens: int, num_parts: int) -> list[list[int]]:
    """Return what `_cuts` does, with the largest cut as small as it can be in rounds of `num_parts`."""
    cuts = _cuts(samples, max_tokens)
    if num_parts == 1:
        return cuts
    most = -(-len(cuts) // num_parts) * num_parts
    low, high = max(sum(len(samples[i].token_ids) for i in unit) for unit in _units(samples)), max_tokens
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(_cuts(samples, middle)) <= most else (middle + 1, high)
    return _cuts(samples, high)


def _units(samples: Sequence[Sample]) -> list[list[int]]:
    """Return the numbers of `samples` that are not cut apart: each alone, sides of a pair, candidates of a choice."""
    units: dict[tuple[str, int], list[int]] = {}
    for index, sample in enumerate(samples):
        units.setdefault(_unit(sample, index), []).append(index)
    return list(units.values())


def _unit(sample: Sample, index: int) -> tuple[str, int]:
    if sample.choice >= 0:
        return "choice", sample.choice
    return ("stream", index) if sample.pair < 0 else ("pair", sample.pair)


def _cuts(samples: Sequence[Sample], max_tokens: int) -> list[list[int]]:
    cuts: list[list[int]] = []
    room = -1
    for indices in _units(samples):
        length = sum(len(samples[i].token_ids) for i in indices)
        if length > max_tokens:
            kind, _ = _unit(samples[indices[0]], 0)
            raise DataError(
                f"a {kind} in a micro-batch of {max_tokens} tokens: got {length}; raise max_tokens "
                "(--tokens-per-microbatch), or drop it"
            )
        if length > room:
            cuts.append([])
            room = max_tokens
        cuts[-1] += indices
        room -= length
    return cuts


def _num_trained(samples: Sequence[Sample]) -> int:
    return sum(int(np.count_nonzero(sample.loss_weight)) for sample in samples)


def _num_pairs(samples: Sequence[Sample]) -> int:
    return len({sample.pair for sample in samples if sample.pair >= 0})


def _normalise_weights(
    samples: Sequence[Sample], left_out: Sequence[Sample], aggregation: Aggregation, constant: float | None
) -> list[NDArray[np.float32]]:
    """Return the weights of each sample divided by what `aggregation` says, over those that are `left_out` as well."""
    if aggregation not in get_args(Aggregation):
        hint = suggestion(aggregation, get_args(Aggregation))
        raise UsageError(f"aggregation of a loss: got {aggregation!r}; {hint}")
    if (constant is not None) != (aggregation == "constant") or (constant is not None and constant <= 0):
        raise UsageError(
            f'constant of a loss: got {constant} with "{aggregation}"; give one above 0 with "constant"'
        )
    num_of: dict[int, int] = {}
    for sample in (*samples, *left_out):
        num = int(np.count_nonzero(sample.loss_weight))
        num_of[sample.trajectory] = num_of.get(sample.trajectory, 0) + num
    num_trained = sum(num_of.values())
    if not _num_trained(samples):
        raise DataError(
            f"a batch to train on: got {len(samples)} samples without a trained token; collect more"
        )
    if aggregation == "turn_mean":
        num_turns = sum(len(np.unique(s.turn_id[s.loss_weight > 0])) for s in (*samples, *left_out))
        return [(s.loss_weight / (num_turns * _turn_sizes(s))).astype(np.float32) for s in samples]
    num_trajectories = sum(num > 0 for num in num_of.values())
    divisors = {
        "token_mean": dict.fromkeys(num_of, float(num_trained)),
        "sequence_mean": {key: float(num_trajectories * max(num, 1)) for key, num in num_of.items()},
        "constant": dict.fromkeys(num_of, num_trajectories * (constant or 1.0)),
    }[aggregation]
    return [(sample.loss_weight / divisors[sample.trajectory]).astype(np.float32) for sample in samples]


def _turn_sizes(sample: Sample) -> NDArray[np.int64]:
    """Return for each token of `sample` the number of trained tokens of its turn, at least 1."""
    places = sample.turn_id + 1  # a prompt's turn is -1
    return np.bincount(places, weights=sample.loss_weight > 0).astype(np.int64)[places].clip(1)


def versions_of(sample: Sample) -> NDArray[np.int64]:
    """Return the versions that the tokens of `sample` were sampled with; all samples of a step have them, or none."""
    assert sample.versions is not None, "the first sample of the step has versions"
    return sample.versions


def _batch(
    samples: Sequence[Sample], weights: Sequence[NDArray[np.float32]], num_trained: int, num_pairs: int
) -> Batch:
    import torch  # here, so that a method can be read without it

    lengths = np.array([len(sample.token_ids) for sample in samples], np.int64)
    starts = np.cumsum(lengths) - lengths

    def join(array_of: Callable[[Sample], NDArray[Any]]) -> Tensor:
        return torch.as_tensor(np.concatenate([array_of(sample) for sample in samples]))

    has_choices = any(sample.choice >= 0 for sample in samples)
    extra = BatchExtra(
        num_trained=num_trained,
        turn_end=join(lambda sample: sample.turn_end),
        trajectory=torch.tensor([sample.trajectory for sample in samples]),
        pair=torch.tensor([sample.pair for sample in samples]),
        is_chosen=torch.tensor([sample.is_chosen for sample in samples]),
        num_pairs=num_pairs,
        rank=torch.tensor([sample.rank for sample in samples]),
        versions=None if samples[0].versions is None else join(versions_of),
        choice=torch.tensor([sample.choice for sample in samples]) if has_choices else None,
        score_length=torch.tensor([sample.score_length for sample in samples]) if has_choices else None,
        constraints=tuple(
            (start + at, each)
            for start, sample in zip(starts.tolist(), samples, strict=True)
            for at, each in sample.constraints
        ),
    )
    return Batch(
        token_ids=join(lambda sample: sample.token_ids),
        sequence_id=torch.as_tensor(np.repeat(np.arange(len(samples)), lengths)),
        position_ids=torch.as_tensor(np.arange(lengths.sum()) - np.repeat(starts, lengths)),
        lengths=tuple(lengths.tolist()),
        loss_weight=torch.as_tensor(np.concatenate(weights)),
        logprobs=join(lambda sample: sample.logprobs),
        advantages=join(lambda sample: sample.advantages),
        returns=join(lambda sample: sample.returns),
        turn_id=join(lambda sample: sample.turn_id),
        extra=extra,
    )
