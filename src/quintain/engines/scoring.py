"""Choosing one of several candidate completions by their log-probs, instead of sampling token by token.

score(a) = Σ log p(token of a) / length(a), and a candidate is drawn from softmax(score): the policy over
actions of GLAM (arXiv 2302.02662; length 1) and TWOSOME (2401.14151; length in tokens or words).

The completion carries the log-probs of the chosen tokens under the model's own distribution over the whole
vocabulary, tempered as for any other completion: these are what a learner computes for the same tokens, so
that ratios start at 1. They are not the log-prob of the action among the candidates, which is normalised over
these: ∇log π(a) = ∇score(a) - Σ_b π(b) ∇score(b). The second term is the same for every action of a state, so
it adds nothing to a policy gradient whose advantages have mean zero there, and little where the model writes
hardly anything but candidates; with a length of 1 the first term is the gradient of the tokens' log-probs.

The one rule: the work on a prompt is done once for all of its candidates, where the model's family allows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from quintain.engines.protocol import Request
from quintain.engines.sampling import uniforms
from quintain.models.families import unsupported
from quintain.models.packed import Stream, hidden_states, logits_of, plan
from quintain.types import Completion, Failure

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MOST_TOKENS = 16_384
"""Tokens of one forward pass; more requests than fit are scored in several."""
Key = tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]
"""A stream so far, and the candidates for its continuation."""


@torch.inference_mode()
def choose(
    model: PreTrainedModel, streams: Sequence[Sequence[int]], requests: Sequence[Request], *, version: int
) -> tuple[list[Completion | Failure], int]:
    """Return what each of `requests` chose of its candidates, and the number of tokens that were read.

    `streams` [R] are the ids so far, the prompts of the requests included. Candidates longer than the
    request's `max_tokens` are cut there; a cut completion ends with ``length``. Temperature 0 takes the best.
    """
    keys = [_key(stream, request) for stream, request in zip(streams, requests, strict=True)]
    logits = candidate_logits(model, list(dict.fromkeys(keys)))
    numbers = uniforms(
        np.array([request.seed for request in requests], dtype=np.uint64),
        np.zeros(len(requests), dtype=np.uint64),
    )
    tables: dict[tuple[Key, float], list[list[float]]] = {}
    results: list[Completion | Failure] = []
    for request, key, number in zip(requests, keys, numbers, strict=True):
        heat = request.sampling.temperature or 1.0
        if (key, heat) not in tables:
            tables[key, heat] = _logprobs(key, logits[key], heat)
        results.append(_chosen(request, key, tables[key, heat], float(number), version))
    return results, sum(len(stream) + sum(map(len, ids)) for stream, ids in logits)


def candidate_logits(model: PreTrainedModel, keys: Sequence[Key]) -> dict[Key, list[Tensor]]:
    """Return for each stream and candidate the logits [tokens of the candidate, V] that predict its tokens."""
    forward = _padded if unsupported(model) else _packed
    found: dict[Key, list[Tensor]] = {}
    chunk: list[Key] = []
    size = 0
    for key in keys:
        width = len(key[0]) + sum(map(len, key[1]))
        if chunk and size + width > MOST_TOKENS:
            found |= forward(model, chunk)
            chunk, size = [], 0
        chunk.append(key)
        size += width
    return found | forward(model, chunk)


def scores(logprobs: Sequence[Sequence[float]], lengths: Sequence[float]) -> list[float]:
    """Return the score of each candidate: the sum of its tokens' log-probs over its length."""
    return [sum(tokens) / length for tokens, length in zip(logprobs, lengths, strict=True)]


def action_probabilities(logprobs: Sequence[Sequence[float]], lengths: Sequence[float]) -> list[float]:
    """Return the probability of each candidate: softmax of the scores.

    Example: sums -2.0 over 2 tokens and -2.4 over 4 give (.599, .401) with lengths 1 and 1, (.401, .599) with
    lengths 2 and 4.
    """
    return torch.softmax(torch.tensor(scores(logprobs, lengths), dtype=torch.float64), dim=0).tolist()


def _key(stream: Sequence[int], request: Request) -> Key:
    assert request.sampling.candidates is not None, "only requests with candidates are scored"
    limit = request.sampling.max_tokens
    return tuple(stream), tuple(ids[:limit] for ids in request.sampling.candidates.token_ids)


def _logprobs(key: Key, logits: Sequence[Tensor], heat: float) -> list[list[float]]:
    """Return the log-probs of the tokens of each candidate, tempered by `heat`."""
    found: list[list[float]] = []
    for ids, rows in zip(key[1], logits, strict=True):
        distribution = torch.log_softmax(rows.float() / heat, dim=-1)
        found.append(distribution.gather(1, torch.tensor(ids, device=rows.device)[:, None])[:, 0].tolist())
    return found


def _chosen(
    request: Request, key: Key, logprobs: list[list[float]], number: float, version: int
) -> Completion | Failure:
    """Draw a candidate with the uniform `number`."""
    sampling = request.sampling
    assert sampling.candidates is not None, "only requests with candidates are scored"
    probabilities = np.array(action_probabilities(logprobs, sampling.candidates.lengths))
    if not np.isfinite(probabilities).all():
        return Failure(
            owner="engine", kind="not_finite", message="the log-probs of candidates are not finite"
        )
    cumulative = probabilities.cumsum()
    drawn = int(np.searchsorted(cumulative, number * cumulative[-1], side="right"))
    index = int(probabilities.argmax()) if sampling.temperature == 0 else min(drawn, len(probabilities) - 1)
    is_whole = key[1][index] == sampling.candidates.token_ids[index]
    return Completion(
        token_ids=key[1][index],
        logprobs=tuple(logprobs[index]),
        stop="stop" if is_whole else "length",
        policy_version=version,
    )


def _packed(model: PreTrainedModel, keys: Sequence[Key]) -> dict[Key, list[Tensor]]:
    """Compute each stream once, and its candidates, all but their last tokens, as branches of it."""
    ids: list[int] = []
    positions: list[int] = []
    streams: list[Stream] = []
    predictors: list[int] = []
    for stream, candidates in keys:
        start, length = len(ids), len(stream)
        ids += stream
        positions += range(length)
        streams.append(Stream(start, length))
        for candidate in candidates:
            branch = len(ids)
            ids += candidate[:-1]
            positions += range(length, length + len(candidate) - 1)
            if len(candidate) > 1:
                streams.append(Stream(branch, len(candidate) - 1, ((start, length),)))
            predictors += [start + length - 1, *range(branch, len(ids))]
    device = model.device
    hidden = hidden_states(
        model,
        torch.tensor(ids, device=device),
        torch.tensor(positions, device=device),
        plan(streams, device=device),
    )
    rows = logits_of(model, hidden.index_select(0, torch.tensor(predictors, device=device)))
    return _split(rows, keys)


def _padded(model: PreTrainedModel, keys: Sequence[Key]) -> dict[Key, list[Tensor]]:
    """Compute a padded row for each candidate."""
    rows = [(*stream, *candidate[:-1]) for stream, candidates in keys for candidate in candidates]
    width = max(map(len, rows))
    device = model.device
    inputs = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=device)
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=device)
    output: Any = cast(Any, model)(input_ids=inputs, attention_mask=mask, use_cache=False)
    firsts = [len(stream) - 1 for stream, candidates in keys for _ in candidates]
    parts = [logits[first : len(row)] for logits, first, row in zip(output.logits, firsts, rows, strict=True)]
    return _split(torch.cat(parts), keys)


def _split(rows: Tensor, keys: Sequence[Key]) -> dict[Key, list[Tensor]]:
    """Return `rows` [all tokens of all candidates, V] by key and candidate."""
    parts = iter(rows.split([len(ids) for _, candidates in keys for ids in candidates]))
    return {key: [next(parts) for _ in key[1]] for key in keys}
