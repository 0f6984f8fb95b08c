"""Run names: what may become a folder, and nothing else.

A name is a single, plain path component: letters, digits and ``. _ - + =``, starting with a letter or digit. A name
that could mean another place, a flag, a hidden file or a device is refused, never repaired.
"""

import os
import re
from pathlib import Path

from quintain.errors import UsageError

MAX_NAME = 100
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=-]*", re.ASCII)
_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))]
)


def check_name(name: str) -> str:
    """Return `name` if it may name a run; raise `UsageError` otherwise."""
    shown = repr(name if len(name) <= MAX_NAME else name[:40] + "…")
    if len(name) > MAX_NAME:
        raise UsageError(f"run name: got {shown} of {len(name)} characters; use at most {MAX_NAME}")
    if not _PLAIN.fullmatch(name) or name.endswith("."):
        raise UsageError(
            f"run name: got {shown}; use letters, digits and . _ - + = only, with a letter or digit first "
            "and no dot last (the folder that holds the runs is a separate setting)"
        )
    if name.split(".")[0].lower() in _DEVICES:
        raise UsageError(f"run name: got {shown}, which is a reserved device name; choose another name")
    return name


def split_step(text: str) -> tuple[str, str]:
    """Return the run and the mark that ``RUN@MARK`` names; the mark is empty where there is none, as in a path."""
    base, at, mark = text.rpartition("@")
    if not at or not base or "/" in mark or "://" in text:
        return text, ""
    is_path = os.path.exists(Path(text).expanduser())  # which a text that is too long for one is not
    return (text, "") if is_path else (base, mark)


def run_folder(root: Path, name: str) -> Path:
    """Return the folder of the run `name` under `root`.

    Example: ``run_folder(Path("runs"), "quickstart")`` is ``Path("runs/quickstart")``. Raises `UsageError`
    for a name with path characters, a reserved one, one longer than 100 characters, or a symbolic link.
    """
    folder = root / check_name(name)
    if folder.is_symlink():
        raise UsageError(f"run folder {folder}: got a symbolic link; remove the link or choose another name")
    return folder
