"""The nouns of learning: credit, streams of tokens, packed batches, and what a loss says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from quintain.types.episodes import NOTHING, Trajectory
from quintain.types.grammar import Constraint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """How much each sampled token mattered, in the order of `trajectories`.

    Example: one trajectory of two turns with 2 and 1 tokens → ``advantages=((array([.5, .5]), array([-.5])),)``.
    """

    trajectories: tuple[Trajectory, ...]
    advantages: tuple[tuple[NDArray[np.float32], ...], ...]
    """``[trajectory][turn]`` → [tokens sampled in the turn]."""
    returns: tuple[tuple[NDArray[np.float32], ...], ...] | None = None
    """Regression targets of a critic, same layout; None where the method has no critic."""
    metrics: Mapping[str, float] = NOTHING
    is_trained: tuple[tuple[bool, ...], ...] | None = None
    """``[trajectory][turn]``: whether its tokens are trained; None: all. Others are context, and count in no mean."""

    def take(self, places: Sequence[int]) -> Credit:
        """Return the credit of the trajectories at `places`, in their order; the metrics are those of the whole."""
        return replace(
            self,
            trajectories=tuple(self.trajectories[i] for i in places),
            advantages=tuple(self.advantages[i] for i in places),
            returns=None if self.returns is None else tuple(self.returns[i] for i in places),
            is_trained=None if self.is_trained is None else tuple(self.is_trained[i] for i in places),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Signals:
    """What a step trained one episode with: arrays over its sampled tokens, turn by turn; None where there was none.

    Example: an episode of two turns with 2 and 1 sampled tokens → ``Signals(advantages=array([.5, .5, -.5]))``.
    """

    weights: NDArray[np.floating] | None = None
    """what the loss of each token was multiplied with, normalised over the step; 0 where it was left out"""
    advantages: NDArray[np.floating] | None = None
    returns: NDArray[np.floating] | None = None
    """regression targets of a critic"""
    logprobs: NDArray[np.floating] | None = None
    """the learner's, before the update; those of the sampling engine are in the episode"""
    entropies: NDArray[np.floating] | None = None
    """of the learner's policy at each token, before the update, in nats"""
    values: NDArray[np.floating] | None = None
    """what a critic expected at each token"""
    reference_logprobs: NDArray[np.floating] | None = None
    """under the frozen reference policy"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """That a step learned from an episode: ``Use(episode=trajectory.id, signals=None)``.

    A preference is two uses: of the chosen episode, which names the one that it was `rejected` for, and of that one.
    """

    episode: str
    signals: Signals | None = None
    rejected: str = ""
    """episode that this one was chosen over; empty where it is no side, or the rejected side, of a preference"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One token stream [L], ready to pack. `loss_weight` is 0 wherever the policy did not sample.

    Example: prompt (5, 9) then sampled (17, 2): ``loss_weight`` (0, 0, 1, 1), ``turn_id`` (-1, -1, 0, 0),
    ``turn_end`` (F, F, F, T). Position t carries the log-prob of token t given the tokens before it.
    """

    token_ids: NDArray[np.int64]
    loss_weight: NDArray[np.float32]
    logprobs: NDArray[np.float32]
    """Log-probs at sampling; 0 where nothing was sampled, NaN nowhere."""
    advantages: NDArray[np.float32]
    returns: NDArray[np.float32]
    turn_id: NDArray[np.int64]
    """Index of the turn the policy sampled the token in, -1 for prompt tokens."""
    turn_end: NDArray[np.bool_]
    trajectory: int
    """Index of the trajectory that this stream is a segment of."""
    pair: int = -1
    """Index of the preference pair; -1 outside of pairs."""
    is_chosen: bool = False
    rank: float = 0.0
    """Where its answer stands in a `Comparison`, whose number `pair` then is; higher is better."""
    versions: NDArray[np.int64] | None = None
    """Version of the weights that each token was sampled with; None where that is the same for all that is trained."""
    choice: int = -1
    """Number of the choice that it ends with a candidate of; -1 for streams that were sampled token by token."""
    score_length: float = 1.0
    """What the sum of the log-probs of the candidate is divided by."""
    constraints: tuple[tuple[int, Constraint], ...] = ()
    """(place of the first token, constraint) of each completion whose log-probs are among the allowed tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Samples packed end to end, without padding: N tokens, B streams.

    Example: streams of 3 and 2 tokens → ``lengths`` (3, 2), ``sequence_id`` (0, 0, 0, 1, 1),
    ``position_ids`` (0, 1, 2, 0, 1).
    """

    token_ids: Tensor
    """int64 [N]"""
    sequence_id: Tensor
    """int64 [N], the stream a token belongs to"""
    position_ids: Tensor
    """int64 [N], position within the stream"""
    lengths: tuple[int, ...]
    """tokens of each stream, [B]"""
    loss_weight: Tensor
    """float [N], already normalised over the whole step: a loss is a plain sum, exact under micro-batching"""
    logprobs: Tensor
    """float [N], at sampling"""
    advantages: Tensor
    """float [N]"""
    returns: Tensor
    """float [N]"""
    turn_id: Tensor
    """int64 [N]"""
    extra: BatchExtra


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchExtra:
    """What only some methods need of a `Batch`, and what is one number for the whole step."""

    num_trained: int
    """tokens with loss weight in the *whole* step, the unit of every per-token metric"""
    turn_end: Tensor
    """bool [N]"""
    trajectory: Tensor
    """int64 [B]"""
    pair: Tensor
    """int64 [B], -1 outside of pairs; both streams of a pair are always in one micro-batch"""
    is_chosen: Tensor
    """bool [B]"""
    num_pairs: int = 0
    """pairs, or comparisons, in the *whole* step"""
    rank: Tensor | None = None
    """float [B], of the answer in its comparison, whose number `pair` is; None outside of comparisons"""
    reference_logprobs: Tensor | None = None
    """float [N], under the frozen reference policy"""
    values: Tensor | None = None
    """float [N], critic's values when the batch was collected"""
    versions: Tensor | None = None
    """int64 [N], of the weights that a token was sampled with; None where that is the same for all"""
    choice: Tensor | None = None
    """int64 [B], number of the choice of which the stream ends with a candidate, -1 for others; None without any"""
    score_length: Tensor | None = None
    """float [B], what divides the score of that candidate"""
    constraints: tuple[tuple[int, Constraint], ...] = ()
    """(place of the first token, constraint) of each turn whose log-probs are among the allowed tokens"""
    kl: float | None = None
    """KL of the policy from the reference before the update, nats an episode, estimated over the *whole* step"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What the model says of a `Batch`, aligned with its tokens [N]; 0 where `loss_weight` is 0.

    Example: ``Outputs(logprobs=tensor([0., -1.2]), entropy=tensor([0., 0.9]), values=None)``.
    """

    logprobs: Tensor
    entropy: Tensor
    values: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LossReport:
    """A loss and what to log with it: ``LossReport(loss=tensor(0.3), metrics={"policy/clip_fraction": 0.1})``.

    Loss and metrics of the micro-batches of one step add up to those of the step.
    """

    loss: Tensor
    metrics: Mapping[str, float] = NOTHING


Loss = Callable[[Outputs, Batch], LossReport]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A preference: ``Pair(chosen=won, rejected=lost, level="trajectory", margin=1.0)``."""

    chosen: Trajectory
    rejected: Trajectory
    level: Literal["trajectory", "turn"] = "trajectory"
    margin: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Answers to one task as somebody ranked them: ``Comparison(answers=(a, b, c), ranks=(1, 0, 2))`` likes c best.

    Higher is better, equal ranks are a tie. A preference is a comparison of two: ``ranks=(1, 0)``.
    """

    answers: tuple[Trajectory, ...]
    ranks: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Example:
    """An episode to imitate, with how much each sampled token counts, and the episodes that it was made of.

    Example: an episode of two turns with 2 and 1 sampled tokens, of which the second turn is imitated:
    ``Example(trajectory=t, weights=(array([0., 0.]), array([1.])), sources=(t.id,))``.
    """

    trajectory: Trajectory
    weights: tuple[NDArray[np.float32], ...] | None = None
    """``[turn]`` → [tokens sampled in the turn]; None where every sampled token counts 1"""
    sources: tuple[str, ...] = ()
    """names of the episodes that it came from; empty where it was not recorded"""
