"""Contexts to act on once: recorded episodes of the teacher, cut before each of their steps.

The teacher may have erred (`Job.mistakes`), so the expert is asked in every one of those states what is right.
What is sampled becomes a trajectory of one turn whose prompt is the whole context, so nothing of the teacher's
is trained on. The one rule: the environment is not asked what the action did; whoever judges it judges the
action alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from quintain.data.filters import has_succeeded
from quintain.data.samples import since_segment
from quintain.errors import DataError
from quintain.methods.rl.parts.gold import Gold, calls_of
from quintain.rewards.terms import Measure
from quintain.rewards.tool_match import match_score
from quintain.rollout.replay import every_turn
from quintain.rollout.request import USUAL, Options
from quintain.rollout.views import Prefix
from quintain.training.work import Work
from quintain.types import Action, Group, Trajectory, Turn

Keep = Literal["process", "outcome", "both", "all"]


class Contexts:
    """The steps of the teacher's episodes: ``prepare`` collects them, ``collect`` samples actions on some."""

    def __init__(self, keep: Keep) -> None:
        self.keep: Keep = keep
        self.prefixes: list[Prefix] = []
        self.wanted: dict[str, Action] = {}
        """context id → what the expert does there"""

    def prepare(self, work: Work) -> None:
        """Take the demonstrations of `work` apart; steps at which the expert gives up are left out.

        Raises:
            DataError: none of their steps is kept.
        """
        gold = Gold(work.job.environment)
        episodes = [t for t in work.demonstrations() if t.turns]
        prefixes = every_turn(work.rollout.walks(episodes))
        steps = [(t, number, right) for t in episodes for number, right in enumerate(gold.actions(t))]
        for (episode, number, right), prefix in zip(steps, prefixes, strict=True):
            if right is not None and is_kept(episode, number, right, self.keep):
                name = f"{episode.task.id}@{number}"
                self.prefixes.append(replace(prefix, task=replace(episode.task, id=name)))
                self.wanted[name] = right
        if not self.prefixes:
            raise DataError(
                f"contexts from {len(episodes)} demonstrations: got none; raise demonstrations, or keep all steps"
            )

    def collect(
        self, work: Work, step: int, /, options: Options = USUAL, *, tasks: int, size: int
    ) -> list[Group]:
        """Return `size` actions on each of the `tasks` contexts of `step`, recorded in the journal."""
        order = np.random.default_rng(work.seed("contexts", step)).permutation(len(self.prefixes))
        chosen = [self.prefixes[place] for place in order[:tasks]]
        groups: dict[str, Group] = {}
        for length in sorted({len(prefix.turns) for prefix in chosen}):
            limits = replace(options.limits or work.rollout.limits, max_turns=length + 1)
            same = [prefix for prefix in chosen if len(prefix.turns) == length]
            for group in work.rollout.continuations(
                same, size=size, seed=work.seed("step", step), options=replace(options, limits=limits)
            ):
                groups[group.task.id] = replace(
                    group, trajectories=tuple(single(t, length) for t in group.trajectories)
                )
        found = [groups[prefix.task.id] for prefix in chosen]
        trajectories = [t for group in found for t in group.trajectories]
        work.run.append(trajectories, step=step)
        work.count(trajectories)
        return found

    def measure(self, score: Callable[[Action, Action], float]) -> Measure:
        """Return the measure of `score`(action, the expert's) of an action on a context."""
        return lambda trajectory: [score(trajectory.turns[-1].action, self.wanted[trajectory.task.id])]


def is_kept(episode: Trajectory, number: int, right: Action, keep: Keep) -> bool:
    """Return whether step `number` of the teacher's `episode` is learned from: sound, successful, or both.

    It is sound where the teacher did what is `right`.
    """
    is_sound = keep == "outcome" or agreement(episode.turns[number].action, right) == 1
    has_won = keep == "process" or has_succeeded(episode)
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
