"""x1: does it matter *what* is backed up, or only that there is a tree?

Blocks to stack. Each state is gone on from by two actions, one on a shortest plan and another one, in an order drawn by
the state. A value model says γ to the power of the steps that are left, and errs by as much as the values of two
neighbours differ many times over; its error is fixed for each state, the same in every arm. A tree of x1 is grown 64
times, and the action that was visited most is the answer: is it one on a shortest plan? In the control the values of
two siblings are dealt out anew wherever they are read. The rival searches as often and backs nothing up: it goes on
from the state of the highest value, and answers by the way to the best one. Printed beside: the model's own choice
without a search. In the null world both actions of a state are on a shortest plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from quintain.environments.protocol import advance, begin
from quintain.search.tree import BestFirstTree, Node, Path, Seen
from quintain.search.tree_search import Budget, TreeSearch
from quintain.search.weighted_tree import WeightedTree
from quintain.types import Action, Task, derive_seed
from quintain.worlds.plan.game import Planning

DISCOUNT, ERROR, ROUNDS = 0.96, 0.15, 64


class Dealt(WeightedTree):
    """The same, with the values of siblings dealt out anew among them."""

    def worth(self, node: Node) -> float:
        """See `WeightedTree`."""
        assert node.parent is not None, "the root is nobody's child"
        own = list(node.parent.children.values())
        order = Random(derive_seed("dealt", node.parent.seen.text)).sample(range(len(own)), len(own))
        return own[order[own.index(node)]].value


@dataclass(slots=True)
class Blocks:
    """A ground of two actions in each state, one of them on a shortest plan; with `both`, both of them."""

    world: Planning
    both: bool = False
    said: dict[str, float] = field(default_factory=dict[str, float])
    """what the model says of each state"""

    def see(self, key: str, *, is_over: bool = False, is_solved: bool = False) -> Seen:
        """Return the state that the world is in, and have the model say what it is worth."""
        left = self.world.distance()
        text = self.world.state_key()
        error = Random(derive_seed("model", text)).gauss(0.0, ERROR)
        exact = 0.0 if left is None else DISCOUNT**left
        self.said[text] = min(max(exact + error, 0.0), 1.0)
        return Seen(key=key, text=text, is_over=is_over, is_solved=is_solved, place=self.world.snapshot())

    def expand(self, nodes: Sequence[Node]) -> list[list[Path]]:
        """See `Ground`."""
        return [[[seen] for seen in self.act(node)] for node in nodes]

    def act(self, node: Node) -> list[Seen]:
        """Return the states that the two actions lead to."""
        self.world.restore(node.seen.place)
        rng = Random(derive_seed("actions", node.seen.text))
        wanted = self.world.expert_action().text
        others = [text for text in self.world.legal_actions() if text not in (wanted, "wait")]
        other = wanted if self.both or not others else rng.choice(others)
        chosen = [(wanted, wanted), (f"{other}.", other)]
        found: list[Seen] = []
        for key, text in rng.sample(chosen, 2):
            self.world.restore(node.seen.place)
            result = advance(self.world, Action(text=text))
            found.append(self.see(key, is_over=result.is_over, is_solved=bool(result.is_success)))
        return found

    def distance_of(self, node: Node) -> int | None:
        """Return the steps that are left in the state of `node`."""
        self.world.restore(node.seen.place)
        return self.world.distance()


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return of each problem whether the first action of the answer is on a shortest plan."""
    kinds: Mapping[str, type[WeightedTree]] = {"method": WeightedTree, "control": Dealt}
    rows: list[Mapping[str, float]] = []
    for number in range(int(options["problems"])):
        task = Task(
            id=f"plan/eval/{number}", environment="plan", seed=derive_seed(seed, number), split="eval"
        )
        row = {name: answer(task, kind) for name, kind in kinds.items()}
        row |= {"extra.best_first": answer_by_best(task), "extra.model": answer(task, WeightedTree, rounds=1)}
        row |= {f"null_{name}": answer(task, kind, both=True) for name, kind in kinds.items()}
        rows.append(row)
    return rows


def start(task: Task, *, both: bool = False) -> tuple[Blocks, Seen, int]:
    """Return the ground of `task`, its root, and the steps that are left there."""
    world = Planning(blocks=5)
    begin(world, task)
    ground = Blocks(world, both)
    return ground, ground.see(""), world.distance() or 0


def is_right(ground: Blocks, root: Seen, way: Sequence[Node], left: int, *, both: bool) -> float:
    """Return whether the first action of `way` is on a shortest plan; in the null world both are."""
    if not way:
        return 0.0
    ground.world.restore(root.place)
    wanted = ground.world.expert_action().text
    return float(both or way[0].seen.key == wanted or ground.distance_of(way[0]) == left - 1)


def answer(task: Task, kind: type[WeightedTree], *, rounds: int = ROUNDS, both: bool = False) -> float:
    """Return whether a tree of `kind` answers with an action on a shortest plan."""
    ground, root, left = start(task, both=both)
    tree = kind(root, lambda text: ground.said[text], discount=DISCOUNT)
    TreeSearch(trees=[tree], ground=ground, budget=Budget(rounds=rounds)).run()
    return is_right(ground, root, tree.answer(), left, both=both)


def answer_by_best(task: Task) -> float:
    """Return the same of who goes on from the state of the highest value, and answers by the way to the best one."""
    ground, root, left = start(task)
    tree = BestFirstTree(root, lambda node: -node.value)

    def score(found: Sequence[Sequence[Path]]) -> list[list[float]]:
        return [
            [float(p[0].is_solved) if p[0].is_over else ground.said[p[0].text] for p in paths]
            for paths in found
        ]

    TreeSearch(trees=[tree], ground=ground, budget=Budget(rounds=ROUNDS), score=score).run()
    return is_right(ground, root, [*reversed(tree.best.lineage)], left, both=False)
