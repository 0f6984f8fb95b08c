from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quintain.errors import DataError, UsageError
from quintain.rewards.answers import exact_match, normalise, token_f1
from quintain.rewards.conduct import (
    environment_reward,
    format_penalty,
    invalid_action_penalty,
    new_state_bonus,
    pay_executed,
    success,
    well_formed,
)
from quintain.rewards.efficiency import (
    efficiency,
    fewest_calls,
    num_calls,
    num_tokens,
    num_turns,
    over_budget,
    overlong_penalty,
    tool_economy,
)
from quintain.rewards.terms import Term, apply
from quintain.types import Failure, Score, Trajectory, Turn

MakeTurn = Callable[..., Turn]
Make = Callable[..., Trajectory]


def reward(trajectory: Trajectory, *terms: Term) -> float:
    outcome = apply(trajectory, terms).outcome
    assert isinstance(outcome, Score)
    return outcome.value


def per_turn(trajectory: Trajectory, term: Term) -> list[float]:
    return [turn.reward for turn in apply(trajectory, [term]).turns]


# answers


def test_normalisation() -> None:
    assert normalise("The  Eiffel-Tower!") == "eiffeltower"
    assert normalise("An apple, a day") == "apple day"
    assert normalise("theory") == "theory"
    assert normalise("  the ") == ""


@pytest.mark.parametrize(
    ("answer", "golds", "expected"),
    [("the Cat.", ["dog", "cat"], 1), ("cats", ["cat"], 0), ("", ["cat"], 0), ("", ["the"], 1)],
)
def test_exact_match(answer: str, golds: list[str], expected: float) -> None:
    assert exact_match(answer, golds) == expected


@pytest.mark.parametrize(
    ("answer", "golds", "expected"),
    [
        ("red car", ["the red bus"], 0.5),
        ("a b c", ["b c d"], 0.8),  # the article is dropped: 2 of 2 said, 2 of 3 right
        ("red red car", ["red car"], 0.8),
        ("car", ["bus", "a car"], 1),
        ("", ["car"], 0),
        ("", [""], 1),
        ("bus", ["car"], 0),
    ],
)
def test_token_f1(answer: str, golds: list[str], expected: float) -> None:
    assert token_f1(answer, golds) == pytest.approx(expected)


def test_gold_answers_are_a_list() -> None:
    for golds in ([], "cat"):
        with pytest.raises(DataError, match="gold answers"):
            exact_match("cat", golds)


# conduct


def test_conduct_by_turn(turn: MakeTurn, episode: Make) -> None:
    made = episode([turn(reward=2), turn(error="what?", is_valid=False), turn(is_valid=False)])
    assert per_turn(made, environment_reward()) == [2, 0, 0]
    assert per_turn(made, format_penalty(0.1)) == [0, -0.1, 0]
    assert per_turn(made, invalid_action_penalty(0.1)) == [0, 0, -0.1]
    assert per_turn(made, well_formed()) == [0, 0, pytest.approx(2 / 3)]
    assert reward(episode([]), well_formed()) == 0
    assert per_turn(made, success()) == [0, 0, 0]
    won = episode([turn(), turn()], outcome=Score(value=0, is_success=True))
    assert per_turn(won, success(2)) == [0, 2]


def test_an_action_that_was_read_and_carried_out_is_executed(turn: MakeTurn, episode: Make) -> None:
    trajectory = episode([turn(), turn(is_valid=False), turn(error="?", is_valid=False), turn()])
    assert per_turn(trajectory, pay_executed(0.2)) == [0.2, 0, 0, 0.2]


def test_new_states(turn: MakeTurn, episode: Make) -> None:
    made = episode([turn(state=key) for key in ("a", "b", "a", "b", None, "c")])
    assert per_turn(made, new_state_bonus(1)) == [1, 0, 0, 0, 1, 0]


# efficiency


def test_counts(turn: MakeTurn, episode: Make) -> None:
    made = episode([turn(calls=2, tokens=3), turn(calls=1, tokens=4)])
    assert (num_calls(made), num_tokens(made), num_turns(made)) == (3, 7, 2)
    answered = replace(made, turns=(*made.turns, replace(turn(calls=1), reward_terms={"answer": 0.0})))
    assert (num_calls(answered), num_turns(answered)) == (3, 3)
    both = replace(made, turns=(replace(turn(calls=3), reward_terms={"answer": 1.0}),))
    assert num_calls(both) == 2, "what is called beside the answer counts"
    written = replace(made, turns=(replace(turn(), reward_terms={"answer": 1.0}),))
    assert num_calls(written) == 0, "an answer without a call takes none off"
    assert over_budget(15, 10) == 0.5 and over_budget(5, 10) == 0


def test_tool_economy_fixtures() -> None:
    assert [tool_economy(m, 2) for m in (1, 2, 4)] == pytest.approx([0.8660254, 1, 0.8660254])
    assert [tool_economy(m, 0) for m in (0, 1, 2, 4)] == pytest.approx([1, 0.8660254, 0.7071068, 0.5])
    assert tool_economy(1) == pytest.approx(0.8660254) and tool_economy(0) == 1


RIGHT = Term(name="right", measure=lambda t: float(t.turns[-1].action.text == "x"), weight=2.0)


def test_efficiency_takes_a_limited_share_of_right(turn: MakeTurn, episode: Make) -> None:
    def value(tokens: int, text: str = "x") -> float:
        term = efficiency(RIGHT, num_tokens, budget=10, strength=0.5, limit=0.6)
        return reward(episode([turn(text=text, tokens=tokens)]), RIGHT, term)

    assert [value(n) for n in (5, 10, 12, 20, 1000)] == pytest.approx([2, 2, 1.8, 1, 0.8])
    assert value(5, "wrong") == value(1000, "wrong") == 0
    assert efficiency(RIGHT, num_tokens, budget=1).name == "efficiency_num_tokens"


def test_fewest_calls_multiplies(turn: MakeTurn, episode: Make) -> None:
    made = episode([turn(calls=2), turn(text="x")])
    assert reward(made, RIGHT, fewest_calls(RIGHT)) == pytest.approx(2 * 0.7071068)
    wrong = episode([turn(text="y")])
    assert reward(wrong, RIGHT, fewest_calls(RIGHT)) == 0


def test_a_scaled_term_fails_where_its_own_does(turn: MakeTurn, episode: Make) -> None:
    broken = Failure(owner="judge", kind="offline", message="nobody answers")
    judged = Term(name="judged", measure=lambda _: broken)
    assert fewest_calls(judged).measure(episode([turn()])) == broken


@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 50), st.integers(0, 50), st.floats(0, 100))
def test_brevity_never_lifts_a_wrong_answer(
    right_tokens: int, wrong_tokens: int, right_calls: int, wrong_calls: int, strength: float
) -> None:
    from quintain.types import Action, Completion, Stop, Task, ToolCall

    def value(text: str, tokens: int, calls: int) -> float:
        turn = Turn(
            observation=(),
            prompt_ids=(1,),
            completion=Completion(token_ids=(5,) * tokens, logprobs=(), stop="stop"),
            action=Action(text=text, tool_calls=(ToolCall(name="look"),) * calls),
        )
        made = Trajectory(
            task=Task(id="t", environment="e", seed=0),
            turns=(turn,),
            outcome=Score(value=0, is_success=False),
            stop=Stop.TERMINATED,
            seed=0,
            group="g",
            index=0,
        )
        tokens_term = efficiency(RIGHT, num_tokens, budget=20, strength=strength)
        calls_term = efficiency(RIGHT, num_calls, budget=2, strength=strength, limit=0.45)
        return reward(made, RIGHT, tokens_term, calls_term)

    assert value("x", right_tokens, right_calls) > value("y", wrong_tokens, wrong_calls)


def test_a_measure_by_turn_can_be_right(turn: MakeTurn, episode: Make) -> None:
    by_turn = Term(name="right", measure=lambda t: [0.5 for _ in t.turns])
    made = episode([turn(calls=1), turn(calls=1)])
    assert reward(made, by_turn, fewest_calls(by_turn)) == pytest.approx(0.7071068)


@pytest.mark.parametrize(("tokens", "expected"), [(5, 0), (8, 0), (9, -0.5), (10, -1), (50, -1)])
def test_overlong(turn: MakeTurn, episode: Make, tokens: int, expected: float) -> None:
    assert reward(episode([turn(tokens=tokens)]), overlong_penalty(10, buffer=2)) == expected


def test_settings_are_checked() -> None:
    for options in ({"limit": 1.0}, {"limit": 0.0}, {"budget": 0}, {"strength": -1}):
        with pytest.raises(UsageError, match="efficiency term"):
            efficiency(RIGHT, num_tokens, **{"budget": 1, **options})
    with pytest.raises(UsageError, match="overlong"):
        overlong_penalty(10, buffer=0)


def test_a_wrong_answer_with_a_penalty_keeps_all_of_it(turn: MakeTurn, episode: Make) -> None:
    strict = Term(name="right", measure=lambda t: 1.0 if t.turns[-1].action.text == "x" else -1.0)
    term = efficiency(strict, num_tokens, budget=1, strength=10)
    assert reward(episode([turn(text="y", tokens=50)]), strict, term) == -1
    assert reward(episode([turn(text="x", tokens=50)]), strict, term) == 0.5
