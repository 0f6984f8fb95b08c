"""Contexts to act on once: recorded episodes of the teacher, cut before each of their steps; and what its expert does.

The teacher may have erred (`TrainConfig.expert_noise`), so the expert is asked in every one of those states what is
right. What is sampled becomes a trajectory of one turn whose prompt is the whole context, so nothing of the
teacher's is trained on. The environment is not asked what the action did; whoever judges it judges the action
alone. Where the expert gives up, there is no answer, which is not the same as a wrong one.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Generic, Literal, TypeVar

import numpy as np

from quintain.data.samples import since_segment
from quintain.environments.catalog import find
from quintain.environments.nothing import NO_ENVIRONMENT
from quintain.environments.protocol import Environment, Expert, Progressing
from quintain.errors import DataError, EnvironmentFault
from quintain.methods.method import Collector
from quintain.rewards.terms import Measure
from quintain.rewards.tool_match import match_score
from quintain.rollout.replay import prefixes_of, replay_actions
from quintain.rollout.stepper import Stepper
from quintain.rollout.views import EnvironmentReader, Prefix
from quintain.types import Action, Failure, Group, ToolCall, Trajectory, Turn

Keep = Literal["process", "outcome", "both", "all"]


class Contexts:
    """The steps of the teacher's episodes: ``prepare`` collects them, ``collect`` samples actions on some."""

    def __init__(self, keep: Keep) -> None:
        self.keep: Keep = keep
        self.prefixes: list[Prefix] = []
        self.alone: list[Trajectory] = []
        """the same of conversations without an environment: each a turn, with all before it as its prompt"""
        self.wanted: dict[str, Action] = {}
        """context id → what the expert does there"""

    def prepare(self, collector: Collector) -> None:
        """Take the demonstrations of `collector` apart; steps at which the expert gives up are left out.

        Without an environment every step of a conversation is what an expert did there.

        Raises:
            DataError: none of their steps is kept.
        """
        if collector.environment == NO_ENVIRONMENT:
            self._prepare_alone(collector.demonstrations())
            return
        labels = ExpertLabels(collector.expert_environment, ask_expert)
        episodes = [t for t in collector.demonstrations() if t.turns]
        walks = collector.replay_episodes(episodes)
        prefixes = prefixes_of(walks)
        steps = [(t, number, right) for t in episodes for number, right in enumerate(labels.labels(t))]
        for (episode, number, right), prefix in zip(steps, prefixes, strict=True):
            if right is not None and prefix.is_repeated and is_kept(episode, number, right, self.keep):
                name = f"{episode.task.id}@{number}"
                self.prefixes.append(replace(prefix, task=replace(episode.task, id=name)))
                self.wanted[name] = right
        if walks and not any(walk.is_repeated for walk in walks):
            raise DataError(
                f"contexts from {len(episodes)} demonstrations: got {len(walks)} that do not repeat when they are "
                "carried out again; draw all chance from task.rng, or give the environment a state_key()"
            )
        if not self.prefixes:
            raise DataError(
                f"contexts from {len(episodes)} demonstrations: got none; raise demonstrations, or keep all steps"
            )

    def _prepare_alone(self, conversations: Sequence[Trajectory]) -> None:
        """Take `conversations` apart, in which nothing can be carried out again."""
        for episode in conversations:
            for number, turn in enumerate(episode.turns):
                if turn.action.error is None and is_kept(episode, number, turn.action, self.keep):
                    name = f"{episode.task.id}@{number}"
                    own = single(episode, number)
                    self.alone.append(replace(own, task=replace(episode.task, id=name)))
                    self.wanted[name] = turn.action
        if not self.alone:
            raise DataError(
                f"contexts from {len(conversations)} conversations: got none with an answer that can be read; check "
                "the file, or keep all steps"
            )

    def collect(self, collector: Collector, step: int, *, tasks: int, size: int) -> list[Group]:
        """Return `size` actions on each of the `tasks` contexts of `step`; the journal has them as branches."""
        rng = np.random.default_rng(collector.seed("contexts", step))
        if self.alone:
            chosen_places = rng.permutation(len(self.alone))[:tasks].tolist()
            return collector.answers(step, [self.alone[place] for place in chosen_places], size=size)
        order = rng.permutation(len(self.prefixes))
        chosen = [self.prefixes[place] for place in order[:tasks]]
        groups: dict[str, Group] = {}
        for length in sorted({len(prefix.turns) for prefix in chosen}):
            same = [prefix for prefix in chosen if len(prefix.turns) == length]
            for group in collector.continue_from(step, same, size=size, max_turns=length + 1):
                groups[group.task.id] = replace(
                    group, trajectories=tuple(single(t, length) for t in group.trajectories)
                )
        return [groups[prefix.task.id] for prefix in chosen]

    def measure(self, score: Callable[[Action, Action], float]) -> Measure:
        """Return the measure of `score`(action, the expert's) of an action on a context.

        An episode that is on no context is a failure of the judge, who knows nothing of it.
        """

        def measure_contexts(trajectory: Trajectory) -> Sequence[float]:
            right = self.wanted.get(trajectory.task.id)
            return [float("nan") if right is None else score(trajectory.turns[-1].action, right)]

        return measure_contexts


def is_kept(episode: Trajectory, number: int, right: Action, keep: Keep) -> bool:
    """Return whether step `number` of the teacher's `episode` is learned from: sound, successful, or both.

    It is sound where the teacher did what is `right`.
    """
    is_sound = keep == "outcome" or agreement(episode.turns[number].action, right) == 1
    has_won = keep == "process" or episode.is_success
    return keep == "all" or (is_sound and has_won)


def agreement(action: Action, right: Action) -> float:
    """Return from 0 to 1 how far `action` is the `right` one, field by field; 0 for one that cannot be read."""
    if action.error is not None:
        return 0.0
    return (match_score(calls_of(action), calls_of(right)) + 3) / 6


def single(trajectory: Trajectory, number: int) -> Trajectory:
    """Return `trajectory` as its turn `number` alone, with everything before it as the prompt."""
    if len(trajectory.turns) <= number:
        return trajectory
    turn: Turn = trajectory.turns[number]
    before: Sequence[Turn] = (
        () if turn.starts_segment else since_segment(trajectory.turns[:number], turn.speaker)
    )
    stream = [i for t in before for i in (*t.prompt_ids, *t.completion.token_ids)]
    whole = replace(turn, prompt_ids=(*stream, *turn.prompt_ids), starts_segment=True)
    return replace(trajectory, turns=(whole,))


Label = TypeVar("Label")
TIMEOUT = 60.0
"""Seconds that carrying out an episode may take."""


class ExpertLabels(Generic[Label]):
    """What the expert wanted: ``ExpertLabels("guess", ask_expert).labels(trajectory)``; None where it gave up."""

    def __init__(
        self, environment: str | Callable[[], Environment], ask: Callable[[Environment], Label | None]
    ) -> None:
        """Label the turns of episodes in `environment` with what `ask` reads from it in the state before each."""
        self.make_environment = find(environment) if isinstance(environment, str) else environment
        self.ask = ask
        self._stepper = Stepper(timeout=TIMEOUT)
        self._looks = EnvironmentReader(has_state_keys=False)
        self._environment: Environment | None = None

    def labels(self, trajectory: Trajectory) -> list[Label | None]:
        """Return what was wanted before each turn of `trajectory`."""
        if self._environment is None:
            self._environment = self.make_environment()
        (found,) = self._stepper.run(
            [partial(expert_labels, self._looks, self._environment, trajectory, self.ask)]
        )
        if isinstance(found, Failure):
            self._environment = None
            return [None] * len(trajectory.turns)
        return found

    def measure(self, score: Callable[[Action, Label], float]) -> Measure:
        """Return the measure of the mean `score`(action, what was wanted) over the turns, each at its turn.

        A turn without an answer of the expert is a failure of the judge.
        """

        def measure_labels(trajectory: Trajectory) -> Sequence[float]:
            num = max(len(trajectory.turns), 1)
            return [
                score(turn.action, gold) / num if gold is not None else float("nan")
                for turn, gold in zip(trajectory.turns, self.labels(trajectory), strict=True)
            ]

        return measure_labels


def expert_labels(
    looks: EnvironmentReader,
    environment: Environment,
    trajectory: Trajectory,
    ask: Callable[[Environment], Label | None],
) -> list[Label | None]:
    """Return what `ask` reads before each turn of `trajectory`, which is carried out in `environment`.

    Rewards may be others than the environment's, since methods replace them.

    Raises:
        EnvironmentFault: the environment shows something else than was recorded.
    """
    return [ask(environment) for _ in replay_actions(looks, environment, trajectory, checks_rewards=False)]


def ask_expert(environment: Environment) -> Action | None:
    """Return the expert's action, None where it gives up."""
    assert isinstance(environment, Expert), "refused at start where there is no expert"
    try:
        return environment.expert_action()
    except EnvironmentFault:
        return None


def calls_of(action: Action) -> tuple[ToolCall, ...]:
    """Return the tool calls of `action`; its text as a call without arguments where there are none."""
    return action.tool_calls or ((ToolCall(name=action.text),) if action.text else ())


def ask_progress(environment: Environment) -> float | None:
    """Return how far the task has come, None where the environment does not say."""
    return environment.progress() if isinstance(environment, Progressing) else None
