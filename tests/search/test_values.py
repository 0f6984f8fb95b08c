"""What the episodes of a tree say of its states, and a value model that learns it."""

import pytest
from tests.build import make_path

from quintain.search.episodes import path_of, trees_of
from quintain.search.values import TextValue, measure_trees, targets_of
from quintain.types import Group, Stop


def test_the_states_of_an_episode_are_what_it_shows_after_each_turn() -> None:
    cut, solved, late = (
        make_path("a", (3, 4, 5), stop=s) for s in (Stop.CUT, Stop.TERMINATED, Stop.MAX_TURNS)
    )
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
        for t in (make_path("a", (3, 4)), make_path("b", (3,)), make_path("a", (3, 5), stop=Stop.TERMINATED))
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
    own = [make_path("a", (3, 4)), make_path("a", (3, 5), stop=Stop.TERMINATED)]
    first.update([Group(task=own[0].task, trajectories=tuple(own))])
    second.update([Group(task=t.task, trajectories=(t,)) for t in own])
    assert first("35") == second("35") > first("34")
