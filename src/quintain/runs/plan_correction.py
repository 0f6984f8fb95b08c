"""A run plays, and a person corrects its plans before they are acted on."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING

from quintain.agents.corrected_plans import Correct, correct_plans, put_plans
from quintain.curriculum.streams import TaskStream
from quintain.environments.boundary import tasks_of
from quintain.environments.smoke_test import find_ready
from quintain.rollout.collect import Limits
from quintain.rollout.request import Options
from quintain.runs.evaluation import find_acting
from quintain.types import Trajectory, derive_seed
from quintain.warm_start.demonstrations import harness_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def play_plans(
    environment: str, target: str, correct: Correct, *, episodes: int, seed: int, is_trusted: bool = False
) -> tuple[PreTrainedTokenizerBase, Generator[Trajectory]]:
    """Return the tokenizer of the run `target`, and its episodes with plans as `correct` made them.

    Episodes are played one after the other, each when it is asked for, on training tasks from number `seed` on.

    Raises:
        UsageError: the harness of the run has no plans to correct.
    """
    make_environment = find_ready(environment, for_training=True, for_model=True)
    acting = find_acting(
        target, make_environment, agent=harness_of(target, is_trusted=is_trusted), temperature=1.0, seed=seed,
        limits=Limits(max_failure_share=0.5),
    )  # fmt: skip
    correct_plans(acting.rollout.agent, correct)
    tasks = TaskStream(tasks_of(make_environment), first=seed).draw(0, episodes)

    def play() -> Generator[Trajectory]:
        with closing(acting.rollout):
            for place, task in enumerate(tasks):
                agent = correct_plans(acting.rollout.agent, correct)
                (group,) = acting.rollout.groups(
                    [task], size=1, seed=derive_seed("plans", seed, place), options=Options(agent=agent)
                )
                for trajectory in group.trajectories:
                    yield put_plans(trajectory, agent.said)

    return acting.tokenizer, play()
