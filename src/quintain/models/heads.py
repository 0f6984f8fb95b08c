"""A value head: from the last hidden state to the expected return, by one linear layer or by two.

It starts near zero, so that a fresh critic says "I do not know" rather than something random. That of a reward model is
kept beside the model, and read wherever a policy with a head begins with it.
"""

from pathlib import Path
from typing import Self

import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn

FILE = "value_head.safetensors"
"""What a head is called in the folder of its model."""


class ValueHead(nn.Module):
    """Hidden states [..., hidden] → values [...], in float32; ``ValueHead(128)(hidden)``."""

    def __init__(self, hidden: int, *, seed: int = 0, width: int = 0) -> None:
        """Draw the weights from `seed`, the last layer's with deviation 0.01/sqrt(inputs), and set its bias to 0.

        With `width` a layer of so many units (SiLU) stands before it.
        """
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.inner = nn.Sequential(nn.Linear(hidden, width), nn.SiLU()) if width else None
            self.linear = nn.Linear(width or hidden, 1)
            nn.init.normal_(self.linear.weight, std=0.01 / (width or hidden) ** 0.5)
        nn.init.zeros_(self.linear.bias)

    @classmethod
    def of(cls, hidden: int, folder: Path, *, seed: int = 0, width: int = 0) -> Self:
        """Return the head that is kept beside the model in `folder`, or a fresh one where there is none.

        One of a `width` is always fresh.
        """
        head = cls(hidden, seed=seed, width=width)
        if not width and (folder / FILE).is_file():
            load_model(head, folder / FILE)
        return head

    def keep(self, folder: Path) -> None:
        """Write the head beside its model in `folder`."""
        save_model(self, str(folder / FILE))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the value at each position."""
        hidden = hidden.to(self.linear.weight.dtype)
        return self.linear(hidden if self.inner is None else self.inner(hidden)).squeeze(-1)
