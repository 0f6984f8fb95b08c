"""Experiments about critics of success: the direction that is claimed, and null worlds."""

import json
import tomllib
from random import Random
from typing import Any

import numpy as np
import pytest

from quintain.environments.catalog import find
from quintain.environments.protocol import begin
from quintain_evidence.experiments.critic import digi_rl, web_rl
from quintain_evidence.labs.levels import open_floor, starting_at
from quintain_evidence.layers.spec import FOLDER


def measured(experiment: Any, row: str, **changes: Any) -> dict[str, float]:
    options = tomllib.loads((FOLDER / f"{row}.toml").read_text(encoding="utf-8"))["options"]
    (found,) = json.loads(json.dumps(experiment.measure({**options, "seeds": 1, **changes}, 3)))
    return found


@pytest.mark.slow
def test_values_find_the_right_moves_of_a_success_and_permuted_ones_hardly() -> None:
    row = measured(digi_rl, "digi_rl", levels=8, size=30)
    assert row["method"] > row["control"] + 0.02
    assert row["null_method"] == row["null_control"] == 0.0


def test_a_slippery_level_slips_to_either_side_as_often_as_asked() -> None:
    floor = open_floor()
    row = int(np.flatnonzero(floor.distance == 3)[0])
    world = starting_at([row])
    for luck, column in ((0.05, 2), (0.15, 3), (0.2, 0), (0.9, 0)):
        game = digi_rl.Slippery(world=world, place=row, slip=0.2)
        game.act(0, luck)
        assert game.place == int(floor.next[row, column])


def test_who_adds_longer_numbers_errs_more() -> None:
    shares: list[float] = []
    for digits in (1, 3):
        environment: Any = find(web_rl.SPEC.format(digits))()
        errs = 0
        for index in range(200):
            told = begin(environment, environment.task("train", index))
            said = web_rl.erring(0.1, 0.3)(environment, Random(index), [told])
            errs += said != environment.expert_action()
        shares.append(errs / 200)
    assert shares == pytest.approx([0.1, 0.7], abs=0.1)


@pytest.mark.slow
def test_the_band_keeps_open_tasks_by_what_the_critic_reads_and_permuted_values_do_not() -> None:
    row = measured(web_rl, "web_rl", played=256, proposed=200, kept=100)
    assert row["method"] > row["control"] + 0.05
    assert row["null_method"] == pytest.approx(row["null_control"], abs=0.05)
