"""Optimizers by name, and what they keep of each weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import torch
from torch import nn

from quintain.errors import ConfigError, suggestion
from quintain.learning.sections import OptimizerName


def make_optimizer(
    name: OptimizerName,
    parameters: Sequence[nn.Parameter],
    *,
    rate: float,
    betas: tuple[float, float],
    weight_decay: float,
) -> torch.optim.Optimizer:
    """Return the optimizer `name` of `parameters`.

    adamw keeps two numbers a weight (1711.05101), adafactor the sums of rows and columns (1804.04235), and sgd, whose
    momentum is ``betas[0]``, one.

    Raises:
        ConfigError: there is none of that name.
    """
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=rate, betas=betas, weight_decay=weight_decay, fused=True)
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=rate, momentum=betas[0], weight_decay=weight_decay)
    if name == "adafactor":
        return torch.optim.Adafactor(parameters, lr=rate, weight_decay=weight_decay)
    raise ConfigError(f"optimizer: got {name!r}; {suggestion(name, get_args(OptimizerName))}")


def moment_shapes(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> dict[str, tuple[int, ...]]:
    """Return the shapes of what `optimizer`, made by `make_optimizer`, keeps of `parameter` after a step."""
    whole = tuple(parameter.shape)
    if isinstance(optimizer, torch.optim.SGD):
        return {"momentum_buffer": whole}
    if isinstance(optimizer, torch.optim.AdamW):
        return {"step": (), "exp_avg": whole, "exp_avg_sq": whole}
    if len(whole) < 2:
        return {"step": (), "variance": whole}
    return {"step": (), "row_var": (*whole[:-1], 1), "col_var": (*whole[:-2], 1, whole[-1])}
