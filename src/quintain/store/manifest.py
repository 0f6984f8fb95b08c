"""The manifest of a run: the SHA-256 of every file that a resumed run reads beside its checkpoints.

It stands in the journal. A file in the folder of the run goes by its relative path, one elsewhere (tasks, a chat
template, what an environment is made of) by its absolute one. Checkpoints have manifests of their own.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

from quintain.errors import StoreError
from quintain.store.files import digest_of
from quintain.types.json_text import load_json

LINK = "a link"
"""What stands for the content of a symbolic link, which is not followed."""


def hash_files(folder: Path, places: Iterable[str | Path]) -> dict[str, str]:
    """Return the SHA-256 of each file that `places` name, or that lies below one; relative ones are of `folder`."""
    found: dict[str, str] = {}
    for place in places:
        for file in files_below(folder / place):
            found[name_in(folder, file)] = LINK if file.is_symlink() else digest_of(file)
    return found


def files_below(place: Path) -> list[Path]:
    """Return `place` if it is a file or a link, else every file and link in that folder."""
    if place.is_symlink() or not place.is_dir():
        return [place] if place.is_symlink() or place.is_file() else []
    return sorted(
        Path(parent) / name
        for parent, folders, plain in os.walk(place)
        for name in [*plain, *(inner for inner in folders if (Path(parent) / inner).is_symlink())]
    )


def check_plain(folder: Path) -> None:
    """Refuse a run `folder` that holds a link which leads out of it, or what is no file and no folder, as a pipe.

    Links within it are let through: some trackers make them.

    Raises:
        StoreError: there is such a thing.
    """
    for place, mode in _find_odd(folder):
        kind = "a link that leads out of it" if stat.S_ISLNK(mode) else "neither a file nor a folder"
        raise StoreError(
            f"opening {folder}: got {place.relative_to(folder)}, which is {kind}; put the file or folder "
            "itself in that place, or take it away"
        )


def remove_links(run: Path, folder: Path) -> None:
    """Take links that lead out of the `run` away from a `folder` in it, which software of others writes."""
    for place, mode in _find_odd(run, folder):
        if stat.S_ISLNK(mode):
            place.unlink(missing_ok=True)


def _find_odd(run: Path, folder: Path | None = None) -> Iterator[tuple[Path, int]]:
    """Yield what in `folder`, all of the `run` for None, is no file, no folder and no link to within the run."""
    inside = os.path.realpath(run)
    for parent, folders, plain in os.walk(run if folder is None else folder):
        for name in (*folders, *plain):
            place = Path(parent, name)
            with suppress(FileNotFoundError):  # whoever writes the run took it away
                mode = place.lstat().st_mode
                if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                    continue
                if stat.S_ISLNK(mode) and Path(os.path.realpath(place)).is_relative_to(inside):
                    continue
                yield place, mode


def name_in(folder: Path, file: Path) -> str:
    """Return what `file` is called in the manifest of the run `folder`."""
    return file.relative_to(folder).as_posix() if file.is_relative_to(folder) else str(file.absolute())


def find_changes(folder: Path, known: Mapping[str, str]) -> dict[str, str]:
    """Return what became of the files of the manifest `known`: changed, missing, new in a folder; by their names.

    A file outside of `folder` may be missing: what reads it will say so.
    """
    changes: dict[str, str] = {}
    for name, digest in known.items():
        place = folder / name
        if not place.is_symlink() and not place.is_file():
            if not Path(name).is_absolute():
                changes[name] = "missing"
        elif (LINK if place.is_symlink() else digest_of(place)) != digest:
            changes[name] = "changed"
    for top in sorted({name.partition("/")[0] for name in known if "/" in name and not name.startswith("/")}):
        for file in files_below(folder / top):
            if (name := name_in(folder, file)) not in known:
                changes[name] = "new"
    return changes


def read_manifest(text: str) -> dict[str, str] | None:
    """Return the manifest that `text` is; None of a run that was made before there was one, or of another form."""
    try:
        found: object = load_json(text) if text else None
    except ValueError:
        return None
    return cast("dict[str, str]", found) if isinstance(found, dict) else None


def in_words(changes: Mapping[str, str], most: int = 5) -> str:
    """Return `changes` in words: ``start/model.safetensors (changed), start/x (new)``."""
    more = f" and {len(changes) - most} more" if len(changes) > most else ""
    return ", ".join(f"{name} ({what})" for name, what in [*changes.items()][:most]) + more
