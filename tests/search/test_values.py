"""What the episodes of a tree say of its states, and a value model that learns it."""

from collections.abc import Sequence

import pytest
from tests.build import make_episode, make_turn

from quintain.search.episodes import path_of, trees_of
from quintain.search.values import TextValue, measure_trees, targets_of
from quintain.types import Group, Score, Stop, Task, Trajectory, as_content


def episode(task: str, ways: Sequence[int], *, stop: Stop = Stop.CUT, index: int = 0) -> Trajectory:
    """An episode that takes `ways`, whose states show the ways to them; one that terminated is solved."""
    turns = tuple(
        make_turn((way,), logprob=-1.0, shows="".join(map(str, ways[:number])), text=str(way))
        for number, way in enumerate(ways)
    )
    is_solved = stop is Stop.TERMINATED
    return make_episode(
        *turns,
        task=Task(id=task, environment="sokoban", seed=0),
        outcome=Score(value=float(is_solved), is_success=is_solved),
        stop=stop,
        group=f"0:{task}",
        index=index,
        final_observation=as_content("".join(map(str, ways))),
    )


def test_the_states_of_an_episode_are_what_it_shows_after_each_turn() -> None:
    cut, solved, late = (episode("a", (3, 4, 5), stop=s) for s in (Stop.CUT, Stop.TERMINATED, Stop.MAX_TURNS))
    assert [seen.text for seen in path_of(cut, 1)] == ["34", "345"]
    assert [(path_of(t)[-1].is_over, path_of(t)[-1].is_solved) for t in (cut, solved, late)] == [
        (False, False),
        (True, True),
        (True, False),
    ]
    assert not any(seen.is_over for seen in path_of(solved)[:-1])


def test_episodes_of_a_task_are_one_tree_wherever_they_branched() -> None:
    groups = [
        Group(task=t.task, trajectories=(t,))
        for t in (episode("a", (3, 4)), episode("b", (3,)), episode("a", (3, 5), stop=Stop.TERMINATED))
    ]
    first, second = trees_of(groups)
    assert {seen.text: value for seen, value in targets_of(first)} == {"3": 0.5, "34": 0.25, "35": 1.0}
    assert targets_of(second) == [], "nothing is known where nothing was solved"
    assert measure_trees(groups, lambda _: 0.5) == {
        "mcts/solved": 0.5,
        "mcts/targets": 3.0,
        "mcts/value_error": 0.25,
    }


def test_the_value_model_learns_what_texts_are_worth_and_stays_within_bounds() -> None:
    model = TextValue(size=128)
    assert model("a box on its target") == 0.0
    model.learn([("near the box", 0.9), ("far from it", 0.1)] * 20)
    assert model("near the box") == pytest.approx(0.9, abs=0.05)
    assert model("far from it") < 0.2
    model.learn([("off", 30.0)] * 50)
    assert model("off") == 1.0
    assert model.before("off") < 0.9, "what it said before it learned the last time"
    model.learn([])
    assert model.before("off") == 1.0
    signs = TextValue(size=512)
    signs.learn([("@-\n-.", 0.0), ("-@\n-.", 1.0)] * 20)
    assert signs("@-\n-.") < 0.2 < 0.8 < signs("-@\n-."), "the place of a sign counts"


def test_it_is_told_the_same_by_the_groups_of_a_journal() -> None:
    first, second = TextValue(size=64), TextValue(size=64)
    own = [episode("a", (3, 4)), episode("a", (3, 5), stop=Stop.TERMINATED)]
    first.update([Group(task=own[0].task, trajectories=tuple(own))])
    second.update([Group(task=t.task, trajectories=(t,)) for t in own])
    assert first("35") == second("35") > first("34")
