"""x1: trees are grown again of what was recorded, phase 1 trains no policy, and each turn has its advantage."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from quintain.methods.search.x1 import Config, Recorded, SearchTrees, begins_alike, method
from quintain.search.episodes import path_of
from quintain.search.tree import Node, Path
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Group, Stop, Task, Text, Trajectory

TASK = Task(id="t", environment="e", seed=0)


def play(said: str, group: str, *, task: Task = TASK) -> Trajectory:
    """Return an episode that says the letters of `said`, each a token; one that ends with w is solved."""
    turns = [turn_of((ord(letter),), observation=(Text(text=said[:k]),)) for k, letter in enumerate(said)]
    is_solved = said.endswith("w")
    return episode_of(
        turns, float(is_solved), is_success=is_solved, task=task, group=group, id=f"{task.id}{said}{group}",
        stop=Stop.TERMINATED if said[-1] in "wl" else Stop.CUT, final_observation=(Text(text=said),),
    )  # fmt: skip


class Words:
    """A ground in which each state leads on by a and b, and ends after three: all b is solved."""

    def __init__(self) -> None:
        self.groups: list[Group] = []

    def expand(self, nodes: Sequence[Node]) -> list[list[Path]]:
        found: list[list[Path]] = []
        for node in nodes:
            place = node.seen.place
            task = place if isinstance(place, Task) else place.task
            before = (
                ""
                if isinstance(place, Task)
                else "".join(chr(t.completion.token_ids[0]) for t in place.turns)
            )
            before = before[: node.depth]
            ends = ("l", "w") if before == "bb" else ("l",) if len(before) == 2 else ("a", "b")
            played = [play(before + end, f"{task.id}{len(self.groups)}", task=task) for end in ends]
            self.groups.append(Group(task=task, trajectories=tuple(played)))
            found.append([path_of(t, node.depth) for t in played])
        return found


def grow_trees(value_steps: int = 0, expansions: int = 8) -> tuple[SearchTrees, list[Group]]:
    trees, ground = SearchTrees(Config(value_steps=value_steps, expansions=expansions)), Words()
    live = trees.grow([TASK, replace(TASK, id="u")], ground)
    trees.update(ground.groups)
    both = zip(live, trees.trees, strict=True)
    for one, other in both:
        assert [(n.seen.text, n.value, n.visits) for n, _ in one.advantages()] == [
            (n.seen.text, n.value, n.visits) for n, _ in other.advantages()
        ], "grown again they are the same"
    return trees, ground.groups


def test_each_turn_that_led_to_a_state_has_its_advantage_and_no_other_is_trained() -> None:
    trees, groups = grow_trees()
    credit = trees.credit(groups)
    (tree, _) = trees.trees
    found = {node.seen.place.id: (node.depth - 1, a) for node, a in tree.advantages()}
    for trajectory, advantages, trained in zip(
        credit.trajectories, credit.advantages, credit.is_trained or (), strict=True
    ):
        if trajectory.task.id != "t":
            continue
        turn, advantage = found[trajectory.id]
        assert trained == tuple(k == turn for k in range(len(trajectory.turns)))
        assert float(advantages[turn][0]) == pytest.approx(advantage, abs=1e-6)
    by_text = {node.seen.text: a for node, a in tree.advantages()}
    assert by_text["b"] > 0 > by_text["a"], "only b leads to what is solved"
    assert trees.measure(groups)["x1/solved"] == trees.measure(groups)["x1/answered"] == 1.0


def test_in_phase_one_the_value_alone_learns() -> None:
    trees, groups = grow_trees(value_steps=1)
    assert not any(map(any, trees.credit(groups).is_trained or ())) and trees.credit(()).trajectories == ()
    assert trees.value("bb") > trees.value("aa"), "the value model has learned"
    trees.update(groups)
    assert any(map(any, trees.credit(groups).is_trained or ())), "the second step trains the policy"


def test_a_resumed_run_knows_the_same() -> None:
    trees, groups = grow_trees()
    journal = [
        Group(task=group.task, trajectories=(t,)) for group in groups for t in group.trajectories
    ]  # whatever groups a journal makes of them
    again = SearchTrees(trees.config)
    again.update(journal)
    assert again.value("bb") == trees.value("bb") and again.num_steps == 1


def test_a_state_of_which_nothing_was_recorded_leads_nowhere() -> None:
    trees, groups = grow_trees(expansions=3)
    again = SearchTrees(trees.config)
    again.update([groups[0], *groups[4:5]])
    children = again.trees[0].root.children.values()
    assert [(c.seen.text, c.seen.is_over, [g.seen.text for g in c.children.values()]) for c in children] == [
        ("a", True, []), ("b", False, ["ba", "bb"]),
    ], "what was played on from b is not taken for what was played on from a"  # fmt: skip
    assert begins_alike(play("abl", "1"), play("abw", "2"), 2) and not begins_alike(
        play("a", "1"), play("b", "2"), 1
    )
    assert Recorded([]).expand([Node(seen=again.trees[0].root.seen)]) == [[]]


def test_what_it_is_made_of() -> None:
    made = method(Config())
    assert made.needs.branches and made.needs.reference and made.update.keeps_zeros
    assert not method(Config(kl_coef=0.0, entropy_coef=0.0)).needs.reference
