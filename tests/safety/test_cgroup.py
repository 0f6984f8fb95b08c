"""A group of the kernel for each box, where one can be made: on this machine, and on folders that stand for others."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quintain.safety import box, cgroup
from quintain.safety.cgroup import Cgroup, find_parent
from quintain.safety.isolation import find_fault, find_interpreter
from quintain.safety.limits import Limits
from quintain.safety.python import PythonProcess
from quintain.safety.sandbox import run

SMALL = Limits(seconds=90.0, memory_bytes=96 << 20)
NEW_FILES = {"memory.max": "max", "memory.swap.max": "max", "cgroup.procs": ""}
OLD_FILES = {
    "memory.limit_in_bytes": "9",
    "memory.memsw.limit_in_bytes": "9",
    "memory.oom_control": "under_oom 0\noom_kill 0\n",
    "cgroup.procs": "",
}
TREE = (
    "import os, time\n"
    "for _ in range(8):\n"
    "    if not os.fork():\n"
    "        held = bytearray(60 << 20); time.sleep(5); os._exit(0)\n"
    "for _ in range(8): os.wait()\n"
)


@pytest.fixture
def kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, dict[str, str]], Path]]:
    """A function that lets folders stand for groups: what this process is in, and the files of a new group."""
    mkdir = Path.mkdir
    files: dict[str, str] = {}

    def make(self: Path, *arguments: object, **named: object) -> None:
        mkdir(self, *arguments, **named)  # type: ignore[arg-type] # pyright: ignore
        if self.name.startswith(cgroup.PREFIX):
            for name, content in files.items():
                (self / name).write_text(content)

    def stand(own: str, more: dict[str, str]) -> Path:
        (tmp_path / "own").write_text(own)
        files.update(more)
        return tmp_path

    monkeypatch.setattr(cgroup, "ROOT", tmp_path)
    monkeypatch.setattr(cgroup, "OWN", tmp_path / "own")
    monkeypatch.setattr(Path, "mkdir", make)
    monkeypatch.setattr(Path, "rmdir", shutil.rmtree)
    monkeypatch.setattr(cgroup, "PATIENCE", 0.0)
    find_parent.cache_clear()
    yield stand
    find_parent.cache_clear()


def offer(folder: Path, children: str = "cpu memory") -> Path:
    """Let `folder` be a group whose children have these limits, and that a process may be put into."""
    os.makedirs(folder, exist_ok=True)
    (folder / "cgroup.subtree_control").write_text(children)
    (folder / "cgroup.procs").write_text("")
    return folder


def test_the_second_version_takes_the_first_folder_upwards_that_has_limits(
    kernel: Callable[[str, dict[str, str]], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = kernel("0::/user.slice/app.slice/a.scope\n", NEW_FILES)
    (root / "cgroup.controllers").write_text("cpu memory")
    offer(root / "user.slice" / "app.slice" / "a.scope", "")
    slices = offer(root / "user.slice" / "app.slice")
    monkeypatch.setattr(cgroup, "PATIENCE", 1.0)
    group = Cgroup.make(100 << 20)
    assert group is not None and group.folder.parent == slices
    assert (group.folder / "memory.max").read_text() == str(100 << 20)
    assert (group.folder / "memory.swap.max").read_text() == "0"
    assert group.num_kills == 0
    (group.folder / "memory.events").write_text("oom 3\noom_kill 2\noom_group_kill 1\n")
    assert group.num_kills == 2
    done = subprocess.run(group.enter(["echo", "a b"]), capture_output=True, text=True, timeout=60)
    assert done.stdout == "a b\n" and (group.folder / "cgroup.procs").read_text() == "0\n"
    group.remove()
    assert not group.folder.exists() and group.num_kills == 0
    group.remove()


def test_the_first_version_takes_the_own_folder(kernel: Callable[[str, dict[str, str]], Path]) -> None:
    root = kernel("4:cpu,memory:/docker/a\n0::/\n", OLD_FILES)
    place = offer(root / "memory")  # a container sees its own group as the root
    left = place / f"{cgroup.PREFIX}-99999999-0"
    left.mkdir()
    group = Cgroup.make(100 << 20)
    assert group is not None and group.folder.parent == place and not left.exists()
    assert (group.folder / "memory.memsw.limit_in_bytes").read_text() == str(100 << 20)
    assert group.num_kills == 0


@pytest.mark.parametrize("own", ["", "0::/a\n", "3:memory:/a\n"])
def test_where_none_can_be_made_there_is_none(
    own: str, kernel: Callable[[str, dict[str, str]], Path]
) -> None:
    root = kernel(own, NEW_FILES)
    if own.startswith("0"):
        (root / "cgroup.controllers").write_text("cpu memory")
        offer(root / "a", "cpu")
    else:
        (root / "own").unlink() if not own else None
    assert find_parent() is None and Cgroup.make(1 << 20) is None


def test_a_group_that_the_kernel_refuses_is_none(
    kernel: Callable[[str, dict[str, str]], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = kernel("3:memory:/\n", OLD_FILES)
    offer(root / "memory")
    assert find_parent() is not None

    def refuse(*_: object) -> None:
        raise PermissionError("no")

    monkeypatch.setattr(Cgroup, "limit", refuse)
    assert Cgroup.make(1 << 20) is None


def real() -> bool:
    """Whether boxes, and groups of the kernel, can be had here."""
    return not find_fault() and find_parent() is not None


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at what a box holds."""
    if not real():
        pytest.skip("no group with a limit of memory can be made here")
    monkeypatch.setattr(box, "used_up", lambda *_: "")


@pytest.mark.slow
@pytest.mark.usefixtures("unwatched")
def test_the_kernel_holds_a_box_that_nobody_looks_at() -> None:
    before = groups()
    found = run([find_interpreter()[0], "-I", "-S", "-c", TREE], limits=SMALL)
    assert found.reason == "memory" and found.was_killed
    assert groups() == before, "its group is gone, too"


@pytest.mark.slow
@pytest.mark.usefixtures("unwatched")
def test_the_kernel_holds_an_episode_that_nobody_looks_at() -> None:
    with PythonProcess(SMALL) as python:
        assert python.run(TREE).reason == "memory"
        assert python.run("print(1)").output == "1\n"


def groups() -> set[str]:
    """Return the groups of this process that there are."""
    parent = find_parent()
    assert parent is not None
    return {place.name for place in parent.glob(f"{cgroup.PREFIX}-{os.getpid()}-*")}
