"""A tiny model that is taught by hand: demonstrations of any teacher, updates on any samples, episodes, chances.

Experiments on imitation differ in what is shown, by whom, and what of it counts, so they make their policies here and
not by the recipe of a configuration. All arms of a comparison begin as copies of one pupil and take equally many
updates.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from quintain.agents.catalog import AUTO
from quintain.credit_lab.gradient import GradientLab
from quintain.curriculum.streams import TaskStream
from quintain.data.pack import micro_batches
from quintain.engines.build import build_engine
from quintain.engines.settings import EngineSettings
from quintain.environments.boundary import tasks_of
from quintain.environments.catalog import find
from quintain.environments.protocol import Factory
from quintain.errors import DataError
from quintain.learning.learner import Learner, Optimization
from quintain.learning.update import epoch_batch
from quintain.losses.imitation import imitation
from quintain.methods.rl.parts.contexts import single
from quintain.rollout.collect import Rollout
from quintain.rollout.replay import ReplayedEpisode, prefixes_of
from quintain.rollout.request import Limits, Options
from quintain.rollout.samplers import Demonstrator, DialogueTeacher
from quintain.rollout.views import Prefix
from quintain.types import Group, Sample, Split, Task, Trajectory, derive_seed, flatten_scored
from quintain.warm_start.corpus import corpus
from quintain.warm_start.start import build_agent, make_start

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MICRO_TOKENS = 16_384
NUM_PROBED = 96
"""Training tasks that success is measured on while it is taught."""


class Pupil:
    """A policy and what it plays: ``pupil = new_pupil(["guess"], seed=0); pupil.learn(samples, updates=40)``."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, seed: int, agent: str = AUTO
    ) -> None:
        self.model, self.tokenizer, self.seed, self.agent = model, tokenizer, seed, agent

    def copy(self) -> Self:
        """Return another pupil that knows the same, to be taught differently."""
        return type(self)(copy.deepcopy(self.model), self.tokenizer, self.seed, self.agent)

    @cached_property
    def lab(self) -> GradientLab:
        """Gradients of the model as it is whenever it is asked."""
        return GradientLab(self.model)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of `token_ids`."""
        return str(self.tokenizer.decode(list(token_ids)))

    def show(
        self, world: str, tasks: Sequence[Task], teacher: Demonstrator, *, seed: int, turns: int | None = None
    ) -> list[Trajectory]:
        """Return the scored episodes of `teacher`, one for each of `tasks`, of at most `turns` turns."""
        make = find(world)
        agent = build_agent(self.tokenizer, make, temperature=1.0, agent=self.agent)
        rollout = Rollout(agent, make, None, limits=Limits(max_turns=turns))
        try:
            return list(
                flatten_scored(rollout.demonstrations(tasks, teacher, seed=derive_seed("shown", seed)))
            )
        finally:
            rollout.close()

    def play(self, world: str, tasks: Sequence[Task], *, size: int = 1, seed: int) -> list[Group]:
        """Return `size` sampled episodes of each of `tasks`; equal seeds have common uniforms."""
        with self.acting(world) as rollout:
            return rollout.groups(tasks, size=size, seed=derive_seed("played", seed))

    @contextmanager
    def acting(self, world: str) -> Generator[Rollout]:
        """Give what plays it, as it is, in `world`."""
        make = find(world)
        agent = build_agent(self.tokenizer, make, temperature=1.0, agent=self.agent)
        engine = build_engine(EngineSettings(), self.model, self.tokenizer)
        rollout = Rollout(agent, make, engine)
        try:
            yield rollout
        finally:
            rollout.close()
            engine.close()

    def alternatives(
        self, world: str, episodes: Sequence[Trajectory], *, size: int, seed: int
    ) -> list[Group]:
        """Return `size` samples of every step of `episodes`, each an episode of one turn; a group is a step."""
        found: list[Group] = []
        with self.acting(world) as rollout:
            prefixes = prefixes_of(rollout.replay_episodes(episodes))
            for length in sorted({len(prefix.turns) for prefix in prefixes}):
                same = [
                    replace(p, task=replace(p.task, id=f"{p.task.id}@{length}"))
                    for p in prefixes
                    if len(p.turns) == length
                ]
                for group in rollout.continuations(
                    same,
                    size=size,
                    seed=derive_seed("steps", seed, length),
                    options=Options(limits=Limits(max_turns=length + 1)),
                ):
                    own = tuple(single(t, length) for t in group.trajectories)
                    found.append(replace(group, trajectories=own))
        return found

    def success(self, world: str, tasks: Sequence[Task], *, seed: int) -> float:
        """Return the share of `tasks` that it solves."""
        return fmean(float(t.is_success) for t in flatten_scored(self.play(world, tasks, seed=seed)))

    def learn(
        self,
        samples: Sequence[Sample],
        *,
        updates: int,
        rate: float = 2e-3,
        size: int = 16,
        seed: int = 0,
        falls: bool = True,
        draw: Callable[[int], Sequence[int]] | None = None,
    ) -> None:
        """Imitate `samples` in `updates` steps of `size`, in epochs, or those that `draw` names at each step.

        The rate `falls` to 0, or stays.
        """
        learner = Learner(self.model, Optimization(learning_rate=rate))
        for update in range(updates):
            places = draw(update) if draw else epoch_batch(len(samples), size, update, (seed, "taught"))
            batches = micro_batches([samples[i] for i in places], max_tokens=MICRO_TOKENS)
            learner.step(batches, imitation(), rate_scale=1 - update / updates if falls else 1.0)

    def learn_until(
        self,
        samples: Sequence[Sample],
        world: str,
        *,
        low: float,
        high: float,
        most: int = 600,
        first: int = 40,
        rate: float = 2e-3,
        size: int = 16,
    ) -> float:
        """Imitate until its success on training tasks lies from `low` to `high`, and return it.

        It is probed after `first` updates, and again whenever their number has grown by a tenth.

        Raises:
            DataError: it is above after a probe, or still below after `most` updates.
        """
        learner = Learner(self.model, Optimization(learning_rate=rate))
        tasks, found, place = tasks_from(world, NUM_PROBED), 0.0, first
        for update in range(most):
            places = epoch_batch(len(samples), size, update, (self.seed, "taught"))
            learner.step(
                micro_batches([samples[i] for i in places], max_tokens=MICRO_TOKENS),
                imitation(),
                rate_scale=1.0,
            )
            if update + 1 == place:
                place = max(place + 4, int(1.1 * place))
                found = self.success(world, tasks, seed=self.seed)
                if found >= low:
                    break
        if not low <= found <= high:
            raise DataError(
                f"a start in {world}: got success {found:.2f} where {low:.2f} to {high:.2f} was asked; change "
                "demonstrations or the rate"
            )
        return found

    def chances(self, trajectories: Sequence[Trajectory]) -> list[NDArray[np.float64]]:
        """Return the log-probability of what was said in each turn of `trajectories`, [turns] each, in nats."""
        bare = [
            replace(
                t,
                turns=tuple(
                    replace(turn, completion=replace(turn.completion, logprobs=())) for turn in t.turns
                ),
            )
            for t in trajectories
        ]
        said = self.lab.log_ratios([Group(task=t.task, trajectories=(t,)) for t in bare]).astype(np.float64)
        lengths = [[len(turn.completion.token_ids) for turn in t.turns] for t in bare]
        ends = np.cumsum(list(chain.from_iterable(lengths)))
        sums = [float(part.sum()) for part in np.split(said, ends[:-1])]
        waiting = iter(sums)
        return [np.array([next(waiting) for _ in own], np.float64) for own in lengths]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutCollector:
    """What a method collects by, with nothing recorded: ``RolloutCollector(rollout=rollout, seed_of_run=3)``."""

    rollout: Rollout
    seed_of_run: int
    player: Demonstrator | None = None
    """who plays in the policy's place, where somebody does"""

    def seed(self, *parts: int | str) -> int:
        """Return the seed of the run that `parts` name."""
        return derive_seed("pupil's run", self.seed_of_run, *parts)

    @property
    def expert_environment(self) -> Factory:
        """What makes an environment with its expert."""
        return self.rollout.make_environment

    def replay_episodes(self, trajectories: Sequence[Trajectory]) -> list[ReplayedEpisode]:
        """Carry out episodes again, to continue them at any of their turns; one that does not repeat is left alone."""
        return self.rollout.replay_episodes(trajectories, may_differ=True)

    def continue_from(
        self,
        step: int,
        prefixes: Sequence[Prefix],
        *,
        size: int,
        seed: int | None = None,
        max_turns: int | None = None,
        phase: str = "branch",
        teacher: Demonstrator | DialogueTeacher | None = None,
        again: int = 0,
    ) -> list[Group]:
        """Return `size` ways on from each of `prefixes`, of the `teacher` where there is one."""
        limits = None if max_turns is None else replace(self.rollout.limits, max_turns=max_turns)
        return self.rollout.continuations(
            prefixes,
            size=size,
            seed=self.seed("step", step) if seed is None else seed,
            options=Options(limits=limits),
            demonstrator=teacher or self.player,
        )


def new_pupil(
    worlds: Sequence[str],
    *,
    seed: int,
    model: str = "mini?tokens=words",
    texts: Iterable[str] = (),
    agent: str = AUTO,
) -> Pupil:
    """Return a model that knows nothing, whose tokens are those that `worlds` and `texts` are written in.

    It acts through `agent`; by default the harness that fits a world.
    """
    others = chain.from_iterable(corpus(find(world), seed) for world in worlds[1:])
    made, tokenizer = make_start(model, find(worlds[0]), seed=seed, texts=chain(others, texts))
    return Pupil(made, tokenizer, seed, agent)


def tasks_from(world: str, count: int, *, split: Split = "train", first: int = 0) -> list[Task]:
    """Return `count` tasks of `world` from number `first` on."""
    stream = TaskStream(tasks_of(find(world)), split)
    return [stream.at(first + place) for place in range(count)]
