import logging
from dataclasses import replace

import pytest
import torch
from tests.learning.test_learner import SHARED, nll, qwen, streams

from quintain.data.pack import pack
from quintain.errors import InvariantError
from quintain.learning import gap
from quintain.learning.learner import Learner


def test_the_gap_is_the_difference_over_trained_tokens_only() -> None:
    learner = Learner(qwen(), SHARED)
    batch = pack(streams(1))
    outputs = learner.infer(batch)
    trained = batch.turn_id >= 0
    shifted = replace(batch, logprobs=torch.where(trained, outputs.logprobs - 0.5, 7.0))
    total, largest, *_ = gap.gap(outputs, shifted)
    assert total == pytest.approx(0.5 * int(trained.sum()), rel=1e-4)
    assert largest == pytest.approx(0.5, rel=1e-4)


def test_a_step_on_what_was_sampled_reports_no_gap() -> None:
    learner = Learner(qwen(), SHARED)
    batch = pack(streams(1))
    batch = replace(batch, logprobs=learner.infer(batch).logprobs)
    metrics = learner.step([batch], nll, is_on_policy=True).metrics
    assert metrics["gap/mean"] < 1e-6
    assert metrics["gap/max"] < 1e-5


def test_a_step_on_something_else_stops_before_the_weights_change() -> None:
    learner = Learner(qwen(), replace(SHARED, learning_rate=1e-2))
    before = learner.parameters[0].detach().clone()
    batch = pack(streams(1))
    with pytest.raises(InvariantError, match="serves other weights"):
        learner.step([replace(batch, logprobs=batch.logprobs - 1)], nll, is_on_policy=True)
    assert torch.equal(learner.parameters[0], before)


def test_a_small_difference_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="quintain.learning"):
        gap.check(0.01, 0.3)
        assert not caplog.records
        gap.check(0.05, 0.3)
    assert "0.050 nats" in caplog.text


def test_log_probs_that_fit_the_token_before_better_stop_the_step() -> None:
    learner = Learner(qwen(), SHARED)
    batch = pack(streams(1))
    trained, known = batch.turn_id >= 0, learner.infer(batch).logprobs
    off_by_one = known.clone()
    off_by_one[trained] = known[trained].roll(-1)
    wrong = replace(batch, logprobs=off_by_one)
    outputs = learner.infer(batch)
    assert gap.gap(outputs, wrong).shifted == pytest.approx(0.0, abs=1e-4)
    assert gap.gap(outputs, replace(batch, logprobs=known)).shifted > 1e-3
    with pytest.raises(InvariantError, match="with tokens shifted by one"):
        learner.step([wrong], nll, is_on_policy=True)
    gap.check(0.004, 0.1, 0.0)
    gap.check(0.015, 0.1, 0.0075)


def test_the_age_of_tokens_is_that_of_those_that_are_trained() -> None:
    batch = pack(streams(1))
    trained = batch.turn_id >= 0
    first = int(trained.nonzero()[0])
    versions = torch.where(trained, 7, 0)
    versions[first] = 4
    batch = replace(batch, extra=replace(batch.extra, versions=versions))
    found = gap.gap(Learner(qwen(), SHARED).infer(batch), batch, 7)
    assert (found.num_stale, found.age, found.oldest) == (1, 3, 3)
    found = gap.gap(Learner(qwen(), SHARED).infer(batch), batch, 9)
    num = int(trained.sum())
    assert (found.num_stale, found.age, found.oldest, found.total) == (num, 2 * num + 3, 5, 0.0)
