"""MCTS*: the bound, the mean of children, when a search ends, and the values that a tree implies."""

from collections.abc import Sequence

import pytest

from quintain.rollout.tree import Node, Seen, Tree, back_up, process_values, upper_bound


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
    tree = Tree(Seen(key="", text=""), lambda text: said[text], mixing=mixing)
    tree.grow(tree.root, [path("abc")])
    (child,) = tree.root.children.values()
    assert child.value == pytest.approx(value) and tree.root.value == pytest.approx(value)


def test_ways_that_were_taken_before_are_visits_of_one_state() -> None:
    tree = Tree(Seen(key="", text=""), lambda text: 0.5)
    tree.grow(tree.root, [path("a"), path("ax", over=True), path("b")])
    child = tree.root.children["a"]
    assert (child.visits, child.value, tree.root.visits) == (2, pytest.approx((0.5 + 0.25) / 2), 3)
    tree.grow(tree.root, [])
    assert tree.root.visits == 3


def test_a_search_goes_where_the_bound_is_best_and_around_what_is_over() -> None:
    tree = Tree(Seen(key="", text=""), lambda text: {"a": 0.5, "b": 0.4, "ac": 0.1}.get(text, 0.0), gate=1.0)
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
    tree = Tree(Seen(key="", text=""), lambda text: 0.0)
    tree.grow(tree.root, [path("a", solved=True), path("b")])
    assert tree.is_done and tree.select() is None
