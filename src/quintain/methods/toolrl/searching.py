"""What the methods that learn to search share: their world and harness, and what is measured of their episodes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from quintain.credit.group import group_relative
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.compose import combine
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Needs, TransformGroups, sample_groups
from quintain.methods.rl.parts.kl import KLController
from quintain.rewards.efficiency import num_calls
from quintain.rewards.retrieval import is_well_formed, search_rate
from quintain.types import Group, flatten_scored


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig(GroupConfig):
    """A configuration whose agent searches and answers."""

    environment: str = "hopqa?hops=2&closed=0"
    agent: str = "tags"
    """Harness: tags as the papers write calls, or tools (calls in JSON); see the list of every method's."""


def by_group(config: SearchConfig, reward: TransformGroups, *, clip: float, kl_coef: float) -> OnPolicy:
    """Return GRPO on `reward`, with the KL to the start in the loss; what was found is in none of its sums.

    The KL is of every sampled token, also where a group agrees: there is nothing to learn, and much to hold.
    """
    anchor = KLController(kl_coef)
    policy = clip_ratio(clip, clip)
    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        reward=reward,
        credit=lambda groups, _: group_relative(groups),
        update=Update(
            loss=combine((policy, 1.0), (anchor.loss(), 1.0)) if anchor.is_in_loss else policy,
            aggregation="sequence_mean",
            keeps_zeros=anchor.is_in_loss,
            has_reference=anchor.is_in_loss,
        ),
        needs=Needs(reference=anchor.is_in_loss),
        measure=measure_searches,
    )


def measure_searches(groups: Sequence[Group], _: Callable[[Sequence[int]], str]) -> Mapping[str, float]:
    """Return the share of episodes that search, searches of an episode, and the share of the right form."""
    episodes = flatten_scored(groups)
    if not episodes:
        return {}
    return {
        "search/rate": search_rate(episodes),
        "search/calls": fmean(num_calls(t) for t in episodes),
        "search/well_formed": fmean(float(is_well_formed(t)) for t in episodes),
    }
