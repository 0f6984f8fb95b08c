"""Gradient checkpointing of models that run on their own forward pass: transformers' layers compute themselves again.

Transformers does so in its training mode only, which also switches dropout on; a model with dropout is refused, as what
it says in training would not be what it sampled.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, cast

from torch import nn

from quintain.errors import ConfigError
from quintain.models.precision import Precision, computing

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def checkpoint_layers(model: PreTrainedModel, precision: Precision) -> None:
    """Let the layers of `model`, which compute in `precision`, keep only what they begin with, in its training mode.

    Raises:
        ConfigError: its family cannot, or it has dropout.
    """
    config: dict[str, Any] = model.config.to_dict()
    dropouts = {
        name: value for name, value in config.items() if "drop" in name and isinstance(value, float) and value
    }
    dropouts |= {
        f"the module {name}": m.p for name, m in model.named_modules() if isinstance(m, nn.Dropout) and m.p
    }
    family = str(model.config.model_type)
    if dropouts:
        name, value = next(iter(dropouts.items()))
        raise ConfigError(
            f"gradient_checkpointing: got a model of type {family!r} with dropout ({name} = {value}); set it to 0 "
            "in its config.json, or leave checkpointing off"
        )
    if not model.supports_gradient_checkpointing:
        raise ConfigError(
            f"gradient_checkpointing: got a model of type {family!r}, whose layers transformers cannot compute again; "
            "leave it off, and lower tokens_per_microbatch"
        )
    with warnings.catch_warnings():  # the name that all versions know is to change
        warnings.simplefilter("ignore", FutureWarning)
        cast(Any, model).gradient_checkpointing_enable(
            gradient_checkpointing_kwargs={"use_reentrant": False, "context_fn": contexts(model, precision)}
        )


def contexts(
    model: PreTrainedModel, precision: Precision
) -> Callable[[], tuple[AbstractContextManager[None], AbstractContextManager[None]]]:
    """Return what torch asks for the contexts of the first pass, which has its own, and of the second."""
    return lambda: (nullcontext(), computing(precision, model.device))


@contextmanager
def training_mode(model: PreTrainedModel, *, is_on: bool) -> Generator[None]:
    """Have `model` in its training mode meanwhile, if it `is_on`."""
    was = model.training
    model.train(is_on or was)
    try:
        yield
    finally:
        model.train(was)
