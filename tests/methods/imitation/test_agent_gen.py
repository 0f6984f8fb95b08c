"""AgentGen: tasks that differ in names alone are shown once, plans of wanted lengths stay, and their histogram."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from quintain.data.pipeline import as_example
from quintain.environments.catalog import find
from quintain.environments.nothing import NO_ENVIRONMENT
from quintain.errors import ConfigError
from quintain.methods.imitation import agent_gen
from quintain.types import Trajectory, as_content

Make = Callable[..., Trajectory]
WORLD = "plan?domain=drawn&evolved=mixed"


def test_a_histogram_by_value() -> None:
    assert agent_gen.histogram([1, 4, 5, 12]) == {
        "agent_gen/steps_1-4": 0.5,
        "agent_gen/steps_5-8": 0.25,
        "agent_gen/steps_9-12": 0.25,
    }


def test_tasks_are_shown_once_and_lengths_are_chosen(trajectory: Make) -> None:
    told = [trajectory([((1,), (2,))] * n) for n in (1, 3, 3, 6)]
    line = agent_gen.pipeline(lambda own: [len(t.turns) for t in own], 2, 5)
    made = line.run([as_example(t) for t in told])
    assert [len(e.trajectory.turns) for e in made.examples] == [3]
    assert [p.num_out for p in made.funnel.passages] == [4, 3, 1]


def test_keys_are_the_worlds_or_what_is_read_first(trajectory: Make) -> None:
    world = find(WORLD)()
    tasks = [world.task("train", k) for k in (0, 1, 0)]
    own = [replace(trajectory([((1,), (2,))]), task=task) for task in tasks]
    first, second, again = agent_gen.keys_in(WORLD)(own)
    assert first == again != second
    read = [
        replace(t, turns=(replace(t.turns[0], observation=as_content(text)),))
        for t, text in zip(own, "aab", strict=True)
    ]
    assert agent_gen.keys_in("guess")(read) == agent_gen.keys_in(NO_ENVIRONMENT)(read) == ["a", "a", "b"]


def test_lengths_that_cannot_be_are_refused() -> None:
    agent_gen.Config(min_steps=2, max_steps=2).check()
    with pytest.raises(ConfigError, match="min_steps: got 3 with max_steps 2; give the smaller first"):
        agent_gen.Config(min_steps=3, max_steps=2).check()


@pytest.mark.slow
def test_it_trains_on_drawn_domains(train: Any) -> None:
    rows = train("agent_gen", environment=WORLD, max_steps=6, eval_start=False, eval_episodes=1, steps=1)
    assert rows[-1]["data/solved"] == 8 >= rows[-1]["data/new_tasks"] >= rows[-1]["data/num_turns"] > 0
    shares = [value for key, value in rows[-1].items() if key.startswith("agent_gen/steps")]
    assert sum(shares) == pytest.approx(1)
