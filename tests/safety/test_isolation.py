import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from quintain.errors import SandboxError
from quintain.safety import isolation
from quintain.safety.limits import Limits
from quintain.safety.sandbox import run


@pytest.fixture(autouse=True)
def untried() -> Iterator[None]:
    """Try isolation anew before and after each of these tests."""
    isolation.find_fault.cache_clear()
    isolation.find_interpreter.cache_clear()
    yield
    isolation.find_fault.cache_clear()
    isolation.find_interpreter.cache_clear()


def program(folder: Path, name: str, text: str) -> None:
    place = folder / name
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(place.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def test_without_bubblewrap_nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(isolation, "SEARCHED", str(tmp_path))
    with pytest.raises(SandboxError, match=r"needs bwrap: it is not installed; .*apt-get install bubblewrap"):
        run(["/bin/true"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo No permissions to create new namespace >&2; exit 1", "No permissions to create new namespace"),
        ("echo isolated-not", "got exit code 0"),
        (
            "for name in net pid ipc uts user mnt; do readlink /proc/self/ns/$name; done",
            "shared: net, pid, ipc",
        ),
        ('while [ "$1" != /bin/sh ]; do shift; done; exec "$@"', "got exit code 1"),
    ],
)
def test_bubblewrap_that_does_not_isolate_is_no_sandbox(
    text: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    program(tmp_path, "bwrap", text)
    monkeypatch.setattr(isolation, "SEARCHED", f"{tmp_path}:/usr/sbin:/usr/bin")
    monkeypatch.setattr(isolation, "_without_root", list[str])
    with pytest.raises(SandboxError, match="does not isolate") as caught:
        run(["/bin/true"])
    assert said in str(caught.value) and "user namespaces" in str(caught.value)


def test_it_is_tried_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(isolation, "SEARCHED", str(tmp_path))
    first = isolation.find_fault()
    monkeypatch.undo()
    assert isolation.find_fault() == first != ""


def test_other_systems_have_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation.sys, "platform", "darwin")
    with pytest.raises(SandboxError, match="got the system darwin; use Linux"):
        isolation.require()


def test_root_gives_up_its_user_id_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "find_program", lambda name: f"/usr/bin/{name}")  # pyright: ignore[reportUnknownArgumentType]
    monkeypatch.setattr(isolation.os, "geteuid", lambda: 0)
    first, second = (isolation.isolate(["true"], Limits()) for _ in range(2))
    assert first[0] == "/usr/bin/setpriv" and first.index("/usr/bin/bwrap") == first.index("--") + 1
    uids = {line[line.index("--reuid") + 1] for line in (first, second)}
    assert len(uids) == 2 and all(int(uid) >= isolation.FIRST_UID for uid in uids)
    monkeypatch.setattr(isolation.os, "geteuid", lambda: 1000)
    assert isolation.isolate(["true"], Limits())[0] == "/usr/bin/bwrap"


def test_the_python_in_the_box(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(isolation.sys, "base_prefix", str(tmp_path))
    monkeypatch.setattr(isolation.os, "geteuid", lambda: 0)
    monkeypatch.setattr(isolation.shutil, "which", lambda _name, path: "/usr/bin/python3")  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    assert isolation.find_interpreter() == ("/usr/bin/python3", ())
    isolation.find_interpreter.cache_clear()
    monkeypatch.setattr(isolation.shutil, "which", lambda _name, path: None)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    with pytest.raises(SandboxError, match="which only its owner may read"):
        isolation.find_interpreter()
    monkeypatch.setattr(isolation.os, "geteuid", lambda: 1000)
    path, mounts = isolation.find_interpreter()
    assert path.startswith(f"{tmp_path}/bin/python3") and mounts == (
        "--ro-bind",
        str(tmp_path),
        str(tmp_path),
    )
