"""What surveys name, entry by entry: does its test turn red when the function behind it returns a constant?

    python tests/survey_kills.py [--propose] [SURVEY ...]

An entry of `docs/taxonomies/SURVEY.toml` has a test and, under `callees`, the function that the test is about, which
was chosen before it was replaced: of those that the test calls itself, the one that shares most words with the test's
name (`--propose` writes it). Replaced by a constant of its type it must turn the test red; beside it, as a control,
another function of the same module that the test does not run, which must not. What came is written to
`docs/taxonomies/kills.json`, and shown on the page: .95 of the entries are to turn red, .02 of the controls may.
Exit status 1: an entry's own test fails, an entry that turned red before stays green, or more controls turned red.
"""

import importlib
import inspect
import json
import random
import re
import runpy
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, get_origin

import pytest

ROOT = Path(__file__).resolve().parents[1]
TESTS, SOURCE, FOLDER = ROOT / "tests", ROOT / "src" / "quintain", ROOT / "docs" / "taxonomies"
RESULTS = FOLDER / "kills.json"
LEAST: float = runpy.run_path(str(ROOT / "docs" / "taxonomies.py"))["LEAST"]
MOST = 0.02
"""Share of entries that are to turn red, which the page says, and most of the controls that may."""
BESIDE = ("quintain.testing", "quintain.types", "quintain.errors")
"""What tests are made of, and not about."""
Place = tuple[str, str]
"""module and qualified name of a function"""


def return_none(*_: Any, **__: Any) -> None:
    return None


def return_false(*_: Any, **__: Any) -> bool:
    return False


def return_zero(*_: Any, **__: Any) -> int:
    return 0


def return_text(*_: Any, **__: Any) -> str:
    return ""


def return_tuple(*_: Any, **__: Any) -> tuple[()]:
    return ()


def return_list(*_: Any, **__: Any) -> list[Any]:
    return []


def return_dict(*_: Any, **__: Any) -> dict[str, Any]:
    return {}


CONSTANTS: dict[str, Callable[..., Any]] = {
    "bool": return_false, "int": return_zero, "float": return_zero, "str": return_text, "tuple": return_tuple,
    "list": return_list, "Sequence": return_list, "Iterator": return_list, "Iterable": return_list, "dict": return_dict,
    "Mapping": return_dict,
}  # fmt: skip
"""what a function says that it returns → what returns a constant of it; of other types, None"""


class Trace:
    """A plugin that notes the functions of the package that a test runs, and those that the tests' own code calls."""

    def __init__(self) -> None:
        self.run: set[Place] = set()
        self.called: Counter[Place] = Counter()
        self.passed = 0

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(str(SOURCE)):
            return
        place = (str(frame.f_globals.get("__name__", "")), code.co_qualname)
        self.run.add(place)
        if frame.f_back is not None and frame.f_back.f_code.co_filename.startswith(str(TESTS)):
            self.called[place] += 1

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        """Note what happens in a test, its fixtures included."""
        sys.setprofile(self.note)
        yield
        sys.setprofile(None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what passed."""
        self.passed += report.when == "call" and report.passed


def run_test(test: str, plugin: Trace | None = None) -> bool:
    """Return whether all cases of ``room/test_file.py::test_name`` pass, and one at least does."""
    without = (
        "cacheprovider",
        "terminal",
        "unraisableexception",
    )  # what a constant leaves open is told of too late
    options = ["-x", "-m", "", "--timeout=120", *(word for name in without for word in ("-p", f"no:{name}"))]
    return (
        pytest.main([*options, str(TESTS / test)], plugins=[plugin] if plugin else []) == pytest.ExitCode.OK
    )


def find_function(place: Place) -> FunctionType | None:
    """Return a function by its place; None where there is none that can be replaced."""
    found: Any = importlib.import_module(place[0])
    for name in place[1].split("."):
        found = inspect.getattr_static(found, name, None)
        found = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
        found = found.fget if isinstance(found, property) else found
    found = inspect.unwrap(found) if callable(found) else found
    return found if isinstance(found, FunctionType) and not found.__code__.co_freevars else None


def constant_of(function: FunctionType) -> Callable[..., Any]:
    """Return what returns a constant of the type that `function` says it returns."""
    said = function.__annotations__.get("return")
    name = said if isinstance(said, str) else getattr(get_origin(said) or said, "__name__", "")
    return CONSTANTS.get(re.split(r"\W", str(name))[0], return_none)


@contextmanager
def replace_by_constant(place: Place) -> Generator[None]:
    """Let a function return a constant meanwhile, whoever has imported it."""
    function = find_function(place)
    assert function is not None, f"{place}: there is no such function"
    code, usual, by_name = function.__code__, function.__defaults__, function.__kwdefaults__
    function.__code__, function.__defaults__, function.__kwdefaults__ = (
        constant_of(function).__code__,
        None,
        None,
    )
    try:
        yield
    finally:
        function.__code__, function.__defaults__, function.__kwdefaults__ = code, usual, by_name


def stems(text: str) -> set[str]:
    """Return the first five letters of each word of three letters or more."""
    return {word[:5].lower() for word in re.findall(r"[A-Za-z]{3,}", text.replace("_", " "))}


def choose_callee(test: str, trace: Trace) -> Place | None:
    """Return what a test is about: a function that returns something, most words in common, most calls, by name."""
    words = stems(test.replace("/test_", "/"))
    found = [
        place
        for place in trace.called
        if not place[0].startswith(BESIDE)
        and "__" not in place[1]
        and "<" not in place[1]
        and find_function(place)
    ]
    return min(
        found,
        key=lambda place: (
            returns_nothing(place),
            -len(words & stems(" ".join(place))),
            -trace.called[place],
            place,
        ),
        default=None,
    )


def returns_nothing(place: Place) -> bool:
    """Return whether a function, such as `close`, says that it returns None: a constant is no other value there."""
    function = find_function(place)
    return function is not None and function.__annotations__.get("return") in (None, "None")


def choose_control(place: Place, trace: Trace, seed: str) -> Place | None:
    """Return another function of the module that the test does not run, drawn by `seed`."""
    module = importlib.import_module(place[0])
    functions = {
        (place[0], each.__qualname__)
        for holder in (module, *(c for c in vars(module).values() if inspect.isclass(c)))
        for each in vars(holder).values()
        if isinstance(each, FunctionType) and each.__module__ == place[0] and "__" not in each.__qualname__
    }
    left = sorted(each for each in functions - trace.run if find_function(each))
    return random.Random(seed).choice(left) if left else None


def measure(test: str, callee: Place) -> dict[str, Any]:
    """Return what became of a test: whether it passes, turned red, and turned red by its control."""
    trace = Trace()
    passes = run_test(test, trace)
    control = choose_control(callee, trace, test)
    with replace_by_constant(callee):
        red = not run_test(test)
    found = {"callee": ":".join(callee), "passes": passes, "red": red}
    if control is not None:
        with replace_by_constant(control):
            found |= {"control": ":".join(control), "control_red": not run_test(test)}
    return found


def propose(path: Path) -> None:
    """Add the functions that entries are about to a survey's file; those that stand there stay."""
    text = path.read_text(encoding="utf-8")
    row = tomllib.loads(text)
    known = row.get("callees", {})
    lines: list[str] = []
    for entry, test in row["tests"].items():
        trace = Trace()
        if entry not in known and run_test(test, trace) and (place := choose_callee(test, trace)):
            lines.append(f"{json.dumps(entry, ensure_ascii=False)} = {json.dumps(':'.join(place))}")
    if not known:
        text += "\n[callees]\n"
    path.write_text(text + "\n".join(lines) + "\n", encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Measure the surveys that are named, or all, and write what came."""
    names = [name for name in arguments if not name.startswith("-")] or [
        p.stem for p in sorted(FOLDER.glob("*.toml"))
    ]
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    bad = 0
    for name in names:
        path = FOLDER / f"{name}.toml"
        if "--propose" in arguments:
            propose(path)
            continue
        row = tomllib.loads(path.read_text(encoding="utf-8"))
        found = {
            entry: measure(row["tests"][entry], (callee.partition(":")[0], callee.partition(":")[2]))
            for entry, callee in row.get("callees", {}).items()
        }
        controls = [each["control_red"] for each in found.values() if "control" in each]
        red, false = sum(each["red"] for each in found.values()), sum(controls)
        before: dict[str, dict[str, Any]] = results.get(name, {})
        lost = [
            entry for entry, each in found.items() if before.get(entry, {}).get("red") and not each["red"]
        ]
        aim = "" if red >= LEAST * len(found) else f", fewer than {LEAST:.0%}"
        print(
            f"{name}: {red} of {len(found)} turn red{aim}; of {len(controls)} controls {false}; lost: {lost}"
        )
        bad += bool(lost) or false > MOST * len(controls) or not all(e["passes"] for e in found.values())
        results[name] = found
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))  # noqa: TID251
