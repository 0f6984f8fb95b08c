"""Context parallelism: ranks that share the tokens of long streams, each with its part, and see the keys of all.

Linear layers, norms and what is kept for the backward pass are of a rank's own tokens; before attention the keys and
values of one layer are gathered from all ranks, and in the backward pass each gets the sum of their gradients. torch
has `context_parallel` for this (2.13), but only for its attention on CUDA: on a processor it ends with "Operator
aten._scaled_dot_product_flash_attention_for_cpu.default does not have a sharding strategy registered".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Context:
    """The `count` ranks of `group`, of which this is number `rank`."""

    group: dist.ProcessGroup
    rank: int
    count: int

    def bounds(self, num: int) -> list[int]:
        """Return where the parts of `num` tokens begin, and their end."""
        return [num * place // self.count for place in range(self.count + 1)]

    def whole(self, part: Tensor, num: int) -> Tensor:
        """Return all `num` rows, of which this rank has `part`; it gets the sum of all ranks' gradients by it."""
        sizes = [end - start for start, end in pairwise(self.bounds(num))]
        return cast(Tensor, _Gathered.apply(part, sizes, self.group))


class _Gathered(torch.autograd.Function):
    """Rows of all ranks, in the order of ranks, that have `sizes` of them."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, sizes: Sequence[int], group: dist.ProcessGroup) -> Tensor:
        ctx.sizes, ctx.group, widest = sizes, group, max(sizes)
        found = part.new_empty(widest * len(sizes), part.shape[1])
        dist.all_gather_into_tensor(  # pyright: ignore[reportDeprecated] - the new name is not in torch 2.11
            found, _pad_rows(part, widest).contiguous(), group=group
        )
        rows = zip(found.split(widest), sizes, strict=True)
        return torch.cat([each[:size] for each, size in rows])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        sizes, (gradient,) = cast("Sequence[int]", ctx.sizes), gradients
        widest = max(sizes)
        parts = torch.cat([_pad_rows(each, widest) for each in gradient.split([*sizes])])
        own = gradient.new_empty(widest, gradient.shape[1])
        dist.reduce_scatter_tensor(own, parts, group=ctx.group)  # pyright: ignore[reportDeprecated]
        return own[: sizes[dist.get_rank(ctx.group)]], None, None


def _pad_rows(rows: Tensor, num: int) -> Tensor:
    return F.pad(rows, (0, 0, 0, num - len(rows)))
