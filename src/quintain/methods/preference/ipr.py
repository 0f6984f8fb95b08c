"""IPR (arXiv 2406.11176): prefers an expert's steps to the policy's own, by outcomes of rollouts.

L = Σ over pairs of whole episodes and of steps of -log σ(βΔ) + NLL of the better side.

From before every turn of the expert's episode the policy plays on. Both turns, the expert's and the policy's, are worth
the mean return of `rollouts` episodes that the *starting* policy plays on after them: step rewards by Monte Carlo.
A pair needs a higher outcome and a higher step value, each by more than `margin`; its sides are what follows the shared
turns, or with `is_action_only` the one turn in which they part. Whole episodes are paired as in ETO. Scorer and
reference are the starting policy in all rounds.

Differences to the paper: new tasks in every round; sampled episodes; the margin is .5, where the scripts say .01, at
which two equal steps are a false pair at a third of the turns. Where the policy does the same as the expert nothing is
scored, for both are in the same state; ties in the outcome are no pairs, where the code prefers the shorter one in one
world. The better side's likelihood is summed, as the code has it: it outweighs the pairs as many times as a side has
tokens (`preference/nll_gradient` beside `preference/pair_gradient`). ``likelihood="mean"`` is per token, and the pairs
then push rejected sides down by hundreds of nats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from quintain.data.pairs import join_pairs, step_pairs
from quintain.data.seats import split_seats
from quintain.learning.train_config import PreferenceRoundsConfig
from quintain.losses.preference import dpo, rpo
from quintain.methods.loops.rounds import Collected, Rounds
from quintain.methods.method import Collector, Needs
from quintain.methods.preference.exploring import contrast_episodes, explore_shown
from quintain.methods.preference.step_values import find_parted, value_steps
from quintain.methods.preference.updating import update_on_pairs
from quintain.types import Loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(PreferenceRoundsConfig):
    """Configuration of IPR."""

    rollouts: PositiveInt = 5
    """Episodes of the starting policy that a step's value is the mean of."""
    margin: NonNegativeFloat = 0.5
    """Difference of outcomes, and of step values, above which two steps are a pair."""
    is_action_only: bool = False
    """Whether a step pair is the one turn alone, not what follows it as well."""
    beta: PositiveFloat = 0.1
    """Strength of the pull towards the starting policy."""
    likelihood: Literal["sum", "mean", "none"] = "sum"
    """The better side's likelihood in the loss: its sum (as the code has it), its mean per token, or none."""


def method(config: Config) -> Rounds:
    """Return IPR as `config` describes it."""

    def collect(collector: Collector, step: int) -> Collected:
        groups, experts = explore_shown(collector, step, config.tasks, 1)
        steps = value_steps(collector, step, find_parted(collector, step, experts), config.rollouts)
        pairs = join_pairs(
            contrast_episodes(split_seats(groups), experts, margin=config.margin),
            step_pairs(steps.deviations, margin=config.margin, is_action_only=config.is_action_only),
        )
        return Collected(groups=groups, data=[pairs], metrics=steps.metrics("ipr"))

    return Rounds(
        collect=collect,
        update=update_on_pairs(loss_of(config)),
        needs=Needs(branches=True, expert=True, reference=True, reference_acts=True),
    )


def loss_of(config: Config) -> Loss:
    """Return DPO with the likelihood of the better side."""
    if config.likelihood == "none":
        return dpo(config.beta)
    return rpo(config.beta, is_summed=config.likelihood == "sum")
