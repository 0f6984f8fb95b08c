"""BacktrackAgent: what is imitated of a teacher who errs, and what each attempt is credited with."""

from random import Random

import numpy as np
import pytest

from quintain.data.pipeline import as_example
from quintain.data.searched import with_head
from quintain.environments.catalog import find
from quintain.environments.protocol import advance, begin
from quintain.errors import ConfigError
from quintain.methods.search.backtrack import (
    Config,
    choose_attempts,
    credit_attempts,
    err_and_judge,
    measure_attempts,
    method,
    read_attempts,
)
from quintain.search.backtracking import Backtracked, BacktrackWorld
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Group, Text, Trajectory


def make_episode(heads: str, way: tuple[int, ...], value: float) -> Trajectory:
    """Return an episode of a turn for each letter of `heads`: a for an attempt, j for a verdict."""
    turns = [
        turn_of((2, 3), observation=(Text(text=str(with_head("x", "judge" if head == "j" else "", ()))),))
        for head in heads
    ]
    end = (Text(text=str(with_head("x", "end", way))),)
    return episode_of(turns, value, is_success=value > 0, final_observation=end)


def test_attempts_are_told_from_verdicts_and_kept_ones_from_others() -> None:
    found = make_episode("ajaja", (2, 4), 1.0)
    assert read_attempts(found) == [False, None, True, None, True]
    group = Group(task=found.task, trajectories=(found, make_episode("a", (), 0.0)))
    assert measure_attempts([group]) == {
        "backtrack/attempts": 2.0, "backtrack/undone": 0.5, "backtrack/verdicts": 0.5,
    }  # fmt: skip
    assert measure_attempts([]) == {}


def test_credit_is_the_outcome_and_how_much_oftener_an_attempt_was_kept_than_others() -> None:
    group = Group(
        task=make_episode("a", (), 0.0).task,
        trajectories=(make_episode("aja", (2,), 1.0), make_episode("a", (), 0.0)),
    )
    credit = credit_attempts([group], weight=0.5)
    numbers = [[float(turn[0]) for turn in own] for own in credit.advantages]
    kept = 1 / 3
    assert numbers[0] == pytest.approx([2**-0.5 - 0.5 * kept, 0.0, 2**-0.5 + 0.5 * (1 - kept)], abs=1e-5)
    assert numbers[1] == pytest.approx([-(2**-0.5) - 0.5 * kept], abs=1e-5)
    assert credit.is_trained == ((True, False, True), (True,))
    outcomes = credit_attempts([group], weight=0.0)
    assert [float(own[0][0]) for own in outcomes.advantages] == pytest.approx([2**-0.5, -(2**-0.5)], abs=1e-5)
    alone = credit_attempts([take_one(group, 0)], weight=1.0)
    assert float(np.sum([turn[0] for turn in alone.advantages[0]])) == pytest.approx(0.0), (
        "no outcome to compare"
    )


def take_one(group: Group, index: int) -> Group:
    return Group(task=group.task, trajectories=(group.trajectories[index],))


def test_what_was_taken_back_is_context_and_what_failed_is_left_out() -> None:
    (made,) = (
        choose_attempts()
        .run([as_example(t) for t in (make_episode("aja", (2,), 1.0), make_episode("a", (0,), 0.0))])
        .examples
    )
    assert [own.tolist() for own in made.weights or ()] == [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]


def test_the_teacher_errs_where_it_acts_and_never_where_it_judges() -> None:
    make = find("web?goal=order&irreversible=false&popups=0")
    agent: object = None
    world = BacktrackWorld(make(), Backtracked(agent, agent, retries=9))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    teach, rng, verdicts, erred = err_and_judge(0.5), Random(3), list[str](), 0
    for index in range(8):
        seen = [begin(world, world.task("train", index))]
        while True:
            is_verdict = str(seen[-1]).startswith("[search judge")
            before = None if is_verdict else world.expert_action()
            action = teach(world, rng, seen)
            verdicts += [action.text] if is_verdict else []
            erred += before is not None and action != before
            result = advance(world, action)
            seen.append(result.observation)
            if result.is_over:
                break
        assert result.is_success
    assert set(verdicts) == {"yes", "no"}
    assert verdicts.count("no") >= 0.8 * erred > 8, "mistakes are found, but for those that help after all"


def test_a_harness_that_takes_nothing_back_is_refused() -> None:
    assert method(Config()).needs.snapshots and method(Config()).needs.expert
    assert not method(Config(demonstrations=0)).needs.expert
    Config(agent="backtracked?retries=1+text").check()
    with pytest.raises(ConfigError, match=r"agent: got text, which takes nothing back; put backtracked\+"):
        Config(agent="text").check()
