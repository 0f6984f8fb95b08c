"""MCTS*: the bound, the mean of children, when a search ends, and the values that a tree implies. Guided MCTS: ranks,
outcomes that are told upwards, and where the next episode goes."""

from collections.abc import Sequence

import pytest

from quintain.search.tree import (
    GuidedTree,
    Node,
    Seen,
    ValueTree,
    back_up,
    process_values,
    ranks,
    upper_bound,
)


def path(ways: str, *, solved: bool = False, over: bool = False) -> list[Seen]:
    """The states after each of `ways`; the last one is over if it is solved."""
    last = len(ways) - 1
    return [
        Seen(
            key=way,
            text=ways[: n + 1],
            is_over=n == last and (solved or over),
            is_solved=n == last and solved,
        )
        for n, way in enumerate(ways)
    ]


def values(*paths: Sequence[Seen]) -> dict[str, float]:
    return {seen.text: value for seen, value in process_values(paths)}


def test_the_bound_by_value() -> None:
    assert upper_bound(0.5, 10, 3) == pytest.approx(1.3672819)
    assert upper_bound(0.5, 10, 3, exploration=0.0) == 0.5


def test_a_node_has_the_mean_of_its_children_by_visits() -> None:
    root = Node(seen=Seen(key="", text=""))
    for key, value, visits in (("a", 0.9, 2), ("b", 0.3, 1)):
        root.children[key] = Node(seen=Seen(key=key, text=key), parent=root, value=value, visits=visits)
    back_up(root)
    assert (root.value, root.visits) == (pytest.approx(0.7), 3)


def test_a_solved_chain_rises_evenly_to_one() -> None:
    assert values(path("abc", solved=True)) == pytest.approx({"a": 1 / 3, "ab": 2 / 3, "abc": 1.0})


def test_a_wrong_step_is_worth_less_the_nearer_the_solution_was() -> None:
    found = values(path("abc", solved=True), path("axy"))
    assert found["ax"] == pytest.approx(1 / 9) and "axy" not in found, "nothing is known below it"
    assert values(path("ab", solved=True), path("ax", over=True))["ax"] == 0.25
    assert values(path("abc", solved=True), path("x"))["x"] == 0.0, "never below 0"


def test_the_shortest_solution_counts() -> None:
    found = values(path("abcd", solved=True), path("ab", solved=True))
    assert found["a"] == 0.5 and found["ab"] == 1.0


def test_a_tree_without_a_solution_has_no_values() -> None:
    assert process_values([path("ab"), path("x", over=True), []]) == []


@pytest.mark.parametrize(("mixing", "value"), [(0.0, 0.2), (1.0, 0.6), (0.5, 0.4)])
def test_a_new_state_has_the_value_of_the_model_and_the_best_of_its_roll_out(
    mixing: float, value: float
) -> None:
    said = {"a": 0.2, "ab": 0.6, "abc": 0.1}
    tree = ValueTree(Seen(key="", text=""), lambda text: said[text], mixing=mixing)
    tree.grow(tree.root, [path("abc")])
    (child,) = tree.root.children.values()
    assert child.value == pytest.approx(value) and tree.root.value == pytest.approx(value)


def test_ways_that_were_taken_before_are_visits_of_one_state() -> None:
    tree = ValueTree(Seen(key="", text=""), lambda text: 0.5)
    tree.grow(tree.root, [path("a"), path("ax", over=True), path("b")])
    child = tree.root.children["a"]
    assert (child.visits, child.value, tree.root.visits) == (2, pytest.approx((0.5 + 0.25) / 2), 3)
    tree.grow(tree.root, [])
    assert tree.root.visits == 3


def test_a_search_goes_where_the_bound_is_best_and_around_what_is_over() -> None:
    tree = ValueTree(
        Seen(key="", text=""), lambda text: {"a": 0.5, "b": 0.4, "ac": 0.1}.get(text, 0.0), gate=1.0
    )
    assert tree.select() is tree.root
    tree.grow(tree.root, [path("a"), path("b"), path("x", over=True)])
    first = tree.select()
    assert first is not None and (first.seen.text, first.depth) == ("a", 1)
    tree.grow(first, [path("ac")[1:]] * 3)
    second = tree.select()
    assert second is not None and second.seen.text == "b", "a fell to .1"
    tree.grow(second, [path("by", over=True)[1:]])
    third = tree.select()
    assert third is not None and third.seen.text == "ac", "all else is closed"
    tree.grow(third, [path("acz", over=True)[2:]])
    assert tree.select() is None, "nothing is left"


def test_a_search_ends_when_a_new_state_is_worth_the_gate() -> None:
    tree = ValueTree(Seen(key="", text=""), lambda text: 0.0)
    tree.grow(tree.root, [path("a", solved=True), path("b")])
    assert tree.is_done and tree.select() is None


def ways(*keys: str) -> list[Seen]:
    return [Seen(key=key, text=key) for key in keys]


def test_ranks_are_those_of_picking_the_best_and_removing_it() -> None:
    assert ranks([2.0, 7.0, 5.0]) == [0.0, 1.0, 0.5]
    assert ranks([3.0, 9.0, 3.0]) == [0.25, 1.0, 0.25], "equal ones share their places"
    assert ranks([2.0, None, 7.0, 5.0]) == [0.0, 0.5, 1.0, 0.5], (
        "who has no score is in the middle of the others"
    )
    assert ranks([None, 3.0]) == ranks([None, None]) == [0.5, 0.5]
    assert ranks([4.0] * 3) == [0.5] * 3 and ranks([8.0]) == [0.5] and ranks([]) == []


def test_an_outcome_is_told_to_all_above_as_a_running_mean() -> None:
    tree = GuidedTree(Seen(key="", text=""))
    tree.expand(tree.root, ways("a", "b"), [9.0, 1.0])
    child = tree.root.children["a"]
    for outcome in (1.0, 0.0, 1.0):
        tree.tell(child, outcome)
    assert (child.value, child.visits) == (pytest.approx(2 / 3), 3)
    assert (tree.root.value, tree.root.visits) == (pytest.approx(2 / 3), 3)
    child.rank = 0.9
    assert tree.worth(child) == pytest.approx(0.7833333)


def test_the_next_episode_goes_where_outcomes_and_ranks_with_their_bound_are_best() -> None:
    tree = GuidedTree(Seen(key="", text=""), exploration=0.5)
    assert tree.select() is tree.root
    tree.expand(tree.root, [*ways("a", "b", "a")], [1.0, 5.0, 9.0])
    assert list(tree.root.children) == ["a", "b"], "of equal ways the first counts"
    a, b = tree.root.children.values()
    assert (a.rank, b.rank) == (0.0, 1.0) and tree.select() is b
    tree.tell(b, 0.0)
    assert tree.select() is b, "b: .5, a: 0, and ln 1 is 0"
    tree.tell(b, 0.0)
    tree.tell(b, 0.0)
    tree.exploration = 1.0
    assert tree.select() is a, "b: .5 + √ln 3/4, a: √ln 3"
    tree.tell(a, 1.0)
    tree.expand(a, ways("c"), [0.0])
    assert [[n.seen.key for n in family] for family in tree.families()] == [["a", "b"]]
    tree.tell(a.children["c"], 1.0)
    tree.expand(b, ways("d", "e"), [0.0, 0.0])
    tree.tell(b.children["e"], 1.0)
    assert len(tree.families()) == 1, "one visited child has nothing to be compared with"
    assert tree.follow() is b.children["e"], "a: .5, b: 1/8 + 1/2, and d was not visited"
    tree.mixing = 1.0
    assert tree.follow() is a.children["c"], "by outcomes alone a: 1, b: 1/4"
