"""The file of answered calls: what is written is read, and what is wrong in it is counted and left out."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.build import make_turn

from quintain.errors import StoreError
from quintain.store.calls import CallLog, read_calls
from quintain.types import Completion, Turn


def turn(number: int) -> Turn:
    done = Completion(token_ids=(number, 2), logprobs=(-0.1, -1 / 3), stop="stop", policy_version=number)
    return make_turn(prompt=(5,), text="\ud800 ü", completion=done, facts={"call": number})


def line(row: Any) -> bytes:
    text = json.dumps(row).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    log = CallLog(file)
    log.call(0, "a", 0, turn(0), 1.5)
    log.call(1, "b", 0, turn(0), 1.0)
    log.call(0, "a", 1, turn(1), 2.5)
    log.facts(0, 0, {"call": 0, "delivery": "whole"})
    log.end(1, "b")
    log.end(2, "c")
    (first, second, third), num_broken = read_calls(file)
    assert (first.number, first.name, first.is_ended, first.seconds, num_broken) == (0, "a", False, 2.5, 0)
    assert first.turns[1] == turn(1) and first.turns[0].facts == {"call": 0, "delivery": "whole"}
    assert second.is_ended and third.is_ended and third.turns == {}
    assert file.stat().st_mode & 0o777 == 0o600
    log.close()
    log.close()
    assert not file.exists()


@pytest.mark.parametrize(
    "row",
    [
        [],
        {},
        {"episode": "0"},
        {"episode": 0, "is_ended": True},
        {"episode": 0, "call": 0, "facts": {}},
        {"episode": 0, "name": "a", "call": 0, "seconds": 1.0, "turn": {}},
        {"episode": 0, "name": 3, "call": 0, "seconds": 1.0},
        {"episode": 0, "name": "a", "call": "0", "seconds": 1.0},
        {"episode": 0, "name": "a", "call": 0, "seconds": "long"},
    ],
)
def test_a_row_of_the_wrong_shape_is_counted(row: Any, tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    log = CallLog(file)
    log.call(7, "whole", 0, turn(0), 1.0)
    whole = json.loads(file.read_bytes()[9:])["turn"]
    file.write_bytes(
        file.read_bytes() + line({"turn": whole, **row} if "seconds" in row and "turn" not in row else row)
    )
    found, num_broken = read_calls(file)
    assert ([each.number for each in found if each.turns], num_broken) == ([7], 1)


def test_a_file_that_is_there_or_cannot_be_made(tmp_path: Path) -> None:
    CallLog(tmp_path / "calls.jsonl")
    for place in (tmp_path / "calls.jsonl", tmp_path / "none" / "calls.jsonl"):
        with pytest.raises(StoreError, match="noting calls in"):
            CallLog(place)
