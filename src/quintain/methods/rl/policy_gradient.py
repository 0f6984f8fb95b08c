"""Policy gradient: any idea of credit with any policy loss, each chosen by an option.

∇J = E[Σ_t A_t ∇log π(y_t)], A by ``--credit``, its surrogate by ``--loss``.

Credit says how much each token mattered, the loss what that does to the weights; nothing in one knows of the
other. A normaliser whitens the credit over the batch: by token, turn or episode, or for each kind of task or seat
apart, so that none drowns the others in a mixed run.

For what no paper has put together. Published combinations are methods of their own, with what else they change. An
adaptive KL coefficient (``kl_target``, arXiv 1909.08593) is computed from the metrics of earlier steps, and Lagrange
multipliers (``constraints``, 1805.11074) from their episodes, so a resumed run has those that it had.
"""

from dataclasses import dataclass, replace

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, Share
from quintain.credit.decomposition import Contributions, EarlierSteps
from quintain.credit.group import Std
from quintain.errors import ConfigError, suggestion
from quintain.learning.train_config import OnPolicyConfig
from quintain.learning.update import Aggregation, Denominator, Update
from quintain.losses.compose import combine
from quintain.losses.entropy import entropy_bonus
from quintain.losses.importance import truncate_importance
from quintain.losses.measure import reference_of
from quintain.losses.value import value
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import CombinedState, no_metrics, same_groups, sample_groups
from quintain.methods.rl.parts.choices import (
    IDEAS,
    LOSSES,
    NORMALISERS,
    Options,
    normalise,
)
from quintain.methods.rl.parts.constraints import USUAL_RATE, Multipliers, read_constraints
from quintain.methods.rl.parts.kl import KLController, Place
from quintain.methods.rl.parts.reward_terms import (
    ONLY_ENVIRONMENT,
    needs_states,
    needs_tools,
    pay,
    read_judge,
    terms,
)
from quintain.rewards.exploration import Visits


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(OnPolicyConfig):
    """Configuration of policy gradients from parts."""

    tasks: PositiveInt = 8
    """Tasks of a step."""
    group_size: PositiveInt = 8
    """Episodes of a task."""
    credit: str = "group"
    """Idea of credit: group, leave_one_out, gigpo, mt_grpo, gae, vine, spa_rl, … (all: docs/methods)."""
    loss: str = "clip_higher"
    """Policy loss: reinforce, clipped, clip_higher, dual_clip, gspo, gspo_turn, cispo, truncated or masked."""
    decoupled: bool = False
    """Let ratios be to the policy as the step began, and weigh each token by min(its ratio to the sampler, 2): for
    tokens of old weights (decoupled PPO, arXiv 2505.24298)."""
    normaliser: str = "none"
    """What advantages are whitened over: none, token, turn, trajectory, task (each kind apart) or seat."""
    aggregation: Aggregation = "sequence_mean"
    """How tokens are averaged: token_mean, sequence_mean, turn_mean, or constant, the sum over an episode over one."""
    constant: PositiveFloat | None = None
    """Tokens that the sum over an episode is divided by, with aggregation constant."""
    denominator: Denominator = "kept"
    """What is averaged over: kept, streams with an advantage, or sampled, those of groups that agree as well."""
    std: Std | None = None
    """Standard deviation of a group, for credit that divides by it: unbiased unless given."""
    discount: Share | None = None
    """γ per turn, for credit of returns: 1 unless given."""
    gae_lambda: Share | None = None
    """λ of generalised advantage estimation, for credit by a critic: 0.95 unless given."""
    adaptive: PositiveFloat | None = None
    """α of λ = 1 - 1/(α·tokens of the episode), for credit gae_decoupled: 0.05 unless given."""
    kl_coef: NonNegativeFloat = 0.0
    """Weight of the KL to the starting policy; 0 for none."""
    kl_place: Place = "loss"
    """Where the KL stands: in the loss (k3 of each token) or in the reward (k1 of the episode)."""
    kl_target: float | None = None
    """KL of an episode, in nats, that the weight is adapted to; none leaves it fixed."""
    entropy_coef: NonNegativeFloat = 0.0
    """Weight of the entropy bonus."""
    rewards: str = ONLY_ENVIRONMENT
    """Reward terms, name=weight<=most@gate: environment, success, invalid=0.1, visits, … (all: docs/methods)."""
    constraints: str = ""
    """Mean costs of an episode to be kept, cost<=bound, …: format, illegal, invalid, refused. The weight of each is a
    Lagrange multiplier, which begins at 0 and follows what episodes cost."""
    multiplier_rate: PositiveFloat | None = None
    """What multipliers move by in a step for each unit above the bound: 0.1 unless given."""
    judge: str = ""
    """Chat endpoint of the reward term judge: http://…/v1?model=NAME&rubric=FILE, and tape=, calls=, key_env=, …"""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have, and for settings that would be ignored."""
        OnPolicyConfig.check(self)
        refuse_parts(self)


def refuse_parts(config: Config) -> None:
    """Raise a `ConfigError` where a part of `config` is unknown, or parts contradict each other."""
    for name, known in (("credit", IDEAS), ("loss", LOSSES), ("normaliser", NORMALISERS)):
        if getattr(config, name) not in known:
            got = getattr(config, name)
            raise ConfigError(f"{name}: got {got!r}; {suggestion(got, known)}")
    read_judge(config.rewards, config.judge)
    if not read_constraints(config.constraints, config.rewards) and config.multiplier_rate is not None:
        raise ConfigError(
            f"multiplier_rate: got {config.multiplier_rate} without constraints, so that nothing reads it; leave it out"
        )
    idea = IDEAS[config.credit]
    if config.credit == "others" and config.tasks * config.group_size < 2:
        raise ConfigError(
            "tasks: got 1 episode of a step with credit others, and it has no others; give 2 or more tasks"
        )
    if idea.is_grouped and config.group_size < 2:
        raise ConfigError(
            f"group_size: got 1 with credit {config.credit}, and an episode alone has nothing to be compared with; "
            "give 2 or more, or use credit others or gae"
        )
    for name in ("std", "discount", "gae_lambda", "adaptive"):
        if getattr(config, name) is not None and name not in idea.reads:
            raise ConfigError(
                f"{name}: got {getattr(config, name)}, which credit {config.credit} does not read; leave it out"
            )
    num_updates = config.num_epochs * config.num_minibatches
    if LOSSES[config.loss].needs_updates and num_updates < 2 and not config.max_staleness:
        raise ConfigError(
            f"num_epochs: got 1 with loss {config.loss}, with which every ratio is 1 and nothing is clipped; give 2 or "
            "more, or use loss reinforce"
        )
    if config.loss == "reinforce" and config.max_staleness:
        raise ConfigError(
            f"max_staleness: got {config.max_staleness} with loss reinforce, which assumes tokens of the policy as it "
            "is; give 0, or use loss truncated or another with a ratio"
        )
    if config.loss == "reinforce" and num_updates > 1:
        raise ConfigError(
            f"num_epochs: got {config.num_epochs}, in {config.num_minibatches} minibatches, with loss reinforce, which "
            "assumes tokens of the policy as it is; give 1 and 1, or use a loss with a ratio"
        )
    if config.decoupled and not LOSSES[config.loss].has_ratio:
        raise ConfigError(
            f"decoupled: got true with loss {config.loss}, which has no ratio of its own to clip; use "
            "clipped, clip_higher or another with one, or leave it out"
        )
    if config.decoupled and config.kl_coef > 0 and config.kl_place == "loss":
        raise ConfigError(
            f"decoupled: got true with kl_coef {config.kl_coef} in the loss, where batches carry the log-probs of one "
            "policy beside the sampler's; give kl_place reward, or leave one of the two out"
        )
    if (config.constant is not None) != (config.aggregation == "constant"):
        raise ConfigError(
            f"constant: got {config.constant} with aggregation {config.aggregation}; give the tokens of a usual "
            "episode with aggregation constant, and with no other"
        )
    if idea.is_selecting and config.normaliser != "none":
        raise ConfigError(
            f"normaliser: got {config.normaliser} with credit {config.credit}, whose weights are positive; leave it out"
        )
    if config.kl_place == "reward" and not config.kl_coef > 0:
        raise ConfigError(
            f"kl_place: got reward with kl_coef {config.kl_coef}, of which there is none; give kl_coef above 0"
        )
    if config.kl_target is not None and not (config.kl_coef > 0 and config.kl_target > 0):
        raise ConfigError(
            f"kl_target: got {config.kl_target} with kl_coef {config.kl_coef}; give both above 0, or leave it out"
        )


def method(config: Config) -> OnPolicy:
    """Return the method that `config` puts together."""
    idea, contributions, visits = IDEAS[config.credit], Contributions(), Visits()
    given = {name: getattr(config, name) for name in sorted(idea.reads) if getattr(config, name) is not None}
    assign = normalise(idea.make(Options(**given), contributions), config.normaliser)
    anchor = KLController(config.kl_coef, config.kl_place, config.kl_target)
    judge = read_judge(config.rewards, config.judge)
    paid = terms(config.rewards, visits, judge)
    bounds = read_constraints(config.constraints, config.rewards)
    multipliers = Multipliers(bounds, config.multiplier_rate or USUAL_RATE)
    is_plain = config.rewards == ONLY_ENVIRONMENT and not bounds
    needs = replace(
        idea.needs,
        reference=config.kl_coef > 0,
        reference_logprobs=anchor.is_in_credit,
        state_keys=idea.needs.state_keys or needs_states(config.rewards),
        tools=needs_tools(config.rewards),
    )
    loss = LOSSES[config.loss].make()
    losses = [(truncate_importance(loss, proximal=reference_of) if config.decoupled else loss, 1.0)]
    losses += [(anchor.loss(), 1.0)] if anchor.is_in_loss else []
    losses += [(value(), 0.5)] if needs.critic else []
    losses += [(entropy_bonus(), config.entropy_coef)] if config.entropy_coef else []
    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        reward=same_groups if is_plain else lambda g: pay(g, paid=(*paid, *multipliers.terms()), judge=judge),
        branch=idea.branch,
        credit=anchor.price(assign),
        update=Update(
            loss=combine(*losses),
            aggregation=config.aggregation,
            constant=config.constant,
            denominator=config.denominator,
            keeps_zeros=needs.critic or config.entropy_coef > 0 or anchor.is_in_loss,
            has_reference=anchor.is_in_loss or config.decoupled,
            is_own_reference=config.decoupled,
            is_on_policy=not idea.is_selecting,
        ),
        needs=needs,
        state=CombinedState(
            EarlierSteps(contributions) if idea.is_fitted else None,
            None if is_plain else visits,
            multipliers if bounds else None,
            anchor,
        ),
        measure=multipliers.measure if bounds else no_metrics,
    )
