"""SWEET-RL (arXiv 2503.15478): a critic that sees hidden information ranks turns for preference learning.

L = -log σ(β(Σ_t A⁺ - Σ_t A⁻)) for the critic, and of its A(o, a, c) DPO between turns.

A critic is told c, what the environment hides from the policy (`privileged`). The advantage A of a turn is the mean
over its tokens of log π_critic(a | c, o) - log π_ref(a | c, o). The critic learns from whole episodes: the best of a
task that was solved against every episode of a lower outcome. At some states of a round's episodes the policy says
`candidates` ways on; a way of the better half by A is preferred to one of the worse half, in `pairs` pairs of a state.
The policy learns by DPO, and imitates what is preferred a little. It never sees c.

Differences to the paper: rounds in turn, in which the critic that ranks is that of the rounds before (the first round
trains the critic alone), where the paper trains the critic and then the policy once. π_ref is therefore the policy as
it was when the round began, in both losses and in A; with ``reference="first"`` it is the start. In ranking, too, it
reads c, where the code subtracts what the policy said without it. Σ_t of means per turn as in the paper, where the code
takes the mean over all tokens of an episode; `critic_beta` is 1 and not .1. c stands before the prompt in one sentence.
Of ColBench we have `collab`, with a user by rules; the outcome is what its environment says, and where questions cost
something the best of a task is the one that asked least.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from quintain.data.pairs import Pairs, across_halves, best_and_lower
from quintain.data.seats import split_seats
from quintain.errors import ConfigError
from quintain.learning.train_config import MAIN, PolicySpec, PreferenceRoundsConfig
from quintain.losses.preference import dpo
from quintain.methods.loops.rounds import Collected, Improve, Rounds, build_nothing
from quintain.methods.method import Collector, Needs
from quintain.methods.preference.updating import dpo_or_rpo, update_on_pairs
from quintain.rollout.replay import prefixes_of
from quintain.types import Group, Trajectory, flatten_scored

CRITIC = "critic"
"""The policy whose log-ratios are advantages."""
TOLD = "In light that the final answer is: {}.\n"
"""How the critic is told what is hidden."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(PreferenceRoundsConfig):
    """Configuration of SWEET-RL."""

    renamed: ClassVar[Mapping[str, str]] = {"critic_rate": "critic_lr_scale"}
    """earlier names of options"""

    environment: str = "collab?graded=dense&cost=0"
    steps: int = 4
    """Rounds, of which the first trains the critic alone."""
    num_epochs: PositiveInt = 1
    tasks: PositiveInt = 64
    group_size: PositiveInt = 4
    """Episodes of a task, of which the critic learns."""
    states: PositiveInt = 64
    """States of a round's episodes at which the policy is trained."""
    candidates: PositiveInt = 16
    """Ways on from a state."""
    pairs: PositiveInt = 4
    """Pairs of a state."""
    margin: NonNegativeFloat = 1e-3
    """Difference of A above which two ways on are a pair."""
    reference: Literal["previous", "first"] = "previous"
    """The policy as it was when the round began, or when the run began."""
    beta: PositiveFloat = 0.1
    """Strength of the pull of the policy towards the reference."""
    imitation_weight: NonNegativeFloat = 0.01
    """Weight of imitating the preferred way on."""
    critic_margin: NonNegativeFloat = 0.0
    """Difference of outcomes above which the critic learns from two episodes."""
    critic_beta: PositiveFloat = 1.0
    """The same pull, of the critic."""
    critic_epochs: PositiveInt = 4
    """Times that the critic goes through its pairs of a round."""
    critic_lr_scale: PositiveFloat = 1.0
    """Factor on the learning rate of the critic."""
    is_told: bool = True
    """Whether the critic is told what is hidden."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        PreferenceRoundsConfig.check(self)
        if self.group_size < 2 or self.candidates < 2:
            raise ConfigError(
                f"group_size, candidates: got {self.group_size} and {self.candidates}, and one alone has nothing to be "
                "compared with; give 2 or more of each"
            )


def method(config: Config) -> Rounds:
    """Return SWEET-RL as `config` describes it."""
    critic = update_on_pairs(dpo(config.critic_beta, by_turn=True), num_epochs=config.critic_epochs)
    return Rounds(
        collect=lambda collector, step: Turns(config).collect(collector, step),
        update=update_on_pairs(dpo_or_rpo(config.beta, config.imitation_weight)),
        later=(Improve(policy=CRITIC, build=build_nothing, update=critic, rate=config.critic_lr_scale),),
        needs=Needs(
            branches=True,
            reference=True,
            renews_reference=config.reference == "previous",
            privileged=config.is_told,
            others={CRITIC: PolicySpec(is_trained=True)},
        ),
    )


@dataclass(slots=True)
class Turns:
    """What a round's turns were found worth by the critic of the rounds before."""

    config: Config
    families: list[list[tuple[Trajectory, float]]] = field(
        default_factory=list["list[tuple[Trajectory, float]]"]
    )
    """ways on from one state with their A"""
    hidden: dict[str, tuple[int, ...]] = field(default_factory=dict[str, "tuple[int, ...]"])
    """name of a task → the tokens that tell the critic what it hides"""

    def collect(self, collector: Collector, step: int) -> Collected:
        """Return the episodes of a round and the pairs of both trainings.

        After the first round, ways on from some of their states are ranked as well.
        """
        config = self.config
        tasks = collector.tasks(step, config.tasks)
        told = collector.privileged_info(tasks) if config.is_told else [""] * len(tasks)
        self.hidden = {
            task.id: collector.encode(TOLD.format(text)) if text else ()
            for task, text in zip(tasks, told, strict=True)
        }
        groups = collector.sample(step, tasks, size=config.group_size)
        ways = self._ways(collector, step, flatten_scored(groups)) if step > 1 else []
        worth = iter(self._advantages(collector, [way for own in ways for way in own]))
        self.families = [[(way, next(worth)) for way in own] for own in ways]
        turns = across_halves(self.families, config.pairs, margin=config.margin)
        return Collected(
            groups=groups, data=[turns, self.episodes(split_seats(groups))], metrics=self.measure(groups)
        )

    def episodes(self, groups: Sequence[Group]) -> Pairs:
        """Return what the critic learns from: pairs of whole episodes, as it is told of them."""
        return best_and_lower(
            [
                replace(group, trajectories=tuple(map(self._tell_hidden, group.trajectories)))
                for group in groups
            ],
            margin=self.config.critic_margin,
        )

    def measure(self, groups: Sequence[Group]) -> Mapping[str, float]:
        """Return how many states have ways on to compare, and how far A spreads over them."""
        spread = [max(worth) - min(worth) for own in self.families if (worth := [a for _, a in own])]
        solved = sum(any(t.is_success for t in group.scored) for group in groups) / max(len(groups), 1)
        return {
            "sweet/solved_tasks": solved,
            "sweet/states": float(len(spread)),
            **({"sweet/spread": sum(spread) / len(spread)} if spread else {}),
        }

    def _ways(
        self, collector: Collector, step: int, episodes: Sequence[Trajectory]
    ) -> list[list[Trajectory]]:
        """Return the ways on from some states of `episodes`, each as an episode up to that turn."""
        config = self.config
        prefixes = prefixes_of(collector.replay_episodes(episodes))
        rng = random.Random(collector.seed("states", step))
        drawn = rng.sample(prefixes, min(config.states, len(prefixes)))
        found: list[list[Trajectory]] = []
        for num in sorted({len(prefix.turns) for prefix in drawn}):
            same = [prefix for prefix in drawn if len(prefix.turns) == num]
            groups = collector.continue_from(
                step,
                same,
                size=config.candidates,
                seed=collector.seed("candidates", step, num),
                max_turns=num + 1,
                phase="candidates",
                again=num,
                is_answered=False,
            )
            for group in groups:
                found.append([way for way in group.scored if len(way.turns) > num])
        return [ways for ways in found if len({way.turns[-1].completion.token_ids for way in ways}) > 1]

    def _advantages(self, collector: Collector, ways: Sequence[Trajectory]) -> list[float]:
        """Return A of the last turn of each of `ways`."""
        told = [self._tell_hidden(way) for way in ways]
        # A reference that is renewed becomes the policy only after this.
        reference = MAIN if self.config.reference == "previous" else "reference"
        by, before = (collector.logprobs(told, by=name) for name in (CRITIC, reference))
        return [advantages(own, old)[-1] for own, old in zip(by, before, strict=True)]

    def _tell_hidden(self, trajectory: Trajectory) -> Trajectory:
        """Return `trajectory` with what its task hides before every stream of it."""
        ids = self.hidden[trajectory.task.id]
        return replace(
            trajectory,
            turns=tuple(
                replace(turn, prompt_ids=(*ids, *turn.prompt_ids))
                if turn.starts_segment or not number
                else turn
                for number, turn in enumerate(trajectory.turns)
            ),
        )


def advantages(
    logprobs: Sequence[NDArray[np.floating]], reference: Sequence[NDArray[np.floating]]
) -> list[float]:
    """Return A of each turn by the log-probs of its tokens. Example: ratios (.1, .3) and (.5,): .2 and .5."""
    return [
        float((turn - before).sum()) / max(len(turn), 1)
        for turn, before in zip(logprobs, reference, strict=True)
    ]
