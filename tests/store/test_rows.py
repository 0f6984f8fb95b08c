import math
from typing import Any

import numpy as np
import pytest

from quintain.errors import DataError
from quintain.store import codec
from quintain.store.rows import as_column, finite_metrics, read_row, write_row
from quintain.types import Failure


def test_metrics_become_json_numbers() -> None:
    given: dict[str, Any] = {
        "a": 1, "b": 0.5, "c": np.float32(0.25), "d": np.int64(7), "e": True,
        "f": math.nan, "g": math.inf, "h": -math.inf, "i": np.float32("nan"), "j": 10**400,
    }  # fmt: skip
    nulls = dict.fromkeys("fghij")
    assert finite_metrics(given) == {"a": 1, "b": 0.5, "c": 0.25, "d": 7.0, "e": 1.0, **nulls}


@pytest.mark.parametrize("name", ["step", "phase"])
def test_the_names_of_every_row_are_taken(name: str) -> None:
    with pytest.raises(DataError, match=rf"metric '{name}': .*rename"):
        finite_metrics({name: 1.0})


@pytest.mark.parametrize("value", ["high", None, [1.0]])
def test_a_metric_is_a_number(value: Any) -> None:
    with pytest.raises(DataError, match=r"metric 'a': got .*; give a number"):
        finite_metrics({"a": value})


def test_half_a_surrogate_pair_fits_in_a_column() -> None:
    assert as_column("a\ud800ä") == "a\\ud800ä"


def read(row: tuple[Any, ...]) -> Any:
    names = insert_columns()
    return read_row(9, tuple(row[names.index(name)] for name in READ_FIELDS.split(", ")))


def test_a_row_comes_back_with_its_place(make: Any) -> None:
    recorded = read(write_row(make(3), 5, "train"))
    assert (recorded.row, recorded.step, recorded.phase) == (9, 5, "train")
    assert recorded.trajectory == make(3)


def test_a_failure_has_no_value_in_the_columns(make: Any) -> None:
    row = write_row(make(outcome=Failure(owner="tool", kind="timeout", message="30 s")), 5, "train")
    assert row[7:10] == (None, None, "tool/timeout")
    assert write_row(make(), 5, "train")[7:10] == (1.0, True, None)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, "eval", "was changed"),
        (1, 6, "was changed"),
        (13, 0.25, "was changed"),
        (14, codec.CODEC + 1, "upgrade quintain"),
        (14, None, "upgrade quintain"),
        (15, "text", "wrong type"),
        (15, b"", "was changed"),
        (16, None, "wrong type"),
        (17, b"", "reading an episode"),
    ],
)
def test_a_changed_column_is_found(make: Any, place: int, value: Any, message: str) -> None:
    row = list(write_row(make(), 5, "train"))
    row[place] = value
    with pytest.raises(DataError, match=message):
        read(tuple(row))


def test_a_row_that_is_gone_is_named() -> None:
    with pytest.raises(DataError, match=r"no such row"):
        read_row(1, None)
