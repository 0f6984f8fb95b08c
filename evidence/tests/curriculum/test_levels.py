"""Which kind of tasks next: ν, the optimist's bound, and tasks of a pool by level."""

import math

import pytest

from quintain.curriculum.levels import Optimist
from quintain_evidence.formulas.rounds import level_group


def test_each_level_comes_once_and_then_the_highest_bound() -> None:
    optimist = Optimist()
    assert optimist.choose(["a", "b", "c"], 3, 0) == ["a", "b", "c"]
    optimist.update([level_group(0, [1.0, 0.0]), level_group(1, [1.0, 1.0]), level_group(2, [1.0, 1.0])])
    assert optimist.choose(["level0", "level1", "level2"], 1, 0) == ["level0"]
    bound = optimist.score("level0", {})
    assert bound == pytest.approx(1 + math.sqrt(2 * math.log(3)))
    told = Optimist(relabel={"level1": "level0", "level0": "level1"})
    told.update([level_group(0, [1.0, 0.0]), level_group(1, [1.0, 1.0])])
    assert told.choose(["level0", "level1"], 1, 0) == ["level1"]
