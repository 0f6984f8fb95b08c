"""Credit over memories: exact in expectation, and what each shortcut points to instead."""

import pytest
import torch
from torch import Tensor

from quintain_evidence.labs.relay import (
    FIRST,
    LAST,
    PATHS,
    VALUES,
    chance_of,
    credit_last,
    credit_rows,
    direction,
    expect,
    memagent,
    population,
    start,
    state_learner,
    true_gradient,
    with_numbers,
)
from quintain_evidence.labs.tabular import TablePolicy, cosine

POLICY = start()
EXACT = true_gradient(POLICY)
MANY = population(POLICY)


def blind() -> TablePolicy:
    return TablePolicy(POLICY.world, POLICY.theta, torch.zeros(POLICY.world.num_states))


def of_state_learner(gae_lambda: float, policy: TablePolicy = POLICY) -> Tensor:
    return direction(policy, state_learner(gae_lambda), MANY)


def test_the_game_by_hand() -> None:
    """Page 0: written as 0 by 5/8, then answered at once by 2/8, or kept by 3/8 and answered by 6/8."""
    chances = POLICY.probabilities()
    assert float(sum(chance_of(path, chances) for path in PATHS)) == pytest.approx(VALUES)
    assert float(chance_of(PATHS[0], chances)) == pytest.approx(5 / 8 * 2 / 8)
    assert float(chance_of(PATHS[1], chances)) == pytest.approx(5 / 8 * 3 / 8 * 6 / 8)
    assert POLICY.values is not None
    # The second memory says 0 after page 0 by 5/8 · 3/8 + 3/8 · 1/8 and after page 1 by 2/8 · 3/8 + 6/8 · 1/8.
    first, second = 18 / 64, 12 / 64
    worth = (first * 6 / 8 + second * 2 / 8) / (first + second)
    assert float(POLICY.values[4].detach()) == pytest.approx(worth)


def test_the_exact_gradient_is_that_of_small_changes() -> None:
    def success(shift: float) -> float:
        theta = POLICY.theta.detach().clone()
        theta[0, 0] += shift
        chances = TablePolicy(POLICY.world, theta).probabilities()
        return float(sum(chance_of(path, chances) * path.reward for path in PATHS)) / VALUES

    assert float(EXACT[0, 0]) == pytest.approx((success(1e-4) - success(-1e-4)) / 2e-4, rel=1e-6)


@pytest.mark.slow
def test_memagent_is_unbiased_in_groups_of_two() -> None:
    """All groups together give (G - 1)/G of the gradient, as the mean holds the episode itself."""
    assert torch.allclose(expect(POLICY, memagent()), EXACT / 2, atol=1e-7)


@pytest.mark.slow
def test_a_mean_over_conversations_or_tokens_of_a_step_is_biased() -> None:
    for method in (with_numbers(memagent(), credit_rows), memagent("token_mean")):
        assert 0.99 < cosine(expect(POLICY, method), EXACT) < 0.9985


def test_many_episodes_take_the_bias_of_the_mean_over_tokens() -> None:
    found = direction(POLICY, memagent("token_mean"), MANY)
    assert cosine(found, EXACT) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.slow
def test_the_last_conversation_alone_teaches_no_first_memory() -> None:
    found = expect(POLICY, with_numbers(memagent(), credit_last))
    assert torch.equal(found[FIRST], torch.zeros_like(found[FIRST]))
    assert torch.allclose(found[LAST], EXACT[LAST] / 2, atol=1e-7)
    assert cosine(found, EXACT) < 0.7


def test_mem1_is_unbiased_whatever_its_critic_says_if_it_looks_to_the_end() -> None:
    for policy in (POLICY, blind()):
        assert cosine(of_state_learner(1.0, policy), EXACT) == pytest.approx(1.0, abs=1e-6)


def test_a_critic_of_memories_does_not_know_what_was_forgotten() -> None:
    """What a memory is worth is the same after either page, so that the step to it says nothing of the page."""
    found = of_state_learner(0.95**16)
    assert cosine(found, EXACT) < 0.95 < cosine(found[LAST], EXACT[LAST])
    assert cosine(of_state_learner(0.0)[FIRST], EXACT[FIRST]) < 0.8
