"""Mixture-of-expert dialogue (arXiv 2206.00059): a manager chooses what one of several experts says.

Q(s, a) = V(s) + τ (log π(a | s) + H).

Every turn each expert says a candidate and the manager chooses one (`quintain.agents.experts`), so that it acts in a
handful of actions and not in words. First the experts learn: each is paid 1 for a candidate of its intent, by PPO's
clip on that less the intent's mean, tethered to the starting model by a KL (k3). After `expert_steps` they rest and the
manager learns from a buffer of talks. Its policy is its Q (`quintain.losses.own_q`): Q-learning with a target
network, without a bootstrap where a talk is over; with `td_lambda` above 0 a target is in part what the rest of the
talk brought. `conservatism` pulls down what nobody chose. After `offline_after` no more talks are collected and what
there is must do.

Differences to the paper: experts are the starting model told an intent in words, not decoders of a latent space that
was learned before; labels are rules on text, without a sentiment or emotion model; the manager's Q is that of a policy
over candidates, which reads them all, where the paper scores one at a time; of its offline algorithms there is
conservative Q-learning. Simulated users are those of `collab` and `desk`, not models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import ClassVar

from quintain.agents.catalog import check as parts_of
from quintain.agents.experts import LABEL, MANAGER, USUAL, intents_of
from quintain.config.ranges import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Share
from quintain.credit.gae import gae_turns
from quintain.credit.layout import Critic, TokenArrays, credit_of, repeat_over_tokens
from quintain.credit.turn_td import TurnValues
from quintain.errors import ConfigError
from quintain.learning.train_config import MAIN, PolicySpec, TrainConfig
from quintain.learning.update import Update
from quintain.losses.compose import combine
from quintain.losses.kl import kl_penalty
from quintain.losses.own_q import own_q
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.queries import PolicyQueries
from quintain.methods.loops.replay import CriticUpdate, Replay, ReplayBuffer, WatchedCritic
from quintain.methods.method import Collector, Needs
from quintain.types import Credit, Group, Trajectory, flatten_scored

TARGET = "target"
"""The policy that follows the manager, whose values are bootstrapped from."""
EXPERTS = "experts"
"""The policy that plays the experts where none is named."""
FRESH = 0.5
"""Share of an update's talks that are of the newest step: experts learn by a ratio to who said what they learn from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(TrainConfig):
    """Configuration of mixture-of-expert dialogue management."""

    renamed: ClassVar[Mapping[str, str]] = {"follow_rate": "polyak", "manager_rate": "manager_lr_scale"}
    """earlier names of options"""

    environment: str = "collab"
    agent: str = "experts"
    """Harness with experts and a manager: experts, and options of it."""
    seats: Mapping[str, str] = field(default_factory=dict[str, str])
    """Who plays the experts, by intent: a policy beside the main one, which is the manager; empty: one for all of them,
    called experts."""
    demonstrations: NonNegativeInt | str | None = 200
    expert_noise: Share = 0.5
    """Share of demonstrated turns in which the expert errs: what all experts begin to talk like."""
    learning_rate: PositiveFloat = 1e-3
    steps: PositiveInt = 60
    expert_steps: NonNegativeInt = 20
    """First steps, in which the experts learn and the manager rests."""
    offline_after: NonNegativeInt = 40
    """Steps after which no more talks are collected; 0: never."""
    tasks: PositiveInt = 32
    """Tasks of a step, one talk each."""
    capacity: PositiveInt = 4096
    """Talks that are kept, each seat's counted apart."""
    batch_size: PositiveInt = 128
    """Talks of an update, each seat's counted apart."""
    num_updates: PositiveInt = 4
    """Updates of the experts in a step."""
    manager_updates: PositiveInt = 4
    """Updates of the manager in a step."""
    manager_lr_scale: PositiveFloat = 1.0
    """Factor on the learning rate of the manager."""
    discount: Share = 0.95
    """γ per turn of the talk."""
    td_lambda: Share = 0.0
    """λ of the targets: 0 bootstraps from the next turn, 1 takes what the rest of the talk brought."""
    softness: PositiveFloat = 0.1
    """τ: return by which a candidate must be better to be chosen e times as often."""
    conservatism: NonNegativeFloat = 0.05
    """α of conservative Q-learning; 0: plain Q-learning."""
    polyak: PositiveFloat = 0.1
    """Share of the way that the target network moves after each update."""
    tether: NonNegativeFloat = 0.05
    """Weight of the experts' KL to the starting model."""

    def __post_init__(self) -> None:
        """Let one policy play all experts where nothing is said of them."""
        if not self.seats:
            object.__setattr__(self, "seats", dict.fromkeys(self.intents, EXPERTS))

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        TrainConfig.check(self)
        intents = self.intents
        if not intents:
            raise ConfigError(f"agent: got {self.agent!r}, in which no experts speak; give experts")
        unseated = [name for name in intents if self.seats.get(name, MAIN) == MAIN]
        if unseated or self.seats.get(MANAGER, MAIN) != MAIN:
            raise ConfigError(
                f"seats: got {dict(self.seats)}; let {MAIN!r} be the {MANAGER} and another policy each of the experts "
                f"{', '.join(intents)}"
            )
        if self.offline_after and self.offline_after <= self.expert_steps:
            raise ConfigError(
                f"offline_after: got {self.offline_after} with expert_steps {self.expert_steps}, after which experts "
                "talk no more; give more, or 0 to go on collecting"
            )

    @property
    def intents(self) -> tuple[str, ...]:
        """Intents of the experts; none without a harness of experts."""
        part = parts_of(self.agent)[-1]
        return intents_of(part.options.get("intents", USUAL)) if part.name == EXPERTS else ()


def method(config: Config) -> Replay:
    """Return mixture-of-expert dialogue management as `config` describes it."""
    names = tuple(dict.fromkeys(config.seats[intent] for intent in config.intents))
    talk = Update(
        loss=combine((clip_ratio(), 1.0), (kl_penalty("k3"), config.tether)),
        has_reference=True,
        is_on_policy=False,
        lr_warmup=0,
    )
    choose = Update(
        loss=own_q(config.softness, config.conservatism), keeps_zeros=True, is_on_policy=False, lr_warmup=0
    )

    def collect(collector: Collector, step: int) -> list[Group]:
        is_over = config.offline_after and step > config.offline_after
        return [] if is_over else collector.sample(step, collector.tasks(step, config.tasks), size=1)

    def target(groups: Sequence[Group], ask: PolicyQueries) -> Credit:
        return choice_targets(
            groups,
            lambda talks: ask.token_values(talks, by=TARGET),
            discount=config.discount,
            td_lambda=config.td_lambda,
        )

    return Replay(
        collect=collect,
        buffer=ReplayBuffer(capacity=config.capacity, batch_size=config.batch_size, fresh_share=FRESH),
        updates=(
            *(
                CriticUpdate(
                    policy=name,
                    target=lambda groups, _, name=name: label_credit(
                        [t for t in flatten_scored(groups) if find_speaker(t) == name]
                    ),
                    update=talk,
                    num_updates=lambda step: config.num_updates * (step <= config.expert_steps),
                )
                for name in names
            ),
            CriticUpdate(
                policy=MAIN,
                target=target,
                update=choose,
                num_updates=lambda step: config.manager_updates * (step > config.expert_steps),
                rate=config.manager_lr_scale,
            ),
        ),
        critic=watch_manager(config.discount, config.softness),
        needs=Needs(
            critic=True,
            reference=True,
            others={
                **{name: PolicySpec(is_trained=True) for name in names},
                TARGET: PolicySpec(head="value", follows=MAIN, polyak=config.polyak),
            },
        ),
        measure=lambda groups, _: measure_intents(groups),
    )


def find_speaker(trajectory: Trajectory) -> str:
    """Return the policy that spoke in `trajectory`, the talk of one seat; nobody where that is the manager's."""
    return "" if is_managers(trajectory) else trajectory.turns[0].completion.policy


def is_managers(trajectory: Trajectory) -> bool:
    """Return whether the seat whose talk `trajectory` is, is the manager's."""
    return trajectory.turns[0].speaker == MANAGER


def label_credit(trajectories: Sequence[Trajectory]) -> Credit:
    """Return label less mean label of its intent as the advantage of each candidate.

    Example: two talks of one expert with the labels (1, 0) and (1,): 1/3, -2/3 and 1/3.
    """
    labels: dict[str, list[float]] = {}
    for turn in (turn for t in trajectories for turn in t.turns):
        labels.setdefault(turn.speaker, []).append(turn.reward)
    means = {intent: fmean(paid) for intent, paid in labels.items()}
    advantages = [[turn.reward - means[turn.speaker] for turn in t.turns] for t in trajectories]
    return credit_of(trajectories, repeat_over_tokens(trajectories, advantages))


def choice_targets(
    groups: Sequence[Group],
    values: Callable[[Sequence[Trajectory]], Critic],
    *,
    discount: float,
    td_lambda: float = 0.0,
) -> Credit:
    """Return the credit of the manager's choices in `groups`, whose returns are G = r + γ((1 - λ)V(next) + λG(next)).

    At the end of a talk G is r, and r + γV where it was cut. `values` says of the manager's talks what the target
    network does.
    """
    own = [t for t in flatten_scored(groups) if is_managers(t)]
    alone = [Group(task=t.task, trajectories=(t,)) for t in own]
    return gae_turns(alone, values(own), discount=discount, gae_lambda=td_lambda)


def watch_manager(discount: float, softness: float) -> WatchedCritic:
    """Return the manager as a critic of its own talks, to be measured, with its target network.

    Experts have no critic, so nothing is said of their talks.
    """

    def target(talks: Sequence[Trajectory], ask: PolicyQueries) -> TurnValues:
        before = state_values(ask.token_values(talks, by=TARGET).values)
        return TurnValues(before=before, after=before)

    return WatchedCritic(
        values=lambda talks, ask: choice_values(
            ask.token_values(talks, by=MAIN).values, ask.logprobs(talks), ask.entropies(talks), softness
        ),
        target=target,
        discount=discount,
        is_read=is_managers,
    )


def state_values(values: TokenArrays) -> list[list[float]]:
    """Return V of the state before each turn, of `values` before each of its tokens."""
    return [[float(own[0]) for own in turns] for turns in values]


def choice_values(
    values: TokenArrays, logprobs: TokenArrays, entropies: TokenArrays, softness: float
) -> TurnValues:
    """Return V and Q = V + τ(log π + H) of each turn, whose log-probs and entropies are those of its tokens together.

    Example: V .2, log-probs -1 and -.5, entropies .6 and .4, and τ = .1: V .2 and Q .15.
    """
    before = state_values(values)
    after = [
        [
            v + softness * float(logs.sum() + spread.sum())
            for v, logs, spread in zip(states, said, spreads, strict=True)
        ]
        for states, said, spreads in zip(before, logprobs, entropies, strict=True)
    ]
    return TurnValues(before=before, after=after)


def measure_intents(groups: Sequence[Group]) -> dict[str, float]:
    """Return for each intent the share of its expert's candidates that have it."""
    labels: dict[str, list[float]] = {}
    for turn in (turn for t in flatten_scored(groups) for turn in t.turns if LABEL in turn.reward_terms):
        labels.setdefault(turn.speaker, []).append(turn.reward_terms[LABEL])
    return {f"experts/{intent}": fmean(paid) for intent, paid in labels.items()}
