"""A value head: one linear layer from the last hidden state to the expected return.

It starts near zero, so that a fresh critic says "I do not know" rather than something random.
"""

import torch
from torch import Tensor, nn


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
