import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from quintain.errors import DataError
from quintain.store import codec
from quintain.store.rows import (
    READ_FIELDS,
    as_column,
    episode_id,
    finite_metrics,
    open_rows,
    read_row,
    write_rows,
)
from quintain.store.schema import COLUMNS
from quintain.types import Failure, Trajectory


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


def write_row(trajectory: Trajectory, step: int, phase: str) -> dict[str, Any]:
    """Return a row as the journal gives it back."""
    (row,) = write_rows([trajectory], step, phase)
    named = {**dict.fromkeys(COLUMNS), **dict(zip(COLUMNS, row, strict=False))}
    return {name: bytes(value) if isinstance(value, bytearray) else value for name, value in named.items()}


def read(row: dict[str, Any]) -> Any:
    (opened,) = open_rows([tuple(row[name] for name in READ_FIELDS.split(", "))])
    return read_row(9, opened)


def test_a_row_comes_back_with_its_place(make: Any) -> None:
    recorded = read(write_row(make(3), 5, "train"))
    assert (recorded.row, recorded.step, recorded.phase) == (9, 5, "train")
    assert recorded.trajectory == make(3)
    assert recorded.trajectory.id == episode_id("", "train", 5, "g", 3).hex()


def test_a_failure_has_no_value_in_the_columns(make: Any) -> None:
    def facts(row: dict[str, Any]) -> list[Any]:
        return [row[name] for name in ("value", "is_success", "failure")]

    row = write_row(make(outcome=Failure(owner="tool", kind="timeout", message="30 s")), 5, "train")
    assert facts(row) == [None, None, "tool/timeout"]
    assert facts(write_row(make(), 5, "train")) == [1.0, True, None]


def test_the_columns_name_policies_and_the_oldest_weights(make: Any) -> None:
    first, second = make().turns
    other = replace(second.completion, policy="planner", policy_version=2)
    row = write_row(replace(make(), turns=(first, replace(second, completion=other))), 5, "train")
    assert (row["policy"], row["version"]) == ("policy,planner", 2)
    nobody = write_row(replace(make(), turns=()), 5, "train")
    assert (nobody["policy"], nobody["version"]) == ("", None)


def test_an_id_says_where_an_episode_was_collected() -> None:
    ids = {
        episode_id(run, phase, step, group, place)
        for run in ("a", "b")
        for phase in ("train", "eval")
        for step in (0, 1)
        for group in ("g", "h\ud800")
        for place in (0, 1)
    }
    assert len(ids) == 32
    assert episode_id("a", "train", 0, "g", 0).hex() == "0000000011ef0c97f81f", "it never changes"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("phase", "eval", "was changed"),
        ("step", 6, "was changed"),
        ("seconds", 0.25, "was changed"),
        ("id", b"1234567890", "was changed"),
        ("id", None, "wrong type"),
        ("codec", codec.CODEC + 1, "upgrade quintain"),
        ("codec", None, "upgrade quintain"),
        ("codec", 1, "was changed"),
        ("digest", "text", "wrong type"),
        ("digest", b"", "was changed"),
        ("structure", None, "wrong type"),
        ("payload", b"", "reading an episode"),
    ],
)
def test_a_changed_column_is_found(make: Any, name: str, value: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read({**write_row(make(), 5, "train"), name: value})


def test_a_row_that_is_gone_is_named() -> None:
    with pytest.raises(DataError, match=r"no such row"):
        read_row(1, open_rows([None])[0])
