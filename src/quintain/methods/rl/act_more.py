"""Act more (an article on multi-step RL): paid for what actions find out, charged for long turns.

R = outcome + information - long turns.

In a world that answers, acting is how one learns: a turn that leads to a state which is new in its episode
earns a little, a turn of more tokens than its budget loses a little, and the rest is the outcome, compared
within the group.

Differences to the article: it names no paper and no constants; information is counted in new states. Tokens per
turn, turns per episode and answers without evidence are logged. The horizon does not grow. Measured on synthetic
questions, in a harness with thoughts that say nothing (`react?filler=3`), against training on episodes of one turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from quintain.config.ranges import NonNegativeFloat, PositiveInt
from quintain.credit.group import group_relative
from quintain.learning.train_config import ClipHigherConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Needs, sample_groups
from quintain.methods.rl.parts.measures import Decode
from quintain.rewards.conduct import environment_reward, new_state_bonus
from quintain.rewards.search import over_turn_budget
from quintain.rewards.terms import apply_all
from quintain.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ClipHigherConfig):
    """Configuration of short thinking, more acting."""

    turn_tokens: PositiveInt = 16
    """Tokens of a turn from which on they cost."""
    long_turn: NonNegativeFloat = 0.1
    """Reward lost by a turn of twice as many."""
    information: NonNegativeFloat = 0.05
    """Reward of a turn that leads to a new state."""


def method(config: Config) -> OnPolicy:
    """Return the method as `config` describes it."""
    terms = (
        environment_reward(),
        over_turn_budget(config.turn_tokens, config.long_turn),
        new_state_bonus(config.information),
    )
    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        reward=partial(apply_all, terms=terms),
        credit=lambda groups, _: group_relative(groups),
        update=Update(loss=clip_ratio(0.2, config.clip_high)),
        needs=Needs(state_keys=True),
        measure=conduct,
    )


def conduct(groups: Sequence[Group], _: Decode) -> Mapping[str, float]:
    """Return tokens per turn, turns per episode, and the share of episodes that ended without seeing a second state."""
    scored = [t for group in groups for t in group.scored]
    turns = [turn for t in scored for turn in t.turns]
    if not turns:
        return {}
    blind = [len({turn.state_key for turn in t.turns}) < 2 for t in scored]
    return {
        "acting/tokens_per_turn": sum(len(turn.completion.token_ids) for turn in turns) / len(turns),
        "acting/turns": len(turns) / len(scored),
        "acting/without_evidence": sum(blind) / len(blind),
    }
