"""The program inside the box, run here with code that does no harm: the box does not count lines."""

import io
import json
from typing import Any

import pytest

from quintain.processes.frames import frame_request
from quintain.safety.worker import Worker, bury


def answers(*requests: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a worker says to `requests`, after its greeting."""
    replies = io.BytesIO()
    Worker(io.BytesIO(b"".join(map(frame_request, requests))), replies).serve()
    replies.seek(0)
    found: list[dict[str, Any]] = []
    while head := replies.read(4):
        found.append(json.loads(replies.read(int.from_bytes(head, "big"))))
    assert found[0] == {"is_ready": True}
    return found[1:]


def test_cells_share_a_namespace(capsys: pytest.CaptureFixture[str]) -> None:
    said = answers(
        {"do": "put", "objects": {"x": 2}},
        {"do": "run", "code": "y = x + 1\nprint('so')\ny"},
        {"do": "run", "code": "1 / 0"},
        {"do": "get", "name": "y"},
        {"do": "get", "name": "z"},
        {"do": "run", "code": "z = {1}\n_hidden = 1"},
        {"do": "get", "name": "z"},
    )
    assert said[0] == {}
    assert said[1] == {"error": "", "state": {"y": "int"}}
    assert said[2]["error"].splitlines()[1] == '  File "<cell 2>", line 1, in <module>'
    assert said[2]["error"].endswith("ZeroDivisionError: division by zero")
    assert said[3:5] == [{"value": "3"}, {"error": "there is no variable z"}]
    assert said[5]["state"] == {"y": "int", "z": "set"}
    assert said[6]["error"].startswith("z (set) has no JSON form")
    assert capsys.readouterr().out == "so\n3\n"


def test_a_function_asks_outside(capsys: pytest.CaptureFixture[str]) -> None:
    function = {"name": "add", "parameters": ["a", "b"], "description": "Add."}
    said = answers(
        {"do": "functions", "functions": [function]},
        {"do": "run", "code": "print(add(1, b=2), add.__doc__)"},
        {"text": "three", "is_error": False},
        {"do": "run", "code": "add(1)"},
        {"text": "b is missing", "is_error": True},
        {"do": "run", "code": "add(1, 2, 3)"},
        {"do": "run", "code": "add(1, a=1)"},
        {"do": "run", "code": "add({1})"},
        {"do": "run", "code": "add(1)"},
    )
    assert said[1] == {"call": "add", "arguments": {"a": 1, "b": 2}}
    assert said[2] == {"error": "", "state": {}}
    assert said[3] == {"call": "add", "arguments": {"a": 1}}
    errors = [frame["error"].splitlines()[-1].rpartition("ToolError: ")[2] for frame in said[4:8]]
    assert errors[:3] == ["b is missing", "add takes 2 arguments: got 3", "add got two values for a"]
    assert errors[3].startswith("add: the arguments have no JSON form")
    assert said[8] == {"call": "add", "arguments": {"a": 1}}
    assert said[9]["error"].endswith("SystemExit")
    assert capsys.readouterr().out == "three Add.\n"


def test_what_is_there_from_the_start_is_not_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    said = answers(
        {"do": "setup", "code": "def f(): return 2"},
        {"do": "run", "code": "x = f()"},
        {"do": "setup", "code": "1 / 0"},
        {"do": "run", "code": "f = 1"},
    )
    assert [frame.get("state") for frame in said] == [
        {"f": "function"},
        {"x": "int"},
        {"x": "int"},
        {"f": "int"},
    ]
    assert said[2]["error"].endswith("ZeroDivisionError: division by zero")


def test_the_dead_are_buried_where_there_are_none() -> None:
    bury()
