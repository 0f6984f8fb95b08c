"""ASearcher (arXiv 2508.07976): asynchronous reinforcement of search agents, corrected for stale samples.

w·min(r·A, clip(r, 1±.4)·A), w = ρ·[ρ ≤ 5], ρ = π_prox/π_behav, r = π/π_prox, A = R - mean.

Searching over many turns takes very unequal times, so episodes are played without a barrier while weights move on, at
most `max_staleness` versions, and the loss is told apart in two: how far the policy has moved since the step began (r,
clipped), and how far it had moved since it sampled (w, without gradient; decoupled PPO, arXiv 2505.24298). A token for
which that is beyond the cap is dropped, as in AReaL, which the paper trains with; ``beyond="truncate"`` gives it the
cap for a weight.
R is the environment's reward where the last turn could be read, else 0. Groups whose R are all equal are left out
(dynamic filtering); advantages are not divided, and there is no KL. An episode whose context was begun anew is several
streams, which share R and weigh as much as one. Questions are made harder by injection and fuzzing, with checks
(``hopqa?evolved=2``).

Differences to the paper: every optimizer step is a version, where it counts steps of four. Advantages are not whitened
over the batch, which would hide rewards that were shifted after centring, and no answer is punished for words that it
holds. Validity, uniqueness and difficulty are asked of the graph of facts and of readers who know a share of it, where
the paper asks language models. No pages are fetched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from quintain.config.ranges import NonNegativeInt, PositiveFloat, PositiveInt
from quintain.credit.group import group_relative
from quintain.errors import InvariantError
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.importance import Beyond, truncate_importance
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import differs, sample_groups
from quintain.rewards.terms import Term, apply_all
from quintain.rollout.staleness import newest_versions, oldest_versions
from quintain.types import Batch, Group, Loss, Trajectory

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of ASearcher."""

    environment: str = "hopqa?hops=1&closed=0&distractors=30&evolved=2&grading=f1"
    group_size: int = 16
    rollout: Literal["lockstep", "async"] = "async"
    max_staleness: NonNegativeInt = 16
    """Versions that an episode may be behind the weights that learn from it: 4 steps of 4 minibatches."""
    max_turns: PositiveInt = 128
    """Turns of an episode, where the environment allows as many."""
    num_minibatches: int = 4
    clip: PositiveFloat = 0.4
    """The ratio to the policy at the start of the step is clipped to 1 ± this."""
    cap: PositiveFloat = 5.0
    """Largest weight of a token for what the policy had moved since it was sampled."""
    beyond: Beyond = "drop"
    """What becomes of a token beyond the cap: drop, it is left out, or truncate, its weight is the cap."""


def method(config: Config) -> OnPolicy:
    """Return ASearcher as `config` describes it."""
    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size, max_turns=lambda _: config.max_turns),
        reward=lambda groups: apply_all(groups, (readable_reward(),)),
        keep=lambda groups: [group for group in groups if differs(group)],
        credit=lambda groups, _: group_relative(groups, std="none"),
        update=Update(
            loss=clip_proximal(config.clip, config.cap, config.beyond),
            aggregation="sequence_mean",
            has_reference=True,
            is_own_reference=True,
        ),
        measure=lambda groups, _: measure_staleness(groups),
    )


def clip_proximal(clip: float, cap: float, beyond: Beyond = "drop") -> Loss:
    """Return the clipped surrogate against the policy at the start of the step, weighed by its ratio to the sampler."""
    return truncate_importance(clip_ratio(clip, clip), cap=cap, beyond=beyond, proximal=proximal)


def proximal(batch: Batch) -> Tensor:
    """Return the log-probs of the tokens of `batch` [N] by the policy as the step began."""
    if batch.extra.reference_logprobs is None:
        raise InvariantError(
            "log-probs at the start of the step: got none; let the update be its own reference"
        )
    return batch.extra.reference_logprobs


def readable_reward() -> Term:
    """Return what is paid: the environment's reward, and nothing where the last turn could not be read."""

    def measure(trajectory: Trajectory) -> Sequence[float]:
        is_readable = bool(trajectory.turns) and trajectory.turns[-1].action.error is None
        return [turn.reward * is_readable for turn in trajectory.turns]

    return Term(name="readable", measure=measure)


def measure_staleness(groups: Sequence[Group]) -> Mapping[str, float]:
    """Return the share of groups that differ, the turns of the longest episode, and versions within an episode."""
    episodes = [t for group in groups for t in group.trajectories if t.turns]
    spread = [max(newest_versions(t).values()) - min(oldest_versions(t).values()) for t in episodes]
    return {
        "asearcher/differing": sum(map(differs, groups)) / max(len(groups), 1),
        "asearcher/most_turns": float(max((len(t.turns) for t in episodes), default=0)),
        "asearcher/versions": sum(spread) / max(len(spread), 1),
    }
