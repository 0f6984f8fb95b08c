"""Under a constraint only allowed tokens are sampled, by their odds, with the log-probs of the free model."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from quintain.engines.local import Local
from quintain.engines.protocol import Grammar, Reply, Request, Sampling
from quintain.engines.sampling import sample, sample_guided
from quintain.types import Completion

V = 8


@dataclass
class Only:
    """Allows `tokens`, and remembers what was taken."""

    tokens: tuple[int, ...]
    num_tokens: int = V
    is_over: bool = False
    taken: list[int] = field(default_factory=list[int])

    def allow_tokens(self) -> NDArray[np.bool_]:
        mask = np.zeros(self.num_tokens, np.bool_)
        mask[list(self.tokens)] = True
        return mask

    def take(self, token: int) -> None:
        self.taken.append(token)


def drawn(
    guide: Only | None, temperature: float, count: int = 2000
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    logits = torch.linspace(-1.0, 1.0, V).repeat(count, 1)
    heats = torch.full((count,), temperature)
    numbers = torch.arange(count, dtype=torch.float64) / count
    free = sample(logits, heats, numbers)
    chosen, logprobs, failed = sample_guided([guide] * count, logits, heats, numbers, free)
    assert failed == {}
    return chosen, logprobs, free[0]


def test_allowed_tokens_are_drawn_by_their_odds() -> None:
    logits = torch.linspace(-1.0, 1.0, V)
    for temperature in (1.0, 0.5):
        chosen, logprobs, _ = drawn(Only((1, 4, 6)), temperature)
        counts = Counter(chosen.tolist())
        odds = torch.softmax(logits[[1, 4, 6]] / temperature, dim=0).tolist()
        for token, share in zip((1, 4, 6), odds, strict=True):
            assert counts[token] / 2000 == pytest.approx(share, abs=2e-3)
        whole = torch.log_softmax(logits / temperature, dim=0)
        assert torch.allclose(logprobs, whole[chosen], atol=1e-6)


def test_a_constraint_that_allows_everything_changes_nothing() -> None:
    chosen, _, free = drawn(Only(tuple(range(V))), 1.0, 200)
    assert chosen.tolist() == free.tolist()
    assert drawn(None, 1.0, 50)[0].tolist() == drawn(None, 1.0, 50)[2].tolist()


def test_greedy_takes_the_best_allowed_token_and_short_masks_are_filled() -> None:
    chosen, logprobs, _ = drawn(Only((0, 3, 2), num_tokens=5), 0.0, 3)
    assert chosen.tolist() == [3, 3, 3]
    assert logprobs.tolist() == pytest.approx(
        [float(torch.log_softmax(torch.linspace(-1.0, 1.0, V), 0)[3])] * 3
    )


def test_a_row_that_is_not_finite_is_left_to_the_engine() -> None:
    logits = torch.full((1, V), float("nan"))
    guide = Only((1, 4))
    one = torch.ones(1)
    _, logprobs, _ = sample_guided([guide], logits, one, one.double(), sample(logits, one, one.double()))
    assert logprobs.isnan().all() and guide.taken == []


def test_one_engine_serves_both_kinds(model: PreTrainedModel) -> None:
    def completed(*constraints: Grammar | None) -> list[Completion]:
        engine = Local(model)
        for number, constraint in enumerate(constraints):
            sampling = Sampling(max_tokens=6, stop_ids=frozenset({59}), constraint=constraint)
            engine.submit(Request(session=str(number), prompt_ids=(1, 2), seed=number, sampling=sampling))
        replies: list[Reply] = []
        while len(replies) < len(constraints):
            replies += engine.advance()
        results = [reply.result for reply in sorted(replies, key=lambda reply: reply.session)]
        return [result for result in results if isinstance(result, Completion)]

    free, bound, cut = completed(None, Grammar.of_tokens((5, 7, 5)), Grammar.of_tokens((7, 59, 7)))
    assert free.token_ids == completed(None)[0].token_ids
    assert (bound.token_ids, bound.stop) == ((5, 7, 5), "stop"), "nothing else can follow"
    assert (cut.token_ids, cut.stop) == ((7, 59), "stop"), "a stop id ends it first"
    assert bound.logprobs[0] < -1.0  # of 60 tokens, not of 2
