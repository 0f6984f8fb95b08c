"""The mutation gate: each patch beside this file introduces one of the silent failures S1 to S20 (docs/reliability.md).

Every patch is applied to a copy of the source, the tests that its head names are run there, and each of them must
fail with an assertion or an error of ours. `make test-mutations` runs it; with names (``s03 s07``) only those.
"""

import importlib
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COPIED = ("src", "tests", "pyproject.toml")
HONEST = {"AssertionError", "QuintainError", "Failed"}
"""What a test may fail with: an assertion, an error of ours, or an error that was expected and did not come."""


class GateError(Exception):
    """A patch cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A patch with its head: ``Mutation(name="S1", title="…", bug="…", tests=("tests/…::test_…",), file=…)``."""

    name: str
    title: str
    bug: str
    tests: tuple[str, ...]
    file: Path


@dataclass(slots=True, eq=False)
class Seen:
    """A plugin that notes what became of each test: its name, and the kinds of the error it failed with."""

    failed: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    num_passed: int = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, Any]:
        report = yield
        if report.failed and call.excinfo is not None:
            self.failed[item.nodeid] = kinds_of(call.excinfo.value)
        self.num_passed += report.when == "call" and report.passed
        return report


def kinds_of(error: BaseException) -> list[str]:
    """Return the names of the error's classes; of a group (hypothesis found several), those of all its parts."""
    parts = error.exceptions if isinstance(error, BaseExceptionGroup) else (error,)
    return [kind.__name__ for part in parts for kind in type(part).__mro__]


def read(file: Path) -> Mutation:
    """Return the mutation in `file`.

    Raises:
        GateError: its head names no tests.
    """
    lines = file.read_text(encoding="utf-8").split("\n--- a/")[0].splitlines()
    name, _, title = lines[0].partition(": ")
    bug = next((line.removeprefix("bug: ") for line in lines if line.startswith("bug: ")), "")
    tests = tuple(line.removeprefix("killed by: ") for line in lines if line.startswith("killed by: "))
    if not (title and bug and tests):
        raise GateError(f"{file.name}: got a head without title, bug or tests; see its neighbours")
    return Mutation(name=name, title=title, bug=bug, tests=tests, file=file)


def tested(folder: Path, tests: Sequence[str]) -> Seen:
    """Run `tests` in the copy `folder`, in a fork, and return what was seen."""
    answer = folder / "answer.json"
    answer.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(folder)
            sys.path[:0] = [str(folder / "src"), str(folder)]
            sys.dont_write_bytecode = True
            seen = Seen()
            quiet = "ignore::pytest.PytestAssertRewriteWarning"
            options = ["-q", "-W", quiet, "-p", "no:cacheprovider", "-p", "no:xdist", "-m", ""]
            pytest.main([*options, *tests], plugins=[seen])
            answer.write_text(json.dumps([seen.failed, seen.num_passed]))
            status = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.waitpid(child, 0)
    if not answer.exists():
        raise GateError(f"running {', '.join(tests)}: got no answer; {(folder / 'log').read_text()[-2000:]}")
    failed, num_passed = json.loads(answer.read_text())
    return Seen(failed, num_passed)


@contextmanager
def applied(mutation: Mutation, folder: Path) -> Generator[None]:
    """Have the bug in the copy `folder` inside the block.

    Raises:
        GateError: the patch does not fit the source any more.
    """
    patch = ["git", "apply", "--whitespace=nowarn", str(mutation.file)]
    done = subprocess.run(patch, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise GateError(f"{mutation.file.name} does not apply: {done.stderr.strip()}; write it anew")
    try:
        yield
    finally:
        subprocess.run([*patch[:2], "-R", *patch[2:]], cwd=folder, check=True)


def verdict(mutation: Mutation, seen: Seen) -> str:
    """Return why `mutation` is not killed, or nothing."""
    for test in mutation.tests:
        kinds = [k for name, k in seen.failed.items() if name == test or name.startswith(f"{test}[")]
        if not kinds:
            return f"{test} does not see it"
        if any(not HONEST & set(kind) for kind in kinds):
            return f"{test} breaks with {kinds[0][0]} instead of saying what is wrong"
    return ""


def main(names: Sequence[str]) -> int:
    """Run the gate and print its table; return 1 where a mutation is not killed."""
    wanted = {f"s{int(name.lower().lstrip('s')):02}" for name in names}
    mutations = [read(file) for file in sorted(HERE.glob("s*.patch")) if not names or file.stem in wanted]
    if len(mutations) < len(wanted):
        raise GateError(f"mutations: got {', '.join(names)}; name some of S1 to S20")
    num_wrong = 0
    with TemporaryDirectory(prefix="quintain-mutations-") as place:
        folder = Path(place)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, folder / name)
        clean = tested(folder, sorted({test for mutation in mutations for test in mutation.tests}))
        if clean.failed or not clean.num_passed:
            print(f"without any bug these fail already: {', '.join(clean.failed) or 'none ran'}")
            print((folder / "log").read_text()[-3000:])
            return 1
        print(f"without any bug all {clean.num_passed} cases pass\n")
        print(f"{'':4} {'failure':<52} {'killed by':<76} seconds")
        for mutation in mutations:
            started = time.monotonic()
            with applied(mutation, folder):
                wrong = verdict(mutation, tested(folder, mutation.tests))
            num_wrong += bool(wrong)
            first = mutation.tests[0].split("::")[1] if not wrong else f"SURVIVES: {wrong}"
            more = f" (+{len(mutation.tests) - 1})" if len(mutation.tests) > 1 and not wrong else ""
            seconds = time.monotonic() - started
            print(f"{mutation.name:4} {mutation.title:<52} {first + more:<76} {seconds:7.1f}", flush=True)
    print(f"\n{len(mutations) - num_wrong} of {len(mutations)} killed")
    return int(num_wrong > 0)


if __name__ == "__main__":
    for heavy in ("torch", "transformers"):
        importlib.import_module(heavy)  # once, for all the forks

    try:
        sys.exit(main(sys.argv[1:]))  # noqa: TID251 - a program, not the package
    except GateError as error:
        sys.exit(f"mutation gate: {error}")
