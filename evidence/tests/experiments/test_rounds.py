"""Experiments about methods of rounds on tables: the direction that is claimed, and null worlds."""

import json
import tomllib
from typing import Any

import numpy as np
import pytest

from quintain.environments.protocol import begin
from quintain.worlds.craft.game import Craft
from quintain_evidence.experiments.imitation import pae, paprika, world_of_bits
from quintain_evidence.experiments.selftraining import (
    agent0,
    agent_evol,
    androidgen,
    androidgen_memory,
    rest,
    star,
)
from quintain_evidence.layers.spec import FOLDER

Rows = list[dict[str, float]]


def measured(experiment: Any, row: str, **changes: Any) -> Rows:
    options = tomllib.loads((FOLDER / f"{row}.toml").read_text(encoding="utf-8"))["options"]
    found: Rows = json.loads(
        json.dumps(experiment.measure({**options, "seeds": 1, "held_out": 128, **changes}, 3))
    )
    return found


def effects(rows: Rows, first: str = "method", second: str = "control") -> list[float]:
    return [row[first] - row[second] for row in rows]


def nulls(rows: Rows) -> list[float]:
    return effects(rows, "null_method", "null_control")


@pytest.mark.slow
def test_rising_thresholds_choose_and_equal_rewards_leave_no_choice() -> None:
    rows = measured(rest, "rest", tasks=48, epochs=4)
    assert effects(rows)[0] > 0 and nulls(rows) == [0.0]
    assert all(row["extra.start"] < row["extra.constant"] < row["method"] for row in rows)


@pytest.mark.slow
def test_the_shortest_teach_shorter_ways_and_ties_are_all_kept() -> None:
    rows = measured(pae, "pae", rounds=3, epochs=4)
    assert effects(rows)[0] > 0 and nulls(rows) == [0.0]
    assert all(row["extra.pooled"] < row["method"] for row in rows)


@pytest.mark.slow
def test_failures_teach_up_to_a_subgoal_and_without_one_nothing() -> None:
    rows = measured(androidgen, "androidgen", rounds=2, epochs=4)
    assert effects(rows)[0] > 0 and nulls(rows) == [0.0]


@pytest.mark.slow
def test_a_successs_own_decay_teaches_to_go_straight() -> None:
    rows = measured(world_of_bits, "world_of_bits", batches=15, rate=0.3)
    assert effects(rows)[0] < 0 and nulls(rows) == [0.0]
    assert rows[0]["method"] < rows[0]["extra.start"]


@pytest.mark.slow
def test_the_base_keeps_what_exploring_far_levels_forgets() -> None:
    rows = measured(agent_evol, "agent_evol", rounds=2, epochs=10, null_tasks=256)
    assert effects(rows)[0] > 2 * abs(nulls(rows)[0])
    assert all(row["extra.control_near"] < row["extra.near"] for row in rows)


@pytest.mark.slow
def test_a_hint_finds_the_first_step() -> None:
    rows = measured(star, "star", loops=3)
    assert effects(rows)[0] > 0.03 and nulls(rows) == pytest.approx([0.0], abs=0.02)
    assert all(row["extra.other_hint"] < row["method"] for row in rows)


def test_a_rule_has_spurious_steps() -> None:
    rule = star.drawn_rule(0)
    a, b, answer = rule.of(star.question(20, 3))
    reaching = [r for r in range(star.STEPS) if rule.answer[r, b] == answer]
    assert int(rule.first[a]) in reaching and int(rule.wrong[a]) != int(rule.first[a])
    assert len(star.trained_questions()) == 16 * 6 + 16 * 3


@pytest.mark.slow
def test_uncertainty_keeps_proposals_medium() -> None:
    rows = measured(agent0, "agent0", steps=4)
    assert effects(rows)[0] > 0 and nulls(rows) == [0.0]
    assert rows[0]["extra.rise"] > 0.3


@pytest.mark.slow
def test_what_is_learnable_is_sought() -> None:
    rows = measured(paprika, "paprika", updates=12)
    assert rows[0]["extra.share"] > 0.5 > rows[0]["extra.control_share"]
    assert nulls(rows) == [0.0]
    assert rows[0]["method"] > rows[0]["extra.start"]


@pytest.mark.slow
def test_guessing_at_random_is_counted_exactly() -> None:
    start = paprika.starting_table(0, 4)
    lost = [7 / 8, 7 / 8, 7 / 8]
    assert paprika.guessed(start) == pytest.approx(1 - np.prod(lost))


@pytest.mark.slow
def test_the_task_most_alike_tells_more_than_anothers() -> None:
    rows = measured(androidgen_memory, "androidgen-memory", world="craft", seeds=60, memories=[5, 80])
    assert np.mean(effects(rows)) > 0.1 > abs(np.mean(nulls(rows)))
    assert np.mean([row["extra.memory5"] for row in rows]) < np.mean([row["method"] for row in rows])


def test_who_follows_leaves_out_what_is_not_legal_and_ends_at_random() -> None:
    craft = Craft(places=2)
    begin(craft, craft.task("train", 3))
    told = "A task like this one was solved: Goal: table. Done: fly home; wait; wait."
    act = androidgen_memory.follower(told, seed=0)
    assert [act(craft, "").text for _ in range(2)] == ["wait", "wait"]
    assert act(craft, "").text in craft.legal_actions()


def test_a_permuted_memory_tells_what_was_done_elsewhere() -> None:
    craft = Craft(places=2)
    known = [androidgen_memory.solved(craft, craft.task("train", number)) for number in range(4)]
    others = androidgen_memory.permuted(known, seed=0)
    for before, after in zip(known, others, strict=True):
        assert [turn.action for turn in after.turns] == [turn.action for turn in before.turns]
        assert after.turns[0].observation != before.turns[0].observation
