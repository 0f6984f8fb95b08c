"""Dr. MAS (arXiv 2602.08847): agents of a team are compared with themselves, not with each other.

A_k = (R - μ_k) / (σ_k + ε), over all calls of agent k in the episodes of a task.

GRPO with one baseline for a team mis-scales each agent: the mean square of agent k's advantages is (σ_k² + (μ_k - μ)²)
/ σ², and gradients rise where an agent is called, or paid, unlike the others. With its own statistics it is 1. An agent
that is called three times in an episode counts three times. Agents share one model, or each role is a policy of its
own with its own adapter, model and learning rate (``policies.NAME`` and ``seats.ROLE``); then the gradient norm of each
is recorded (``NAME/train/grad_norm``), and always the moments (``credit/moment/ROLE``).

Differences to the paper: an agent that was called in one episode of a group learns nothing from it (the code that came
with it lets the raw reward through, its deviation being 1 there); with ``--unit episode`` all calls of an episode get
the mean (there the statistics take the first call, and each is scaled by itself); no team of search. Measured on tables
of two agents, where the paper has mathematics and search with Qwen models.
"""

from dataclasses import dataclass

from quintain.config.ranges import NonNegativeFloat, PositiveFloat
from quintain.credit.agents import Unit, Whose, over_agents
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import sample_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of Dr. MAS."""

    environment: str = "sums?revisions=0"
    agent: str = "team?of=verified"
    statistics: Whose = "agent"
    """Whose calls set mean and deviation: agent (each its own) or all (GRPO with one baseline for the team)."""
    unit: Unit = "call"
    """What counts once: a call, or an episode, whose calls share their mean."""
    invalid_penalty: NonNegativeFloat = 0.1
    """Taken off the reward of a call that was invalid, before normalisation."""
    clip: PositiveFloat = 0.2
    """The ratio is clipped to 1 ± this."""


def method(config: Config) -> OnPolicy:
    """Return Dr. MAS as `config` describes it."""
    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        credit=lambda groups, _: over_agents(
            groups, by=config.statistics, unit=config.unit, penalty=config.invalid_penalty
        ),
        update=Update(loss=clip_ratio(config.clip, config.clip)),
    )
