"""Steps to go: what is learned of steps and of bounds, and which words count as the same."""

from pathlib import Path

import numpy as np
import pytest

from quintain.errors import DataError, UsageError
from quintain.memory.utility import CostSample, StepsToGo, fit_weights, load_utility, name_features


def fit(*samples: CostSample) -> StepsToGo:
    utility = StepsToGo(ridge=1e-3)
    utility.fit(samples)
    return utility


def test_f_is_what_was_seen_of_an_action() -> None:
    utility = fit(*[CostSample("", "door", "open", 3), CostSample("", "door", "wait", 9)] * 5)
    assert utility.values("", "door", ["open", "wait"]) == pytest.approx([3, 9], abs=0.05)


def test_a_bound_counts_where_f_is_below_and_not_where_it_is_above() -> None:
    """Costs 9 and 11 with a bound of 4 say 10; with a bound of 16 more than that, and less than the mean with 16."""
    known = [CostSample("", "door", "wait", 9), CostSample("", "door", "wait", 11)]
    (free,) = fit(*known, known[0]._replace(steps=4, is_censored=True)).values("", "door", ["wait"])
    (tight,) = fit(*known, known[0]._replace(steps=16, is_censored=True)).values("", "door", ["wait"])
    (taken,) = fit(*known, known[0]._replace(steps=4)).values("", "door", ["wait"])
    assert free == pytest.approx(10, abs=0.05) and tight == pytest.approx(12, abs=0.05)
    assert taken == pytest.approx(8, abs=0.05), "a bound that is taken for a cost drags it down"


def test_weights_by_hand() -> None:
    """One feature twice: (1 + 4) w = 2 · 4, by λ = 1."""
    rows = [np.array([0, 0])]
    assert fit_weights(rows, np.array([4.0]), np.array([False]), size=2, ridge=1.0) == pytest.approx([1.6, 0])


def test_a_word_that_the_action_names_is_its_place_in_it() -> None:
    north = name_features("x", "flag 2 north", "north")
    east = name_features("x", "flag 2 east", "east")
    assert {f for f in north if "#" in f} == {f for f in east if "#" in f}
    assert "#1|flag 2 #1" in north and "flag 2 north" in north and "#1|flag 2" not in north
    assert "go to #1|#1 ," in name_features("x", "sink, mug", "go to sink")


def test_what_was_seen_first_is_told_apart_from_what_is_seen_now() -> None:
    assert "first #1|#1 1" in name_features("flag 1", "flag 2", "flag")
    assert not any(name.startswith("first") for name in name_features("flag 2", "flag 2", "flag"))


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    utility = fit(CostSample("", "door", "open", 3))
    utility.save(tmp_path / "u.json")
    read = load_utility(tmp_path / "u.json")
    assert read.is_fitted and read.values("", "door", ["open"]) == pytest.approx(
        utility.values("", "door", ["open"]), abs=1e-4
    )


@pytest.mark.parametrize("text", ["", "[]", '{"size": 3, "weights": [1]}', '{"size": 1, "weights": ["a"]}'])
def test_a_file_without_weights(tmp_path: Path, text: str) -> None:
    (tmp_path / "u.json").write_text(text)
    with pytest.raises(DataError, match=r"steps to go: got .*u\.json, which holds no weights"):
        load_utility(tmp_path / "u.json")


def test_exploration_that_never_arrives_is_refused() -> None:
    with pytest.raises(UsageError, match="got 1 steps of exploration, none of which led to the goal"):
        fit(CostSample("", "a", "x", 4, is_censored=True))
