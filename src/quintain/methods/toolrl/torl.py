"""ToRL (arXiv 2503.23383): reinforcement of tool use by outcome, right from the base model.

A = (R - mean of the group) / std, R = 1 if right else -1.

No trace of a tool is imitated: RL begins with a policy that knows how a call is written, and finds out by the outcome
alone when one is worth it. C calls an answer are carried out at most (`--agent capped?calls=1`), an error is told by
its last line, and what the interpreter tells is masked. `code_penalty` takes something off where a call did not run,
which the paper tried (.5) and found not to help. There is no KL term.

Differences to the paper: the base is a tiny model that first imitates the environment's expert, as in all methods here;
give a model that knows how calls are written and ``--demonstrations 0`` for none. Groups have 8 episodes of 8 tasks,
not 16 of 128; the ratio is clipped to .8 … 1.2. A call is one of the environment's tools; ``--agent capped+code`` has
Python, whose time is not charged. Measured on arithmetic (`calc`), where the paper has AIME.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from quintain.agents.capped import NONE_LEFT
from quintain.config.ranges import NonNegativeFloat
from quintain.credit.group import group_relative
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Needs, sample_groups
from quintain.rewards.conduct import is_broken, punish_broken_calls, verdict
from quintain.rewards.efficiency import num_calls
from quintain.rewards.terms import apply_all
from quintain.types import Group, as_text, flatten_scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of ToRL."""

    environment: str = "calc?names=0&steps=1&digits=1&checks=0"
    agent: str = "capped?calls=1"
    """Harness with the cap C in front of it: `capped?calls=C`."""
    code_penalty: NonNegativeFloat = 0.0
    """What is taken off where a call did not run; the paper tried 0.5."""


def method(config: Config) -> OnPolicy:
    """Return ToRL as `config` describes it."""
    penalty = (punish_broken_calls(config.code_penalty),) if config.code_penalty else ()
    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        reward=partial(apply_all, terms=(verdict(), *penalty)),
        credit=lambda groups, _: group_relative(groups),
        update=Update(loss=clip_ratio(0.2, 0.2), aggregation="sequence_mean"),
        needs=Needs(tools=True),
        measure=lambda groups, _: conduct(groups),
    )


def conduct(groups: Sequence[Group]) -> Mapping[str, float]:
    """Return calls per answer, the share of episodes with a call that did not run, and with one beyond the cap."""
    episodes = flatten_scored(groups)
    num = max(len(episodes), 1)
    return {
        "torl/calls": sum(map(num_calls, episodes)) / num,
        "torl/broken": sum(any(map(is_broken, t.turns)) for t in episodes) / num,
        "torl/beyond_cap": sum(
            any(NONE_LEFT in as_text(turn.observation) for turn in t.turns) for t in episodes
        )
        / num,
    }
