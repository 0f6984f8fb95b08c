"""MUA-RL (arXiv 2508.18669): GRPO with a live user in the rollout, paid by the outcome alone.

A = (R - mean of the group) / std of the group; clip to 1 ± .2; + β KL(π ‖ π_ref), over sampled tokens.

The user answers what this episode asked, not what a recording holds, so that asking is worth what it finds out here.
What user and tools say is read and never trained. R is 1 where the database ends as the policy leads to and what had to
be said was said, else 0; an episode has a database of its own, and one whose user broke is a failure and no score. The
start is imitation of a clerk (`--demonstrations`).

Differences to the paper: groups that are all equal have no gradient but that of the KL; users follow rules unless an
endpoint is given (``desk?user=URL``, ``tau2/retail?user=URL``), and other episodes do not wait for it; steps have 8
tasks in the place of 32. What the environment pays on the way, where it does (a question's cost), is in R. The
published code scores episodes that its user broke off, and pays silence where nothing had to be done; here neither is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from quintain.config.ranges import NonNegativeFloat, PositiveFloat
from quintain.credit.group import group_relative
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy, hold
from quintain.methods.method import sample_groups
from quintain.rewards.dialogue import INTENTS, intent_of
from quintain.types import Group, Trajectory, as_text, flatten_scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of MUA-RL."""

    environment: str = "desk?interface=text&hidden=true"
    clip: PositiveFloat = 0.2
    """The ratio is clipped to 1 ± this."""
    kl_coef: NonNegativeFloat = 0.001
    """β, weight of the KL (k3) to the starting policy in the loss."""


def method(config: Config) -> OnPolicy:
    """Return MUA-RL as `config` describes it."""
    plain = OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        credit=lambda groups, _: group_relative(groups),
        update=Update(loss=clip_ratio(config.clip, config.clip), aggregation="sequence_mean"),
        measure=measure_talks,
    )
    return hold(plain, kl_coef=config.kl_coef, entropy_coef=0.0)


def measure_talks(groups: Sequence[Group], _: Callable[[Sequence[int]], str]) -> Mapping[str, float]:
    """Return what the agent's turns of an episode are up to, on average, and the share of turns whose tools fail."""
    episodes = flatten_scored(groups)
    if not episodes:
        return {}
    intents = [intent for trajectory in episodes for intent in intents_of(trajectory)]
    counts = {f"user/{name}": intents.count(name) / len(episodes) for name in INTENTS}
    return {**counts, "user/tool_failures": fmean(failures_of(trajectory) for trajectory in episodes)}


def intents_of(trajectory: Trajectory) -> list[str]:
    """Return what each turn of the agent is up to, one of `INTENTS`.

    A call without words looks where its name says so. Example: "say What is your name?" asks.
    """
    talk: list[str] = []
    found: list[str] = []
    for turn in trajectory.turns:
        action = turn.action
        words = action.text.removeprefix("say ") or " ".join(call.name for call in action.tool_calls)
        talk.append(as_text(turn.observation))
        found.append(intent_of(talk, words))
        talk.append(words)
    return found


def failures_of(trajectory: Trajectory) -> float:
    """Return the share of turns in which a call failed."""
    return fmean(bool(turn.tool_errors) for turn in trajectory.turns) if trajectory.turns else 0.0
