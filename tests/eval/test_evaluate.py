"""Evaluations by value; a failure is never a zero."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from quintain.errors import DataError, FailureRateError
from quintain.eval.evaluate import evaluate, evaluate_by_environment, pass_rates
from quintain.eval.statistics import wilson
from quintain.types import Failure, Score, Stop, Trajectory

Episode = Callable[..., Trajectory]


def test_numbers_by_hand(episode: Episode, broken: Failure) -> None:
    cut = replace(episode("c", Score(value=0.5, is_success=False), turns=4), stop=Stop.MAX_TURNS)
    found = evaluate(
        [episode("a", True, turns=2), episode("b", True, tokens=5), cut, episode("d", broken, turns=9)]
    )
    assert (found.num, found.num_failed) == (3, 1)
    assert found.success == pytest.approx(2 / 3)
    assert (found.low, found.high) == wilson(2, 3)
    assert found.mean_return == pytest.approx(2.5 / 3)
    assert found.mean_turns == pytest.approx((2 + 1 + 4) / 3)
    assert found.mean_tokens == pytest.approx((4 + 5 + 8) / 3)
    assert found.by_stop == {"failure": 1, "max_turns": 1, "terminated": 2}
    assert found.by_owner == {"environment": 1}


def test_failures_do_not_move_the_rate(episode: Episode, broken: Failure) -> None:
    scored = [episode("a", True), episode("b", False)]
    with_failures = evaluate([*scored, *(episode(f"f{n}", broken) for n in range(10))])
    assert with_failures.success == evaluate(scored).success == 0.5
    assert (with_failures.low, with_failures.high) == wilson(1, 2)
    assert with_failures.num_failed == 10


def test_a_win_with_a_negative_return_is_a_win(episode: Episode) -> None:
    found = evaluate([episode("a", Score(value=-2.0, is_success=True))])
    assert (found.success, found.mean_return) == (1.0, -2.0)


def test_only_failures_is_an_error_that_names_the_first(episode: Episode, broken: Failure) -> None:
    with pytest.raises(
        FailureRateError, match=r"2 failures of 2 \(environment 2; the first: timeout: step took"
    ):
        evaluate([episode("a", broken), episode("b", broken)])


def test_no_episodes_is_an_error() -> None:
    with pytest.raises(DataError, match="got none"):
        evaluate([])


def test_metrics_carry_the_names_of_the_run(episode: Episode) -> None:
    metrics = evaluate([episode("a", True), episode("b", False)]).metrics()
    assert metrics["eval/success"] == 0.5
    assert (metrics["eval/low"], metrics["eval/high"]) == wilson(1, 2)
    assert metrics["eval/episodes"] == 2.0
    assert set(evaluate([episode("a", True)]).metrics("before/")) == {
        k.replace("eval/", "before/") for k in metrics
    }


def test_an_evaluation_reads_as_one_line(episode: Episode, broken: Failure) -> None:
    episodes = [episode(str(n), n < 8) for n in range(10)]
    assert str(evaluate(episodes)) == "success 80.0 % [49.0, 94.3], 10 episodes"
    assert str(evaluate([*episodes, episode("f", broken)])).endswith("10 episodes, 1 failed")


def test_pass_rates_by_hand(episode: Episode, broken: Failure) -> None:
    # a: 2 of 4 solved → 5/6 and 1/6; b: 2 of 2 → 1 and 1; c has one scored episode and is left out
    episodes = [episode("a", n < 2) for n in range(4)] + [episode("b", True)] * 2
    episodes += [episode("c", False), episode("c", broken)]
    assert pass_rates(episodes, 2) == pytest.approx(((5 / 6 + 1) / 2, (1 / 6 + 1) / 2))
    with pytest.raises(DataError, match="pass@5"):
        pass_rates(episodes, 5)


def test_a_mixture_is_evaluated_by_environment(episode: Episode, broken: Failure) -> None:
    def elsewhere(found: Trajectory, name: str) -> Trajectory:
        return replace(found, task=replace(found.task, environment=name))

    here = [episode("a", True), episode("b", False)]
    there = [elsewhere(episode("c", True), "calc"), elsewhere(episode("d", broken), "calc")]
    parts = evaluate_by_environment([*here, *there, elsewhere(episode("e", broken), "web")])
    assert parts == {here[0].task.environment: evaluate(here), "calc": evaluate(there)}
    assert evaluate_by_environment(here) == {}


def test_reward_terms_are_means_over_scored_episodes(episode: Episode, broken: Failure) -> None:
    def paid(given: Trajectory, *terms: dict[str, float]) -> Trajectory:
        turns = tuple(replace(turn, reward_terms=t) for turn, t in zip(given.turns, terms, strict=True))
        return replace(given, turns=turns)

    both = paid(episode("a", True, turns=2), {"format": 0.5, "collision": -0.2}, {"format": 0.5})
    found = evaluate([both, episode("b", False), paid(episode("c", broken), {"format": 9.0})])
    assert found.terms == {"format": 0.5, "collision": -0.1}
    assert found.metrics()["eval/reward/collision"] == -0.1
    assert not any("reward/" in name for name in evaluate([episode("b", False)]).metrics())
