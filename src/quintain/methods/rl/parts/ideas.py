"""Every idea of credit by name, with what it asks for: what ``policy_gradient --credit`` chooses from.

An idea says what it needs, whether it compares episodes of one task, and which knobs it reads. The one rule: a knob
that an idea does not read is refused, never ignored.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from quintain.credit.anchor import state_anchored
from quintain.credit.baseline import subtract_others
from quintain.credit.bilevel import gae_bilevel
from quintain.credit.decomposition import Contributions
from quintain.credit.discounted import discounted_return
from quintain.credit.gae import Critic, decoupled, gae_tokens, gae_turns, length_adaptive
from quintain.credit.group import Std, group_process, group_relative, leave_one_out
from quintain.credit.outcome import outcome_return
from quintain.credit.progress import progress_rewards
from quintain.credit.selection import exponential_weights
from quintain.credit.step_value import step_value
from quintain.credit.turn_group import turn_group_relative
from quintain.data.filters import best_of_group
from quintain.methods.loops.method import Assign, Needs
from quintain.methods.rl.parts.critic import critic
from quintain.methods.rl.parts.vine import state_values
from quintain.types import Credit, Group

NOTHING, NUM_CONTINUED = Needs(), 2
"""What most ideas need, and the episodes that `vine` continues from each state."""


class Knobs(NamedTuple):
    """What an idea may read: ``Knobs(discount=0.95)``."""

    discount: float = 1.0
    """γ, per turn"""
    decay: float = 0.95
    """λ of generalised advantage estimation"""
    std: Std = "unbiased"
    """standard deviation of a group"""
    adaptive: float = 0.05
    """α of λ = 1 - 1/(α·tokens of the episode)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Idea:
    """One idea of credit: ``Idea(make=lambda knobs, _: …, reads=frozenset({"std"}))``."""

    make: Callable[[Knobs, Contributions], Assign]
    needs: Needs = NOTHING
    reads: frozenset[str] = frozenset()
    """knobs that it reads"""
    is_grouped: bool = False
    """whether it compares episodes of one task"""
    is_fitted: bool = False
    """whether it learns from the episodes of earlier steps what a turn contributes"""


def valued(estimate: Callable[[Sequence[Group], Critic, Knobs], Credit]) -> Callable[..., Assign]:
    """Return what makes an idea of an `estimate` that reads a critic."""
    return lambda knobs, _: lambda work, groups: estimate(groups, critic(work, groups), knobs)


def pure(compute: Callable[[Sequence[Group], Knobs], Credit]) -> Callable[..., Assign]:
    """Return what makes an idea of a function that reads episodes alone."""
    return lambda knobs, _: lambda work, groups: compute(groups, knobs)


def attributed(groups: Sequence[Group], knobs: Knobs, contributions: Contributions) -> Credit:
    """Return discounted sums of what each turn is predicted to have contributed, less the others' mean."""
    found = [contributions.predict(t) for group in groups for t in group.scored]
    return subtract_others(
        discounted_return(progress_rewards(groups, found, beta=0.0), discount=knobs.discount)
    )


def decoupled_gae(groups: Sequence[Group], values: Critic, knobs: Knobs) -> Credit:
    """Return λ by length for the policy, and λ = 1 for the critic."""
    policy = gae_tokens(groups, values, gae_lambda=length_adaptive(knobs.adaptive))
    return decoupled(policy, gae_tokens(groups, values, gae_lambda=1.0))


CRITIC, TURNS = Needs(critic=True), Needs(turn_rewards=True)
STD, DISCOUNT, BOTH = frozenset({"std"}), frozenset({"discount"}), frozenset({"discount", "decay"})
IDEAS: Mapping[str, Idea] = {
    "outcome": Idea(make=pure(lambda g, _: outcome_return(g))),
    "return": Idea(make=pure(lambda g, k: discounted_return(g, discount=k.discount)), reads=DISCOUNT),
    "others": Idea(make=pure(lambda g, k: subtract_others(discounted_return(g, discount=k.discount))), reads=DISCOUNT),
    "group": Idea(make=pure(lambda g, k: group_relative(g, std=k.std)), reads=STD, is_grouped=True),
    "leave_one_out": Idea(make=pure(lambda g, _: leave_one_out(g)), is_grouped=True),
    "process": Idea(make=pure(lambda g, k: group_process(g, std=k.std)), needs=TURNS, reads=STD, is_grouped=True),
    "mt_grpo": Idea(
        make=pure(lambda g, k: turn_group_relative(g, std=k.std)), needs=TURNS, reads=STD, is_grouped=True
    ),
    "gigpo": Idea(
        make=pure(lambda g, k: state_anchored(g, discount=k.discount, std=k.std)),
        needs=Needs(state_keys=True), reads=STD | DISCOUNT, is_grouped=True,
    ),
    "gae": Idea(
        make=valued(lambda g, v, k: gae_tokens(g, v, turn_discount=k.discount, gae_lambda=k.decay)),
        needs=CRITIC, reads=BOTH,
    ),
    "gae_turns": Idea(
        make=valued(lambda g, v, k: gae_turns(g, v, discount=k.discount, gae_lambda=k.decay)), needs=CRITIC, reads=BOTH
    ),
    "gae_bilevel": Idea(
        make=valued(lambda g, v, k: gae_bilevel(g, v, turn_discount=k.discount, gae_lambda=k.decay)),
        needs=CRITIC, reads=BOTH,
    ),
    "gae_decoupled": Idea(make=valued(decoupled_gae), needs=CRITIC, reads=frozenset({"adaptive"})),
    "vine": Idea(
        make=lambda *_: lambda work, g: step_value(g, state_values(work, g, NUM_CONTINUED)), needs=Needs(snapshots=True)
    ),
    "spa_rl": Idea(
        make=lambda knobs, fitted: lambda _, groups: attributed(groups, knobs, fitted), reads=DISCOUNT, is_fitted=True
    ),
    "best_of": Idea(make=pure(lambda g, _: exponential_weights(best_of_group(g))), is_grouped=True),
    "awr": Idea(make=pure(lambda g, _: exponential_weights(g)), is_grouped=True),
}  # fmt: skip
"""name → idea of credit"""
SELECTING = frozenset({"best_of", "awr"})
"""Ideas that weigh what is imitated and push nothing away."""
