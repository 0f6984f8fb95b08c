"""What goes between a learner and its ranks: streams of tokens and numbers for each trained token, as rows of JSON, and
weights, as files."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from quintain.errors import EngineFault, UsageError
from quintain.types import Batch, BatchExtra

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """The part of a `Batch` that a forward pass reads."""

    token_ids: Tensor
    """int64 [N]"""
    lengths: tuple[int, ...]
    """tokens of each stream, [B]"""
    targets: Tensor
    """int64 [M], tokens that are trained"""

    def row(self) -> Row:
        """Return it as a row."""
        ids, targets = (part.cpu().numpy().astype("<i4").tobytes() for part in (self.token_ids, self.targets))
        return {
            "ids": b64encode(ids).decode(),
            "lengths": self.lengths,
            "targets": b64encode(targets).decode(),
        }


def streams_of(batch: Batch) -> Streams:
    """Return what a forward pass reads of `batch`.

    Raises:
        UsageError: its log-probs are among what a grammar allows, which ranks do not follow.
    """
    if batch.extra.constraints:
        raise UsageError(
            f"ranks of a learner: got {len(batch.extra.constraints)} turns with log-probs among what a grammar allows; "
            "give --learner-ranks 0, or take the agent without masked"
        )
    targets = (batch.turn_id >= 0).nonzero().squeeze(1)
    return Streams(token_ids=batch.token_ids, lengths=batch.lengths, targets=targets)


def batch_of(row: Row) -> Batch:
    """Return a batch with the streams of `row`, and nothing but zeros beside them."""
    ids, targets = (
        torch.from_numpy(np.frombuffer(b64decode(row[name]), "<i4").astype(np.int64))
        for name in ("ids", "targets")
    )
    lengths = tuple(int(length) for length in row["lengths"])
    sizes = torch.tensor(lengths)
    starts = torch.tensor([0, *accumulate(lengths)][:-1])
    sequence = torch.repeat_interleave(torch.arange(len(lengths)), sizes)
    nothing = torch.zeros(len(ids))
    turn_id = torch.full((len(ids),), -1, dtype=torch.int64).index_fill(0, targets, 0)
    extra = BatchExtra(
        num_trained=len(targets),
        turn_end=torch.zeros(len(ids), dtype=torch.bool),
        trajectory=torch.arange(len(lengths)),
        pair=torch.full((len(lengths),), -1),
        is_chosen=torch.zeros(len(lengths), dtype=torch.bool),
    )
    return Batch(
        token_ids=ids, sequence_id=sequence, position_ids=torch.arange(len(ids)) - starts[sequence], lengths=lengths,
        loss_weight=nothing, logprobs=nothing, advantages=nothing, returns=nothing, turn_id=turn_id, extra=extra,
    )  # fmt: skip


def weights_in(file: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights that another process wrote into `file`, one at a time, with their names.

    Raises:
        EngineFault: they have not arrived, or not as a whole.
    """
    try:
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118
                yield name, weights.get_tensor(name)
    except (OSError, SafetensorError) as error:
        raise EngineFault(
            f"weights between the learner and its ranks: got {' '.join(str(error).split())} from {file}; see that all "
            "machines see this folder at once, and that its disk has room"
        ) from error


def numbers_row(tensors: Sequence[Tensor | None]) -> list[str | None]:
    """Return float32 tensors [M] as texts; what is not there stays so."""
    return [
        None if part is None else b64encode(part.detach().cpu().float().numpy().tobytes()).decode()
        for part in tensors
    ]


def numbers_of(row: Sequence[str | None]) -> list[Tensor | None]:
    """Return the tensors that `numbers_row` made `row` of."""
    return [
        None if part is None else torch.from_numpy(np.frombuffer(b64decode(part), "<f4").copy())
        for part in row
    ]
