"""Episodes as trees, by hand: what a search tried, and what was played on from what."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.build import make_episode, make_turn
from tests.search.test_harness import TASK, Maze, in_turn, settings

from quintain.dashboard.viewer.payloads import list_episodes
from quintain.dashboard.viewer.tokens import show_episode
from quintain.dashboard.viewer.trees import read_branches, read_search
from quintain.dashboard.viewer.viewed import Viewer
from quintain.data.searched import split_head
from quintain.environments.protocol import advance, begin
from quintain.search.harness import SearchedWorld
from quintain.types import Action, Trajectory, as_content


def play(says: Sequence[str] | None = None, **options: Any) -> Trajectory:
    """Return the episode of a search in the maze of seven rooms: a leads to b and c, b to d and e, c to f and g."""
    world, words = SearchedWorld(Maze(), settings(**options)), iter(says or ())
    seen, turns, say = begin(world, TASK), list[Any](), in_turn("")
    while True:
        what, way, shown = split_head(seen)
        action = Action(text=next(words) if says else say(f"{what}: {shown}", way))
        turns.append(make_turn((1,), shows=as_content(seen), action=action))
        result = advance(world, action)
        seen = result.observation
        if result.is_over:
            return make_episode(*turns, task=TASK, final_observation=as_content(seen))


def rows(found: Any, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(node[name] for name in names) for node in found]


def test_votes_and_the_way_that_was_found() -> None:
    """c has two of three votes, so it is gone on from; f, one of two ways on from it, is the goal: 2/3 · 1/2."""
    found = read_search(play("ccbgf", by="best", size=3, steps=20), "searched?size=3+text")
    assert found is not None and found["score"] == "votes"
    assert rows(found["nodes"], "label", "parent", "turn", "votes", "visits", "is_chosen", "is_end") == [
        ("c", None, 0, 2, 2, True, False),
        ("b", None, 2, 1, 0, False, False),
        ("g", 0, 3, 1, 0, False, False),
        ("f", 0, 4, 1, 0, True, True),
    ]
    assert [node["value"] for node in found["nodes"]] == pytest.approx([2 / 3, 1 / 3, 1 / 3, 1 / 3])


def test_what_the_model_said_of_states() -> None:
    says = ["b", "2", "c", "I would say 9 of 10", "f"]
    found = read_search(play(says, by="best", size=2, steps=20, score="model"), "searched?score=model+text")
    assert found is not None and found["score"] == "model"
    assert rows(found["nodes"], "label", "value") == [("b", 0.2), ("c", 0.9), ("f", None)]


def test_what_was_not_recorded_has_no_value_and_others_no_tree() -> None:
    found = read_search(play(by="depth", size=2, steps=3, score="return"), "searched?score=return+text")
    assert found is not None and {node["value"] for node in found["nodes"]} == {None}
    assert read_search(make_episode(make_turn((1,), shows="b")), "text") is None


def episode(
    row: int, parent: int | None, turn: int | None, turns: int, value: float | None
) -> dict[str, Any]:
    return {
        "row": row, "id": f"e{row}", "parent": parent, "parent_turn": turn, "turns": turns, "value": value,
        "owner": None if value is not None else "engine",
    }  # fmt: skip


def test_episodes_that_were_played_on_from_each_other() -> None:
    """1 goes four turns; 2 and 3 leave it after two, 4 leaves 3 after three of five; 5 is 1 played anew."""
    family = [
        episode(1, None, None, 4, 1.0), episode(2, 1, 2, 3, 0.0), episode(3, 1, 2, 5, None), episode(4, 3, 3, 4, 0.5),
        episode(5, 1, 0, 2, 0.0),
    ]  # fmt: skip
    assert rows(read_branches(family, 4), "key", "parent", "label", "visits", "value", "is_chosen") == [
        ("1:0", None, "turns 1–2", 4, 0.5, True),
        ("1:2", "1:0", "turns 3–4", 1, 1.0, False),
        ("2:2", "1:0", "turn 3", 1, 0.0, False),
        ("3:2", "1:0", "turn 3", 2, 0.5, True),
        ("3:3", "3:2", "turns 4–5", 1, None, False),
        ("5:0", None, "turns 1–2", 1, 0.0, False),
        ("4:3", "3:2", "turn 4", 1, 0.5, True),
    ]
    assert read_branches(family[:1], 1) == []


def test_an_episode_shows_its_relatives(viewer: Viewer) -> None:
    """The branch of the run, and the episode that it goes on from, show the same tree, each with its own way."""
    for group, way in (("1:branch", [True, False, True]), ("0:t/train/1", [True, True, False])):
        found = list_episodes(viewer.get("one"), {"group": group, "step": "1"})["episodes"]
        shown = show_episode(viewer.get("one"), found[0]["id"])
        assert rows(shown["branches"], "label", "visits", "value", "is_chosen") == [
            ("turn 1", 2, 0.5, way[0]), ("turn 2", 1, 1.0, way[1]), ("turn 2", 1, 0.0, way[2])
        ]  # fmt: skip
        assert shown["search"] is None
