import json
from dataclasses import replace
from pathlib import Path

import pytest

from quintain.agents.functions import functions_of
from quintain.agents.library import ActionLibrary, load_library, read_function, write_function
from quintain.errors import DataError, UsageError
from quintain.memory.bank import Bank, Entry
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
    entries = {found.name: found for found in library.functions}
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
    entries = {found.name: found for found in library.functions}
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
    assert [entry.value for entry in library.bank.entries] == [1, 1, 0]
    names = [
        entry.name for entry in library.relevant("What do the goods cost? Give their mean.", 5, {"search"})
    ]
    assert names == ["mean_price", "find_goods"]
    assert [entry.name for entry in library.relevant("goods", 5, set())] == ["mean_price"]
    assert [entry.name for entry in library.relevant("price", 1, set())] == ["mean_price"], (
        "the newer of equal ones"
    )
    library.learn(TASK, ["sort_prices([2, 1])"], set())
    assert [entry.name for entry in library.relevant("price", 1, set())] == ["sort_prices"], "the more used"
    assert library.relevant("price", 1, {"sort_prices"})[0].name == "mean_price", "none that hides a tool"
    assert library.relevant("weather", 5, {"search"}) == () == library.relevant("price", 0, set())


def test_a_library_is_a_bank_whose_entries_say_where_they_are_from(tmp_path: Path) -> None:
    path = tmp_path / "actions.jsonl"
    library = ActionLibrary()
    library.learn(TASK, [AREA], {"search"})
    library.bank.save(path)
    again = load_library(path)
    assert again.functions == library.functions and len(again.functions) == 4
    assert {entry.source for entry in again.bank.entries} == {TASK.id}
    assert again.bank.entries[0].key == "area Return the area of a circle."
    assert again.bank.digest() == library.bank.digest()
    with pytest.raises(UsageError, match="edit of a frozen bank"):
        again.learn(TASK, ["def new(): pass"], set())


def test_what_is_kept_is_a_function_and_nothing_else() -> None:
    found, _ = functions_of([AREA], {"search"}, set())
    for each in found:
        assert read_function(each.name, write_function(each)) == each
    text = write_function(next(each for each in found if each.name == "count"))
    for wrong in (
        text.replace("# functions:", "# calls:"),
        text.replace("LIMIT = 3", "LIMIT = open('x')"),
        text + "\ncount([])",
        text.replace("def count", "def other"),
        "x = 1",
        "",
    ):
        with pytest.raises(DataError, match=r"action library: got the entry 'count', which is no function"):
            ActionLibrary(Bank([Entry(id="count", key="count", text=wrong or " x")]))


def test_a_file_without_a_library_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    for text in (
        "{",
        "[1]",
        json.dumps({"name": "f"}),
        json.dumps({"id": "f", "key": "f", "text": "def f(): pass"}),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=r"bank: got .*bad\.jsonl:1, which is no entry|got the entry 'f'"):
            load_library(path)
    with pytest.raises(DataError, match=r"bank: got .*none\.jsonl, which cannot be read"):
        load_library(tmp_path / "none.jsonl")
    row = {
        "id": "f",
        "key": "f",
        "text": "# functions: \n# tools: \ndef f():\n    pass",
        "source": "guess/eval/3",
    }
    path.write_text(json.dumps(row))
    with pytest.raises(DataError, match=r"got add f: got the source guess/eval/3, which is held out"):
        load_library(path)
    path.write_text(
        json.dumps({**row, "source": "guess/train/3", "text": row["text"].replace(": \n# t", ": g\n# t", 1)})
    )
    with pytest.raises(
        DataError, match="action library: got the entry 'f', which is no function as they are kept"
    ):
        load_library(path)  # it says that it calls g, and does not


def test_a_function_without_what_it_calls_is_refused() -> None:
    library = ActionLibrary()
    library.learn(TASK, [AREA], {"search"})
    area = next(entry for entry in library.bank.entries if entry.id == "area")
    with pytest.raises(DataError, match="action library: got area, which calls half; put them in, too"):
        ActionLibrary(Bank([area]))


def test_a_full_library_forgets_what_is_called_least_and_stood_on_by_none() -> None:
    library = ActionLibrary(Bank(size=3, length=200))
    library.learn(
        TASK,
        [
            "def a(): return 1\ndef b(): return a()\ndef c(): return 3",
        ],
        set(),
    )
    library.learn(TASK, ["c()"], set())
    assert library.learn(TASK, ["def d(): return 4"], set()) == ("d",)
    assert [found.name for found in library.functions] == ["a", "c", "d"], (
        "b was called least; a was stood on by it"
    )
    assert library.learn(TASK, ["def e(): return c() + d()"], set()) == ("e",)
    assert [found.name for found in library.functions] == ["c", "d", "e"]
    assert library.learn(TASK, ["def f(): return e()"], set()) == () and library.num_refused == 1, (
        "all are needed"
    )
    long = "def g():\n    return '" + "x" * 200 + "'\ndef h():\n    return g()"
    roomy = ActionLibrary(Bank(size=9, length=200))
    assert roomy.learn(TASK, [long], set()) == () and roomy.num_refused == 2, (
        "what calls one that is too long goes, too"
    )


def test_functions_that_call_each_other_are_given_together() -> None:
    library = ActionLibrary()
    both = "def a(): return b()\ndef b(): return a()"
    assert library.learn(TASK, [both], set()) == ("a", "b")
    assert library.code(["a"]).count("def ") == 2
    assert library.learn(replace(TASK, split="eval"), ["def z(): return 1"], set()) == ()
