"""LIET: steps of exploration and their bounds, what is asked of talks, and a run that is resumed."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.methods.test_training import rows, train

from quintain.agents.costed import Costed
from quintain.agents.experienced import HEAD
from quintain.environments.catalog import find
from quintain.errors import UsageError
from quintain.memory.bank import Bank, Edit, Entry
from quintain.memory.edits import replay_edits
from quintain.methods.multiagent.liet import EVENT, explore, explore_all, reflect, talk_text
from quintain.runs.collector import Collector
from quintain.store.run import Run
from quintain.testing.episodes import TASK, episode_of, turn_of
from quintain.types import Action, Group, Trajectory
from quintain.worlds.keydoor.game import KeyDoor
from quintain.worlds.twocards.game import TwoCards


def talk(*said: str, won: bool, index: int = 0) -> Trajectory:
    turns = [turn_of(seat="AB"[k % 2], action=Action(text=text)) for k, text in enumerate(said)]
    return episode_of(turns, float(won), is_success=won, index=index, seed=index)


def test_steps_count_down_to_the_goal() -> None:
    with closing(KeyDoor(rooms=1)) as room:
        found = explore(room, room.task("train", 1), 0.0, Random(0))
    assert [s.steps for s in found] == list(range(len(found), 0, -1)) and not any(
        s.is_censored for s in found
    )
    assert found[0].begins == found[0].observation == found[-1].begins


def test_an_episode_that_is_cut_has_bounds_and_no_costs() -> None:
    with closing(KeyDoor(rooms=3)) as room:
        found = explore(room, room.task("train", 1), 1.0, Random(0))
        assert len(found) == room.max_turns and all(s.is_censored for s in found)
    assert found[-1].steps == 1, "the goal was not reached by one more"


def test_what_ended_without_the_goal_is_as_far_away_as_can_be() -> None:
    with closing(TwoCards()) as cards:
        found = [explore(cards, cards.task("train", k), 1.0, Random(k)) for k in range(20)]
        lost = [s for steps in found if len(steps) < cards.max_turns for s in steps if s.is_censored]
        assert lost and {s.steps for s in lost} == {cards.max_turns}


def test_a_seat_has_its_own_beginning_and_half_of_the_episodes_are_at_random() -> None:
    with closing(TwoCards()) as cards:
        tasks = [cards.task("train", k) for k in range(6)]
        assert explore_all(cards, tasks, 0.3, 5) == explore_all(cards, tasks, 0.3, 5)
        found = explore(cards, tasks[0], 0.0, Random(0))
    assert found[0].begins.startswith("A.") and found[1].begins.startswith("B.")


def test_a_world_that_lists_nothing_is_refused() -> None:
    with closing(find("sums")()) as sums, pytest.raises(UsageError, match="does not list what can be done"):
        explore(sums, sums.task("train", 0), 0.5, Random(0))


def test_a_question_has_the_notes_and_what_came_of_each_talk() -> None:
    group = Group(task=TASK, trajectories=(talk("say red 4", "answer 5", won=True), talk("pass", won=False)))
    text = talk_text(group, Bank([Entry(id="3", key="k", text="Tell.")]))
    assert text == (
        f"{HEAD}\n[3] Tell.\n\nAttempt 1, solved in 2 steps:\nA: say red 4\nB: answer 5\n\n"
        "Attempt 2, not solved in 1 steps:\nA: pass"
    )


def test_notes_come_of_training_talks_alone() -> None:
    train_group = Group(task=TASK, trajectories=(talk("pass", won=True),))
    held_out = replace(train_group, task=replace(TASK, split="eval"))
    edits, unread = reflect([train_group, held_out], Bank(), lambda asked: ["Hm.\nadd: Tell."] * len(asked))
    assert edits == [Edit(kind="add", key="Tell.", text="Tell.", source=TASK.id)] and unread == 1


def test_a_resumed_run_knows_costs_and_notes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(_self: Collector, _told: str, questions: Sequence[str], *, seed: int) -> list[str]:
        return [f"add: note {seed % 97}" for _ in questions]

    monkeypatch.setattr(Collector, "ask", answer)
    sizes = {"tasks": 2, "group_size": 2, "environment": "twocards", "explored": 20}
    whole = train("liet", tmp_path / "whole", steps=2, **sizes)
    with Run.open(whole) as run:
        assert len(replay_edits(run, EVENT, 12)) == 2 and len(replay_edits(run, EVENT, 12, before=2)) == 1
        assert len({*run.weights().values()}) == 1, "no weight changed"
    assert [row.get("liet/notes") for row in rows(whole)][-2:] == [1.0, 2.0]
    told = Costed(None, utility=str(whole / "utility.json"))  # pyright: ignore[reportArgumentType]
    assert told.model is not None and told.model.is_fitted
    assert (whole / "notes.jsonl").read_text().count("note") >= 2
