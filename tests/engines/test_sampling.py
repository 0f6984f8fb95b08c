import math

import numpy as np
import torch

from quintain.engines.sampling import likeliest, sample, sample_guided, uniforms


def splitmix64(seed: int, counter: int) -> float:
    mask = (1 << 64) - 1
    mixed = (seed + (counter + 1) * 0x9E3779B97F4A7C15) & mask
    mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & mask
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & mask
    return ((mixed ^ mixed >> 31) >> 11) / 2**53


def test_uniforms_are_splitmix64_of_seed_and_counter() -> None:
    seeds, counters = [0, 1, 2**63 - 1, 12345], [0, 7, 2, 10**6]
    numbers = uniforms(np.array(seeds, np.uint64), np.array(counters, np.uint64))
    assert numbers.tolist() == [splitmix64(s, c) for s, c in zip(seeds, counters, strict=True)]


def test_uniforms_of_a_seed_cover_the_unit_interval() -> None:
    numbers = uniforms(np.full(4000, 5, np.uint64), np.arange(4000, dtype=np.uint64))
    assert abs(numbers.mean() - 0.5) < 0.02
    assert abs(numbers.var() - 1 / 12) < 0.005
    assert len(set(numbers.tolist())) == 4000


def test_sample_is_the_inverse_of_the_cumulative_distribution() -> None:
    logits = torch.log(torch.tensor([[0.2, 0.3, 0.5]])).expand(4, -1)
    numbers = torch.tensor([0.0, 0.19, 0.21, 0.99], dtype=torch.float64)
    chosen, logprobs = sample(logits, torch.ones(4), numbers)
    assert chosen.tolist() == [0, 0, 1, 2]
    assert torch.allclose(logprobs, torch.log(torch.tensor([0.2, 0.2, 0.3, 0.5])))


def test_log_probs_are_of_the_tempered_distribution() -> None:
    logits = torch.tensor([[0.0, 1.0]])
    chosen, logprobs = sample(logits, torch.tensor([0.5]), torch.tensor([0.999], dtype=torch.float64))
    assert chosen.tolist() == [1]
    assert math.isclose(float(logprobs), math.log(1 / (1 + math.exp(-2))), rel_tol=1e-6)


def test_temperature_zero_is_greedy_with_the_log_prob_of_temperature_one() -> None:
    logits = torch.tensor([[0.0, 1.0]])
    chosen, logprobs = sample(logits, torch.zeros(1), torch.tensor([0.0], dtype=torch.float64))
    assert chosen.tolist() == [1]
    assert math.isclose(float(logprobs), math.log(1 / (1 + math.exp(-1))), rel_tol=1e-6)


def test_frequencies_follow_the_probabilities() -> None:
    logits = torch.log(torch.tensor([[0.1, 0.2, 0.7]])).expand(20_000, -1)
    numbers = torch.from_numpy(uniforms(np.full(20_000, 3, np.uint64), np.arange(20_000, dtype=np.uint64)))
    chosen, _ = sample(logits, torch.ones(20_000), numbers)
    shares = torch.bincount(chosen, minlength=3) / 20_000
    assert torch.allclose(shares, torch.tensor([0.1, 0.2, 0.7]), atol=0.012)


def test_a_row_that_is_not_finite_has_a_log_prob_that_is_not_finite() -> None:
    _, logprobs = sample(
        torch.tensor([[float("nan"), 0.0]]), torch.ones(1), torch.zeros(1, dtype=torch.float64)
    )
    assert not logprobs.isfinite().any()


def test_the_likeliest_are_the_fewest_that_have_so_much_of_the_odds() -> None:
    logits = torch.tensor([0.2, 0.5, 0.3]).log()
    assert likeliest(logits, 0.6).tolist() == [False, True, True]
    assert likeliest(logits, 0.4).tolist() == [False, True, False]
    assert likeliest(logits, 1.0).tolist() == [True, True, True]


def test_a_row_with_top_p_is_drawn_among_its_likeliest_and_has_the_log_prob_of_all() -> None:
    odds = torch.tensor([[0.2, 0.5, 0.3]] * 100)
    numbers = (torch.arange(100).double() * 37 % 100) / 100
    free = sample(odds.log(), torch.ones(100), numbers)
    chosen, logprobs, _ = sample_guided(
        [None] * 100, odds.log(), torch.ones(100), numbers, free, [0.6] * 50 + [1.0] * 50
    )
    assert set(chosen[:50].tolist()) == {1, 2} and chosen[50:].tolist() == free[0][50:].tolist()
    assert torch.allclose(logprobs[:50].exp(), odds[0][chosen[:50]])
