"""L = L_PPO - α Σ_i B_i H(y_i), entropy where a token decides the action: CoSo (arXiv 2505.03792).

B_i is how much the distribution over actions changes when token i is left out, by a surrogate of the parser
that learns from the run's own episodes. Filler keeps its probability; the words that choose are explored.

Differences to the paper: the base method is GRPO; the surrogate is naive Bayes over tokens instead of a small
encoder; weights are the distance itself, as in the paper, without the code's scaling by minimum and maximum, under
which a one-token action would have no weight; the entropy is the policy's now, over the whole vocabulary.
Everything is learned online; what is told apart are whole actions, where the paper has their types. Measured on
boxes of text (`screen`) with answers that first repeat a sentence of the instructions, and on guessing a number by
tool calls, where the paper has phones, card games and ALFWorld.
"""

from dataclasses import dataclass

from quintain.credit.group import group_relative
from quintain.losses.causal import ActionModel, causal_weights
from quintain.losses.compose import combine
from quintain.losses.entropy import entropy_bonus
from quintain.losses.policy import clipped
from quintain.methods.loops.method import Method
from quintain.methods.loops.on_policy import train as train_by
from quintain.methods.rl.parts.collecting import grouped
from quintain.methods.rl.parts.group_job import GroupJob
from quintain.methods.rl.parts.talking import Parts
from quintain.methods.rl.parts.updating import Plan, policy_update
from quintain.store.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupJob):
    """Configuration of CoSo."""

    entropy: float = 0.01
    """α, weight of the entropy (the paper: 1, with weights scaled to 1)."""
    is_causal: bool = True
    """Weigh the entropy of tokens by their effect; else all tokens count the same."""
    window: int = 1
    """Tokens that are left out together; the official code: 4."""
    actions: int = 32
    """Actions that are told apart by their tool or words; all others count as one."""
    clip_high: float = 0.28
    """The ratio is clipped to 0.8 … 1 + this."""


def method(config: Config) -> Method:
    """Return CoSo as `config` describes it."""
    surrogate, parts = ActionModel(window=config.window, max_actions=config.actions), Parts()
    bonus = entropy_bonus(causal_weights(surrogate) if config.is_causal else None)
    loss = combine((clipped(0.2, config.clip_high), 1.0), (bonus, config.entropy))
    return Method(
        prepare=parts.prepare,
        collect=grouped(config.tasks, config.group_size),
        credit=lambda work, groups: group_relative(groups),
        update=policy_update(loss, Plan(aggregation="sequence_mean", keeps_zeros=True)),
        memory=surrogate,
        measure=parts,
    )


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))
