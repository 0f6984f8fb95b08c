"""Probes of exploration on agents that are known."""

from collections.abc import Hashable

import pytest

from quintain.errors import UsageError
from quintain.eval.greediness import (
    KnowingDoing,
    coverage,
    frequency_bias,
    greedy_options,
    greedy_share,
    knowing_doing,
    regret,
    upper_confidence,
)

ARMS = ("a", "b", "c", "d")
MEANS: dict[Hashable, float] = {"a": 0.2, "b": 0.9, "c": 0.5, "d": 0.1}


def played(policy: str, turns: int = 40) -> tuple[list[str], list[float]]:
    """A scripted agent on arms that always pay their mean."""
    choices: list[str] = []
    rewards: list[float] = []
    for _ in range(turns):
        if policy == "greedy":
            choice = str(min(greedy_options(choices, rewards) or {"c"}, key=str))
        else:
            choice = str(upper_confidence(choices, rewards, ARMS))
        choices.append(choice)
        rewards.append(MEANS[choice])
    return choices, rewards


def test_a_greedy_agent_stalls_and_an_optimistic_one_covers() -> None:
    greedy, optimistic = played("greedy"), played("ucb")
    assert coverage(greedy[0], 4)[-1] == 0.25
    assert coverage(optimistic[0], 4)[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert greedy_share(*greedy) == 1
    assert greedy_share(*optimistic) < 0.9
    assert regret(greedy[0], MEANS)[-1] == pytest.approx(40 * 0.4)
    assert regret(optimistic[0], MEANS)[-1] < regret(greedy[0], MEANS)[-1]


def test_coverage_by_hand() -> None:
    assert coverage(["a", "b", "a"], 4) == [0.25, 0.5, 0.5]
    assert coverage([], 4) == []
    with pytest.raises(UsageError, match="options to choose from: got 0"):
        coverage(["a"], 0)


def test_frequency_bias_by_hand() -> None:
    assert frequency_bias(["a", "a", "a", "b"]) == {1: 1, 2: 1, 3: 0}
    assert frequency_bias(["a", "b", "a", "b"]) == {1: pytest.approx(2 / 4), 2: 0}
    assert frequency_bias([]) == {}


def test_the_optimal_choice_weighs_what_is_unknown() -> None:
    assert upper_confidence([], [], ARMS) == "a"
    assert upper_confidence(["a", "b", "c", "d"], [0, 1, 0, 0], ARMS) == "b"
    often = ["a"] * 50 + ["b"]
    assert upper_confidence(often, [0.5] * 50 + [0.4], ("a", "b")) == "b"
    assert upper_confidence(often, [0.5] * 50 + [0.4], ("a", "b"), width=0) == "a"


def test_knowing_and_doing_are_told_apart() -> None:
    choices, rewards = ["a", "b", "a", "b", "b"], [1.0, 0.0, 1.0, 0.0, 0.0]
    named = ["a", "b", "b", None, "a"]
    found = knowing_doing(named, choices, rewards, ("a", "b"))
    assert found == KnowingDoing(
        knew_did_optimal=0.4, knew_did_greedy=0.0, knew_did_other=0.2, did_not_know=0.4
    )
    assert found.gap == pytest.approx(0.2 / 0.6)
    greedy = knowing_doing(["a", "b"], ["a", "a"], [1.0, 1.0], ("a", "b"))
    assert (greedy.knew_did_greedy, greedy.gap) == (0.5, 0.5)
    nothing = knowing_doing([], [], [], ("a",))
    assert (nothing.did_not_know, nothing.gap) == (1, 0)
    assert greedy_share(["a"], [1.0]) == 0
