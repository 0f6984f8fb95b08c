"""Many episodes in browsers and Java machines leave nothing behind.

For as many as a long run has: ``pytest -m real tests/adapters/test_leaks.py --episodes 500 -rP``.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from quintain.adapters.miniwob import chromium
from quintain.adapters.scienceworld import jvm as jvm
from quintain.environments.catalog import find
from quintain.environments.protocol import advance, begin
from quintain.processes.usage import resources
from quintain.types import Action

pytestmark = pytest.mark.timeout(7200)
WORLDS = [
    pytest.param("miniwob/click-test-2", marks=pytest.mark.real("miniwob", program="chromium")),
    pytest.param("scienceworld/find-living-thing", marks=pytest.mark.real("scienceworld", program="java")),
]
PER_INSTANCE = 10
"""Episodes that an instance plays before it is closed."""
TURNS = 2


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that temporary files are made in; Chromium's sockets allow no long path."""
    with tempfile.TemporaryDirectory(prefix="leaks-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)
        chromium.close_browsers()
        jvm.close_machines()


def mentioning(word: str) -> list[int]:
    """Return the processes that were started with `word` in a command."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and word.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:  # it ended meanwhile
            continue
    return found


def files_of_java() -> set[str]:
    """Return the files in which Java machines of this machine tell how they are."""
    return {str(path) for folder in Path("/tmp").glob("hsperfdata_*") for path in folder.iterdir()}


@pytest.mark.parametrize("spec", WORLDS)
def test_episodes_leave_nothing_behind(spec: str, place: Path, request: pytest.FixtureRequest) -> None:
    most = 0

    def episodes(count: int) -> None:
        """Play `count` episodes in several instances, one after the other, and close what they shared."""
        nonlocal most
        for start in range(0, count, PER_INSTANCE):
            with closing(find(spec)()) as world:
                for index in range(start, min(start + PER_INSTANCE, count)):
                    begin(world, world.task("train", index))
                    for _ in range(TURNS):
                        if advance(world, Action(text="look around")).is_terminated:
                            break
                most = max(most, resources().get("processes", 0))
        chromium.close_browsers()
        jvm.close_machines()

    count = int(request.config.getoption("--episodes", default=20) or 20)
    episodes(1)
    before, files = resources(), files_of_java()
    episodes(count)
    after = resources()
    print(f"{spec}: {count} episodes, {most} process at a time; before {before}, after {after}")
    assert {name: number for name, number in after.items() if number > before[name]} == {}
    assert most == 1 and jvm.count() == 0
    assert list(place.iterdir()) == []
    assert mentioning(f"{chromium.PREFIX}{os.getpid()}-") == []
    assert not files_of_java() - files
