"""Short runs of methods."""

from tests.methods.imitation.conftest import train

__all__ = ["train"]
