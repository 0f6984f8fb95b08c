"""Experiments on a manager of experts and on an adapter: what controls keep; far shorter than registered."""

import random
from typing import Any

import pytest
import torch

from quintain.agents.adviser import ADAPTER
from quintain.environments.protocol import begin
from quintain.testing.pupil import tasks_from
from quintain.types import Trajectory
from quintain_evidence.experiments.critic import moe_dialogue, rladapter

SHORT: dict[str, Any] = {
    "seeds": 1, "talks": 24, "held_out": 4, "tuning": 4, "parts": 2, "targets": 2, "updates": 2,
}  # fmt: skip


def test_managers_are_measured_beside_the_best_mixture() -> None:
    (row,) = moe_dialogue.measure(SHORT, 1)
    assert sum(row[f"extra.share_{name}"] for name in ("asks", "repeats", "decides", "talks")) == 1
    assert 0.9 < row["extra.expert"] <= 1 and abs(row["null_method"] - row["null_control"]) <= 1


def test_experts_say_what_they_are_for() -> None:
    world = moe_dialogue.opened()
    rng = random.Random(0)
    for task in tasks_from(moe_dialogue.SPEC, 8):
        begin(world, task)
        known, names = world.snapshot().known, world.shape.names
        assert names.index(moe_dialogue.asks(world, rng).split()[1]) not in known
        again = moe_dialogue.repeats(world, rng).split()[1]
        assert again == "again" if not known else names.index(again) in known
        values = moe_dialogue.decides(world, rng).removeprefix("submit ").split(", ")
        assert all(values[slot] == world.snapshot().values[slot] for slot in known)


def test_the_control_reads_the_same_texts_in_another_order_and_always_the_same() -> None:
    (task,) = tasks_from(moe_dialogue.SPEC, 1)
    talked = moe_dialogue.talk(task, moe_dialogue.EXPERTS, moe_dialogue.anyone, 3)
    shown = talked.turns[0].action.text
    assert len(moe_dialogue.read(shown).candidates) == 4
    order = moe_dialogue.displaced(shown)
    assert sorted(order) == [0, 1, 2, 3] and order == moe_dialogue.displaced(shown)
    orders = {tuple(moe_dialogue.displaced(f"{shown} {n}")) for n in range(9)}
    assert len(orders) > 4


def test_a_manager_learns_which_candidate_is_paid() -> None:
    # With a discount of 0 only the next reward counts, and all but who hands in cost.
    tasks = tasks_from(moe_dialogue.SPEC, 60)
    talks = [moe_dialogue.talk(t, moe_dialogue.EXPERTS, moe_dialogue.anyone, 1) for t in tasks]
    manager = moe_dialogue.Chooser(moe_dialogue.known_words(talks), moe_dialogue.as_shown, 0)
    manager.learn(talks, {"targets": 1, "updates": 80, "discount": 0.0})
    shown = [t.turns[-1].action.text for t in talks]
    chosen = [moe_dialogue.read(text).candidates[manager.choose(text, random.Random(0))] for text in shown]
    assert sum("submit" in words for words in chosen) > 50


def test_adapters_are_measured_beside_shuffled_outcomes() -> None:
    (row,) = rladapter.measure({"seeds": 1, "rounds": 2, "tasks": 12, "held_out": 8}, 5)
    assert row["method"] > row["extra.start"] and row["null_method"] == row["null_control"] == 1
    assert row["extra.auc"] > 0.7 and row["extra.lost"] > 0


def test_shuffled_outcomes_are_as_many_and_messages_stay() -> None:
    logits = torch.zeros(6, len(rladapter.MESSAGES), dtype=torch.float64)
    tasks = tasks_from(rladapter.SPEC, 12)
    played = rladapter.play(logits, tasks, lambda _: rladapter.told, 3).episodes
    mixed = rladapter.shuffled(played, 4)

    def paid(episodes: list[Trajectory]) -> list[float]:
        return [turn.reward for t in episodes for turn in t.turns]

    assert sum(paid(played)) == sum(paid(mixed)) > 0 and paid(played) != paid(mixed)
    assert set(paid(rladapter.praise(played, 4))) == {1.0} and rladapter.leave_as_is(played, 4) == played
    assert [[turn.action for turn in t.turns] for t in played] == [
        [turn.action for turn in t.turns] for t in mixed
    ]
    assert {turn.seat for t in played for turn in t.turns} == {ADAPTER}


@pytest.mark.parametrize(
    ("fact", "kind"),
    [
        ("goal: wood sword", "goal"),
        ("done: table", "done"),
        ("recipes: table: 2 wood", "recipe of the table"),
        ("wood sword: 2 wood at table", "own recipe"),
        ("wood pickaxe: 2 wood at table", "another recipe"),
        ("have 2 wood", "have"),
        ("hill: 2 wood", "place"),
    ],
)
def test_facts_are_told_apart(fact: str, kind: str) -> None:
    assert rladapter.kind_of(fact, "wood sword") == kind
