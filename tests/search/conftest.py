"""What a search is tried with."""

from tests.rollout.conftest import tokenizer

__all__ = ["tokenizer"]
