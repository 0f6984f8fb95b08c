import random

import pytest

from quintain.environments.baselines import play
from quintain.environments.noisy import Fallible, chatter, make_idler, noisy, noisy_policy, single_method
from quintain.environments.protocol import Environment, begin, tool_action
from quintain.errors import UsageError
from quintain.types import Action, Task
from quintain.worlds.guess.game import Guess
from quintain.worlds.house.game import House
from quintain.worlds.keydoor.game import KeyDoor
from quintain.worlds.stream.game import Stream


class Careless(Guess):
    """Guess, with a mistake of its own."""

    def mistaken_action(self, rng: random.Random) -> Action:
        return tool_action("guess", number=-rng.randint(1, 9))


class Aimless(Environment):
    """Has no expert."""

    def reset(self, task: Task) -> str:
        return ""


def actions(rate: float, count: int = 400) -> list[Action]:
    world, rng, act = KeyDoor(), random.Random(0), noisy(rate)
    begin(world, world.task("train", 0))
    return [act(world, rng, ("",)) for _ in range(count)]


def test_the_rate_is_the_share_of_other_actions() -> None:
    expert = actions(0.0)
    assert len({action.text for action in expert}) == 1
    others = {action.text for action in actions(1.0)}
    assert len(others) > 1, "random legal actions"
    share = sum(a != b for a, b in zip(actions(0.5), expert, strict=True)) / 400
    right = sum(a == expert[0] for a in actions(1.0)) / 400
    assert share == pytest.approx(0.5 * (1 - right), abs=0.06)


def test_a_higher_rate_errs_in_the_same_turns_and_in_more() -> None:
    few, many = actions(0.2), actions(0.6)
    expert = actions(0.0)
    wrong = [i for i in range(400) if few[i] != expert[i]]
    assert wrong and all(few[i] == many[i] for i in wrong)


def test_the_worlds_own_mistakes_come_first() -> None:
    world = Careless()
    begin(world, world.task("train", 0))
    assert isinstance(world, Fallible) and not isinstance(Guess(), Fallible)
    act, rng = noisy(1.0), random.Random(0)
    numbers = [act(world, rng, ()).tool_calls[0].arguments["number"] for _ in range(20)]
    assert set(numbers) <= set(range(-9, 0)) and len(set(numbers)) > 3


def test_integers_come_from_the_range_that_was_told() -> None:
    world, rng, act = Guess(low=50, high=60), random.Random(0), noisy(1.0)
    seen = ("Find the hidden number between 50 and 60.", "higher")
    begin(world, world.task("train", 0))
    assert all(50 <= act(world, rng, seen).tool_calls[0].arguments["number"] <= 60 for _ in range(20))


def test_episodes_get_worse_with_the_rate() -> None:
    world = KeyDoor()
    won = [
        sum(play(world, world.task("train", i), noisy_policy(rate, i)).is_success for i in range(20))
        for rate in (0.0, 0.5, 1.0)
    ]
    assert won[0] == 20 > won[1] > won[2]


def test_no_rate_and_no_expert_are_named() -> None:
    with pytest.raises(UsageError, match=r"rate of mistakes: got 1\.5"):
        noisy(1.5)
    with pytest.raises(UsageError, match="got aimless, which has no expert"):
        noisy(0.5)(Aimless(), random.Random(0), ())


def test_chatter_by_value() -> None:
    assert chatter(0, 1, 2) == ""
    assert chatter(2, 1, 2) == chatter(2, 1, 2) != chatter(2, 1, 3)
    assert chatter(3, 7).count(".") == 3 and chatter(1, 7).startswith(" ")


def test_a_padded_teacher_idles_at_its_rate_and_solves_what_the_expert_solves() -> None:
    house, shares = House(kind="put", things=1), []
    for style in range(6):
        idle = total = 0
        for index in range(40):
            rng, act = random.Random(index), make_idler(0.4, style)
            texts: list[str] = []

            def policy(environment: Environment, observation: str) -> Action:
                action = act(environment, rng, (observation,))  # noqa: B023
                texts.append(action.text)  # noqa: B023
                return action

            done = play(house, house.task("train", index), policy)
            assert done.is_success or len(texts) == house.max_turns
            idle += texts.count("look")
            total += len(texts)
        shares.append(idle / total)
    assert sum(shares) / len(shares) == pytest.approx(0.4, abs=0.08)


def test_a_padded_teacher_needs_something_idle_to_do() -> None:
    with pytest.raises(UsageError, match="rate of idle turns"):
        make_idler(1.0, 0)
    world = KeyDoor()
    begin(world, world.task("train", 0))
    with pytest.raises(UsageError, match="idle action"):
        make_idler(0.4, 0)(world, random.Random(0), ())


def test_teachers_of_one_way_do_all_tasks_alike() -> None:
    book = Stream(pages=2, facts=1, closed_book=0.5)
    right = {"direct": 0, "reading": 0}
    for index in range(60):
        for way in right:
            rng, act = random.Random(index), single_method(way)
            first: list[str] = []

            def policy(environment: Environment, observation: str) -> Action:
                action = act(environment, rng, (observation,))  # noqa: B023
                first.append(action.text)  # noqa: B023
                return action

            right[way] += play(book, book.task("train", index), policy).is_success
            assert (first[0] == "read") is (way == "reading")
    assert right["reading"] == 60 and 20 < right["direct"] < 50
    with pytest.raises(UsageError, match="got 'guessing'"):
        single_method("guessing")(book, random.Random(0), ())
    with pytest.raises(UsageError, match="it has none"):
        single_method("direct")(KeyDoor(), random.Random(0), ())
