"""ToolRL (arXiv 2504.13958): fine-grained rewards of tool calls, compared within the group.

R = format + 6·S/S_max - 3.

Each call is compared with the wanted one field by field: names, argument names, values
(`quintain.rewards.tool_match`). Partly right is worth more than wrong, so that learning starts before the first
exact call.

Differences to the paper: what is wanted is the call of the environment's expert in the same state; an episode of
several turns has the mean over its turns; calls are matched as well as possible, not in order; calling where
nothing is wanted is -3; no KL (the paper says so; its code subtracts one from the rewards). There is no entropy
bonus (the script: .001), and groups have 8 episodes instead of 4. Measured on arithmetic with tools (`calc`), each call
in a state of the teacher's, where the paper has BFCL, API-Bank and Bamboogle.
"""

from dataclasses import dataclass
from functools import partial

from quintain.config.ranges import NonNegativeFloat, PositiveInt
from quintain.credit.group import group_relative
from quintain.errors import ConfigError
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy, no_preparation
from quintain.methods.method import Needs, sample_groups
from quintain.methods.rl.parts.contexts import Contexts, ExpertLabels, ask_expert, calls_of
from quintain.rewards.terms import Term, apply_all
from quintain.rewards.tool_match import match_score
from quintain.types import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of ToolRL."""

    turns: PositiveInt = 1
    """Turns of a training episode; the paper's are single."""
    contexts: bool = False
    """Act once in each state of the demonstrations, as the paper's data has single turns, not from the first on."""
    is_fine: bool = True
    """Reward each field of a call; else 3 for the exact calls and -3 for all others."""
    format_weight: NonNegativeFloat = 1.0
    """Reward of a completion that can be read."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        GroupConfig.check(self)
        if self.contexts and self.turns != 1:
            raise ConfigError(
                f"turns: got {self.turns} with contexts, which are acted on once; leave turns at 1"
            )


def method(config: Config) -> OnPolicy:
    """Return ToolRL as `config` describes it."""
    scored = partial(score, is_fine=config.is_fine, format_weight=config.format_weight)
    contexts = Contexts("all")
    if config.contexts:
        prepare, collect = (
            contexts.prepare,
            partial(contexts.collect, tasks=config.tasks, size=config.group_size),
        )
        measure = contexts.measure(scored)
    else:
        prepare, measure = no_preparation, ExpertLabels(config.environment, ask_expert).measure(scored)
        collect = sample_groups(config.tasks, config.group_size, max_turns=lambda step: config.turns)
    return OnPolicy(
        prepare=prepare,
        collect=collect,
        reward=partial(apply_all, terms=(Term(name="calls", measure=measure),)),
        credit=lambda groups, _: group_relative(groups),
        update=Update(loss=clip_ratio()),
        needs=Needs(
            environment=not config.contexts,
            branches=config.contexts,
            expert=True,
            expert_anywhere=not config.contexts,
        ),
    )


def score(action: Action, wanted: Action, *, is_fine: bool, format_weight: float) -> float:
    """Return the points of `action` where the expert's is `wanted`; -3 for one that cannot be read."""
    if action.error is not None:
        return -3.0
    value = match_score(calls_of(action), calls_of(wanted))
    if not is_fine:
        value = 3.0 if value == 3 else -3.0
    return format_weight + value
