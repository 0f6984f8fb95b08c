import subprocess
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pytest

from quintain.errors import DataError, SandboxError, UsageError
from quintain.processes.tree import below
from quintain.safety import python as module
from quintain.safety.limits import Limits
from quintain.safety.python import PythonProcess, ToolResult, function_of
from quintain.types import ToolSpec

pytestmark = pytest.mark.usefixtures("isolation")
LONG = Limits(seconds=30.0)
ADD = ToolSpec(
    name="add",
    description="Add.",
    parameters={"properties": {"note": {}, "a": {}, "b": {}}, "required": ["a", "b"]},
)


def adding(name: str, arguments: Mapping[str, Any]) -> ToolResult:
    assert name == "add"
    if not {"a", "b"} <= arguments.keys():
        return ToolResult(text=f"add: got {sorted(arguments)}", is_error=True)
    return ToolResult(text=str(arguments["a"] + arguments["b"]))


@pytest.fixture(scope="module")
def shared() -> Iterator[PythonProcess]:
    """One process for tests that do not end it: what a cell leaves must not hurt the next."""
    with PythonProcess(LONG, tools=[ADD], files={"data.txt": "7"}) as python:
        yield python


def test_a_cell_prints_its_last_value_and_keeps_its_variables(shared: PythonProcess) -> None:
    first = shared.run("import math\nx = 3\nprint('hi')\nx + 1")
    assert (first.output, first.error, first.reason) == ("hi\n4\n", "", "")
    assert first.state["x"] == "int" and not {"math", "add", "ToolError"} & first.state.keys()
    assert shared.run("y = x * 2").output == ""
    assert shared.run("None\nprint(y, int(open('data.txt').read()))").output == "6 7\n"
    assert shared.num_starts == 1


def test_an_error_is_told_with_the_lines_of_the_cell(shared: PythonProcess) -> None:
    failed = shared.run("def half(n):\n    return n / 0\nprint('before')\nhalf(1)")
    assert failed.output == "before\n"
    assert [line for line in failed.error.splitlines() if line.strip(" ~^")] == [
        "Traceback (most recent call last):",
        f'  File "{failed.error.split(chr(34))[1]}", line 4, in <module>',
        "    half(1)",
        f'  File "{failed.error.split(chr(34))[1]}", line 2, in half',
        "    return n / 0",
        "ZeroDivisionError: division by zero",
    ]
    assert shared.run("def f(:").error.endswith("SyntaxError: invalid syntax")
    assert "worker" not in shared.run("def f(:").error
    assert shared.run("import sys; sys.exit(3)").error.endswith("SystemExit: 3")
    assert "null bytes" in shared.run("x = 1\0").error
    assert shared.run("f" * 3).error.endswith("NameError: name 'fff' is not defined")
    assert shared.num_starts == 1


def test_objects_go_in_and_come_out_equal(shared: PythonProcess) -> None:
    table = [{"name": "é\n", "price": 1.5, "tags": [None, True]}, {"big": 10**30}]
    shared.put(table=table, empty={})
    assert shared.get("table") == table and shared.get("empty") == {}
    shared.run("table[0]['price'] += 1; pair = (1, 2); odd = {1, 2}; nan = float('nan')")
    assert shared.get("table")[0]["price"] == 2.5
    assert shared.get("pair") == [1, 2]
    with pytest.raises(DataError, match=r"odd of the sandbox: got none: odd \(set\) has no JSON form"):
        shared.get("odd")
    with pytest.raises(DataError, match=r"nan .*has no JSON form"):
        shared.get("nan")
    with pytest.raises(DataError, match="there is no variable missing"):
        shared.get("missing")
    with pytest.raises(DataError, match=r"objects for the sandbox: got \['bad'\]"):
        shared.put(bad={1, 2})
    assert shared.num_starts == 1


def test_tools_are_functions_that_are_served_outside(shared: PythonProcess) -> None:
    found = shared.run("print([add(n, b=n) for n in range(3)], add.__doc__)\nadd(1, 2, 'x')", adding)
    assert (found.output, found.error) == ("['0', '2', '4'] Add.\n'3'\n", "")
    assert function_of(ADD)["parameters"] == ["a", "b", "note"]
    refused = shared.run(
        "try:\n    add(1)\nexcept ToolError as error:\n    print(error)\nadd(1, 2, 3, 4)", adding
    )
    assert refused.output == "add: got ['a']\n"
    assert (
        refused.error.endswith("ToolError: add takes 3 arguments: got 4") and "/worker" not in refused.error
    )
    assert "got two values for a" in shared.run("add(1, a=2)", adding).error
    assert "no JSON form" in shared.run("add(1, {2})", adding).error
    assert "there is no tool add" in shared.run("add(1, 2)").error
    assert shared.num_starts == 1


def test_a_tool_can_end_the_cell() -> None:
    with PythonProcess(LONG, tools=[ADD]) as python:
        found = python.run("print('a'); add(1, 2); print('b')", lambda *_: ToolResult(text="", is_over=True))
        assert (found.output, found.was_cut, found.was_killed) == ("a\n", True, False)
        assert python.run("add(1, 2)", adding).output == "'3'\n"
        assert python.num_starts == 2


def test_what_takes_long_to_go_is_no_swarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process is listed until the kernel comes to it, on a busy machine for a while."""
    with PythonProcess(LONG) as python, subprocess.Popen(["sleep", "60"]) as late:
        assert python.run("x = 1").reason == ""
        scans: list[int] = []

        def listed(root: int, last: int) -> list[int]:
            scans.append(root)
            return [*below(root), late.pid] if len(scans) < last else below(root)

        monkeypatch.setattr(module, "is_alone", lambda _: False)
        monkeypatch.setattr(module, "below", partial(listed, last=20))
        assert python.run("x += 1").reason == ""
        assert len(scans) == 20
        assert python.run("x").output == "2\n"
        monkeypatch.setattr(module, "SETTLE_SECONDS", 0.05)
        monkeypatch.setattr(module, "below", partial(listed, last=1_000_000))
        assert python.run("x").reason == "processes"


def test_what_a_cell_leaves_running_ends_with_it(shared: PythonProcess) -> None:
    found = shared.run(
        "import os, time\nmine = os.getpid()\n"
        "for _ in range(3):\n    if not os.fork():\n        os.setsid(); time.sleep(60)"
    )
    assert not found.reason
    box = shared.running
    assert box is not None and len(below(box.root)) == 1
    assert shared.run("os.getpid() == mine").output == "True\n"
    before = shared.run(
        "import threading\nticks = []\ndef tick():\n    while True: ticks.append(0); time.sleep(0.001)\n"
        "threading.Thread(target=tick, daemon=True).start()\ntime.sleep(0.02)"
    )
    assert not before.reason
    first = len(shared.get("ticks"))
    time.sleep(0.5)
    assert len(shared.get("ticks")) < first + 250  # a thread stands still between cells


def test_a_process_that_forked_does_not_answer_for_its_parent() -> None:
    with PythonProcess(LONG, tools=[ADD]) as python:
        code = (
            "import os\npid = os.fork()\nif pid:\n    os.waitpid(pid, 0)\nelse:\n"
            "    try: add(1, 2)\n    except ToolError as error: print(error)"
        )
        found = python.run(code, adding)
        assert found.output == "add: tools cannot be called from a process that was forked\n"
        assert python.run("1").output == "1\n" and python.num_starts == 1


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("while True: pass", "time"),
        ("import os; os._exit(3)", "exited"),
        ("print('x' * (1 << 17))", "output"),
        (
            "import os\nfor n in range(3, 9):\n    try: os.write(n, b'\\xff' * 8)\n    except OSError: pass",
            "protocol",
        ),
        (
            "import os\nfor n in range(3, 9):\n    try: os.write(n, b'\\0\\0\\0\\1[')\n    except OSError: pass",
            "protocol",
        ),
        (
            "import os\nfor n in range(3, 9):\n    try: os.write(n, b'\\0\\0\\0\\2[]')\n    except OSError: pass",
            "protocol",
        ),
    ],
)
def test_a_cell_that_passes_a_limit_ends_the_process_and_says_why(code: str, reason: str) -> None:
    limits = Limits(seconds=0.4 if reason == "time" else 30.0, output_bytes=1 << 16)
    with PythonProcess(limits) as python:
        python.put(x=1)
        found = python.run(code)
        assert (found.reason, found.was_killed) == (reason, True)
        assert len(found.output) <= limits.output_bytes
        if reason != "time":
            assert "NameError" in python.run("x").error
            assert python.num_starts == 2


def test_two_processes_share_nothing() -> None:
    with PythonProcess(LONG) as first, PythonProcess(LONG) as second:
        first.run("x = 1; open('/tmp/f', 'w').close(); import os; os.environ['A'] = 'b'")
        assert "NameError" in second.run("x").error
        assert second.run("import os\nos.listdir('/tmp'), os.environ.get('A')").output == "([], None)\n"


@pytest.mark.slow
def test_the_time_of_a_tool_is_not_the_cell_s() -> None:
    def slow(_name: str, _arguments: Mapping[str, Any]) -> ToolResult:
        time.sleep(2.5)
        return ToolResult(text="done")

    with PythonProcess(Limits(seconds=2.0), tools=[ADD]) as python:
        python.put(x=1)
        assert python.run("add(1, 2)", slow).reason == ""


def test_a_large_object_passes_the_pipes_whole() -> None:
    with PythonProcess(LONG) as python:
        text = "ab" * 400_000
        python.put(text=text)
        assert python.get("text") == text
        python.run("text = text * 12")
        with pytest.raises(DataError, match="the process was ended"):
            python.get("text")


def test_a_python_that_does_not_start_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_interpreter", lambda: ("/bin/false", ()))
    with (
        PythonProcess(LONG, is_warm=False) as python,
        pytest.raises(SandboxError, match="starting Python in a sandbox: got 'exited'"),
    ):
        python.run("1")


def test_every_process_starts_with_its_objects_and_its_setup() -> None:
    with PythonProcess(LONG, objects={"n": [1]}, setup="def f():\n    return n[0] + 1") as python:
        assert python.run("n.append(2)\nf()").output == "2\n"
        assert python.run("import os; os._exit(0)").reason == "exited"
        found = python.run("n, f()")
        assert (found.output, found.state) == ("([1], 2)\n", {})
    with PythonProcess(LONG, setup="1 / 0") as python, pytest.raises(SandboxError, match="division by zero"):
        python.run("1")
    with pytest.raises(DataError, match="no JSON form"):
        PythonProcess(objects={"n": {1}})


def test_a_tool_needs_a_name_of_python() -> None:
    with pytest.raises(UsageError, match="tool as a function: got the name 'a-b'"):
        PythonProcess(tools=[ToolSpec(name="a-b", description="", parameters={})])
