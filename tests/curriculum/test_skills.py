"""How well skills are known, and which are weak."""

import math
from collections import Counter

import pytest

from quintain.curriculum.skills import Known, count_skills, draw_weak
from quintain.errors import UsageError


def test_a_rate_is_never_certain_on_a_few_tries() -> None:
    assert Known().rate == 0.5
    known = Known(tries=8, successes=2)
    assert known.rate == pytest.approx(0.3)
    assert known.error == pytest.approx(math.sqrt(0.3 * 0.7 / 11))


def test_tries_are_counted_by_skill() -> None:
    found = count_skills([("a", True), ("b", False), ("a", False)])
    assert found == {"a": Known(tries=2, successes=1), "b": Known(tries=1, successes=0)}


def test_skills_are_drawn_as_often_as_they_fail_and_none_twice() -> None:
    report = {"easy": Known(tries=98, successes=89), "hard": Known(tries=98, successes=9)}
    drawn = Counter(draw_weak(report, ["easy", "hard"], 1, seed)[0] for seed in range(2_000))
    assert drawn["easy"] / 2_000 == pytest.approx(0.1, abs=0.025), "failures of .1 and .9"
    assert sorted(draw_weak(report, ["easy", "hard", "new"], 3, 0)) == ["easy", "hard", "new"]
    assert Counter(draw_weak({}, ["a", "b"], 4, 0)) == {"a": 2, "b": 2}
    with pytest.raises(UsageError, match="got no skill"):
        draw_weak({}, [], 1, 0)
