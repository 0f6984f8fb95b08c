"""A value head: from the last hidden state to the expected return, by one linear layer or by two.

It starts near zero, so that a fresh critic says "I do not know" rather than something random. That of a reward model is
kept beside the model, and read wherever a policy with a head begins with it. One whose body rests may read each kind of
place, before turns and after them, on a scale of its own (`ValueHead.standardize`).
"""

from pathlib import Path
from typing import Self, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import save_model
from torch import Tensor, nn

from quintain.errors import ModelError
from quintain.models.seeding import draw_weights
from quintain.models.weights import read_state

FILE = "value_head.safetensors"
"""What a head is called in the folder of its model."""
MIN_DEVIATION = 1e-3
"""What a number that varies less is divided by."""


class ValueHead(nn.Module):
    """Hidden states [..., hidden] → values [...], in float32; ``ValueHead(128)(hidden)``."""

    def __init__(self, hidden: int, *, seed: int = 0, width: int = 0, has_scales: bool = False) -> None:
        """Draw the weights from `seed`, the last layer's with deviation 0.01/sqrt(inputs), and set its bias to 0.

        With `width` a layer of so many units (SiLU) stands before it; with `has_scales` it can `standardize`.
        """
        super().__init__()
        self.width, self.has_scales = width, has_scales
        if has_scales:  # [before a turn or after it, hidden]
            self.register_buffer("mean", torch.zeros(2, hidden))
            self.register_buffer("deviation", torch.ones(2, hidden))
        with draw_weights(seed):
            self.inner = nn.Sequential(nn.Linear(hidden, width), nn.SiLU()) if width else None
            self.linear = nn.Linear(width or hidden, 1)
            nn.init.normal_(self.linear.weight, std=0.01 / (width or hidden) ** 0.5)
        nn.init.zeros_(self.linear.bias)

    @classmethod
    def of(
        cls, hidden: int, folder: Path, *, seed: int = 0, width: int = 0, has_scales: bool = False
    ) -> Self:
        """Return the head that is kept beside the model in `folder`, or a fresh one where there is none.

        One of a `width`, or one that has scales, is always fresh.

        Raises:
            ModelError: the file is broken, or of another head.
        """
        head = cls(hidden, seed=seed, width=width, has_scales=has_scales)
        if not width and not has_scales and (folder / FILE).is_file():
            try:
                read_state(head, folder / FILE)
            except (OSError, SafetensorError, ValueError) as error:
                raise ModelError(
                    f"value head beside the model {folder}: got {error}; take {FILE} away, or write it anew"
                ) from error
        return head

    def keep(self, folder: Path) -> None:
        """Write the head beside its model in `folder`."""
        save_model(self, str(folder / FILE))

    def renew(self, seed: int) -> None:
        """Draw the weights as those of a new head of `seed`; the scales stay."""
        hidden = (self.linear if self.inner is None else cast(nn.Linear, self.inner[0])).in_features
        fresh = ValueHead(hidden, seed=seed, width=self.width)
        with torch.no_grad():
            for own, new in zip(self.parameters(), fresh.parameters(), strict=True):
                own.copy_(new)

    def standardize(self, hidden: Tensor, is_after: Tensor) -> None:
        """Read each kind of place from now on less the mean of `hidden` [N, hidden] there, by its deviation.

        A kind of place at which there are none keeps its scale.
        """
        mean, deviation = self._scales
        for kind, chosen in enumerate((~is_after, is_after)):
            if bool(chosen.any()):
                own = hidden[chosen].cpu().double()  # not every device has it
                mean[kind] = own.mean(dim=0).to(mean)
                deviation[kind] = own.std(dim=0, correction=0).clamp_min(MIN_DEVIATION).to(mean)

    @property
    def _scales(self) -> tuple[Tensor, Tensor]:
        assert self.has_scales, "asked only of a head that has scales"
        return cast(Tensor, self.mean), cast(Tensor, self.deviation)

    def forward(self, hidden: Tensor, is_after: Tensor | None = None) -> Tensor:
        """Return the value at each position; one that has scales is told which of them are after turns."""
        hidden = hidden.to(self.linear.weight.dtype)
        if self.has_scales and is_after is not None:
            mean, deviation = self._scales
            kind = is_after.long()
            hidden = (hidden - mean[kind]) / deviation[kind]
        return self.linear(hidden if self.inner is None else self.inner(hidden)).squeeze(-1)
