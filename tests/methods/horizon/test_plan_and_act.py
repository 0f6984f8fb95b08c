"""Plans that are shown cover what was done, in order, and say nothing of pages that were not shown yet."""

import pytest
from tests.build import make_episode, make_turn

from quintain.agents.plan import foresee_steps, split_steps, step_plan
from quintain.environments.catalog import find
from quintain.environments.protocol import begin
from quintain.errors import DataError, UsageError
from quintain.methods.horizon.plan_and_act import first_steps, refuse_short
from quintain.types import Action, Trajectory, as_text
from quintain.worlds.guess.game import Guess


def acts(*texts: str) -> list[Action]:
    return [Action(text=text) for text in texts]


def test_steps_end_where_progress_changes() -> None:
    a, b, c = acts("a", "b", "c")
    assert split_steps([a, b, c], [0, 0, 0.5, 1]) == [(a, b), (c,)]
    assert split_steps([a, b, c], [0, 0.5, 0, 0]) == [(a,), (b,), (c,)]
    assert split_steps([], [0]) == []


def test_a_step_is_said_by_its_last_action_in_words_that_were_seen() -> None:
    steps = [acts("go to sink", "take mug"), acts("heat it"), acts("put"), acts("put")]
    assert step_plan(steps, "Goal: Mug. take, heat, put").text == "1. take mug\n2. heat\n3. put"
    assert step_plan(steps, "").steps == ()


def test_the_expert_is_looked_ahead_and_the_world_stays() -> None:
    web = find("web?goal=order&labels=clear")()
    seen = as_text(begin(web, web.task("train", 1)))
    before = web.snapshot()  # pyright: ignore
    steps = foresee_steps(web)
    assert web.snapshot() == before and len(steps) > 3  # pyright: ignore
    first = step_plan(steps, f"{web.instructions()}\n{seen}")
    assert len(first.steps) > 1
    with pytest.raises(UsageError, match="lacks an expert, snapshots or progress"):
        foresee_steps(Guess())


def make_planned(text: str) -> Trajectory:
    plan = make_turn(logprob=None, action=Action(text=text), seat="agent/plan")
    return make_episode(plan, make_turn(logprob=None))


def test_plans_of_one_step_are_refused() -> None:
    assert first_steps([make_planned("1. a\n2. b\n3. c"), make_episode(make_turn(logprob=None))]) == [3]
    refuse_short([make_planned("1. a\n2. b\n3. c"), make_planned("1. a")])
    with pytest.raises(DataError, match=r"got 1\.0 steps on average"):
        refuse_short([make_planned("1. a")])
    with pytest.raises(DataError, match=r"got 0\.0 steps"):
        refuse_short([])
