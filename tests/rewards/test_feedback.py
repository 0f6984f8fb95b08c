"""Remarks as rewards: what each template pays whom, and how a pool weighs them."""

import pytest

from quintain.errors import DataError
from quintain.rewards.feedback import Remark, RemarkPool, find_number, has_words
from quintain.testing.episodes import TASK, episode_of, turn_of
from quintain.types import Action, Group, Text, Trajectory

SAY = Remark(template="event", action="say", value=0.25)


def talk(*said: tuple[str, str, str], end: str = "", value: float = 1.0) -> Trajectory:
    """Return an episode of (seat, seen, done), which earns `value` at its end."""
    turns = [
        turn_of(
            seat=seat,
            action=Action(text=done),
            observation=(Text(text=seen),),
            reward=value * (place == len(said) - 1),
        )
        for place, (seat, seen, done) in enumerate(said)
    ]
    return episode_of(turns, value, is_success=value > 0, final_observation=(Text(text=end),))


EPISODE = talk(
    ("A", "fuel = 5", "Say red 4"),
    ("B", "fuel = 3", "pass"),
    ("A", "fuel = 3", "essay"),
    end="fuel: -1.5 left",
)


@pytest.mark.parametrize(
    ("remark", "paid"),
    [
        (SAY, [0.25, 0, 0]),
        (Remark(template="event", action="say", value=0.25, seats=("B",)), [0, 0, 0]),
        (Remark(template="event", action="pass", value=-1.0, seats=("B", "C")), [0, -1, 0]),
        (Remark(template="event", seen="left", value=0.5), [0, 0, 0.5]),
        (Remark(template="event", seen="fuel 3", action="pass", value=0.5), [0, 0.5, 0]),
        (Remark(template="distance", number="fuel", value=0.1), [0.2, 0, 0.45]),
        (Remark(template="distance", number="oil", value=0.1), [0, 0, 0]),
        (Remark(template="proximity", number="fuel", within=0.0, value=0.1), [0, 0, 0.1]),
        (Remark(template="time", value=-0.02, seats=("A",)), [-0.02, 0, -0.02]),
    ],
)
def test_a_template_pays_the_turns_that_it_means(remark: Remark, paid: list[float]) -> None:
    assert remark.measure(EPISODE) == pytest.approx(paid)


def test_words_are_whole_and_numbers_follow_theirs() -> None:
    assert has_words("I SAY: red, 4!", "say red") and not has_words("say it red", "say red")
    assert has_words("", "") and not has_words("essay", "say")
    assert find_number("oil 2, fuel: 7.5", "fuel") == 7.5 and find_number("refuel 3", "fuel") is None
    assert find_number("a.b 3", "a.b") == 3 and find_number("axb 3", "a.b") is None, "data is no pattern"


def test_weights_of_five_remarks_by_hand() -> None:
    pool = RemarkPool()
    pool.judge(-1.0)
    pool.add(SAY)
    assert pool.weights == [1.0]
    pool.judge(1.0)
    assert pool.weights == [1.0], "1.1, all together at most 1"
    pool.add(SAY)
    assert pool.weights == pytest.approx([0.9 / 1.4, 0.5 / 1.4])
    pool.judge(-0.01)
    assert pool.weights == pytest.approx([0.9 / 1.4, 0.0]), "what went is given to nobody"
    pool.add(SAY)
    assert pool.weights == pytest.approx([0.81 / 1.4, 0.0, 1 / 3])
    pool.judge(0.0)
    assert pool.weights == pytest.approx([0.81 / 1.4, 0.0, 1 / 3]), "neither rose nor fell"
    pool.add(SAY)
    total = 0.729 / 1.4 + 0.3 + 0.25
    assert pool.weights == pytest.approx([0.729 / 1.4 / total, 0, 0.3 / total, 0.25 / total])
    old = [*pool.weights]
    pool.judge(1.0)
    assert pool.weights == pytest.approx([w / 1.1 for w in [*old[:3], old[3] + 0.1]])
    half = RemarkPool(cut=0.4)
    half.add(SAY)
    half.judge(-1.0)
    assert half.weights == [0.6]


def test_a_pool_adds_to_what_the_environment_pays_and_a_weight_of_0_changes_nothing() -> None:
    groups = [Group(task=TASK, trajectories=(EPISODE,))]
    pool = RemarkPool()
    assert pool.pay(groups)[0] is groups[0]
    pool.add(SAY)
    (paid,) = pool.pay(groups)[0].trajectories
    assert [turn.reward for turn in paid.turns] == [0.25, 0, 1] and paid.is_success
    assert paid.turns[0].reward_terms == {"environment": 0.0, "remark_1": 0.25}
    pool.judge(-1.0)
    assert pool.pay(groups)[0] is groups[0]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"template": "lambda", "value": 0.1}, r"template of a remark: got 'lambda'"),
        ({"template": "time", "value": 3.0}, r"value of a remark: got 3\.0; give a number from -1 to 1"),
        ({"template": "time", "value": float("nan")}, "value of a remark: got nan"),
        ({"template": "event", "value": 0.1}, "an event has action or seen"),
        ({"template": "time", "value": 0.1, "action": "say"}, "time none of them"),
        ({"template": "distance", "value": 0.1}, "a distance or proximity has number"),
    ],
)
def test_what_is_no_template_is_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(DataError, match=says):
        Remark(**given)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
