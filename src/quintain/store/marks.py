"""The mark of a run: that this user made it, which no folder from elsewhere can bring along.

A key lies in the user's own state folder, readable by them alone. A mark is a code (HMAC-SHA-256) of what a run names,
made with that key: whoever has not the key cannot make one, and a configuration that was changed no longer has it. It
stands in the run itself, so that a run which is copied, moved or renamed keeps it, and so does one of a machine that
has the same home folder.
"""

import hashlib
import hmac
import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from quintain.store.files import OTHERS
from quintain.types.json_text import load_json

KEY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Who made a run: ``Origin(is_own=True, made_in="/home/ann/shop")``."""

    is_own: bool
    """whether it has the mark of this user"""
    made_in: str = ""
    """of one's own: the folder of work that names without a place of their own were meant from"""
    reason: str = ""
    """of any other: why it is none, in words"""


def key_file() -> Path:
    """Return where the key of this user lies."""
    return Path.home() / ".local" / "state" / "quintain" / "run-key"


def mark_run(recipe: str, config: Mapping[str, Any]) -> str:
    """Return the mark of a run of `recipe` with `config`; empty where this user can have no key."""
    try:
        key = _read_key(key_file()) or _make_key(key_file())
        made_in = str(Path.cwd())
    except (OSError, RuntimeError):
        return ""
    row = {"id": secrets.token_hex(16), "made_in": made_in}
    return json.dumps({**row, "code": _code(key, row, recipe, config)})


def find_origin(mark: str, recipe: str, config: Mapping[str, Any]) -> Origin:
    """Return who made the run of `recipe` with `config` that has `mark`."""
    if not mark:
        return Origin(is_own=False, reason="it has no mark of yours")
    try:
        key = _read_key(key_file())
    except (OSError, RuntimeError) as error:
        return Origin(is_own=False, reason=f"your key {key_file()} cannot be read ({error})")
    if key is None:
        return Origin(
            is_own=False, reason=f"there is no key of yours in {key_file()}, which is closed to others"
        )
    try:
        found = cast(dict[str, Any], load_json(mark))
        row = {"id": str(found["id"]), "made_in": str(found["made_in"])}
        is_own = hmac.compare_digest(str(found["code"]).encode(), _code(key, row, recipe, config).encode())
    except (ValueError, TypeError, KeyError):
        is_own, row = False, {"made_in": ""}
    if not is_own:
        return Origin(is_own=False, reason="its mark is not yours, or its config.json was changed")
    return Origin(is_own=True, made_in=row["made_in"])


def _code(key: bytes, row: Mapping[str, str], recipe: str, config: Mapping[str, Any]) -> str:
    """Return the code by which `key` vouches for a run."""
    said = json.dumps({**row, "recipe": recipe, "config": config}, sort_keys=True, default=str)
    return hmac.new(key, said.encode(), hashlib.sha256).hexdigest()


def _read_key(file: Path) -> bytes | None:
    """Return the key in `file`; None where there is none that is the user's own and closed to others."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as stream:
        status = os.fstat(stream.fileno())
        key = stream.read(2 * KEY_BYTES)
    is_closed = status.st_uid == os.getuid() and not status.st_mode & OTHERS
    return key if is_closed and len(key) == KEY_BYTES else None


def _make_key(file: Path) -> bytes:
    """Make the key of this user in `file`, unless another process was faster, and return it."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    number, name = tempfile.mkstemp(prefix=".run-key-", dir=file.parent)  # closed to others
    try:
        with open(number, "wb") as stream:
            stream.write(secrets.token_bytes(KEY_BYTES))
            stream.flush()
            os.fsync(stream.fileno())
        with suppress(FileExistsError):
            os.link(name, file)
    finally:
        Path(name).unlink()
    key = _read_key(file)
    if key is None:
        raise PermissionError(f"the key {file} is not yours, or open to others")
    return key
