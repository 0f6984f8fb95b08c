"""How a run folder comes into being: built under a temporary name and renamed, so it is whole or not there.

Nothing is deleted that is not a run, and an existing run goes only after its replacement is ready.
"""

import hashlib
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, cast

from quintain.errors import ConfigError, QuintainError, StoreError, UsageError
from quintain.store import faults, files
from quintain.store.journal import create_journal
from quintain.store.lock import WriterLock, is_locked
from quintain.store.manifest import check_plain
from quintain.store.marks import mark_run
from quintain.store.names import check_name
from quintain.types.json_text import load_json
from quintain.types.rows import plain
from quintain.types.terminal import write_command

CONFIG, JOURNAL, METRICS = "config.json", "run.db", "metrics.jsonl"
CHECKPOINTS = "checkpoints"
MARK, HASHES = "mark", "files"
"""Facts in the journal of a run: who made it, and what its files are."""
_SCHEMA = 1


def create_folder(folder: Path, *, recipe: str, config: Mapping[str, Any], replace: bool) -> WriterLock:
    """Make the run folder `folder` and return the lock of its writer."""
    check_name(folder.name)
    settings = _settings(folder.name, recipe, config)
    check_free(folder, replace=replace)
    temporary = folder.with_name(f".{folder.name}.creating-{os.getpid()}")
    lock: WriterLock | None = None
    try:
        faults.point("mkdir", temporary)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _clean(folder)
        temporary.mkdir(mode=files.CLOSED)
        lock = WriterLock(temporary)
        _fill(temporary, settings, recipe, folder.name)
        _put_in_place(temporary, folder)
    except BaseException as error:
        if lock is not None:
            lock.release()
        shutil.rmtree(temporary, ignore_errors=True)
        cause = error.__cause__ if isinstance(error, StoreError) else error
        if isinstance(cause, (OSError, sqlite3.Error)) and not isinstance(cause, QuintainError):
            again = "start it again: nothing was left behind"
            raise files.disk_error("creating a run", folder, cause, then=again) from error
        raise
    return lock


def read_settings(folder: Path) -> dict[str, Any]:
    """Return what ``config.json`` of the run `folder` holds: recipe, config, creation time.

    Raises `UsageError` for a folder that is no run, `StoreError` for a broken file, and for a link in it.
    """
    if not folder.is_dir():
        raise UsageError(f"opening a run: got {folder}, which is no folder; {_runs_beside(folder)}")
    if not is_run(folder):
        raise UsageError(f"opening a run: got {folder}, which holds no run; {_runs_beside(folder)}")
    check_plain(folder)
    file = folder / CONFIG
    try:
        settings = cast(dict[str, Any], load_json(file.read_bytes()))
        if settings["schema"] > _SCHEMA:
            raise StoreError(f"opening {file}: got schema {settings['schema']}; upgrade quintain")
        return {
            "recipe": str(settings["recipe"]),
            "config": dict(settings["config"]),
            "created": settings["created"],
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"opening {file}: got a broken file ({error}); restore it from a copy") from error


def is_run(folder: Path) -> bool:
    """Whether `folder` is that of a run."""
    return (folder / CONFIG).is_file() and (folder / JOURNAL).is_file()


def _runs_beside(folder: Path) -> str:
    names = sorted(entry.parent.name for entry in folder.parent.glob(f"*/{JOURNAL}"))
    return (
        f"the runs in {folder.parent} are {', '.join(names[:20])}"
        if names
        else "start one with `quintain train`"
    )


def check_free(folder: Path, *, replace: bool) -> None:
    """Raise a `UsageError` if there is something in the way of a new run `folder`."""
    if folder.is_symlink():
        raise UsageError(f"creating the run {folder}: got a symbolic link; remove it or choose another name")
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not is_run(folder):
        raise UsageError(
            f"creating the run {folder}: got something there that is no run; choose another name"
        )
    if not replace:
        command = write_command("quintain", "resume", folder.name)
        raise UsageError(
            f"creating the run {folder}: got a run of that name; continue it with `{command}`, start "
            "it anew with --replace, or choose another name"
        )


def _settings(name: str, recipe: str, config: Mapping[str, Any]) -> bytes:
    whole = {"schema": _SCHEMA, "name": name, "recipe": recipe, "created": time.time(), "config": config}
    try:
        return (json.dumps(whole, indent=2, default=_plain, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"configuration of the run {name}: got {error}; use JSON values, paths and enums"
        ) from error


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return sorted(cast(Iterable[Any], value))
    return plain(value)


def _fill(folder: Path, settings: bytes, recipe: str, name: str) -> None:
    (folder / CHECKPOINTS).mkdir()
    facts = {
        "run": name,
        "recipe": recipe,
        "status": "running",
        MARK: mark_run(recipe, json.loads(settings)["config"]),
        HASHES: json.dumps({CONFIG: hashlib.sha256(settings).hexdigest()}),
    }
    create_journal(folder / JOURNAL, facts)
    files.write_file(folder / CONFIG, settings)
    files.write_file(folder / METRICS, b"")
    files.sync_folder(folder)


def _put_in_place(temporary: Path, folder: Path) -> None:
    """Give `temporary` the name `folder`; a run there is moved away first, and back if that fails."""
    if not (folder.exists() and any(folder.iterdir())):
        files.rename(temporary, folder)
        return
    old_lock = WriterLock(folder)
    away = folder.with_name(f".{folder.name}.replaced-{os.getpid()}")
    try:
        files.rename(folder, away)
        files.rename(temporary, folder)
    except BaseException:
        if away.exists() and not folder.exists():
            away.rename(folder)
        raise
    finally:
        old_lock.release()
    files.remove_folder(away)


def _clean(folder: Path) -> None:
    """Delete what killed creations of the same run left behind."""
    for kind in ("creating", "replaced"):
        for leftover in folder.parent.glob(f".{folder.name}.{kind}-*"):
            if not is_locked(leftover):
                shutil.rmtree(leftover, ignore_errors=True)
