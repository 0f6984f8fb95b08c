"""A search over texts: rounds go on until the budget is spent or nothing is left, and each can be looked at."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from quintain.search.tree import BestFirstTree, Node, Path, Seen, ValueTree
from quintain.search.tree_search import Budget, TreeSearch

WORD = "abba"


@dataclass
class Texts:
    """Texts that are gone on with by one letter each; the word is the solution."""

    asked: list[list[str]] = field(default_factory=list[list[str]])
    budget: Budget = field(default_factory=Budget)

    def expand(self, nodes: Sequence[Node]) -> list[list[Path]]:
        self.asked.append([node.seen.text for node in nodes])
        self.budget.num_steps += 2 * len(nodes)
        return [[[self.seen(node.seen.text + letter)] for letter in "ab"] for node in nodes]

    def seen(self, text: str) -> Seen:
        is_over = len(text) == len(WORD)
        return Seen(key=text, text=text, is_over=is_over, is_solved=text == WORD)


def near(found: Sequence[Sequence[Path]]) -> list[list[float]]:
    """How many letters are right."""
    return [
        [float(sum(a == b for a, b in zip(path[0].text, WORD, strict=False))) for path in paths]
        for paths in found
    ]


def best_first() -> BestFirstTree:
    return BestFirstTree(Seen(key="", text=""), lambda node: -node.value)


def test_the_best_is_gone_on_with_until_it_is_solved() -> None:
    ground, tree = Texts(), best_first()
    rounds = list(TreeSearch(trees=[tree], ground=ground, budget=Budget(), score=near).grow())
    assert tree.best.seen.text == WORD and tree.select() is None
    assert ground.asked == [[""], ["a"], ["ab"], ["abb"]] and rounds == [1, 2, 3, 4]
    assert [node.seen.text for node in tree.best.lineage] == ["abba", "abb", "ab", "a"]
    assert tree.best.depth == 4


def test_all_trees_are_asked_for_at_once_and_what_is_known_can_be_taken_at_any_time() -> None:
    ground, trees = Texts(), [best_first(), best_first()]
    search = TreeSearch(trees=trees, ground=ground, budget=Budget(), score=near)
    for number in search.grow():
        assert [tree.best.seen.text for tree in trees] == [WORD[:number]] * 2
    assert ground.asked[1] == ["a", "a"]


@pytest.mark.parametrize(("rounds", "steps", "grown"), [(2, None, 2), (None, 3, 2), (9, 2, 1), (0, None, 0)])
def test_whichever_part_of_a_budget_is_spent_first_ends_it(
    rounds: int | None, steps: int | None, grown: int
) -> None:
    budget = Budget(rounds=rounds, steps=steps)
    ground = Texts(budget=budget)
    TreeSearch(trees=[best_first()], ground=ground, budget=budget, score=near).run()
    assert budget.is_spent and (budget.num_rounds, len(ground.asked)) == (grown, grown)
    assert budget.steps_left == (None if steps is None else max(0, steps - 2 * grown))


def test_other_trees_search_the_same_ground() -> None:
    tree = ValueTree(
        Seen(key="", text=""), lambda text: near([[[Seen(key=0, text=text)]]])[0][0] / 4, gate=1.0
    )
    ground = Texts()
    TreeSearch(trees=[tree], ground=ground, budget=Budget(rounds=200)).run()
    assert tree.is_done, "it found the word"
    assert ground.asked[0] == [""] and max(len(text) for (text,) in ground.asked) == 3
