"""Every idea of credit, policy loss and normaliser by name: what ``policy_gradient`` chooses from.

An idea of credit says what it needs, whether it compares episodes of one task, and which options it reads; an option
that it does not read is refused, never ignored. At the policy that sampled, all losses have the gradient of
`reinforce`; they differ once a step is trained on more than once, or where the sampler was another.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from quintain.credit.anchor import state_anchored
from quintain.credit.baseline import subtract_others
from quintain.credit.bilevel import gae_bilevel
from quintain.credit.decomposition import Contributions
from quintain.credit.discounted import discounted_return
from quintain.credit.gae import gae_tokens, gae_turns, join_advantages, length_adaptive
from quintain.credit.group import Std, group_process, group_relative, leave_one_out
from quintain.credit.layout import Critic
from quintain.credit.outcome import outcome_return
from quintain.credit.progress import progress_rewards
from quintain.credit.selection import exponential_weights
from quintain.credit.step_value import step_value
from quintain.credit.turn_group import turn_group_relative
from quintain.credit.whiten import Key, Unit, by_environment, by_seat, whiten
from quintain.data.filters import best_of_group
from quintain.losses.importance import mask_importance, truncate_importance
from quintain.losses.policy import cispo, clip_ratio, gspo, reinforce
from quintain.methods.loops.on_policy import Assign, Branch, no_branches
from quintain.methods.method import Needs
from quintain.methods.rl.parts.continuations import continue_turns, state_values
from quintain.types import Credit, Group, Loss

NOTHING, NUM_CONTINUED = Needs(), 2
"""What most ideas need, and the episodes that `vine` continues from each state."""


class Options(NamedTuple):
    """What an idea may read: ``Options(discount=0.95)``."""

    discount: float = 1.0
    """γ, per turn"""
    gae_lambda: float = 0.95
    """λ of generalised advantage estimation"""
    std: Std = "unbiased"
    """standard deviation of a group"""
    adaptive: float = 0.05
    """α of λ = 1 - 1/(α·tokens of the episode)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Idea:
    """One idea of credit: ``Idea(make=lambda options, _: …, reads=frozenset({"std"}))``."""

    make: Callable[[Options, Contributions], Assign]
    needs: Needs = NOTHING
    branch: Branch = no_branches
    """episodes that it continues"""
    reads: frozenset[str] = frozenset()
    """options that it reads"""
    is_grouped: bool = False
    """whether it compares episodes of one task"""
    is_fitted: bool = False
    """whether it learns from the episodes of earlier steps what a turn contributes"""
    is_selecting: bool = False
    """whether it weighs what is imitated and pushes nothing away"""


def value_by(estimate: Callable[[Sequence[Group], Critic, Options], Credit]) -> Callable[..., Assign]:
    """Return what makes an idea of an `estimate` that reads a critic."""
    return lambda options, _: lambda groups, estimates: estimate(groups, estimates.critic, options)


def pure(compute: Callable[[Sequence[Group], Options], Credit]) -> Callable[..., Assign]:
    """Return what makes an idea of a function that reads episodes alone."""
    return lambda options, _: lambda groups, _: compute(groups, options)


def attribute_turns(groups: Sequence[Group], options: Options, contributions: Contributions) -> Credit:
    """Return discounted sums of what each turn is predicted to have contributed, less the others' mean."""
    found = [contributions.predict(t) for group in groups for t in group.scored]
    return subtract_others(
        discounted_return(progress_rewards(groups, found, beta=0.0), discount=options.discount)
    )


def two_lambda_gae(groups: Sequence[Group], values: Critic, options: Options) -> Credit:
    """Return λ by length for the policy, and λ = 1 for the critic."""
    policy = gae_tokens(groups, values, gae_lambda=length_adaptive(options.adaptive))
    return join_advantages(policy, gae_tokens(groups, values, gae_lambda=1.0))


CRITIC, TURNS = Needs(critic=True), Needs(turn_rewards=True)
STD, DISCOUNT, BOTH = frozenset({"std"}), frozenset({"discount"}), frozenset({"discount", "gae_lambda"})
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
        make=value_by(lambda g, v, k: gae_tokens(g, v, turn_discount=k.discount, gae_lambda=k.gae_lambda)),
        needs=CRITIC, reads=BOTH,
    ),
    "gae_turns": Idea(
        make=value_by(lambda g, v, k: gae_turns(g, v, discount=k.discount, gae_lambda=k.gae_lambda)),
        needs=CRITIC, reads=BOTH,
    ),
    "gae_bilevel": Idea(
        make=value_by(lambda g, v, k: gae_bilevel(g, v, turn_discount=k.discount, gae_lambda=k.gae_lambda)),
        needs=CRITIC, reads=BOTH,
    ),
    "gae_decoupled": Idea(make=value_by(two_lambda_gae), needs=CRITIC, reads=frozenset({"adaptive"})),
    "vine": Idea(
        make=lambda *_: lambda groups, estimates: step_value(groups, state_values(groups, estimates.branches)),
        needs=Needs(branches=True, snapshots=True), branch=continue_turns(NUM_CONTINUED),
    ),
    "spa_rl": Idea(
        make=lambda options, fitted: lambda groups, _: attribute_turns(groups, options, fitted),
        reads=DISCOUNT, is_fitted=True,
    ),
    "best_of": Idea(make=pure(lambda g, _: exponential_weights(best_of_group(g))), is_grouped=True, is_selecting=True),
    "awr": Idea(make=pure(lambda g, _: exponential_weights(g)), is_grouped=True, is_selecting=True),
}  # fmt: skip
"""name → idea of credit"""


class PolicyLoss(NamedTuple):
    """One policy loss: ``PolicyLoss(make=cispo, needs_updates=True)``."""

    make: Callable[[], Loss]
    needs_updates: bool = False
    """whether it is `reinforce` while a step has one update"""
    has_ratio: bool = True
    """whether it clips a ratio of its own"""


LOSSES: Mapping[str, PolicyLoss] = {
    "reinforce": PolicyLoss(reinforce, has_ratio=False),
    "clipped": PolicyLoss(clip_ratio),
    "clip_higher": PolicyLoss(lambda: clip_ratio(0.2, 0.28)),
    "dual_clip": PolicyLoss(lambda: clip_ratio(dual=3.0), needs_updates=True),
    "gspo": PolicyLoss(lambda: gspo(bound_tokens=2000), needs_updates=True),
    "gspo_turn": PolicyLoss(lambda: gspo(unit="turn", bound_tokens=2000), needs_updates=True),
    "cispo": PolicyLoss(cispo, needs_updates=True),
    "truncated": PolicyLoss(lambda: truncate_importance(reinforce()), has_ratio=False),
    "masked": PolicyLoss(lambda: mask_importance(reinforce()), has_ratio=False),
}
"""name → policy loss"""


NORMALISERS: Mapping[str, tuple[Unit, Key | None] | None] = {
    "none": None,
    "token": ("token", None),
    "turn": ("turn", None),
    "trajectory": ("trajectory", None),
    "task": ("token", by_environment),
    "seat": ("token", by_seat),
}
"""name → unit of the statistics over the batch, and what has statistics of its own; None leaves credit as it is"""


def normalise(assign: Assign, name: str) -> Assign:
    """Return `assign` with its advantages whitened as the normaliser `name` says."""
    found = NORMALISERS[name]
    if found is None:
        return assign
    unit, by = found
    return lambda groups, estimates: whiten(assign(groups, estimates), unit=unit, by=by)
