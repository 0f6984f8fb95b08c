"""How many tokens of a pass fit, by a meter that reckons in place of a card's."""

from typing import Any

import pytest
import torch
from tests.learning.test_learner import qwen

from quintain.learning import pass_size
from quintain.learning.learner import Learner, Optimization
from quintain.learning.pass_size import fit_pass
from quintain.learning.sections import MICRO_TOKENS
from quintain.models.memory import GIB
from quintain.types import Batch

BASE, BY_TOKEN = 2 * GIB, 512 * 1024


class Reckoned:
    """A card on which weights take `BASE` and a token of a pass `BY_TOKEN`."""

    def __init__(self, learner: Learner, total: int) -> None:
        self.total, self.most = total, 0
        forward: Any = learner.forward

        def watch(batch: Batch) -> object:
            self.most = max(self.most, len(batch.token_ids))
            return forward(batch)

        learner.forward = watch  # type: ignore[assignment] # pyright: ignore

    def reset(self) -> None:
        self.most = 0

    def peak(self) -> int:
        return BASE + BY_TOKEN * self.most

    def limit(self) -> int:
        return self.total


def learner_of() -> Learner:
    return Learner(qwen(), Optimization())


@pytest.mark.parametrize("total", [4 * GIB, 10 * GIB])
def test_as_much_as_a_measured_pass_shows_to_fit(total: int) -> None:
    learner = learner_of()
    before = [weight.clone() for weight in learner.parameters]
    said = fit_pass(learner, None, Reckoned(learner, total))
    state = 8 * sum(weight.numel() for weight in learner.parameters)
    expected = (total * pass_size.SPARE - BASE - state) / BY_TOKEN
    assert expected - 256 <= learner.max_tokens <= expected
    assert (
        f"takes {learner.max_tokens:,} tokens: one of 2,048 was measured, and a token takes 512 KiB" in said
    )
    assert all(torch.equal(*pair) for pair in zip(before, learner.parameters, strict=True))
    assert all(weight.grad is None for weight in learner.parameters)
    assert learner.version == 0 and not learner.optimizer.state


def test_there_are_bounds() -> None:
    learner = learner_of()
    fit_pass(learner, None, Reckoned(learner, BASE))
    assert learner.max_tokens == pass_size.LEAST
    learner = learner_of()
    fit_pass(learner, None, Reckoned(learner, 1000 * GIB))
    assert learner.max_tokens == pass_size.MOST


def test_what_is_given_counts_and_a_processor_is_not_measured() -> None:
    learner = learner_of()
    assert fit_pass(learner, 777, Reckoned(learner, GIB)) == "" and learner.max_tokens == 777
    assert fit_pass(learner, None) == "" and learner.max_tokens == MICRO_TOKENS
