"""AutoGLM: who is taught what, which tasks are open, and who is to blame."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from quintain.agents.grounded import GROUNDER, PLANNER
from quintain.environments.catalog import find
from quintain.errors import ConfigError, DataError
from quintain.methods.imitation import autoglm
from quintain.rollout.initial_states import first_observation
from quintain.types import Action, Group, Trajectory

WORLD = "screen?interface=labels&goal=click&fields=0&items=0&buttons=2&width=48&height=24"
Make = Callable[..., Trajectory]


def seated(trajectory: Trajectory, *seats: str, index: int = 0) -> Trajectory:
    """Return `trajectory` with the seats of its turns, shown by teacher `index`."""
    turns = (replace(turn, seat=seat) for turn, seat in zip(trajectory.turns, seats, strict=True))
    return replace(trajectory, turns=tuple(turns), index=index, group=f"g{index}")


def test_of_those_who_wander_the_grounder_alone_is_learned_from(trajectory: Make) -> None:
    two = [([1], [2]), ([3], [4, 5])]
    shown = [
        seated(trajectory(two), PLANNER, GROUNDER),
        seated(trajectory(two, value=0.0), PLANNER, GROUNDER),
        seated(trajectory(two, value=0.0), PLANNER, GROUNDER, index=1),
        seated(trajectory(two), PLANNER, PLANNER, index=1),
    ]
    made = autoglm.choose_imitated(shown)
    assert [example.trajectory.index for example in made.examples] == [0, 1]
    first, second = ([list(map(float, turn)) for turn in e.weights or ()] for e in made.examples)
    assert first in ([], [[1.0], [1.0, 1.0]]) and second == [[0.0], [1.0, 1.0]]
    assert [(p.num_in, p.num_out) for p in made.funnel.passages] == [(4, 3), (3, 2)]
    with pytest.raises(DataError, match="teaching a grounder: got 1 episodes without a turn of its own"):
        autoglm.choose_imitated([trajectory(two)])
    with pytest.raises(DataError, match="imitating a planner and a grounder"):
        autoglm.choose_imitated([seated(trajectory(two, value=0.0), PLANNER, GROUNDER)])


def test_the_band_has_both_ends_in_it_and_nearer_failures_go_first() -> None:
    played = [("red lamp", 0.75), ("blue cup", 0.05), ("old door", 0.8), ("new book", 0.0)]
    begins = ["old door", "red lamp", "new book", "blue cup"]
    assert autoglm.in_order(begins, played, (0.05, 0.75), 1) == [3, 1, 0, 2]
    assert autoglm.expect_success([(0.9, 1.0), (0.2, 1.0), (0.5, 0.0)], 2) == 0.5
    assert autoglm.expect_success([(0.0, 0.25)], 8) == 0.25


def test_tasks_come_as_they_are_until_something_was_played(trajectory: Make) -> None:
    make = find(WORLD)
    pool = [make().task("train", index) for index in range(6)]
    frontier = autoglm.Frontier(make, 0.05, 0.75, 2, memory=3)
    assert frontier.choose(pool, 2) == pool[:2]
    assert frontier.choose(pool[:2], 2) == pool[:2]
    begins = [first_observation(make, task) for task in pool]
    groups = [
        Group(
            task=task,
            trajectories=tuple(
                replace(
                    trajectory([([1], [2])], value=float(k < wins)),
                    turns=tuple(replace(t, observation=text) for t in trajectory([([1], [2])]).turns),
                )
                for k in range(2)
            ),
        )
        for task, text, wins in zip(pool[:4], begins, (2, 2, 1, 0), strict=False)
    ]
    frontier.update(groups)
    chosen = frontier.choose(pool, 5)
    order = autoglm.in_order(begins, list(zip(begins[1:4], (1.0, 0.5, 0.0), strict=True)), (0.05, 0.75), 2)
    assert chosen == [pool[place] for place in order[:5]], "it forgets what was played first"


def test_every_failure_has_one_who_is_to_blame() -> None:
    plain = [False, False, False, False, True]
    assert autoglm.count_blame(
        plain, [True, False, False, True, False], [False, True, False, True, False]
    ) == {
        PLANNER: 1,
        GROUNDER: 1,
        "both": 2,
    }
    assert autoglm.count_blame([True], [True], [True]) == {PLANNER: 0, GROUNDER: 0, "both": 0}
    with pytest.raises(ValueError):
        autoglm.count_blame([True], [], [])


def test_what_is_measured(trajectory: Make) -> None:
    texts = [["do(click, save)", "3 4"], ["click save", "3 4"]]
    played = [
        seated(trajectory([([1], [2]), ([3], [4])], t, value=v), PLANNER, GROUNDER)
        for t, v in zip(texts, (1.0, 0.0), strict=True)
    ]
    groups = [Group(task=played[0].task, trajectories=tuple(played))]
    assert autoglm.measure_plans(groups, 0.05, 0.75) == {"autoglm/unreadable": 0.5, "autoglm/open": 1.0}
    assert autoglm.measure_plans(groups, 0.6, 0.75)["autoglm/open"] == 0.0
    assert Action(text=texts[0][0]).error is None


def test_a_run_learns_and_rehearses(train: Callable[..., list[dict[str, Any]]]) -> None:
    rows = train(
        "autoglm",
        environment=WORLD,
        demonstrations=4,
        wanderings=1,
        imitation_epochs=1,
        tasks=2,
        group_size=2,
        every=2,
        updates=1,
    )
    rows = [row for row in rows if "autoglm/open" in row]
    assert len(rows) == 2 and "rehearsal/loss" in rows[1] and "rehearsal/loss" not in rows[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"demonstrations": 0}, "demonstrations: got 0, and planner and grounder begin with them"),
        ({"low": 0.8}, "low, high: got 0.8 and 0.75; give low < high"),
        ({"batch_size": 1}, "batch_size: got 1, half of which is the expert's"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        autoglm.Config(**options).check()
