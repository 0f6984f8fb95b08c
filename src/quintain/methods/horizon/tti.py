"""TTI (arXiv 2506.07976): imitates its own successes, in episodes that may become longer.

h_i = min(h_min · i, h_max) turns in iteration i.

Every iteration plays episodes of at most h_i turns. Those that succeeded join the successes of all iterations before,
and what is imitated is drawn from all of them, an episode in proportion to k/|D|, where k is its place in the order of
collection: newer ones more often. Short episodes first teach to use few steps; longer ones then leave room to explore
and to go back. A success whose answer says that there is none (`rejected`) is no example: a judge that takes it for
right would teach to give up. The loss is the mean of -log p over the tokens of a turn, then over turns.

Differences to the paper: outcomes are the environment's, where a prompted model judged. Evaluations have
the environment's own limit. An iteration has `stage_steps` steps of some updates, where the paper has one step of 512
episodes. Differences to its code: the published runs had horizons that are written by hand, 10, 20, 20, 30, … turns
(``turns=10,20,20,30``), and drew half by age and half by how rare a site is (``sampler=balanced``), of which the paper
says nothing; a horizon that is missing is 20 there, and is refused here. Measured on a plain of a table; the paper has
WebVoyager and WebArena.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from quintain.config.ranges import PositiveInt
from quintain.data.filters import successful
from quintain.data.pipeline import as_example, example_samples
from quintain.errors import ConfigError
from quintain.learning.train_config import MAIN, ReplayConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.queries import PolicyQueries
from quintain.methods.loops.replay import CriticUpdate, Replay, ReplayBuffer, UpdateSamples
from quintain.methods.method import sample_groups
from quintain.types import Group, Trajectory, flatten_scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ReplayConfig):
    """Configuration of TTI."""

    tasks: PositiveInt = 32
    """Tasks of a step."""
    group_size: PositiveInt = 1
    """Episodes of a task."""
    min_turns: PositiveInt = 10
    """h_min: most turns of an episode in the first iteration, and by how many they grow."""
    max_turns: PositiveInt = 30
    """h_max: most turns of an episode in any iteration."""
    turns: tuple[int, ...] = ()
    """Most turns of an episode, iteration by iteration, in the place of the formula; the last lasts."""
    stage_steps: PositiveInt = 4
    """Steps of an iteration."""
    sampler: Literal["recent", "balanced"] = "recent"
    """How likely an episode is drawn: recent, in proportion to its place in the order of collection; balanced, half so
    and half in proportion to one over how many episodes its environment has."""
    rejected: tuple[str, ...] = ("N/A",)
    """Words with which a last action gives up; such a success is not imitated."""
    capacity: PositiveInt = 1024
    """Newest successes that are kept."""
    batch_size: PositiveInt = 64
    """Episodes that a step imitates."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        ReplayConfig.check(self)
        if self.min_turns > self.max_turns:
            raise ConfigError(
                f"min_turns: got {self.min_turns}, and max_turns={self.max_turns}; give min_turns of at most max_turns"
            )
        if self.turns and min(self.turns) < 1:
            raise ConfigError(f"turns: got {self.turns}; give the turns of each iteration, 1 or more")


def horizon(config: Config, step: int) -> int:
    """Return the most turns of an episode of `step`, counted from 1."""
    iteration = (step - 1) // config.stage_steps + 1
    if config.turns:
        return config.turns[min(iteration, len(config.turns)) - 1]
    return min(config.min_turns * iteration, config.max_turns)


def accept(groups: Sequence[Group], rejected: Sequence[str]) -> list[Group]:
    """Return the episodes of `groups` that succeeded and did not give up: their last action says nothing `rejected`."""
    words = [word.casefold() for word in rejected]

    def gives_up(trajectory: Trajectory) -> bool:
        action = trajectory.turns[-1].action
        said = " ".join([action.text, *(str(call.arguments) for call in action.tool_calls)]).casefold()
        return any(word in said for word in words)

    kept = [
        replace(group, trajectories=tuple(t for t in group.trajectories if not gives_up(t)))
        for group in successful(groups)
    ]
    return [group for group in kept if group.trajectories]


def weigh(episodes: Sequence[Trajectory], sampler: Literal["recent", "balanced"]) -> list[float]:
    """Return how likely each of `episodes`, oldest first, is drawn, in proportion [N].

    k/|D| of the k-th; balanced, ½ k/Σk + ½ (1/n)/Σ(1/n) with n the episodes of its environment.
    """
    num = len(episodes)
    if sampler == "recent":
        return [place / num for place in range(1, num + 1)]
    counts = Counter(t.task.environment for t in episodes)
    return [
        place / (num * (num + 1)) + 0.5 / (counts[t.task.environment] * len(counts))
        for place, t in enumerate(episodes, 1)
    ]


def method(config: Config) -> Replay:
    """Return TTI as `config` describes it."""

    def target(groups: Sequence[Group], _: PolicyQueries) -> UpdateSamples:
        return UpdateSamples(samples=example_samples([as_example(t) for t in flatten_scored(groups)]))

    return Replay(
        collect=sample_groups(config.tasks, config.group_size, max_turns=lambda step: horizon(config, step)),
        reward=lambda groups: accept(groups, config.rejected),
        buffer=ReplayBuffer(
            capacity=config.capacity,
            batch_size=config.batch_size,
            priority=lambda episodes, _: weigh(episodes, config.sampler),
        ),
        updates=(
            CriticUpdate(
                policy=MAIN,
                target=target,
                update=Update(loss=imitation(), aggregation="turn_mean", is_on_policy=False, lr_warmup=0),
            ),
        ),
    )
