"""GRPO with four changes: clip-higher, dynamic sampling, a mean over tokens, overlong shaping: DAPO (arXiv
2503.14476).

The upper clip is wider than the lower, so that unlikely tokens can grow; groups whose outcomes are all equal
are sampled again with other tasks until enough differ; every token of the step counts the same; an episode that
comes near its token budget loses up to `overlong_weight`.

Differences to the paper: many turns, the budget is that of the whole episode; groups sampled in excess are kept; at
most `attempts` draws per step, and a step may be smaller than asked for; two updates on the whole batch instead of
16 mini-batches.
"""

from dataclasses import dataclass
from functools import partial

from quintain.credit.group import group_relative
from quintain.losses.policy import clipped
from quintain.methods.loops.method import Method
from quintain.methods.loops.on_policy import train as train_by
from quintain.methods.rl.parts.collecting import differing
from quintain.methods.rl.parts.group_job import GroupJob
from quintain.methods.rl.parts.updating import Plan, policy_update
from quintain.rewards.conduct import environment_reward
from quintain.rewards.efficiency import overlong_penalty
from quintain.rewards.terms import apply_all
from quintain.store.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupJob):
    """Configuration of DAPO."""

    clip_high: float = 0.28
    """The ratio is clipped to 0.8 … 1 + this."""
    attempts: int = 3
    """Draws of tasks until enough groups differ."""
    overlong_tokens: int = 256
    """Sampled tokens of an episode at which the whole penalty falls due; it begins a quarter before."""
    overlong_weight: float = 1.0
    """Reward lost at that length; 0 for none."""
    updates: int = 2
    """Optimizer steps on the episodes of a step."""


def method(config: Config) -> Method:
    """Return DAPO as `config` describes it."""
    buffer = config.overlong_tokens // 4
    overlong = overlong_penalty(config.overlong_tokens, buffer=buffer, weight=config.overlong_weight)
    return Method(
        collect=differing(config.tasks, config.group_size, attempts=config.attempts),
        reward=partial(apply_all, terms=(environment_reward(), overlong)),
        credit=lambda work, groups: group_relative(groups),
        update=policy_update(clipped(0.2, config.clip_high), Plan(updates=config.updates)),
    )


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))
