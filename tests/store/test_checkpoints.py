import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from quintain.errors import DataError, StoreError, UsageError
from quintain.store import faults
from quintain.store.checkpoints import Checkpoints, damage

Write = Callable[[Path], None]


def weights(step: int) -> Write:
    """Two files, one of them in a folder, that both tell the step."""

    def write(folder: Path) -> None:
        (folder / "model").mkdir()
        (folder / "model" / "weights.safetensors").write_bytes(bytes([step]) * 600)
        (folder / "trainer.json").write_text(json.dumps({"step": step}))

    return write


def step_in(folder: Path) -> int:
    step = json.loads((folder / "trainer.json").read_text())["step"]
    assert (folder / "model" / "weights.safetensors").read_bytes() == bytes([step]) * 600
    return step


class Saved(Checkpoints):
    """Checkpoints that remember what was reported of them."""

    def __init__(self, folder: Path) -> None:
        self.heard: list[str] = []
        super().__init__(folder, lambda kind, message: self.heard.append(f"{kind}: {message}"))

    @property
    def steps(self) -> list[int]:
        return [checkpoint.step for checkpoint in self.all()]


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    return Saved(tmp_path / "checkpoints")


def test_a_checkpoint_comes_back(saved: Saved) -> None:
    assert saved.latest() is None and saved.all() == []
    checkpoint = saved.write(100, weights(100), journal={"trajectories": 7})
    assert checkpoint.folder.name == "step-000100"
    assert saved.latest() == checkpoint
    assert step_in(checkpoint.folder) == 100
    manifest = json.loads((checkpoint.folder / "manifest.json").read_text())["manifest"]
    assert manifest["schema"] == 1 and manifest["step"] == 100 and manifest["journal"] == {"trajectories": 7}
    assert manifest["files"]["trainer.json"]["size"] == len('{"step": 100}')
    assert sorted(manifest["files"]) == ["model/weights.safetensors", "trainer.json"]


def test_two_are_kept_and_those_that_are_protected(saved: Saved) -> None:
    for step in range(5):
        saved.write(step, weights(step), protect={1})
    assert saved.steps == [4, 3, 1]
    for step in range(5, 9):
        saved.write(step, weights(step), keep=3)
    assert saved.steps == [8, 7, 6]
    assert sorted(entry.name for entry in saved.folder.iterdir()) == [f"step-00000{n}" for n in (6, 7, 8)]


@pytest.mark.parametrize("keep", [1, 0, -1])
def test_fewer_than_two_are_refused(saved: Saved, keep: int) -> None:
    with pytest.raises(UsageError, match=rf"got {keep}; keep at least 2"):
        saved.write(0, weights(0), keep=keep)


def test_damaged_ones_do_not_count_as_kept(saved: Saved) -> None:
    for step in range(2):
        saved.write(step, weights(step))
    (saved.folder / "step-000001" / "trainer.json").write_text("{}")
    again = Saved(saved.folder)
    again.write(2, weights(2))
    assert again.steps == [2, 1, 0]
    again.write(3, weights(3))
    assert again.steps == [3, 2]


def test_the_same_step_can_be_saved_again(saved: Saved) -> None:
    saved.write(7, weights(1))
    saved.write(7, weights(2))
    assert step_in(saved.folder / "step-000007") == 2
    assert [entry.name for entry in saved.folder.iterdir()] == ["step-000007"]


def test_an_empty_checkpoint_is_refused(saved: Saved) -> None:
    with pytest.raises(DataError, match=r"checkpoint of step 3: got an empty folder"):
        saved.write(3, lambda folder: None)
    assert list(saved.folder.iterdir()) == []


def test_an_error_of_the_writer_is_its_own_and_leaves_nothing(saved: Saved) -> None:
    def write(folder: Path) -> None:
        (folder / "half").touch()
        raise RuntimeError("shape mismatch")

    saved.write(0, weights(0))
    with pytest.raises(RuntimeError, match=r"shape mismatch"):
        saved.write(1, write)
    with pytest.raises(KeyboardInterrupt):
        saved.write(1, interrupted)
    assert [entry.name for entry in saved.folder.iterdir()] == ["step-000000"]


def interrupted(folder: Path) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), RuntimeError("IoError: StorageFull")]
)
def test_a_full_disk_is_an_error_of_the_store(saved: Saved, error: Exception) -> None:
    def write(folder: Path) -> None:
        raise error

    saved.write(0, weights(0))
    with pytest.raises(StoreError, match=r"checkpoint of step 1 in .*/step-000001: .* bytes free; make room"):
        saved.write(1, write)
    assert [entry.name for entry in saved.folder.iterdir()] == ["step-000000"]


def test_links_are_no_files_of_a_checkpoint(saved: Saved, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (tmp_path / "inner").mkdir()
    for target in ("secret", "inner"):
        with pytest.raises(ValueError, match=r"link is no regular file"):
            saved.write(0, lambda folder, target=target: (folder / "link").symlink_to(tmp_path / target))
    saved.write(0, weights(0))
    (saved.folder / "step-000000" / "link").symlink_to(tmp_path)
    assert damage(saved.folder / "step-000000") == "its files do not fit its manifest: link"


@pytest.mark.parametrize("kind", ["ENOSPC", "EIO"])
def test_every_operation_may_fail_and_old_or_new_is_there(tmp_path: Path, kind: str) -> None:
    counted = Saved(tmp_path / "count")
    for step in range(2):
        counted.write(step, weights(step))
    with faults.inject("io:0:EIO") as count:
        counted.write(2, weights(2))
    assert len(count.calls) >= 14
    for number in range(1, len(count.calls) + 1):
        saved = Saved(tmp_path / f"{number}")
        for step in range(2):
            saved.write(step, weights(step))
        with (
            faults.inject(f"io:{number}:{kind}") as fault,
            pytest.raises(StoreError, match=r"bytes free") as caught,
        ):
            saved.write(2, weights(2))
        assert str(saved.folder) in str(caught.value), fault.calls[-1]
        assert [e.name for e in saved.folder.iterdir() if not e.name.startswith("step-")] == [], fault.calls[
            -1
        ]
        latest = Saved(saved.folder).latest()
        assert latest is not None and step_in(latest.folder) == latest.step in (1, 2), fault.calls[-1]
        assert len(saved.steps) >= 2 and all(damage(each.folder) is None for each in saved.all())
        saved.write(2, weights(2))
        assert saved.steps == [2, 1] and step_in(saved.folder / "step-000002") == 2


def test_saving_a_step_again_may_fail_anywhere_too(tmp_path: Path) -> None:
    counted = Saved(tmp_path / "count")
    counted.write(0, weights(0))
    with faults.inject("io:0:EIO") as count:
        counted.write(0, weights(1))
    for number in range(1, len(count.calls) + 1):
        saved = Saved(tmp_path / f"{number}")
        saved.write(0, weights(0))
        with faults.inject(f"io:{number}:EIO"), pytest.raises(StoreError):
            saved.write(0, weights(1))
        latest = Saved(saved.folder).latest()
        assert latest is not None and step_in(latest.folder) in (0, 1)
        assert [entry.name for entry in saved.folder.iterdir()] == ["step-000000"]


def test_recovery_after_a_kill(saved: Saved) -> None:
    saved.write(0, weights(0))
    saved.write(1, weights(1))
    (saved.folder / ".writing-step-000002").mkdir()
    (saved.folder / ".trash-step-000000").mkdir()
    (saved.folder / "step-000000").rename(saved.folder / ".old-step-000000")
    (saved.folder / ".old-step-000001").mkdir()
    (saved.folder / "notes").mkdir()
    saved.recover()
    assert sorted(entry.name for entry in saved.folder.iterdir()) == ["notes", "step-000000", "step-000001"]
    assert saved.steps == [1, 0]


def test_a_new_checkpoint_that_does_not_verify_is_reported(
    saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quintain.store.checkpoints.damage", lambda folder: "w is not what was written")
    with pytest.raises(
        StoreError, match=r"checking the new checkpoint .*step-000000: got w is not what was written"
    ):
        saved.write(0, weights(0))


def flip(content: bytes, place: int = 40) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "emptied": lambda file: file.write_bytes(b""),
    "flipped": lambda file: file.write_bytes(flip(file.read_bytes(), 5)),
    "removed": lambda file: file.unlink(),
    "zeroed": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
}


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", ["manifest.json", "trainer.json", "model/weights.safetensors"])
def test_a_damaged_checkpoint_is_found_and_the_one_before_is_used(saved: Saved, how: str, name: str) -> None:
    saved.write(0, weights(0))
    saved.write(1, weights(1))
    DAMAGES[how](saved.folder / "step-000001" / name)
    latest = saved.latest()
    assert latest is not None and latest.step == step_in(latest.folder) == 0
    assert len(saved.heard) == 1 and "step-000001 cannot be used: " in saved.heard[0]


def test_exchanged_or_added_files_and_renamed_folders_are_found(saved: Saved) -> None:
    saved.write(0, weights(0))
    saved.write(1, weights(1))
    first, second = (saved.folder / f"step-00000{n}" for n in range(2))
    good = (second / "trainer.json").read_bytes()
    (second / "trainer.json").write_bytes((first / "trainer.json").read_bytes())
    assert damage(second) == "trainer.json is not what was written"
    (second / "trainer.json").write_bytes(good)
    assert damage(second) is None
    (second / "pytorch_model.bin").touch()
    assert damage(second) == "its files do not fit its manifest: pytorch_model.bin"
    (second / "pytorch_model.bin").unlink()
    (second / "manifest.json").write_bytes((first / "manifest.json").read_bytes())
    assert damage(second) == "it is the checkpoint of step 0 under another name"


def test_a_newer_checkpoint_asks_for_an_upgrade(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.store.checkpoints.SCHEMA", 2)
    saved.write(0, weights(0))
    monkeypatch.undo()
    assert "newer release (schema 2); upgrade" in (damage(saved.folder / "step-000000") or "")


def test_flipped_bits_are_all_found(saved: Saved) -> None:
    folder = saved.write(0, weights(0)).folder
    rng = random.Random(0)
    files = [folder / name for name in ("manifest.json", "trainer.json", "model/weights.safetensors")]
    for _ in range(200):
        file = rng.choice(files)
        good = file.read_bytes()
        content = bytearray(good)
        content[rng.randrange(len(good))] ^= 1 << rng.randrange(8)
        file.write_bytes(content)
        assert damage(folder) is not None
        file.write_bytes(good)
    assert damage(folder) is None


def test_without_an_intact_one_nothing_starts_silently_anew(saved: Saved) -> None:
    for step in range(2):
        saved.write(step, weights(step))
        (saved.folder / f"step-00000{step}" / "trainer.json").unlink()
    with pytest.raises(
        StoreError, match=r"got 2 and none is intact; restore one from a copy, or delete them all"
    ):
        saved.latest()
    assert len(saved.heard) == 2


def test_damaged_ones_are_set_aside_for_good(saved: Saved) -> None:
    for round_ in range(2):
        for step in range(2):
            saved.write(step, weights(step))
        (saved.folder / "step-000001" / "trainer.json").write_text(f"{round_}")
        saved.set_aside(newer_than=0)
        assert sorted(entry.name for entry in saved.folder.iterdir()) == [
            "damaged-step-000001",
            "step-000000",
        ]
        assert (saved.folder / "damaged-step-000001" / "trainer.json").read_text() == f"{round_}"
