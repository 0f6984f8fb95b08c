"""x1's tree: its bound, what it backs up, how its budget is spent, and that it finds what there is."""

from collections.abc import Sequence
from math import log, sqrt

import pytest

from quintain.errors import UsageError
from quintain.search.tree import Node, Path, Seen
from quintain.search.tree_search import Budget, TreeSearch
from quintain.search.weighted_tree import WeightedTree

VALUES = {"a": 0.5, "b": -0.2, "c": 0.9, "": 0.0}


def see(text: str, *, is_over: bool = False, is_solved: bool = False) -> Seen:
    return Seen(key=text, text=text, is_over=is_over, is_solved=is_solved)


def tree_of(**options: float) -> WeightedTree:
    return WeightedTree(see(""), lambda text: VALUES[text], **options)


def test_the_state_above_has_what_its_children_say_by_their_visits() -> None:
    """Two children, .5 with 2 visits and -.2 with 1, γ .96: .256, as the code that came with the paper has it."""
    tree = tree_of()
    tree.back_up(tree.root, [[see("a")], [see("b")]], [None, None])
    first, second = tree.root.children["a"], tree.root.children["b"]
    assert (first.visits, second.visits, tree.root.visits) == (1, 1, 2)
    assert tree.root.value == pytest.approx(0.96 * 0.15)
    tree.back_up(first, [[see("c", is_over=True)]], [None])
    first.value = 0.5
    tree.root.value = 0.0
    half = tree_of(backup_rate=0.5)
    half.root.children = {"a": first, "b": second}
    half.root.value = 0.1
    second.parent = first.parent = half.root
    half.back_up(second, [], [])
    assert second.seen.is_over and second.visits == 2
    assert half.root.value == pytest.approx(0.5 * 0.1 + 0.5 * (2 * 0.96 * 0.5 - 2 * 0.96 * 0.2) / 4)
    second.visits = 1
    tree.root.children = {"a": first, "b": second}
    first.parent = second.parent = tree.root
    assert sum(c.visits * 0.96 * c.value for c in tree.root.children.values()) / 3 == pytest.approx(0.256)


def test_the_bound_is_muzeros_in_the_declared_range() -> None:
    tree = tree_of(low=-1.0, high=1.0)
    tree.back_up(tree.root, [[see("a")], [see("b")]], [None, None])
    tree.root.visits, child = 10, tree.root.children["a"]
    child.visits = 3
    wanted = 0.75 + sqrt(9) / 4 * (1.25 + log((9 + 19652 + 1) / 19652))
    assert tree.bound(child) == pytest.approx(wanted)
    with pytest.raises(UsageError, match="range of returns: got 1 to 1; give a lowest below the highest"):
        tree_of(low=1, high=1)


def test_a_new_state_is_half_of_the_model_and_half_of_what_was_played() -> None:
    tree = tree_of(simulation_weight=0.5)
    lost, won = see("l", is_over=True), see("w", is_over=True, is_solved=True)
    tree.back_up(tree.root, [[see("a"), lost], [see("a"), won], [see("c")], [won]], [None] * 4)
    values = {key: child.value for key, child in tree.root.children.items()}
    assert values == {"a": pytest.approx(0.5 * 0.5 + 0.5 * 0.5), "c": 0.9, "w": 1.0}


class Numbers:
    """A ground in which a state leads on to itself with 0 and with 1 behind it, three steps deep; 110 is the goal."""

    def expand(self, nodes: Sequence[Node]) -> list[list[Path]]:
        return [
            [
                [
                    see(
                        f"{node.seen.text}{k}",
                        is_over=node.depth == 2,
                        is_solved=f"{node.seen.text}{k}" == "110",
                    )
                ]
                for k in (0, 1)
            ]
            for node in nodes
        ]


def test_the_whole_budget_is_spent_and_the_answer_is_what_was_visited_most() -> None:
    tree = WeightedTree(see(""), lambda _: 0.5)
    budget = Budget(rounds=200)
    grown = TreeSearch(trees=[tree], ground=Numbers(), budget=budget)
    for rounds in grown.grow():
        if rounds == 3:
            assert not any(node.seen.is_solved for node, _ in tree.advantages()), "it has not been there yet"
    assert [node.seen.text for node in tree.answer()] == ["1", "11", "110"]
    assert budget.num_rounds == 7, "all seven states that lead on are known, and nothing is left to be tried"


def test_picks_that_are_over_are_visits() -> None:
    tree = WeightedTree(see(""), lambda _: 0.0)
    over, left = see("w", is_over=True, is_solved=True), see("a")
    tree.back_up(tree.root, [[over], [left]], [None, None])
    found = tree.select()
    assert (
        found is not None and found is tree.root.children["w"] and found.visits == 2 and tree.root.visits == 3
    )
    assert tree.root.value == pytest.approx(0.96 * 2 / 3)


def test_advantages_sum_to_nothing_by_visits_and_targets_are_what_is_known() -> None:
    tree = WeightedTree(see(""), lambda text: len(text) / 8)
    TreeSearch(trees=[tree], ground=Numbers(), budget=Budget(rounds=5)).run()
    found = dict(tree.advantages())
    for node in (tree.root, *found):
        assert sum(child.visits * found[child] for child in node.children.values()) == pytest.approx(0.0)
    targets = {seen.text: value for seen, value in tree.targets()}
    assert "" not in targets and all(
        node.seen.is_over or node.children for node in found if node.seen.text in targets
    )
    assert targets.items() >= {(n.seen.text, n.value) for n in found if n.children}
