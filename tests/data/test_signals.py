"""Signals of token streams in the order in which the tokens were sampled."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from quintain.data.pack import samples_from
from quintain.data.signals import signals_of
from quintain.errors import InvariantError
from quintain.types import Credit, Trajectory

Make = Callable[..., Trajectory]


def test_signals_follow_the_turns_and_not_the_streams(trajectory: Make) -> None:
    whole = trajectory([((5,), (1, 1)), ((5, 6), (2,)), ((7,), (3, 3))], segments=(1,))
    seats = ("a", "b", "a")
    whole = replace(whole, turns=tuple(replace(t, seat=s) for t, s in zip(whole.turns, seats, strict=True)))
    alone = trajectory([((4,), (9,))])
    advantages = (
        (np.array([0.1, 0.2], np.float32), np.array([0.3], np.float32), np.array([0.4, 0.5], np.float32)),
        (np.array([0.6], np.float32),),
    )
    credit = Credit(trajectories=(whole, alone), advantages=advantages, returns=advantages)
    samples = samples_from(credit)
    logprobs = [np.where(sample.turn_id >= 0, sample.advantages * 10, 0) for sample in samples]
    first, second = signals_of([whole, alone], samples, logprobs=logprobs, has_returns=True)
    assert first.advantages is not None and first.advantages.tolist() == pytest.approx(
        [0.1, 0.2, 0.3, 0.4, 0.5]
    )
    assert first.logprobs is not None and first.logprobs.tolist() == pytest.approx([1, 2, 3, 4, 5])
    assert first.returns is not None and np.array_equal(first.returns, first.advantages)
    assert first.weights is not None and first.weights.tolist() == [1] * 5
    assert second.advantages is not None and second.advantages.tolist() == pytest.approx([0.6])


def test_what_was_not_trained_is_zero(trajectory: Make) -> None:
    whole = trajectory([((5,), (1,)), ((5,), (2,))], segments=(1,))
    ones = tuple(np.ones(1, np.float32) for _ in whole.turns)
    samples = samples_from(Credit(trajectories=(whole,), advantages=(ones,)))
    (signals,) = signals_of(
        [whole], samples[1:], weights=[sample.loss_weight / np.float32(4) for sample in samples[1:]]
    )
    assert signals.weights is not None and signals.weights.tolist() == [0, 0.25]
    assert signals.advantages is not None and signals.advantages.tolist() == [0, 1]
    assert signals.returns is signals.logprobs is None


def test_an_array_of_another_length_is_refused(trajectory: Make) -> None:
    whole = trajectory([((5,), (1,))])
    samples = samples_from(Credit(trajectories=(whole,), advantages=((np.ones(1, np.float32),),)))
    with pytest.raises(InvariantError, match="logprobs of a stream of 2 tokens: got 3"):
        signals_of([whole], samples, logprobs=[np.zeros(3, np.float32)])
