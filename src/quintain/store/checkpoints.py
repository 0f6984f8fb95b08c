"""Checkpoints: folders that exist whole or not at all.

A checkpoint is written under a temporary name; its files, its manifest (sizes and SHA-256) and the folder are synced,
then it is renamed. Only a folder whose manifest fits to the last byte is loaded, older ones are deleted after a newer
one was verified, and at least two stay.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from quintain.errors import DataError, StoreError, UsageError
from quintain.store import faults, files
from quintain.types.json_text import load_json

MANIFEST = "manifest.json"
SCHEMA = 1
_NAME = re.compile(r"step-(\d{6,})")
_WRITING, _TRASH, _OLD, _DAMAGED = ".writing-", ".trash-", ".old-", "damaged-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint on the disk: ``Checkpoint(step=100, folder=Path("…/checkpoints/step-000100"))``."""

    step: int
    """the last step whose learning it contains"""
    folder: Path


class Checkpoints:
    """The checkpoints of a run, in `folder`; `report` hears of every damaged one."""

    def __init__(self, folder: Path, report: Callable[[str, str], None]) -> None:
        """Look after `folder`, which need not exist yet."""
        self.folder = folder
        self._report = report
        self._verified: set[int] = set()

    def write(
        self, step: int, write: Callable[[Path], None], *, journal: Any = None, keep: int = 2,
        protect: Collection[int] = (),
    ) -> Checkpoint:  # fmt: skip
        """Let `write` fill a new folder and make it the checkpoint of `step`, then delete older ones.

        Raises `StoreError` naming path and free bytes when the disk fails; the old checkpoints stay as they
        were.
        """
        if keep < 2:
            raise UsageError(
                f"checkpoints to keep: got {keep}; keep at least 2, one may turn out to be damaged"
            )
        target = self.folder / f"step-{step:06d}"
        try:
            self._build(step, target, write, journal)
            self._verify_new(step, target)
            self._prune(step, keep, protect)
        except BaseException as error:
            with contextlib.suppress(OSError):
                self.recover()
            if (
                not isinstance(error, StoreError)
                and isinstance(error, Exception)
                and files.is_disk_trouble(error)
            ):
                raise files.disk_error(f"writing the checkpoint of step {step}", target, error) from error
            raise
        return Checkpoint(step=step, folder=target)

    def latest(self) -> Checkpoint | None:
        """Return the newest checkpoint that verifies, or None for a run without any.

        Raises `StoreError` when there are checkpoints and none of them can be used.
        """
        found = self.all()
        for checkpoint in found:
            reason = damage(checkpoint.folder)
            if reason is None:
                self._verified.add(checkpoint.step)
                return checkpoint
            self._verified.discard(checkpoint.step)
            self._report("damaged checkpoint", f"{checkpoint.folder} cannot be used: {reason}")
        if not found:
            return None
        raise StoreError(
            f"loading a checkpoint from {self.folder}: got {len(found)} and none is intact; "
            "restore one from a copy, or delete them all to start again from nothing"
        )

    def all(self) -> list[Checkpoint]:
        """Return the checkpoints by name, newest first, whether they are intact or not."""
        matches = [(_NAME.fullmatch(entry.name), entry) for entry in _entries(self.folder)]
        found = [Checkpoint(step=int(match[1]), folder=entry) for match, entry in matches if match]
        return sorted(found, key=lambda checkpoint: -checkpoint.step)

    def recover(self) -> None:
        """Finish or undo what a killed process left under temporary names."""
        for entry in _entries(self.folder):
            if entry.name.startswith(_OLD):
                target = self.folder / entry.name.removeprefix(_OLD)
                if not target.exists():
                    files.rename(entry, target)
                    continue
            if entry.name.startswith((_WRITING, _TRASH, _OLD)):
                files.remove_folder(entry)

    def set_aside(self, newer_than: int) -> None:
        """Rename the checkpoints after step `newer_than`: they are damaged and never to be taken up again."""
        for checkpoint in self.all():
            if checkpoint.step > newer_than:
                aside = self.folder / f"{_DAMAGED}{checkpoint.folder.name}"
                if aside.exists():
                    files.remove_folder(aside)
                files.rename(checkpoint.folder, aside)

    def _build(self, step: int, target: Path, write: Callable[[Path], None], journal: Any) -> None:
        temporary = self.folder / f"{_WRITING}{target.name}"
        self.recover()
        faults.point("mkdir", temporary)
        temporary.mkdir(parents=True)
        faults.point("fill", temporary)
        write(temporary)
        contents = {name: _describe(temporary / name, is_synced=True) for name in _names(temporary)}
        if not contents:
            raise DataError(
                f"checkpoint of step {step}: got an empty folder; write at least one file into it"
            )
        for parent in sorted(entry for entry in temporary.rglob("*") if entry.is_dir()):
            files.sync_folder(parent)
        manifest = {"schema": SCHEMA, "step": step, "journal": journal, "files": contents}
        files.write_file(temporary / MANIFEST, _seal_manifest(manifest))
        files.sync_folder(temporary)
        if target.exists():
            files.rename(target, self.folder / f"{_OLD}{target.name}")
        files.rename(temporary, target)
        self.recover()

    def _verify_new(self, step: int, target: Path) -> None:
        faults.point("verify", target)
        reason = damage(target)
        if reason is not None:
            raise StoreError(
                f"checking the new checkpoint {target}: got {reason}; check the disk, then resume"
            )
        self._verified.add(step)

    def _prune(self, newest: int, keep: int, protect: Collection[int]) -> None:
        """Delete what is older than the `keep` newest intact checkpoints."""
        num_intact = 0
        for checkpoint in self.all():
            if checkpoint.step > newest or num_intact < keep:
                num_intact += self._is_intact(checkpoint)
            elif checkpoint.step not in protect:
                trash = self.folder / f"{_TRASH}{checkpoint.folder.name}"
                files.rename(checkpoint.folder, trash)
                files.remove_folder(trash)
                self._verified.discard(checkpoint.step)

    def _is_intact(self, checkpoint: Checkpoint) -> bool:
        """Whether `checkpoint` was seen intact by this process, or is so now."""
        if checkpoint.step not in self._verified and damage(checkpoint.folder) is None:
            self._verified.add(checkpoint.step)
        return checkpoint.step in self._verified


def journal_offset(folder: Path) -> dict[str, int]:
    """Return where the journal ended when the intact checkpoint in `folder` was made: table to last row."""
    return _open_manifest((folder / MANIFEST).read_bytes())["journal"] or {}


def damage(folder: Path) -> str | None:
    """Return why the checkpoint in `folder` cannot be used, or None if it is intact."""
    try:
        content = (folder / MANIFEST).read_bytes()
        manifest = _open_manifest(content)
        if manifest["schema"] > SCHEMA:
            return f"it was written by a newer release (schema {manifest['schema']}); upgrade quintain"
        if folder.name != f"step-{manifest['step']:06d}":
            return f"it is the checkpoint of step {manifest['step']} under another name"
        expected = cast(dict[str, Any], manifest["files"])
        if sorted(expected) != (names := _names(folder)):
            return f"its files do not fit its manifest: {', '.join(sorted(set(expected) ^ set(names)))}"
        for name, description in expected.items():
            if _describe(folder / name) != description:
                return f"{name} is not what was written"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"it cannot be read ({error})"
    return None


def _seal_manifest(manifest: dict[str, Any]) -> bytes:
    """Return the manifest file: JSON with a checksum of itself, so that a flipped bit in it shows too."""
    digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    return json.dumps({"manifest": manifest, "sha256": digest}, indent=1, sort_keys=True).encode()


def _open_manifest(content: bytes) -> dict[str, Any]:
    manifest = cast(dict[str, Any], load_json(content)["manifest"])
    if _seal_manifest(manifest) != content:
        raise ValueError("the manifest was changed")
    return manifest


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _names(folder: Path) -> list[str]:
    """Return the relative names of everything in `folder` that is no folder, without the manifest."""
    found = (
        (Path(parent) / name).relative_to(folder).as_posix()
        for parent, folders, plain in os.walk(folder)
        for name in [*plain, *(inner for inner in folders if (Path(parent) / inner).is_symlink())]
    )
    return sorted(name for name in found if name != MANIFEST)


def _describe(file: Path, *, is_synced: bool = False) -> dict[str, Any]:
    """Return size and SHA-256 of `file`, after syncing it where asked."""
    if file.is_symlink() or not file.is_file():
        raise ValueError(f"{file.name} is no regular file")
    if is_synced:
        files.sync_file(file)
    return {"size": file.stat().st_size, "sha256": files.digest_of(file)}
