"""How much of its training tasks a policy solves while it imitates: what a warm start is ended by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from quintain.curriculum.streams import TaskStream
from quintain.engines.build import build_engine
from quintain.engines.settings import EngineSettings
from quintain.environments.boundary import ask, check_range, tasks_of
from quintain.environments.protocol import Factory
from quintain.eval.evaluate import evaluate
from quintain.learning.train_config import TrainConfig
from quintain.rollout.collect import Rollout
from quintain.rollout.request import Limits
from quintain.serve.agent_source import find_source
from quintain.types import Score, Trajectory, derive_seed
from quintain.warm_start.start import harness

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

NUM_PROBED = 64
"""Training tasks that success is measured on."""
FIRST_PROBE, LEAST_BETWEEN, GROWTH = 8, 4, 1.25
"""Updates before the first probe and between two of them; and how much later each is than the last."""


class Probe:
    """Training tasks of `config`, played by `model` as it is: ``with Probe(…) as probe: probe.success(8)``."""

    def __init__(
        self,
        config: TrainConfig,
        make_environment: Factory,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
    ) -> None:
        """Build an engine on the weights of `model`."""
        self.return_range = ask(make_environment, check_range)
        self._config, self._tasks = config, TaskStream(tasks_of(make_environment), first=config.task_offset)
        self._make_environment, self._tokenizer = make_environment, tokenizer
        settings = EngineSettings(max_length=config.max_context, precision=config.precision)
        self._engine = build_engine(settings, model, tokenizer)
        self._rollout = self._make_rollout(config)

    def __enter__(self) -> Self:
        """Return the probe."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close engine and environments."""
        self._rollout.close()
        self._engine.close()

    def limit(self, tokens: int) -> None:
        """Let no turn be longer than `tokens`, unless the agent says otherwise; what cannot write yet is cut short."""
        self._rollout.close()
        self._rollout = self._make_rollout(
            replace(self._config, max_turn_tokens=min(tokens, self._config.max_turn_tokens))
        )

    def _make_rollout(self, config: TrainConfig) -> Rollout:
        """Return what plays episodes of `config` with the engine."""
        agent = harness(config, self._tokenizer, self._make_environment)
        return Rollout(
            agent,
            self._make_environment,
            self._engine,
            source=find_source(agent),
            limits=Limits(max_broken_share=config.max_broken, concurrency=config.concurrency),
        )

    def success(self, version: int) -> float:
        """Return the share of the first tasks that is solved; `version` is that of the weights now."""
        return evaluate(list(self._play_tasks(version, range(NUM_PROBED), 0).values())).success

    def play(self, version: int, numbers: Sequence[int], occasion: int) -> dict[int, Trajectory]:
        """Return the scored episodes of the training tasks of these `numbers`, by number; see `success`."""
        played = self._play_tasks(version, numbers, occasion)
        return {number: each for number, each in played.items() if isinstance(each.outcome, Score)}

    def _play_tasks(self, version: int, numbers: Sequence[int], occasion: int) -> dict[int, Trajectory]:
        """Return an episode of each task, with the same chance at every `occasion` of one number."""
        self._engine.load_weights(version, None)
        tasks = [self._tasks.at(number) for number in numbers]
        seed = derive_seed(self._config.seed, "probe", *((occasion,) if occasion else ()))
        groups = self._rollout.groups(tasks, size=1, seed=seed)
        return {
            number: trajectory
            for number, group in zip(numbers, groups, strict=True)
            for trajectory in group.trajectories
        }


def probe_steps(
    total: int, *, first: int = FIRST_PROBE, between: int = LEAST_BETWEEN, growth: float = GROWTH
) -> set[int]:
    """Return after which of `total` updates success is measured: 8, 12, 16, 20, 25, 31, …, and the last."""
    places, place = {total}, first
    while place < total:
        places.add(place)
        place = max(place + between, int(place * growth))
    return places
