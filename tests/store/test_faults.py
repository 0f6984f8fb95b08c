import errno
import subprocess
import sys
from pathlib import Path

import pytest

from quintain.errors import UsageError
from quintain.store import faults


@pytest.mark.parametrize("spec", ["", "io", "io:1", "io:x:EIO", "io:-1:EIO", "io:1:EPERM", "net:1:EIO"])
def test_a_fault_that_cannot_be_read_is_refused(spec: str) -> None:
    with pytest.raises(UsageError, match="write io:N:KIND"):
        faults.Fault(spec)


@pytest.mark.parametrize("kind", ["ENOSPC", "EIO", "EMFILE"])
def test_the_chosen_operation_fails_and_no_other(kind: str, tmp_path: Path) -> None:
    with faults.inject(f"io:2:{kind}") as fault:
        faults.point("first", tmp_path / "a")
        with pytest.raises(OSError) as caught:
            faults.point("second", tmp_path / "b")
        faults.point("third", tmp_path / "c")
    faults.point("after", tmp_path / "d")
    assert caught.value.errno == getattr(errno, kind)
    assert caught.value.filename == str(tmp_path / "b")
    assert fault.calls == ["first a", "second b", "third c"]


@pytest.mark.parametrize(("kind", "status"), [("exit", 137), ("kill", -9)])
def test_the_environment_variable_kills_a_process(kind: str, status: int) -> None:
    program = (
        "from pathlib import Path; from quintain.store import faults; faults.point('x', Path('y')); print(1)"
    )
    source = str(Path(faults.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"QUINTAIN_FAULT": f"io:1:{kind}", "PYTHONPATH": source},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status
    assert done.stdout == b""


def test_death_in_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    died: list[object] = []
    monkeypatch.setattr("os._exit", lambda status: died.append(status))  # type: ignore[misc]
    monkeypatch.setattr("os.kill", lambda process, number: died.append(number))  # type: ignore[misc]
    for kind in ("exit", "kill"):
        with faults.inject(f"io:1:{kind}"):
            try:
                faults.point("x", tmp_path)
            except KeyError:
                died.append("went on")  # only because death was replaced
    assert died == [137, "went on", 9, "went on"]
