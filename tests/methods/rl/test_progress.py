"""What a turn contributed is found from outcomes alone, in a world whose true progress is known (SPA-RL)."""

from dataclasses import replace

import numpy as np

from quintain.credit.decomposition import Contributions
from quintain.credit.layout import outcome_of
from quintain.curriculum.streams import TaskStream
from quintain.engines.local import Local
from quintain.environments.boundary import tasks_of
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.rollout.collect import Rollout
from quintain.rollout.request import Options
from quintain.training.job import Job
from quintain.training.start import harness, make_start
from quintain.types import Group, Trajectory

HOUSE = "house?kind=put&things=1&reward=dense"
"""pays each turn by how much of the chore it does; an episode that is cut short has done a part"""


def played() -> list[Trajectory]:
    """Return 160 episodes of an expert that errs, cut after 3 to 9 turns."""
    make = find(HOUSE)
    model, tokenizer = make_start("micro", make, seed=0)
    rollout = Rollout(harness(Job(), tokenizer, make), make, Local(model))
    episodes: list[Trajectory] = []
    try:
        for draw, turns in enumerate((3, 5, 7, 9)):
            options = Options(limits=replace(rollout.limits, max_turns=turns))
            tasks = TaskStream(tasks_of(make)).draw(draw, 40)
            groups = rollout.demonstrations(tasks, noisy(0.3), seed=draw, options=options)
            episodes += [t for group in groups for t in group.trajectories]
    finally:
        rollout.close()
    return episodes


def test_contributions_follow_the_true_progress_in_a_house() -> None:
    episodes = played()
    seen, unseen = [t for n, t in enumerate(episodes) if n % 5], episodes[::5]
    estimator = Contributions()
    estimator.update([Group(task=t.task, trajectories=(t,)) for t in seen])
    outcomes = np.array([outcome_of(t) for t in unseen])
    errors = [estimator.error(t) for t in unseen]
    assert float(np.mean(errors)) < 0.4 * float(np.mean(np.abs(outcomes - outcomes.mean())))
    found = [value for t in unseen for value in estimator.predict(t)]
    true = [turn.reward for t in unseen for turn in t.turns]
    assert float(np.corrcoef(found, true)[0, 1]) > 0.7
