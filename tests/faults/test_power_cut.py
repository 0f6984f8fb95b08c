"""A power cut at any operation, with the writes before it lost or in any order: a checkpoint is whole or not there."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.faults.power_cut import Disk, followed

from quintain.errors import StoreError
from quintain.store.checkpoints import Checkpoints
from quintain.store.run import Run

STATES, FEWER = 30, 6
"""Orders drawn for each operation, besides the two in which nothing and all is written; long tests draw fewer."""
AGAIN = 6
"""States after a cut that are tidied up, and cut in that."""


def weights(step: int) -> Callable[[Path], None]:
    """Write files of `step`, some of them in folders of folders."""

    def write(folder: Path) -> None:
        for name in ("a", "model/b", "model/deep/er/c"):
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(f"{name} {step} ".encode() * 20)

    return write


def checkpoints(folder: Path) -> Checkpoints:
    return Checkpoints(folder, lambda kind, message: None)


def found(folder: Path) -> int:
    """Return the step that would be taken up in `folder`; what it holds must be what was written for it."""
    latest = checkpoints(folder).latest()
    assert latest is not None
    wanted = folder / "wanted"
    wanted.mkdir()
    weights(latest.step)(wanted)
    for file in wanted.rglob("*"):
        assert (
            not file.is_file() or (latest.folder / file.relative_to(wanted)).read_bytes() == file.read_bytes()
        )
    return latest.step


def cuts(
    root: Path, act: Callable[[Path], None], steps: set[int], place: Path, *, then: int, count: int = STATES
) -> dict[str, int]:
    """Do `act` below `root` and look at what a cut may leave: at each operation one of `steps`, at the end `then`."""
    rng, counts = random.Random(0), {"cuts": 0, "states": 0}
    seen: set[int] = set()

    def looked(disk: Disk, allowed: set[int]) -> None:
        counts["cuts"] += 1
        for write in disk.states(rng, count):
            counts["states"] += 1
            write(place)
            checkpoints(place).recover()
            step = found(place)
            assert step in allowed, f"cut {counts['cuts']}"
            seen.add(step)
            shutil.rmtree(place)

    with followed(root) as disk:
        disk.on_cut = lambda: looked(disk, steps)
        act(root)
        disk.on_cut = lambda: None
        disk.strike("end", root)
        looked(disk, {then})
    assert seen == steps
    return counts


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """Skip the syncs themselves, which are slow; that they are asked for is what counts here."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)  # pyright: ignore[reportUnknownLambdaType]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    for step in (0, 1):
        checkpoints(tmp_path / "saved").write(step, weights(step))
    return tmp_path / "saved"


def test_a_new_checkpoint_is_whole_or_not_there(saved: Path, tmp_path: Path) -> None:
    counts = cuts(
        saved, lambda root: void(checkpoints(root).write(2, weights(2))), {1, 2}, tmp_path / "cut", then=2
    )
    print(f"a new checkpoint: {counts}")
    assert counts["cuts"] > 15


def test_a_checkpoint_that_is_written_again_is_there_or_the_one_before(saved: Path, tmp_path: Path) -> None:
    counts = cuts(
        saved, lambda root: void(checkpoints(root).write(1, weights(1))), {0, 1}, tmp_path / "cut", then=1
    )
    print(f"the same checkpoint once more: {counts}")


def test_tidying_up_after_a_cut_may_be_cut_as_well(saved: Path, tmp_path: Path) -> None:
    """States after a cut are tidied up, and cut again in that."""
    rng, left = random.Random(1), list[Path]()

    def keep(disk: Disk) -> None:
        for number, write in enumerate(disk.states(rng, 1)):
            left.append(tmp_path / f"left{disk.num_cuts}-{number}")
            write(left[-1])

    with followed(saved) as disk:
        disk.on_cut = lambda: keep(disk)
        checkpoints(saved).write(2, weights(2))
    total = 0
    for folder in rng.sample(left, AGAIN):
        first = checkpoints(folder).latest()
        assert first is not None

        def tidy(root: Path) -> None:
            checkpoints(root).recover()
            checkpoints(root).write(3, weights(3))

        total += cuts(folder, tidy, {first.step, 3}, tmp_path / "cut", then=3, count=FEWER)["states"]
    print(f"tidying up: {AGAIN} states, cut again in {total} ways")


def test_a_new_run_is_whole_or_not_there(tmp_path: Path) -> None:
    rng, place = random.Random(0), tmp_path / "cut"
    root = tmp_path / "root"
    root.mkdir()
    counts = {"whole": 0, "nothing": 0}

    def looked(disk: Disk) -> None:
        for write in disk.states(rng, STATES):
            write(place)
            if (place / "run").exists():
                counts["whole"] += 1
                with Run.open(place / "run", writable=False) as run:
                    assert (run.recipe, run.config) == ("r", {"a": 1})
            else:
                counts["nothing"] += 1
            shutil.rmtree(place)

    with followed(root) as disk:
        disk.on_cut = lambda: looked(disk)
        Run.create(root / "run", recipe="r", config={"a": 1}).close()
    print(f"a new run: {counts}")
    assert min(counts.values()) > 0


def test_a_writer_that_does_not_sync_is_found(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suite can fail: without the syncs of files, a checkpoint is taken for whole or lost."""

    def silent(path: Path) -> None: ...

    monkeypatch.setattr("quintain.store.files.sync_file", silent)
    with pytest.raises((AssertionError, StoreError)):
        cuts(
            saved,
            lambda root: void(checkpoints(root).write(2, weights(2))),
            {1, 2},
            tmp_path / "cut",
            then=2,
        )


def void(_: object) -> None:
    """Forget a result."""
