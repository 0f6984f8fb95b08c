"""Checkpoints of a real learner: every byte that is not what was written is found, every error of the disk is borne."""

import json
import os
import random
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.learning.test_learner import nll, qwen, streams

from quintain.data.pack import pack
from quintain.errors import StoreError
from quintain.learning.learner import Learner, Optimization
from quintain.store import faults
from quintain.store.checkpoints import Checkpoints, damage

NUM_FLIPS = 1000


@pytest.fixture(scope="module")
def learner() -> Learner:
    learner = Learner(qwen(), Optimization(learning_rate=1e-2))
    learner.step([pack(streams(1))], nll)
    return learner


def saved(folder: Path, learner: Learner) -> Checkpoints:
    checkpoints = Checkpoints(folder, lambda kind, message: None)
    for step in range(2):
        checkpoints.write(step, learner.save)
    return checkpoints


def files_of(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


def test_a_thousand_flipped_bits_are_all_found(tmp_path: Path, learner: Learner) -> None:
    saved(tmp_path, learner)
    folder = tmp_path / "step-000001"
    rng = random.Random(0)
    undetected = 0
    for _ in range(NUM_FLIPS):
        file = rng.choice(files_of(folder))
        good = file.read_bytes()
        bad = bytearray(good)
        bad[rng.randrange(len(good))] ^= 1 << rng.randrange(8)
        file.write_bytes(bad)
        undetected += damage(folder) is None
        file.write_bytes(good)
    assert undetected == 0
    assert damage(folder) is None


SPOILS: dict[str, Callable[[Path, Path], object]] = {
    "truncated": lambda file, other: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "emptied": lambda file, other: file.write_bytes(b""),
    "removed": lambda file, other: file.unlink(),
    "zeroed": lambda file, other: file.write_bytes(bytes(file.stat().st_size)),
    "swapped": lambda file, other: shutil.copy(other, file),
}


@pytest.mark.parametrize("how", SPOILS)
def test_each_file_spoiled_makes_the_one_before_load(tmp_path: Path, learner: Learner, how: str) -> None:
    checkpoints = saved(tmp_path, learner)
    folder = tmp_path / "step-000001"
    names = files_of(folder)
    assert len(names) == 4
    for file, other in zip(names, [*names[1:], names[0]], strict=True):
        good = file.read_bytes()
        SPOILS[how](file, other)
        latest = Checkpoints(tmp_path, lambda kind, message: None).latest()
        assert latest is not None and latest.step == 0, file.name
        Learner(qwen()).load(latest.folder)
        file.write_bytes(good)
    found = checkpoints.latest()
    assert found is not None and found.step == 1


@pytest.mark.parametrize("kind", ["ENOSPC", "EIO", "EMFILE"])
def test_every_operation_of_a_checkpoint_may_fail(tmp_path: Path, learner: Learner, kind: str) -> None:
    with faults.inject("io:0:EIO") as count:
        saved(tmp_path / "count", learner).write(2, learner.save)
    for number in range(1, len(count.calls) // 3 + 10):
        checkpoints = saved(tmp_path / f"{number}", learner)
        with faults.inject(f"io:{number}:{kind}") as fault:
            try:
                checkpoints.write(2, learner.save)
                assert len(fault.calls) < number
            except StoreError as error:
                assert ("too many open files" if kind == "EMFILE" else "bytes free") in str(error)
        latest = Checkpoints(checkpoints.folder, lambda kind, message: None).latest()
        assert latest is not None and latest.step in (1, 2)
        Learner(qwen()).load(latest.folder)
        shutil.rmtree(checkpoints.folder)


def test_short_writes_of_the_kernel_never_make_a_checkpoint(tmp_path: Path, learner: Learner) -> None:
    """A limit on the size of files makes the kernel write less than it was asked to, and then fail."""
    folder = saved(tmp_path / "whole", learner).folder / "step-000001"
    sizes = sorted({file.stat().st_size for file in files_of(folder)})
    limits = sorted({max(1, size * part // 8) for size in sizes for part in (1, 3, 5, 7)})
    for limit in limits:
        checkpoints = saved(tmp_path / f"{limit}", learner)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            sys.dont_write_bytecode = True  # it would be cut short, too
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            try:
                checkpoints.write(2, learner.save)
            except StoreError:
                os._exit(6)
            except BaseException:
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 6, limit
        assert [entry.name for entry in sorted(checkpoints.folder.iterdir())] == [
            "step-000000",
            "step-000001",
        ]
        latest = Checkpoints(checkpoints.folder, lambda kind, message: None).latest()
        assert latest is not None and latest.step == 1


def test_numbers_of_the_learner_are_json(tmp_path: Path, learner: Learner) -> None:
    folder = saved(tmp_path, learner).folder / "step-000001"
    assert json.loads((folder / "learner.json").read_text())["version"] == 1
