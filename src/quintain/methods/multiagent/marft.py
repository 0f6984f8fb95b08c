"""MARFT (arXiv 2504.16129): PPO over agents who act one after the other, with a critic along their order.

δ_i = r + γ V(what the next agent sees) - V(what agent i sees), A_i = δ_i + γ λ A_next.

The joint action of a step is taken one agent at a time, each seeing what those before it said, so its advantage is the
sum of theirs, A = Σ_i A_i(· | a_<i), and V before agent i + 1 clears agent i of all that comes after. The critic is one
for all agents, a policy of its own that learns from what every seat saw. Agents share a model, or are policies of their
own (``policies.NAME`` and ``seats.ROLE``), an adapter each. `level` is the action (V before its first
token) or the token; `pays` places what a step paid: on its last agent, on each, or as seats are paid; with
`one_at_a_time` one seat learns while the others rest.

Differences to the paper: λ is .8, where it has .95 (its lead over PPO for each agent by itself is small there: the page
has the figures); nothing is discounted inside a step by default, where the code discounts by .99 at every agent and
token, so that early agents count less; advantages of exactly 0 are counted, where it takes them for missing; the ratio
is of tokens, where its action's is the exp of their sum; the KL bound is each policy's own; verdicts of a grader stand
in nobody's prompt. Measured on a relay of four agents as a table, where the paper has mathematics with two models.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from quintain.config.ranges import NonNegativeFloat, NonNegativeInt, PositiveFloat, Share
from quintain.credit.agent_order import Level, Pays, gae_agents
from quintain.credit.layout import Critic
from quintain.credit.whiten import whiten
from quintain.data.seats import order_turns
from quintain.learning.train_config import EpisodesConfig, PolicySpec
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.losses.value import huber
from quintain.methods.loops.critic import CriticPlan
from quintain.methods.loops.on_policy import OnPolicy, hold
from quintain.methods.method import CRITIC, CombinedState, Needs, sample_groups
from quintain.types import Credit, Group, flatten_scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(EpisodesConfig):
    """Configuration of MARFT."""

    environment: str = "twocards"
    learning_rate: float = 1e-4
    num_epochs: int = 5
    level: Level = "action"
    """What has an advantage: an action, by the value before its first token, or each token."""
    pays: Pays = "last"
    """Where a step's reward goes: last agent, each (times agent_discount for each after it), or own: as seats earn."""
    discount: Share = 0.99
    """γ, from a step to the next, which begins where an agent speaks again."""
    agent_discount: Share = 1.0
    """γ between agents of a step."""
    token_discount: Share = 1.0
    """γ between tokens, with --level token."""
    gae_lambda: Share = 0.8
    """λ of generalised advantage estimation, at every hop."""
    clip: PositiveFloat = 0.2
    """The ratio is clipped to 1 ± this."""
    entropy_coef: NonNegativeFloat = 0.01
    """Weight of the entropy, a bonus."""
    target_kl: PositiveFloat | None = None
    """Mean KL (nats a token) from the sampler after which a policy leaves the rest of a step; none: no bound."""
    huber_delta: PositiveFloat = 10.0
    """Error of a value from which the critic's loss is linear."""
    one_at_a_time: NonNegativeInt = 0
    """Steps that one seat learns for while the others rest; 0: all learn in every step."""


@dataclass(slots=True)
class Schedule:
    """Whose steps it is, a `State`: ``Schedule(every=5)``; seats come in the order in which they were first seen."""

    every: int
    step: int = 0
    seats: list[str] = field(default_factory=list[str])

    def update(self, groups: Sequence[Group]) -> None:
        """Take in the recorded groups of the next step."""
        self.step += 1
        spoke = [turn.speaker for group in groups for t in group.trajectories for turn in t.turns]
        self.seats = list(dict.fromkeys([*self.seats, *spoke]))

    def choose(self, credit: Credit) -> Credit:
        """Return the part of `credit` that is learned from in this step."""
        if not self.every or not self.seats:
            return credit
        seat = self.seats[(self.step - 1) // self.every % len(self.seats)]
        places = [i for i, t in enumerate(credit.trajectories) if t.turns[0].speaker == seat]
        assert credit.returns is not None
        return replace(
            credit,
            trajectories=tuple(credit.trajectories[i] for i in places),
            advantages=tuple(credit.advantages[i] for i in places),
            returns=tuple(credit.returns[i] for i in places),
        )


def method(config: Config) -> OnPolicy:
    """Return MARFT as `config` describes it."""
    schedule = Schedule(config.one_at_a_time)
    plain = OnPolicy(
        collect=sample_groups(config.episodes, 1),
        credit=lambda groups, estimates: schedule.choose(whiten(estimate(groups, estimates.critic, config))),
        update=Update(loss=clip_ratio(config.clip, config.clip), target_kl=config.target_kl),
        companion=CriticPlan(
            update=Update(loss=huber(config.huber_delta), keeps_zeros=True, is_on_policy=False)
        ),
        needs=Needs(critic=True, others={CRITIC: PolicySpec(head="value", is_trained=True)}),
        state=CombinedState(schedule),
    )
    return hold(plain, kl_coef=0.0, entropy_coef=config.entropy_coef)


def estimate(groups: Sequence[Group], critic: Critic, config: Config) -> Credit:
    """Return the advantages along the order of agents, and the critic's targets, before anything is normalised."""
    return gae_agents(
        groups,
        critic,
        order_turns(flatten_scored(groups)),
        level=config.level,
        pays=config.pays,
        turn_discount=config.discount,
        agent_discount=config.agent_discount,
        token_discount=config.token_discount,
        gae_lambda=config.gae_lambda,
    )
