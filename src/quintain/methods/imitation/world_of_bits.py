"""World of Bits (PMLR 70, 2017): imitates, then advantage actor-critic where late success is worth less.

MiniWoB (Shi et al., ICML 2017) pays 1 - t/T for a task that is solved in turn t of at most T, and -1 for one that is
not. Demonstrations of a crowd are imitated; then A = R - V(s), which stops at V, with an entropy bonus.

Differences to the paper: t counts turns, not seconds, so that a run repeats on any machine; actions are text, not keys
and places on a screen; one synchronous learner in the place of A3C; R is the return from the turn on, without
discount, and V the critic before the update. Requests to the web are recorded and played back by `quintain.clients`,
not here. Measured on a table over an open sokoban, where the paper has pages of the web.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from quintain.config.ranges import NonNegativeFloat, PositiveInt
from quintain.credit.gae import gae_turns
from quintain.learning.train_config import EpisodesConfig
from quintain.learning.update import Update
from quintain.losses.compose import combine
from quintain.losses.entropy import entropy_bonus
from quintain.losses.policy import reinforce
from quintain.losses.value import value
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.method import Needs, sample_groups
from quintain.rewards.efficiency import num_turns
from quintain.rewards.terms import Term, apply_all
from quintain.types import Credit, Group, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(EpisodesConfig):
    """Configuration of World of Bits."""

    learning_rate: float = 1e-4
    max_turns: PositiveInt = 20
    """T: turns of a training episode, over which the reward of success falls to 0."""
    entropy_coef: NonNegativeFloat = 0.01
    """Weight of the entropy bonus."""
    vf_coef: NonNegativeFloat = 0.5
    """Weight of the critic's loss."""


def method(config: Config) -> OnPolicy:
    """Return World of Bits as `config` describes it."""
    loss = combine((reinforce(), 1.0), (value(), config.vf_coef), (entropy_bonus(), config.entropy_coef))
    return OnPolicy(
        collect=sample_groups(config.episodes, 1, max_turns=lambda _: config.max_turns),
        reward=pay_last_turn(config.max_turns),
        credit=above_value,
        update=Update(loss=loss, keeps_zeros=True),
        needs=Needs(critic=True),
    )


def worth(num_turns: int, most: int, *, is_success: bool) -> float:
    """Return 1 - t/T for a success in turn t of T, -1 for a failure. Example: 3 of 10 is .7, 10 of 10 is 0."""
    return 1 - num_turns / most if is_success else -1.0


def pay_last_turn(most: int) -> Callable[[Sequence[Group]], Sequence[Group]]:
    """Return the reward that pays `worth` in the last turn, and nothing else."""

    def measure(trajectory: Trajectory) -> float:
        return worth(num_turns(trajectory), most, is_success=trajectory.is_success)

    return lambda groups: apply_all(groups, (Term(name="decayed", measure=measure),))


def above_value(groups: Sequence[Group], estimates: Estimates) -> Credit:
    """Return R - V of every turn: what is still to come, less what the critic said before it.

    Running out of turns is an end that pays -1, so that nothing is hoped for beyond it, whoever sets the limit.
    """
    return gae_turns(groups, replace(estimates.critic, final=None), discount=1.0, gae_lambda=1.0)
