"""A value head: one linear layer from the last hidden state to the expected return.

It starts near zero, so that a fresh critic says "I do not know" rather than something random. The one rule:
it is saved beside the model, as safetensors, and never inside the model's own folder format.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from quintain.errors import ModelError, StoreError


class ValueHead(nn.Module):
    """Hidden states [..., hidden] → values [...], in float32; ``ValueHead(128)(hidden)``."""

    def __init__(self, hidden: int, *, seed: int = 0) -> None:
        """Draw the weights from `seed`, with deviation 0.01/sqrt(hidden), and set the bias to 0."""
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.linear = nn.Linear(hidden, 1)
            nn.init.normal_(self.linear.weight, std=0.01 / hidden**0.5)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the value at each position."""
        return self.linear(hidden.to(self.linear.weight.dtype)).squeeze(-1)


def save_value_head(head: ValueHead, file: str | Path) -> Path:
    """Write `head` to `file` (safetensors) and return it.

    Raises:
        StoreError: the file cannot be written.
    """
    try:
        save_file({name: tensor.contiguous() for name, tensor in head.state_dict().items()}, file)
    except (SafetensorError, OSError) as error:
        raise StoreError(
            f"save a value head to {str(file)!r}: got {error}; name a file that can be written"
        ) from error
    return Path(file)


def load_value_head(file: str | Path) -> ValueHead:
    """Return the head that `save_value_head` wrote to `file`.

    Raises:
        ModelError: the file is missing, broken or holds something else.
    """
    try:
        state = load_file(file)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"value head {str(file)!r}: got {error}; give a file that a run saved") from error
    weight = state.get("linear.weight")
    if set(state) != {"linear.weight", "linear.bias"} or weight is None or weight.shape[0] != 1:
        raise ModelError(
            f"value head {str(file)!r}: got tensors {', '.join(sorted(state))}; give a file that a run saved"
        )
    head = ValueHead(weight.shape[1])
    head.load_state_dict(state)
    return head
