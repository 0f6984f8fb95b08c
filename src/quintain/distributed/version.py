"""Which quintain this process runs, so that processes on other machines can be refused that run another."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from quintain.errors import EngineFault

PACKAGE = Path(__file__).resolve().parents[1]


@cache
def own_version() -> str:
    """Return the version of this package with a digest of its sources: ``0.1.0+1f3a5b7c``."""
    digest = hashlib.sha256()
    for source in sorted(PACKAGE.rglob("*.py")):
        digest.update(str(source.relative_to(PACKAGE)).encode() + b"\0" + source.read_bytes())
    try:
        number = version("quintain")
    except PackageNotFoundError:
        number = "0"
    return f"{number}+{digest.hexdigest()[:8]}"


def check_version(asked: str, who: str) -> None:
    """Refuse to work for a process of another version.

    Raises:
        EngineFault: it is of another.
    """
    if asked != own_version():
        raise EngineFault(
            f"{who}: got quintain {own_version()} for a driver with {asked}; install one version on all machines"
        )
