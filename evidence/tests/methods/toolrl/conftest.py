"""What trains a method shortly: the same as for imitation."""

from tests.methods.imitation.conftest import train

__all__ = ["train"]
