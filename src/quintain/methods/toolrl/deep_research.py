"""Deep research: a report's worth less the cost of looking things up, reinforced end to end.

A = R - mean of the group, R = worth of the report - cost of looking things up.

An agent model is one policy that thinks, uses tools and answers, trained as a whole on what its episodes come to
(articles on agent models and Deep Research; they give no formulas). What it must learn is when its own knowledge is
enough: a look that was not needed costs, one that was missed costs the answer. Episodes are compared within their
group; every turn that looks something up costs `look_cost` beyond what the environment takes. On `research` the agent
browses, keeps notes and writes a report whose claims cite pages, graded by a rubric. With ``--agent plan+auto`` it
writes a plan first, which stands in the transcript and can be edited before it goes on. Measured at every step:
needless and missed looks (the knowledge boundary), and what a look yields (productivity).

Differences to the articles: the cost is a number a look, not time or money; and what is known is told with the task,
where a large model knows it by heart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from quintain.config.ranges import NonNegativeFloat
from quintain.credit.group import group_relative
from quintain.learning.train_config import ClipHigherConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import sample_groups
from quintain.methods.rl.parts.measures import Decode
from quintain.rewards.conduct import environment_reward
from quintain.rewards.terms import Term, apply_all
from quintain.types import Group, Trajectory

NEEDED = frozenset({"reading", "browsing"})
"""Reward terms of a turn that looked up something that was not known."""
NEEDLESS = frozenset({"needless_reading", "needless_browsing"})
"""Reward terms of one that looked although everything was known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ClipHigherConfig):
    """Configuration of an agent model."""

    environment: str = "research"
    look_cost: NonNegativeFloat = 0.0
    """What a turn costs that looks something up, beside what the environment takes off."""


def method(config: Config) -> OnPolicy:
    """Return the training of an agent model as `config` describes it."""
    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        reward=partial(apply_all, terms=(environment_reward(), looking(config.look_cost))),
        credit=lambda groups, _: group_relative(groups, std="none"),
        update=Update(loss=clip_ratio(0.2, config.clip_high), aggregation="sequence_mean"),
        measure=conduct,
    )


def looking(cost: float) -> Term:
    """Return the term "looking": -1 for every turn that looked something up, weighed by `cost`."""
    return Term(
        name="looking",
        measure=lambda t: [-float(bool((NEEDED | NEEDLESS) & turn.reward_terms.keys())) for turn in t.turns],
        weight=cost,
    )


def looks(trajectory: Trajectory) -> tuple[int, int]:
    """Return how many turns of an episode looked up what was not known, and how many what was."""
    terms = [turn.reward_terms.keys() for turn in trajectory.turns]
    return sum(bool(NEEDED & own) for own in terms), sum(bool(NEEDLESS & own) for own in terms)


def conduct(groups: Sequence[Group], _: Decode) -> Mapping[str, float]:
    """Return `boundary` of the scored episodes of `groups`."""
    return boundary([t for group in groups for t in group.scored])


def boundary(episodes: Sequence[Trajectory]) -> dict[str, float]:
    """Return how well `episodes` know what they know, and what their looks yield.

    A task was *closed* where the first look was needless, or it was solved without one; else it was *open*, also where
    it was answered wrongly without a look. ``boundary/needless`` is the share of closed ones with a look,
    ``boundary/missed`` the share of open ones without a needed one, each 0 where there is none; ``productivity/looks``
    the looks of an episode, ``productivity/per_look`` the tasks that were solved for every look at open ones.
    """
    if not episodes:
        return {}
    counted = [(*looks(t), t.is_success) for t in episodes]
    closed = [(needed, more, won) for needed, more, won in counted if not needed and (more or won)]
    opened = [(needed, more, won) for needed, more, won in counted if needed or not (more or won)]
    total = sum(needed + more for needed, more, _ in opened)
    return {
        "boundary/needless": sum(more > 0 for _, more, _ in closed) / max(len(closed), 1),
        "boundary/missed": sum(not needed for needed, _, _ in opened) / max(len(opened), 1),
        "productivity/looks": sum(needed + more for needed, more, _ in counted) / len(counted),
        "productivity/per_look": sum(bool(won) for _, _, won in opened) / max(total, 1),
    }
