"""Rewards that single methods are made of, by value."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from quintain.errors import UsageError
from quintain.rewards.conduct import success
from quintain.rewards.efficiency import FewestCalls, num_turns, productivity
from quintain.rewards.pointing import Target, as_call, pointing_score
from quintain.rewards.search import (
    over_turn_budget,
    repetition,
    search_bonus,
    turn_shaped,
    turn_shaped_success,
)
from quintain.rewards.terms import Term, apply
from quintain.rewards.tool_match import best_matching, call_score, match_score
from quintain.types import Action, Completion, Group, Score, ToolCall, Trajectory, Turn

MakeTurn = Callable[..., Turn]
Make = Callable[..., Trajectory]


def value(trajectory: Trajectory, *terms: Term) -> float:
    outcome = apply(trajectory, terms).outcome
    assert isinstance(outcome, Score)
    return outcome.value


def solved(trajectory: Trajectory, is_success: bool = True) -> Trajectory:
    return replace(trajectory, outcome=Score(value=0.0, is_success=is_success))


# economy


def test_the_fewest_calls_of_right_answers_earn_most(turn: MakeTurn, episode: Make) -> None:
    episodes = {num: solved(episode([turn(calls=1)] * num)) for num in (1, 2, 4)}
    wrong = solved(episode([turn()]), is_success=False)
    fewest = FewestCalls()
    right = success()
    assert value(episodes[2], right, fewest.term(right)) == pytest.approx(0.7071068)
    task = Group(task=wrong.task, trajectories=(wrong, episodes[4], episodes[2]))
    fewest.update([task])
    assert fewest.known == {"t": 2}
    found = {num: value(episodes[num], right, fewest.term(right)) for num in episodes}
    assert found == {1: pytest.approx(0.8660254), 2: pytest.approx(1.0), 4: pytest.approx(0.8660254)}
    assert value(wrong, right, fewest.term(right)) == 0
    assert productivity([task]) == pytest.approx(2 / 6)
    assert productivity([task], num_turns) == pytest.approx(2 / 7)


# search


def test_repetition_is_a_share_of_windows() -> None:
    assert repetition([1, 2, 1, 2, 1, 2], 2) == pytest.approx(0.6)
    assert repetition([1, 2, 3, 4, 5]) == 0
    assert repetition([1]) == 0


def told(turn: MakeTurn, ids: tuple[int, ...]) -> Turn:
    return replace(turn(), completion=Completion(token_ids=ids, logprobs=(), stop="stop"))


def test_search_is_paid_right_or_wrong_unless_it_repeats(turn: MakeTurn, episode: Make) -> None:
    honest = episode([told(turn, tuple(range(10)))])
    hack = episode([told(turn, (1,) * 100)])
    assert value(honest, search_bonus(base=0.9)) == pytest.approx(1 - 0.9**10)
    assert value(hack, search_bonus(base=0.9)) == 0
    assert value(hack, search_bonus(base=0.9, has_gate=False)) > 0.99
    with pytest.raises(UsageError, match="base of the search bonus: got 1"):
        search_bonus(base=1)


def test_search_is_thought_in_a_turn_and_not_more_turns(turn: MakeTurn, episode: Make) -> None:
    tokens = tuple(range(10))
    once = value(episode([told(turn, tokens)]), search_bonus(base=0.9))
    often = episode([told(turn, tuple(range(10 * k, 10 * k + 10))) for k in range(5)])
    assert value(often, search_bonus(base=0.9)) == pytest.approx(once)
    thought = replace(told(turn, tuple(range(20, 30))), seat="agent/plan")
    longer = value(episode([thought, told(turn, tokens)]), search_bonus(base=0.9))
    assert longer == pytest.approx(1 - 0.9**20) and longer > once


def test_terms_add_up_and_a_share_of_one_is_the_outcome_alone(turn: MakeTurn, episode: Make) -> None:
    right = solved(episode([told(turn, (1, 2, 3))]))
    for share in (0.8, 1.0):
        rewarded = apply(right, (success(share), search_bonus(weight=1 - share)))
        terms = rewarded.turns[-1].reward_terms
        assert terms["success"] + terms["search"] == pytest.approx(rewarded.turns[-1].reward)
        assert terms["search"] == pytest.approx((1 - share) * (1 - 0.98**3))
    assert value(right, success(1.0), search_bonus(weight=0.0)) == 1


@pytest.mark.parametrize(
    ("is_right", "num", "expected"),
    [
        (True, 0, 1),
        (True, 40, 1),
        (False, 0, -1),
        (False, 1, -0.9),
        (False, 2, -0.8),
        (False, 4, -0.6),
        (False, 9, -0.6),
    ],
)
def test_a_wrong_answer_after_search_is_less_bad(
    is_right: bool, num: int, expected: float, turn: MakeTurn, episode: Make
) -> None:
    """As verl has it, whose count of turns is 2 for an answer without a call and 2 more for every round."""
    assert turn_shaped(is_right, num) == pytest.approx(expected)
    trajectory = solved(episode([turn()] * (num + 1)), is_right)
    assert value(trajectory, turn_shaped_success()) == pytest.approx(expected)
    deliberate = solved(episode([turn(seat="agent/plan"), turn()] * (num + 1)), is_right)
    assert value(deliberate, turn_shaped_success()) == pytest.approx(expected), "a plan is no round"


def test_long_turns_cost_up_to_their_weight(turn: MakeTurn, episode: Make) -> None:
    trajectory = episode([turn(tokens=n) for n in (3, 4, 6, 20)])
    rewards = [t.reward for t in apply(trajectory, [over_turn_budget(4, 0.1)]).turns]
    assert rewards == pytest.approx([0, 0, -0.05, -0.1])
    with pytest.raises(UsageError, match="tokens of a turn: got 0"):
        over_turn_budget(0)


# tool_match


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


@pytest.mark.parametrize(
    ("predicted", "wanted", "expected"),
    [
        ([call("a", x=1, y=3)], [call("a", x=1, y=2)], 1.5),
        ([call("a", x=1)], [call("a", x=1), call("b")], 0.75),
        ([call("b"), call("a", x=1)], [call("a", x=1), call("b")], 3),
        ([], [call("a", x=1)], -3),
        ([call("c")], [call("a", x=1)], -3),
        ([], [], 3),
        ([call("a")], [], -3),
        ([call("a")], [call("a")], 3),
        ([call("a", x="1")], [call("a", x=1)], 6 * 2 / 3 - 3),
        ([call("a", x=True)], [call("a", x=1)], 6 * 2 / 3 - 3),
    ],
)
def test_calls_are_compared_field_by_field(
    predicted: list[ToolCall], wanted: list[ToolCall], expected: float
) -> None:
    assert match_score(predicted, wanted) == pytest.approx(expected)


def test_matching_is_the_best_and_not_the_first() -> None:
    wanted = [call("a", x=1), call("a", x=2)]
    swapped = [call("a", x=2), call("a", x=3)]
    assert match_score(swapped, wanted) == pytest.approx(6 * (1 + 2 + 1) / 5 - 3)
    assert call_score(call("a", x=1, z=0), call("a", x=1, y=2)) == pytest.approx(1 / 3 + 1)
    import numpy as np

    greedy_trap = np.array([[3.0, 2.9], [2.9, 0.0]])
    assert best_matching(greedy_trap) == pytest.approx(5.8)
    assert best_matching(greedy_trap[:, :1]) == 3.0
    assert best_matching(np.eye(8)) == 8.0
    assert best_matching(np.zeros((0, 2))) == 0.0


# pointing


BOX = (10.0, 10.0, 40.0, 20.0)


@pytest.mark.parametrize(
    ("action", "target", "expected"),
    [
        (Action(tool_calls=(call("click", x=20, y=15),)), Target(kind="click", box=BOX), 1),
        (Action(tool_calls=(call("click", x=40, y=20),)), Target(kind="click", box=BOX), 1),
        (Action(tool_calls=(call("click", x=41, y=20),)), Target(kind="click", box=BOX), 2 / 3),
        (Action(tool_calls=(call("click", x="20", y=15),)), Target(kind="click", box=BOX), 2 / 3),
        (Action(tool_calls=(call("click", x=True, y=15),)), Target(kind="click", box=BOX), 2 / 3),
        (Action(tool_calls=(call("click"),)), Target(kind="click", box=BOX), 2 / 3),
        (Action(tool_calls=(call("scroll", x=20, y=15),)), Target(kind="click", box=BOX), 1 / 3),
        (Action(tool_calls=(call("back"),)), Target(kind="back"), 1),
        (Action(error="broken", tool_calls=(call("back"),)), Target(kind="back"), 0),
        (Action(text="back"), Target(kind="back"), 0),
    ],
)
def test_every_kind_of_action_earns_at_most_one(action: Action, target: Target, expected: float) -> None:
    assert pointing_score(action, target) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("action", "wanted"),
    [
        (Action(text="click 12 40"), (call("click", x=12, y=40),)),
        (Action(text=" click -3, 4 "), (call("click", x=-3, y=4),)),
        (Action(text="type oslo"), (call("type oslo"),)),
        (Action(text="click 1 2 3"), (call("click 1 2 3"),)),
        (Action(text="click 1 2", tool_calls=(call("back"),)), (call("back"),)),
        (Action(text="click 1 2", error="broken"), ()),
        (Action(), ()),
    ],
)
def test_words_that_point_are_a_call(action: Action, wanted: tuple[ToolCall, ...]) -> None:
    assert as_call(action).tool_calls == wanted
