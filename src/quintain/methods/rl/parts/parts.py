"""What a method is put together from, by name: an idea of credit, a policy loss, a normaliser, a KL, bonuses.

The one rule: parts that contradict each other, or a setting that none of them reads, are refused before the first
episode.
"""

from dataclasses import dataclass

from quintain.credit.group import Std
from quintain.data.pack import Aggregation
from quintain.errors import ConfigError, suggestion
from quintain.methods.rl.parts.anchoring import Place
from quintain.methods.rl.parts.ideas import IDEAS, SELECTING
from quintain.methods.rl.parts.normalisers import NORMALISERS
from quintain.methods.rl.parts.paid import ONLY_ENVIRONMENT, terms
from quintain.methods.rl.parts.ranges import RangedJob
from quintain.methods.rl.parts.surrogates import LOSSES, NEEDS_UPDATES
from quintain.rewards.exploration import Visits


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts(RangedJob):
    """The parts of a policy gradient."""

    tasks: int = 8
    """Tasks of a step."""
    group_size: int = 8
    """Episodes of a task."""
    credit: str = "group"
    """Idea of credit: group, leave_one_out, gigpo, mt_grpo, gae, vine, spa_rl, … (all: docs/methods)."""
    loss: str = "clip_higher"
    """Policy loss: reinforce, clipped, clip_higher, dual_clip, gspo, gspo_turn, cispo, truncated or masked."""
    normaliser: str = "none"
    """What advantages are whitened over: none, token, turn, trajectory, task (each kind apart) or seat."""
    aggregation: Aggregation = "sequence_mean"
    """How tokens are averaged: token_mean, sequence_mean, or constant, the sum over an episode over a constant."""
    constant: float | None = None
    """Tokens that the sum over an episode is divided by, with aggregation constant."""
    std: Std | None = None
    """Standard deviation of a group, for credit that divides by it: unbiased unless given."""
    discount: float | None = None
    """γ per turn, for credit of returns: 1 unless given."""
    decay: float | None = None
    """λ of generalised advantage estimation, for credit by a critic: 0.95 unless given."""
    adaptive: float | None = None
    """α of λ = 1 - 1/(α·tokens of the episode), for credit gae_decoupled: 0.05 unless given."""
    updates: int = 1
    """Optimizer steps on the episodes of a step."""
    kl: float = 0.0
    """Weight of the KL to the starting policy; 0 for none."""
    kl_place: Place = "loss"
    """Where the KL stands: in the loss (k3 of each token) or in the reward (k1 of the episode)."""
    kl_target: float | None = None
    """KL of an episode, in nats, that the weight is adapted to; none leaves it fixed."""
    entropy: float = 0.0
    """Weight of the entropy bonus."""
    rewards: str = ONLY_ENVIRONMENT
    """Reward terms, name=weight<=most@gate: environment, success, invalid=0.1, visits, … (all: docs/methods)."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have, and for settings that would be ignored."""
        RangedJob.check(self)
        refuse_parts(self)


def refuse_parts(config: Parts) -> None:
    """Raise a `ConfigError` where a part of `config` is unknown, or parts contradict each other."""
    for name, known in (("credit", IDEAS), ("loss", LOSSES), ("normaliser", NORMALISERS)):
        if getattr(config, name) not in known:
            got = getattr(config, name)
            raise ConfigError(f"{name}: got {got!r}; {suggestion(got, known)}")
    terms(config.rewards, Visits())
    idea = IDEAS[config.credit]
    if config.group_size < 1:
        raise ConfigError(f"group_size: got {config.group_size}; give 1 or more")
    if config.credit == "others" and config.tasks * config.group_size < 2:
        raise ConfigError(
            "tasks: got 1 episode of a step with credit others, and it has no others; give 2 or more tasks"
        )
    if idea.is_grouped and config.group_size < 2:
        raise ConfigError(
            f"group_size: got 1 with credit {config.credit}, and an episode alone has nothing to be compared with; "
            "give 2 or more, or use credit others or gae"
        )
    for name in ("std", "discount", "decay", "adaptive"):
        if getattr(config, name) is not None and name not in idea.reads:
            raise ConfigError(
                f"{name}: got {getattr(config, name)}, which credit {config.credit} does not read; leave it out"
            )
    if config.loss in NEEDS_UPDATES and config.updates < 2:
        raise ConfigError(
            f"updates: got 1 with loss {config.loss}, with which every ratio is 1 and nothing is clipped; give 2 or "
            "more, or use loss reinforce"
        )
    if config.loss == "reinforce" and config.updates > 1:
        raise ConfigError(
            f"updates: got {config.updates} with loss reinforce, which assumes tokens of the policy as it is; give 1, "
            "or use a loss with a ratio"
        )
    if (config.constant is not None) != (config.aggregation == "constant"):
        raise ConfigError(
            f"constant: got {config.constant} with aggregation {config.aggregation}; give the tokens of a usual "
            "episode with aggregation constant, and with no other"
        )
    if config.credit in SELECTING and config.normaliser != "none":
        raise ConfigError(
            f"normaliser: got {config.normaliser} with credit {config.credit}, whose weights are positive; leave it out"
        )
    if config.kl_place == "reward" and not config.kl > 0:
        raise ConfigError(
            f"kl_place: got reward with kl {config.kl}, of which there is none; give kl above 0"
        )
    if config.kl_target is not None and not (config.kl > 0 and config.kl_target > 0):
        raise ConfigError(
            f"kl_target: got {config.kl_target} with kl {config.kl}; give both above 0, or leave kl_target out"
        )
