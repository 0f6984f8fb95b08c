import json
from pathlib import Path

import pytest

from quintain.agents.functions import functions_of
from quintain.agents.library import ActionLibrary, Entry
from quintain.errors import DataError
from quintain.safety.isolation import find_fault
from quintain.safety.python import PythonProcess
from quintain.types import Task

TASK = Task(id="t/train/0", environment="t", seed=0)

AREA = '''
import math as m
from collections import Counter as C, deque
LIMIT = 3
seen = list()
def area(r: float) -> float:
    """Return the area of a circle.

    More.
    """
    return half(m.pi * r * r) * 2
def half(x): return x / 2
def count(items):
    return C(items).most_common(LIMIT)
def note(x):
    seen.append(x)
def look(): return search("x") + note(1)
def find(word):
    """Search twice."""
    return [search(word) for _ in range(2)]
area(1)
'''


def test_what_a_function_stands_on_by_value() -> None:
    found, called = functions_of([AREA, "def broken(:"], {"search"}, set())
    kept = {each.name: each for each in found}
    assert set(kept) == {"area", "half", "count", "find"}  # note stands on a list that changes, look on note
    assert kept["area"].setup == ("import math as m",) and kept["area"].depends == ("half",)
    assert kept["area"].signature == "area(r: float) -> float"
    assert kept["area"].description == "Return the area of a circle."
    assert kept["count"].setup == ("LIMIT = 3", "from collections import Counter as C")
    assert (kept["find"].tools, kept["find"].depends, kept["find"].description) == (
        ("search",),
        (),
        "Search twice.",
    )
    assert kept["half"].source == "def half(x):\n    return x / 2"
    assert {"area", "half", "search", "C"} <= called


@pytest.mark.skipif(bool(find_fault()), reason=find_fault())
def test_everything_kept_runs_in_a_fresh_process() -> None:
    library = ActionLibrary()
    library.learn(TASK, [AREA], {"search"})
    for name, call, value in (
        ("area", "round(area(2), 3)", "12.566"),
        ("half", "half(3)", "1.5"),
        ("count", "count('aab')", "[('a', 2), ('b', 1)]"),
    ):
        with PythonProcess(setup=library.code([name])) as python:
            cell = python.run(call)
            assert (cell.output, cell.error, cell.state) == (f"{value}\n", "", {})


def test_another_function_of_a_known_name_gets_a_number() -> None:
    library = ActionLibrary()
    assert library.learn(TASK, ["def f(n):\n    return 1 if n < 2 else n * f(n - 1)"], set()) == ("f",)
    assert library.learn(TASK, ["def f(n):\n    return 1 if n < 2 else n * f(n - 1)"], set()) == ()
    new = "def f(n):\n    return 0 if n < 1 else n + f(n - 1)\ndef g(n):\n    return f(n)\n"
    assert library.learn(TASK, [new], set()) == ("f_2", "g")
    assert library.learn(TASK, [new.replace("0 if", "5 if")], set()) == ("f_3", "g_2")
    entries = {entry.name: entry for entry in library.entries}
    assert "f_2(n - 1)" in entries["f_2"].source and entries["f_2"].signature == "f_2(n)"
    assert (entries["g"].depends, entries["g_2"].depends) == (("f_2",), ("f_3",))
    assert "n * f(n - 1)" in entries["f"].source
    assert library.code(["g"]).count("def ") == 2


LIMITS = (
    "LIMIT = 3\ndef is_small(x): return x <= LIMIT",
    "LIMIT = 100\ndef is_cheap(price): return price <= LIMIT",
    "import math\ndef root(x): return math.sqrt(x)",
    "math = 5\ndef marks(): return math",
)


@pytest.mark.skipif(bool(find_fault()), reason=find_fault())
def test_constants_of_two_functions_never_meet() -> None:
    library = ActionLibrary()
    for cell in LIMITS:
        library.learn(TASK, [cell], set())
    call = "is_small(50), is_small(3), is_cheap(50), is_cheap(101), root(9), marks()"
    for names in (["is_small", "is_cheap", "root", "marks"], ["marks", "root", "is_cheap", "is_small"]):
        with PythonProcess(setup=library.code(names)) as python:
            cell = python.run(call)
        assert (cell.output, cell.error) == ("(False, True, True, False, 3.0, 5)\n", "")
        assert cell.state == {}


def test_functions_that_stand_on_other_things_are_different_functions() -> None:
    library = ActionLibrary()
    first = "K = 3\ndef f(): return K\ndef g(): return f()"
    assert library.learn(TASK, [first], set()) == ("f", "g")
    assert library.learn(TASK, [first], set()) == ()
    second = first.replace("3", "5")
    assert library.learn(TASK, [second], set()) == ("f_2", "g_2")  # g calls another f, in the same words
    assert library.learn(TASK, [second], set()) == library.learn(TASK, [first], set()) == ()
    entries = {entry.name: entry for entry in library.entries}
    assert (entries["f"].setup, entries["f_2"].setup) == (("K = 3",), ("K = 5",))
    assert entries["g_2"].source == "def g_2():\n    return f_2()"


def test_what_an_episode_binds_counts_before_what_there_is() -> None:
    def kept(cell: str, tools: set[str], known: set[str]) -> dict[str, tuple[object, ...]]:
        found, _ = functions_of([cell], tools, known)
        return {each.name: (each.setup, each.depends, each.tools) for each in found}

    shadowed = "max = 3\nsize = 4\nfind = 5\ndef f(): return max + size + find"
    assert kept(shadowed, {"find"}, {"size"}) == {"f": (("find = 5", "max = 3", "size = 4"), (), ())}
    assert kept("def f(): return max(size(), find())", {"find"}, {"size"}) == {
        "f": ((), ("size",), ("find",))
    }
    # A function that is called like a builtin or a tool would hide it from others.
    assert kept("def max(x): return 1\ndef find(): return 2\ndef f(): return max(1)", {"find"}, set()) == {}
    assert kept("def f(): return 1\nf = 2\ndef g(): return f", set(), set()) == {"g": (("f = 2",), (), ())}
    assert kept("n = 0\ndef count():\n    global n\n    n += 1\n    return n", set(), set()) == {}


def test_uses_are_counted_and_what_fits_comes_first() -> None:
    library = ActionLibrary()
    library.learn(TASK, ['def sort_prices(x):\n    """Sort the prices."""\n    return sorted(x)'], set())
    library.learn(
        TASK, ['def mean_price(x):\n    """Return the mean price of goods."""\n    return sum(x)'], set()
    )
    library.learn(TASK, ['def find_goods(x):\n    """Search for goods."""\n    return search(x)'], {"search"})
    library.learn(TASK, ["sort_prices([2, 1])", "print(mean_price([1]), mean_price([2]))"], set())
    assert [entry.num_uses for entry in library.entries] == [1, 1, 0]
    names = [
        entry.name for entry in library.relevant("What do the goods cost? Give their mean.", 5, {"search"})
    ]
    assert names == ["mean_price", "find_goods"]
    assert [entry.name for entry in library.relevant("goods", 5, set())] == ["mean_price"]
    assert [entry.name for entry in library.relevant("price", 1, set())] == ["sort_prices"]
    assert library.relevant("weather", 5, {"search"}) == () == library.relevant("price", 0, set())


def test_a_library_is_written_whole_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "actions.json"
    library = ActionLibrary.open(path)
    library.learn(TASK, [AREA], {"search"})
    again = ActionLibrary.open(path, is_frozen=True)
    assert again.entries == library.entries and len(again.entries) == 4
    before = path.read_bytes()
    assert again.learn(TASK, ["def new(): pass\narea(1)"], set()) == ()
    assert again.entries == library.entries and path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["actions.json"]


def test_a_file_without_a_library_is_named(tmp_path: Path) -> None:
    for text in (
        "{",
        "[1]",
        json.dumps([{"name": "f"}]),
        json.dumps([{"setup": [], "depends": [], "tools": []}]),
    ):
        path = tmp_path / "bad.json"
        path.write_text(text)
        with pytest.raises(DataError, match=r"action library: got .*bad\.json, which holds none"):
            ActionLibrary.open(path)
    with pytest.raises(DataError, match=r"frozen action library: got .*does not exist"):
        ActionLibrary.open(tmp_path / "none.json", is_frozen=True)


def test_functions_that_call_each_other_are_given_together() -> None:
    library = ActionLibrary(
        [
            Entry(name="a", source="def a(): return b()", signature="a()", depends=("b",)),
            Entry(name="b", source="def b(): return a()", signature="b()", depends=("a",)),
        ]
    )
    assert library.code(["a"]) == "def a(): return b()\ndef b(): return a()"
