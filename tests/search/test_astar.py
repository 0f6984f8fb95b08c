"""A* over plans: its costs by hand, and which state a search with them goes on from."""

from pathlib import Path

import pytest
from tests.search.test_harness import Maze, settings, walk

from quintain.errors import DataError, UsageError
from quintain.memory.bank import Bank, Entry
from quintain.search.astar import PlanMemory, count_common, read_plan, rename_things
from quintain.search.harness import SearchedWorld, read_plans


def memory_of(*plans: str) -> PlanMemory:
    return PlanMemory(tuple(tuple(plan) for plan in plans), frozenset("abcd"))


def test_a_way_costs_nothing_where_a_solved_plan_goes_the_same_way() -> None:
    memory = memory_of("abc", "acbd")
    assert [count_common("abd", "abc"), count_common("abd", "acbd")] == [2, 3]
    assert memory.match_way("abd") == 1.0 and memory.cost_of_step("abd", 0.5) == 0.0
    assert memory_of("abc").cost_of_step("abd", 0.25) == pytest.approx((1 / 3 * 3 / 4) ** 0.5)
    assert PlanMemory().cost_of_step("abd", 0.75) == 0.5, "without plans the samples alone count"
    assert PlanMemory().cost_of_step("abd", 1.0) == 0.0


def test_what_is_left_costs_less_the_later_it_stands_in_solved_plans() -> None:
    memory = memory_of("abc", "ac")
    assert [memory.place_action(action) for action in "abc"] == pytest.approx([5 / 12, 2 / 3, 1.0])
    assert memory.cost_of_rest("a", "bc") == pytest.approx((1 / 3 * 2 / 3) ** 0.5)
    assert memory.cost_of_rest("a", "") == pytest.approx(0.5**0.5), "of what nobody imagined nothing is known"
    assert PlanMemory().cost_of_rest("aa", "bb") == pytest.approx(2 * 0.5**0.5)


def test_an_action_that_no_plan_has_takes_the_place_of_the_one_most_like_it() -> None:
    memory = PlanMemory((("open door", "take egg"),))
    assert memory.place_action("take lamp") == 1.0 and memory.place_action("open box") == 0.5
    assert memory.place_action("wait") == 0.0


def test_things_are_numbered_as_a_plan_names_them() -> None:
    plans = [["drive red to a", "load p into red"], ["drive blue to b", "drive blue to c"]]
    memory = PlanMemory.learn([*plans, []])
    assert memory.words == {"drive", "to", "red", "a", "load", "p", "into", "blue", "b", "c"}, (
        "half of two is one"
    )
    memory = PlanMemory.learn([*plans, ["drive green to d"]])
    assert memory.words == {"drive", "to"}
    assert memory.plans[1] == ("drive #1 to #2", "drive #1 to #3")
    assert memory.match_way(["drive black to x", "drive black to y"]) == 1.0
    assert rename_things(["a b a"], ()) == ("#1 #2 #1",)


@pytest.mark.parametrize(
    ("text", "actions"),
    [
        ("1. go a; take b", ["go a", "take b"]),
        ("- go a\n* take b\n", ["go a", "take b"]),
        ("3 + 4; -5", ["3 + 4", "-5"]),
        (" ; \n", []),
    ],
)
def test_a_plan_is_read_from_lines_and_semicolons(text: str, actions: list[str]) -> None:
    assert read_plan(text) == actions


def test_the_state_of_the_lowest_cost_is_gone_on_from() -> None:
    """Two of three samples choose b, one c, behind which less is left; solved plans may outweigh both."""

    def say(shown: str, way: tuple[int, ...]) -> str:
        if shown.startswith("judge"):
            return "f" if "Room c" in shown else "d; d"
        says.append(way)
        ways = shown.rpartition("On: ")[2].split()
        return ways[sum(other == way for other in says) // 3]

    says: list[tuple[int, ...]] = []
    for plans, expected in (
        (memory_of("ca"), [(), (3,)]),
        (PlanMemory(), [(), (3,)]),
        (memory_of("bdd"), [(), (0,)]),
    ):
        says.clear()
        given = settings(score="plans", size=3, steps=6)
        object.__setattr__(given, "memory", plans)
        walk(SearchedWorld(Maze(), given), say)
        assert list(dict.fromkeys(says)) == expected, plans


def test_plans_are_those_of_a_bank_that_were_worth_it(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    entries = [
        Entry(id=str(k), key="task", text=text, value=k)
        for k, text in enumerate(("fail; fail", "go a; take b"))
    ]
    Bank(entries).save(file)
    assert read_plans(file) == [["go a", "take b"]]
    assert settings(score="plans", solved=str(file)).memory.match_way(["go a"]) == 1.0
    Bank(entries[:1]).save(file)
    with pytest.raises(DataError, match="holds no solved one"):
        read_plans(file)
    with pytest.raises(DataError, match="cannot be read"):
        read_plans(tmp_path / "missing")
    with pytest.raises(UsageError, match="give score=plans as well"):
        settings(solved=str(file))
