"""Whole actions that were drawn from candidates: log π(a) = s(a) - log Σ_b exp s(b), s(a) = Σ_i log p(a_i) / |a|.

GLAM (arXiv 2302.02662) and TWOSOME (2401.14151) draw an action from the softmax of scores, so what is trained is the
log-prob of the action among its candidates, not that of its tokens among all: ∇log π(a) = ∇s(a) - Σ_b π(b) ∇s(b). The
batch holds a stream for every candidate (``samples_from(credit, has_candidates=True)``), and the chosen one is trained
at its first token, where this puts the log-prob of the action, at sampling and now, and the entropy over actions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from quintain.losses.measure import is_trained
from quintain.types import Batch, Loss, LossReport, Outputs

if TYPE_CHECKING:
    from torch import Tensor


def by_action(loss: Loss) -> Loss:
    """Return `loss` of whole actions: ratio, entropy and KL are those of the policy over candidates.

    What was sampled token by token stays as it is. Example: ``by_action(clip_ratio())``.
    """

    def of_actions(outputs: Outputs, batch: Batch) -> LossReport:
        choice = batch.extra.choice
        if choice is None or not bool((choice >= 0).any()):
            return loss(outputs, batch)
        places = (is_trained(batch) & (choice >= 0)[batch.sequence_id]).nonzero().squeeze(1)
        logs, entropy = action_logprobs(outputs.logprobs, batch)
        sampled, _ = action_logprobs(batch.logprobs, batch)
        reference = batch.extra.reference_logprobs
        if reference is not None:
            reference = reference.index_copy(0, places, action_logprobs(reference, batch)[0][places])
        return loss(
            replace(
                outputs,
                logprobs=outputs.logprobs.index_copy(0, places, logs[places]),
                entropy=outputs.entropy.index_copy(0, places, entropy[places]),
            ),
            replace(
                batch,
                logprobs=batch.logprobs.index_copy(0, places, sampled[places]),
                extra=replace(batch.extra, reference_logprobs=reference),
            ),
        )

    return of_actions


def action_logprobs(logprobs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return log π of each token's stream among the candidates of its choice, and the entropy over these, both [N].

    `logprobs` [N] are those of the tokens. Where a stream is no candidate, it is alone in a choice: 0.

    Example: candidates whose sums are -2.0 over 2 tokens and -2.4 over 4, with these lengths → log .401 and log .599.
    """
    choice, lengths = batch.extra.choice, batch.extra.score_length
    assert choice is not None and lengths is not None, "asked only of a batch with candidates"
    num = len(batch.lengths)
    said = logprobs.where(batch.turn_id >= 0, 0.0)
    scores = said.new_zeros(num).index_add(0, batch.sequence_id, said) / lengths.to(said.dtype)
    group = choice.where(choice >= 0, choice.max() + 1 + choice.new_ones(num).cumsum(0)).unique(
        return_inverse=True
    )[1]
    most = scores.detach().new_full((num,), float("-inf")).scatter_reduce(0, group, scores.detach(), "amax")
    total = scores.new_zeros(num).index_add(0, group, (scores - most[group]).exp())
    logs = scores - most[group] - total[group].log()
    entropy = -logs.new_zeros(num).index_add(0, group, logs.exp() * logs)[group]
    return logs[batch.sequence_id], entropy[batch.sequence_id]
