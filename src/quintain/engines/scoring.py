"""Choosing one of several candidate completions by their log-probs, instead of sampling token by token.

score(a) = Σ log p(token of a) / length(a), and a candidate is drawn from softmax(score): the policy over
actions of GLAM (arXiv 2302.02662; length 1) and TWOSOME (2401.14151; length in tokens or words).

The completion carries the log-probs of the chosen tokens under the model's own distribution over the whole
vocabulary, tempered as for any other completion, and with them all candidates with theirs: these are what a learner
computes for the same tokens. They are not the log-prob of the action, which is normalised over the candidates:
log π(a) = score(a) - log Σ_b exp score(b). GLAM and TWOSOME learn by that: their loss is `losses.actions.by_action`,
with ``Update(has_candidates=True)``. Any other method trains the tokens of what was chosen, and leaves out lengths and
the second term of ∇log π(a) = ∇score(a) - Σ_b π(b) ∇score(b). In expectation that is the same only where lengths are 1
and the advantages of a state have mean zero under π; with a critic that is off by d, it pulls on the odds of two
one-token candidates by d·(1 - m)·(π(a) - π(b)), m the probability of all candidates.

A stream is read once, and stays in the decoder's cache from turn to turn; what candidates add to it is computed as
branches that leave it as it is, and what they begin alike is computed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from quintain.engines.decoder import Decoder
from quintain.engines.protocol import Request, Sampling
from quintain.engines.sampling import uniforms
from quintain.types import Candidate, Completion, Failure

MAX_BRANCHES = 64
"""Branches of one forward pass; each holds a slot of the cache for as long."""
Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRequest:
    """A request that names candidates, its stream in the cache: ``CandidateRequest(request=…, slot=0, …)``."""

    request: Request
    slot: int
    stream: Tokens
    """the ids so far, the prompt of the request included"""
    after: Tensor
    """logits [V] of the token after the stream"""

    @property
    def candidates(self) -> tuple[Tokens, ...]:
        """The candidates, cut where the request allows no more tokens."""
        return cut_candidates(self.request.sampling)

    @property
    def heat(self) -> float:
        """What logits are divided by."""
        return self.request.sampling.temperature or 1.0


@torch.inference_mode()
def choose(
    decoder: Decoder, asked: Sequence[CandidateRequest], *, version: int
) -> tuple[list[Completion | Failure], int]:
    """Return what each of `asked` chose of its candidates, and the number of tokens that were computed for it.

    Candidates longer than the request's `max_tokens` are cut there; a cut completion ends with ``length``.
    Temperature 0 takes the best. Those that ask the same of the same stream are computed once.
    """
    keys = [(one.stream, one.candidates, one.heat) for one in asked]
    different: dict[tuple[Tokens, tuple[Tokens, ...], float], CandidateRequest] = {}
    for key, one in zip(keys, asked, strict=True):
        different.setdefault(key, one)
    found, num_read = candidate_logprobs(decoder, list(different.values()))
    tables = dict(zip(different, found, strict=True))
    results = [
        draw_candidate(one.request.sampling, one.candidates, tables[key], one.request.seed, version)
        for one, key in zip(asked, keys, strict=True)
    ]
    return results, num_read


def candidate_logprobs(
    decoder: Decoder, asked: Sequence[CandidateRequest]
) -> tuple[list[list[list[float]]], int]:
    """Return the log-prob of every token of every candidate of each of `asked`, and how many tokens were computed.

    They are those of softmax(logits / heat) over the whole vocabulary.
    """
    following = [continuations(one.candidates) for one in asked]
    found: dict[tuple[int, Tokens, int], float] = {}
    rows = [(place, ()) for place in range(len(asked))]
    _read(found, torch.stack([one.after for one in asked]), rows, asked, following)
    branches = [(place, branch) for place, after in enumerate(following) for branch in longest(after)]
    for first in range(0, len(branches), MAX_BRANCHES):
        part = branches[first : first + MAX_BRANCHES]
        logits = decoder.branch([asked[place].slot for place, _ in part], [ids for _, ids in part])
        rows = [(place, ids[: end + 1]) for place, ids in part for end in range(len(ids))]
        _read(found, logits, rows, asked, following)
    tables = [
        [[found[place, ids[:i], token] for i, token in enumerate(ids)] for ids in one.candidates]
        for place, one in enumerate(asked)
    ]
    return tables, sum(len(ids) for _, ids in branches)


def continuations(candidates: Sequence[Tokens]) -> dict[Tokens, dict[int, None]]:
    """Return each beginning of `candidates`, the empty one included, with the tokens that go on from it.

    Example: (5,), (5, 9) → {(): {5}, (5,): {9}}.
    """
    found: dict[Tokens, dict[int, None]] = {}
    for ids in candidates:
        for place, token in enumerate(ids):
            found.setdefault(ids[:place], {})[token] = None
    return found


def longest(following: Mapping[Tokens, Iterable[int]]) -> list[Tokens]:
    """Return the beginnings in `following`, a result of `continuations`, that no other one goes on from."""
    return [
        beginning
        for beginning, tokens in following.items()
        if beginning and not any((*beginning, token) in following for token in tokens)
    ]


def _read(
    found: dict[tuple[int, Tokens, int], float],
    logits: Tensor,
    rows: Sequence[tuple[int, Tokens]],
    asked: Sequence[CandidateRequest],
    following: Sequence[Mapping[Tokens, Iterable[int]]],
) -> None:
    """Note in `found` what `logits` [rows, V] say of the tokens that go on after each of `rows`."""
    heats = torch.tensor([asked[place].heat for place, _ in rows], device=logits.device)
    logprobs = torch.log_softmax(logits.float() / heats[:, None], dim=-1)
    wanted = [(row, at, t) for row, at in enumerate(rows) for t in following[at[0]][at[1]]]
    picked = logprobs[[row for row, _, _ in wanted], [token for _, _, token in wanted]].tolist()
    found.update({(*at, t): value for (_, at, t), value in zip(wanted, picked, strict=True)})


def scores(logprobs: Sequence[Sequence[float]], lengths: Sequence[float]) -> list[float]:
    """Return the score of each candidate: the sum of its tokens' log-probs over its length."""
    return [sum(tokens) / length for tokens, length in zip(logprobs, lengths, strict=True)]


def action_probabilities(logprobs: Sequence[Sequence[float]], lengths: Sequence[float]) -> list[float]:
    """Return the probability of each candidate: softmax of the scores.

    Example: sums -2.0 over 2 tokens and -2.4 over 4 give (.599, .401) with lengths 1 and 1, (.401, .599) with
    lengths 2 and 4.
    """
    return torch.softmax(torch.tensor(scores(logprobs, lengths), dtype=torch.float64), dim=0).tolist()


def draw_candidate(
    sampling: Sampling,
    candidates: Sequence[Tokens],
    logprobs: Sequence[Sequence[float]],
    seed: int,
    version: int,
) -> Completion | Failure:
    """Return which of `candidates`, from `cut_candidates`, is drawn with `seed` by the log-probs of their tokens."""
    assert sampling.candidates is not None, "only requests with candidates are scored"
    probabilities = np.array(action_probabilities(logprobs, sampling.candidates.lengths))
    if not np.isfinite(probabilities).all():
        return Failure(
            owner="engine", kind="not_finite", message="the log-probs of candidates are not finite"
        )
    number = float(uniforms(np.array([seed], dtype=np.uint64), np.zeros(1, dtype=np.uint64))[0])
    cumulative = probabilities.cumsum()
    drawn = int(np.searchsorted(cumulative, number * cumulative[-1], side="right"))
    index = int(probabilities.argmax()) if sampling.temperature == 0 else min(drawn, len(probabilities) - 1)
    is_whole = candidates[index] == sampling.candidates.token_ids[index]
    return Completion(
        token_ids=candidates[index],
        logprobs=tuple(logprobs[index]),
        stop="stop" if is_whole else "length",
        policy_version=version,
        candidates=tuple(
            Candidate(token_ids=ids, logprobs=tuple(own), length=length)
            for ids, own, length in zip(candidates, logprobs, sampling.candidates.lengths, strict=True)
        ),
    )


def cut_candidates(sampling: Sampling) -> tuple[Tokens, ...]:
    """Return the candidates of `sampling`, cut where it allows no more tokens."""
    assert sampling.candidates is not None, "only requests with candidates are scored"
    return tuple(ids[: sampling.max_tokens] for ids in sampling.candidates.token_ids)
