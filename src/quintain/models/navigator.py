"""A navigator of reasoning: seven scores in, a value for each of five blocks out (RL of Thoughts, arXiv 2505.14140).

Dueling: one layer is shared, then two streams part, V(s) and A(s, ·), and Q(s, a) = V(s) + A(s, a) - mean A(s, ·). The
double target lets the network that learns choose and the older one judge: r + γ Q_old(s', argmax Q(s', ·)), where what
may not be done is never chosen, and nothing follows the end. 7 → 32, two streams 32 → 32, heads of 1 and 5: 2,566
numbers, as many as the paper says, whose layout is not published.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from quintain.errors import DataError
from quintain.models.seeding import draw_weights

BLOCKS = ("step", "decompose", "debate", "refine", "stop")
"""What a navigator chooses among, in the order of its values."""
NUM_SCORES, WIDTH = 7, 32
MIDDLE = 2.0
"""The score that is shown to the network as 0."""


class Navigator(nn.Module):
    """Q of each block: ``Navigator(seed=1)(torch.tensor([[3., 2., 3., 1., 1., 3., 2.]]))`` is [1, 5]."""

    def __init__(self, seed: int = 0) -> None:
        """Draw the weights from `seed`."""
        super().__init__()
        with draw_weights(seed):
            self.shared = nn.Linear(NUM_SCORES, WIDTH)
            self.of_state, self.of_blocks = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
            self.value, self.advantage = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, len(BLOCKS))

    def forward(self, scores: Tensor) -> Tensor:
        """Return Q [N, 5] of `scores` [N, 7]."""
        seen = torch.relu(self.shared(scores - MIDDLE))
        value = self.value(torch.relu(self.of_state(seen)))
        advantage = self.advantage(torch.relu(self.of_blocks(seen)))
        return value + advantage - advantage.mean(-1, keepdim=True)

    def choose(self, scores: Sequence[float], legal: Sequence[str]) -> str:
        """Return the block of the highest Q among `legal`, of equals the first."""
        with torch.no_grad():
            values = self(torch.tensor([list(scores)], dtype=torch.float32))
        return BLOCKS[int(choose_legal(values, mask_blocks([legal])))]

    def save(self, file: Path) -> None:
        """Write the weights into `file`."""
        save_file(self.state_dict(), str(file))


def load_navigator(file: Path) -> Navigator:
    """Return the navigator whose weights `file` holds.

    Raises:
        DataError: there is none.
    """
    made = Navigator()
    try:
        made.load_state_dict(load_file(str(file)))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"navigator: got {file}, which holds none ({reason}); name another") from error
    return made


def mask_blocks(legal: Sequence[Sequence[str]]) -> Tensor:
    """Return which blocks are among those that are `legal` in each of N states, [N, 5]."""
    return torch.tensor([[block in each for block in BLOCKS] for each in legal])


def choose_legal(values: Tensor, mask: Tensor) -> Tensor:
    """Return the block [N] of the highest of `values` [N, 5] among those in `mask` [N, 5]."""
    return values.masked_fill(~mask, -torch.inf).argmax(-1)


def double_targets(
    rewards: Tensor, following: Tensor, older: Tensor, mask: Tensor, is_over: Tensor, discount: float
) -> Tensor:
    """Return the targets [N]: `rewards`, and where it `is_over` [N] nothing more, else the discounted value behind it.

    Args:
        rewards: what the block was paid, [N].
        following: Q of the state after it by the network that learns, [N, 5].
        older: the same by the target network.
        mask: which blocks may be taken there, [N, 5].
        is_over: whether nothing follows, [N].
        discount: γ.
    """
    chosen = choose_legal(following, mask | is_over[:, None])
    value = older.gather(1, chosen[:, None]).squeeze(1)
    return rewards + discount * value.masked_fill(is_over, 0.0)
