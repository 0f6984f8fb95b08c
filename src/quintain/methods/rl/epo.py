"""EPO (arXiv 2502.12486): learns a strategist's words by discounted rewards of a dialogue's process.

L = -(1/n) Σ_k s_k · mean log π of segment k, s_k discounted process rewards.

Explicit policy optimisation: what an agent means to do, turn by turn, is imitated in proportion to what it was
worth. In episodes that succeed a judge pays the key turns; their discounted sums, over the largest, are the
scores. No baseline, no ratio, no clip. Scores are never below 0, so nothing is pushed away.

With ``agent="plan?actor=scripted"`` the policy is a strategist for an actor that is frozen: it names one thing in each
turn, and a script goes for that. No token of the actor is trained on, for it has none.

Differences to the paper: the frozen actor is a script, not a language model, and with any other agent one policy
states and acts; the judge is a rule: a turn is key if it was carried out and led to a state that is new in its episode;
data is collected by the running policy. The sum over episodes is a mean, and each step is trained on once. γ is .5, and
.99 as published: with .99 a turn that led nowhere before two that led on weighs .99, and the last of these .50; with .5
it weighs .50, and the last .67. Measured on `collab`, without a frozen actor, where a simulated user is asked for a
hidden specification; the paper has SOTOPIA, WebShop and ALFWorld.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quintain.config.ranges import Share
from quintain.credit.segments import segment_weights
from quintain.errors import ConfigError
from quintain.learning.train_config import EpisodesConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitate_weighted
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Needs, sample_groups
from quintain.types import Group, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(EpisodesConfig):
    """Configuration of EPO."""

    discount: Share = 0.5
    """γ, per turn; 0.99 is as published."""
    is_weighted: bool = True
    """Weigh turns by their scores; else all turns of successful episodes count 1."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        EpisodesConfig.check(self)
        if not 0 < self.discount <= 1:
            raise ConfigError(f"discount: got {self.discount}; give a number above 0, up to 1")


def method(config: Config) -> OnPolicy:
    """Return EPO as `config` describes it."""
    discount = config.discount if config.is_weighted else 1.0
    judge = key_turns if config.is_weighted else success_alone

    def rewards(groups: Sequence[Group]) -> list[list[float]]:
        return [judge(t) for group in groups for t in group.scored]

    return OnPolicy(
        collect=sample_groups(config.episodes, 1),
        credit=lambda groups, _: segment_weights(groups, rewards(groups), discount=discount),
        update=Update(loss=imitate_weighted(), aggregation="constant", constant=1.0),
        needs=Needs(state_keys=True),
    )


def key_turns(trajectory: Trajectory) -> list[float]:
    """Return 1 for the turns of a successful episode that were carried out and led to a new state, and for the last."""
    if not trajectory.is_success:
        return [0.0] * len(trajectory.turns)
    keys = [turn.state_key for turn in trajectory.turns]
    inner = [
        float(turn.is_valid and keys[place + 1] not in keys[: place + 1])
        for place, turn in enumerate(trajectory.turns[:-1])
    ]
    return [*inner, 1.0] if trajectory.turns else []


def success_alone(trajectory: Trajectory) -> list[float]:
    """Return a reward of 1 on the last turn of a successful episode: undiscounted, every turn has score 1."""
    is_success = trajectory.is_success
    return [*[0.0] * (len(trajectory.turns) - 1), float(is_success)] if trajectory.turns else []
