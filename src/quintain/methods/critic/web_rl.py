"""WebRL (arXiv 2411.02337): learns in phases, on tasks like those that failed before.

fit β·log(π/π_ref) to the advantages of a phase's turns.

Training goes in phases. The reference is the policy as it was when the phase began, so that each phase may move no
farther than its advantages are worth, and what was learned before is not lost. A classifier of success V learns from
the outcomes of all turns; the advantage of a turn is λ·(r + V(s') - V(s)) + (1 - λ)·(R - V(s)). Failures push away.

Curriculum: `oversample_factor` times as many tasks as are played are looked at, in the place of new ones that a
model writes after failures. Those go first whose V before the first turn is from `low` to `high`, and of these
those whose beginning is most like a task that failed in the phase before; where fewer are open, others fill up in
order (``web_rl/open``, the share of played tasks that were). Replay: of successes of earlier phases those turns are
learned from, too, that the policy as it is neither is sure of nor would hardly say (probability per token from
`min_probability` to `max_probability`), at most `replay` times as many as there are turns of the phase.

Differences to the paper: tasks are drawn by the environment, so all are feasible and no model checks that; outcomes are
the environment's, where an 8B model was trained to judge. Differences to its code, which puts the final score on every
step, makes +1 and -.6 of advantages and trains on +1 alone, divides by the tokens of all positive steps, keeps tasks
that either of two heads finds open, and reads values at padded places: none of that here. Log-ratios are sums over a
turn's tokens, and every turn weighs the same, as in both; ``shape="huber"`` is the code's. Measured on a mixture of
sums; the paper has WebArena.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from quintain.agents.experience import likeness
from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, Share
from quintain.credit.layout import credit_of, repeat_over_tokens
from quintain.credit.selection import in_window
from quintain.credit.success import attach_values, chances, webrl_advantages
from quintain.curriculum.gates import open_first
from quintain.data.samples import samples_from
from quintain.errors import ConfigError
from quintain.learning.train_config import MAIN, ReplayConfig
from quintain.learning.update import Update
from quintain.losses.regression import kl_regression
from quintain.methods.critic.success_critics import CRITIC, chances_by, classifier, watch_critic
from quintain.methods.loops.queries import PolicyQueries
from quintain.methods.loops.replay import CriticUpdate, Replay, ReplayBuffer, UpdateSamples
from quintain.methods.method import Collector, CombinedState, Needs
from quintain.types import Group, Sample, Trajectory, as_text, derive_seed, flatten_scored

VALUES = "critic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ReplayConfig):
    """Configuration of WebRL."""

    renamed: ClassVar[Mapping[str, str]] = {
        "reach": "oversample_factor",
        "mixing": "value_mix",
        "critic_rate": "critic_lr_scale",
        "least_sure": "min_probability",
        "most_sure": "max_probability",
    }
    """earlier names of options"""

    environment: str = "web?popups=0.5&changing=true&drift=256"
    tasks: PositiveInt = 32
    """Tasks of a step."""
    group_size: PositiveInt = 1
    """Episodes of a task."""
    phase: PositiveInt = 1
    """Steps of a phase."""
    oversample_factor: PositiveInt = 4
    """Times as many tasks as are played, among which open ones are looked for; 1: tasks as they come."""
    low: Share = 0.05
    """Least chance of success of a task that is open."""
    high: Share = 0.75
    """Most chance of success of a task that is open."""
    beta: PositiveFloat = 1.0
    """β, weight of the KL to the policy of the phase before."""
    value_mix: Share = 0.5
    """λ, weight of the next value in the advantage; the rest is that of the outcome."""
    shape: Literal["square", "huber"] = "square"
    """What the error of the log-ratio costs."""
    replay: NonNegativeFloat = 2.0
    """Most turns of earlier successes for each turn of the phase; 0: none."""
    min_probability: Share = 0.5
    """Least probability per token of a turn that is replayed."""
    max_probability: Share = 0.95
    """Most probability per token of a turn that is replayed."""
    capacity: PositiveInt = 512
    """Newest episodes that are kept."""
    critic_updates: PositiveInt = 5
    """Updates of the critic in a step."""
    critic_batch: PositiveInt = 32
    """Episodes of such an update, newest ones and earlier ones alike."""
    critic_lr_scale: PositiveFloat = 3.0
    """Factor on the learning rate of the critic."""
    num_epochs: PositiveInt = 1
    """Times that what is learned from in a step is gone through."""
    num_minibatches: PositiveInt = 4
    """Optimizer steps of an epoch."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        ReplayConfig.check(self)
        for low, high in (("low", "high"), ("min_probability", "max_probability")):
            if not getattr(self, low) < getattr(self, high):
                got = f"{getattr(self, low)} and {getattr(self, high)}"
                raise ConfigError(f"{low}, {high}: got {got}; give {low} < {high}")


class Phases:
    """Which episodes are of the phase, and how tasks began that failed before it, a state of a run: ``Phases(4)``."""

    def __init__(self, steps: int) -> None:
        """Let `steps` steps be a phase."""
        self._steps, self._num_steps = steps, 0
        self._failed: dict[int, list[str]] = {}
        self._episodes: dict[int, set[str]] = {}

    def update(self, groups: Sequence[Group]) -> None:
        """Take in the episodes of the next step; see `State.update`."""
        self._num_steps += 1
        phase, found = self._phase(self._num_steps), flatten_scored(groups)
        self._episodes.setdefault(phase, set()).update(t.id for t in found)
        self._failed.setdefault(phase, []).extend(
            as_text(t.turns[0].observation) for t in found if t.turns and not t.is_success
        )

    def failed(self, step: int) -> list[str]:
        """Return how tasks began that failed in the phase before that of `step`, each once."""
        return list(dict.fromkeys(self._failed.get(self._phase(step) - 1, [])))

    def is_of(self, trajectory: Trajectory, step: int) -> bool:
        """Return whether `trajectory` was played in the phase of `step`."""
        return trajectory.id in self._episodes.get(self._phase(step), set())

    def _phase(self, step: int) -> int:
        return (step - 1) // self._steps


def method(config: Config) -> Replay:
    """Return WebRL as `config` describes it."""
    phases = Phases(config.phase)
    played: dict[str, float] = {}

    def collect(collector: Collector, step: int) -> list[Group]:
        pool = collector.tasks(step, config.tasks * config.oversample_factor)
        chosen = pool[: config.tasks]
        played.clear()
        if config.oversample_factor > 1:
            begins = collector.initial_states(pool)
            promised = [own[0] for own in chances(collector.values(begins, by=VALUES))]
            places = evolve_tasks(begins, promised, phases.failed(step), (config.low, config.high))[
                : config.tasks
            ]
            chosen = [pool[place] for place in places]
            is_open = [config.low <= promised[place] <= config.high for place in places]
            played["web_rl/open"] = float(np.mean(is_open))
            played["web_rl/promised"] = float(np.mean([promised[place] for place in places]))
        return collector.sample(step, chosen, size=config.group_size)

    def target(groups: Sequence[Group], consultation: PolicyQueries) -> UpdateSamples:
        episodes = flatten_scored(groups)
        is_new = [phases.is_of(t, consultation.step) for t in episodes]
        old = [t for t, new in zip(episodes, is_new, strict=True) if not new and t.is_success]
        likely = iter(in_window(consultation.logprobs(old), config.min_probability, config.max_probability))
        most = round(
            config.replay * sum(len(t.turns) for t, new in zip(episodes, is_new, strict=True) if new)
        )
        is_learned = limit_replayed(
            [
                [True] * len(t.turns) if new else next(likely) if t.is_success else [False] * len(t.turns)
                for t, new in zip(episodes, is_new, strict=True)
            ],
            is_new,
            most=most,
            seed=derive_seed("web_rl", consultation.step),
        )
        values = chances_by(VALUES, episodes, consultation)
        return regress_streams(episodes, values, is_learned, is_new, config)

    actor = CriticUpdate(
        policy=MAIN,
        target=target,
        update=Update(
            loss=kl_regression(config.beta, shape=config.shape),
            aggregation="turn_mean",
            has_reference=True,
            is_on_policy=False,
            lr_warmup=1,
        ),
    )
    critic = classifier(
        VALUES, num_updates=config.critic_updates, rate=config.critic_lr_scale, batch_size=config.critic_batch
    )
    return Replay(
        collect=collect,
        buffer=ReplayBuffer(capacity=config.capacity, batch_size=config.capacity),
        updates=(critic, actor),
        critic=watch_critic(VALUES),
        needs=Needs(renews_reference=config.phase, others={VALUES: CRITIC}),
        state=CombinedState(phases),
        measure=lambda _, __: dict(played),
    )


def evolve_tasks(
    begins: Sequence[Trajectory], promised: Sequence[float], failed: Sequence[str], band: tuple[float, float]
) -> list[int]:
    """Return the places of all tasks that `begins` shows: open ones first, most like one that `failed` before others.

    A task is open where what is `promised` for it, a chance of success, is in the `band`. The rest stays in order.
    """
    texts = [as_text(t.turns[0].observation) for t in begins]
    nearness = [max((likeness(text, other) for other in failed), default=0.0) for text in texts]
    return open_first(promised, nearness, band)


def limit_replayed(
    is_likely: Sequence[Sequence[bool]], is_new: Sequence[bool], *, most: int, seed: int
) -> list[list[bool]]:
    """Return `is_likely` with at most `most` turns of episodes that are not new, drawn by `seed`."""
    old = [
        (i, k) for i, own in enumerate(is_likely) for k, likely in enumerate(own) if likely and not is_new[i]
    ]
    order = np.random.default_rng(seed).permutation(len(old))[most:].tolist()
    left_out = {old[place] for place in order}
    return [
        [likely and (i, k) not in left_out for k, likely in enumerate(own)] for i, own in enumerate(is_likely)
    ]


def regress_streams(
    episodes: Sequence[Trajectory],
    values: Sequence[Sequence[float]],
    is_learned: Sequence[Sequence[bool]],
    is_new: Sequence[bool],
    config: Config,
) -> UpdateSamples:
    """Return the streams of `episodes` with the advantages of their turns; those that are not learned are context.

    Args:
        episodes: of the phase and earlier ones.
        values: V before each turn of each.
        is_learned: whether a turn counts.
        is_new: whether an episode is of the phase.
        config: whose λ is used.
    """
    advantages = [
        webrl_advantages(episode, mixing=config.value_mix) for episode in attach_values(episodes, values)
    ]
    credit = credit_of(episodes, repeat_over_tokens(episodes, advantages))

    def mark_learned(sample: Sample) -> Sample:
        own = np.array(
            [*is_learned[sample.trajectory], False]
        )  # the last is that of prompts, whose turn is -1
        return replace(sample, loss_weight=sample.loss_weight * own[sample.turn_id].astype(np.float32))

    streams = [mark_learned(sample) for sample in samples_from(credit)]
    old = sum(sum(own) for own, new in zip(is_learned, is_new, strict=True) if not new)
    metrics: Mapping[str, float] = {
        "web_rl/replayed": float(old),
        "web_rl/of_phase": float(sum(sum(own) for own, new in zip(is_learned, is_new, strict=True) if new)),
        "web_rl/advantage_mean": credit.metrics["credit/advantage_mean"],
        "web_rl/advantage_std": credit.metrics["credit/advantage_std"],
    }
    return UpdateSamples(samples=[sample for sample in streams if sample.loss_weight.any()], metrics=metrics)
