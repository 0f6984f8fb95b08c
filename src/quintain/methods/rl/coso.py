"""CoSo (arXiv 2505.03792): rewards entropy only in those tokens that decide the action.

L = L_PPO - α Σ_i B_i H(y_i).

B_i is how much the distribution over actions changes when token i is left out, by a surrogate of the parser
that learns from the run's own episodes. Filler keeps its probability; the words that choose are explored.

Differences to the paper: the base method is GRPO; the surrogate is naive Bayes over the tokens of a turn's end and
their places instead of a small encoder, so that thoughts have no weight, though they name the action; weights are the
distance itself, as in the paper, without the code's scaling by minimum and maximum, under which a one-token action
would have no weight; the entropy is the policy's now, over the whole vocabulary. Everything is learned online; what is
told apart are whole actions, where the paper has their types. Measured on boxes of text (`screen`) with answers that
first repeat a sentence of the instructions, and on guessing a number by tool calls, where the paper has phones, card
games and ALFWorld.
"""

from dataclasses import dataclass

from quintain.config.ranges import NonNegativeFloat, PositiveInt
from quintain.credit.group import group_relative
from quintain.learning.train_config import ClipHigherConfig
from quintain.learning.update import Update
from quintain.losses.causal import ActionModel, causal_weights
from quintain.losses.compose import combine
from quintain.losses.entropy import entropy_bonus
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import CombinedState, sample_groups
from quintain.methods.rl.parts.measures import measure_entropy_of_actions


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ClipHigherConfig):
    """Configuration of CoSo."""

    entropy_coef: NonNegativeFloat = 0.01
    """α, weight of the entropy (the paper: 1, with weights scaled to 1)."""
    is_causal: bool = True
    """Weigh the entropy of tokens by their effect; else all tokens count the same."""
    is_permuted: bool = False
    """Exchange the weights among the tokens of a turn: a control with as much weight, elsewhere."""
    window: PositiveInt = 1
    """Tokens that are left out together; the official code: 4."""
    actions: PositiveInt = 32
    """Actions that are told apart by their tool and its arguments, or by their words; all others count as one."""


def method(config: Config) -> OnPolicy:
    """Return CoSo as `config` describes it."""
    surrogate = ActionModel(window=config.window, max_actions=config.actions)
    weights = causal_weights(surrogate, is_permuted=config.is_permuted) if config.is_causal else None
    bonus = entropy_bonus(weights)
    loss = combine((clip_ratio(0.2, config.clip_high), 1.0), (bonus, config.entropy_coef))
    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        credit=lambda groups, _: group_relative(groups),
        update=Update(loss=loss, aggregation="sequence_mean", keeps_zeros=True),
        state=CombinedState(surrogate),
        measure=measure_entropy_of_actions,
    )
