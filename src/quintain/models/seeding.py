"""Draws the weights of a new module from a seed of its own."""

from collections.abc import Generator
from contextlib import contextmanager

import torch


@contextmanager
def draw_weights(seed: int) -> Generator[None]:
    """Let what is drawn inside follow from `seed`; whoever draws afterwards draws as if nothing had been."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
