"""Unified diffs, applied to the letter: what a hunk says was there must be there."""

import re
from collections.abc import Mapping

from quintain.errors import DataError

HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")
PREFIX = re.compile(r"^[ab]/")


def apply_patch(files: Mapping[str, str], diff: str) -> dict[str, str]:
    """Return `files` with the unified `diff` applied; a file that it deletes is gone, one that it adds is there.

    Raises:
        DataError: it is no such diff, or does not fit the files.
    """
    found = dict(files)
    parts = re.split(r"(?m)^--- ", diff)[1:]
    if not parts:
        raise DataError(
            "patch: got no line that begins with '--- '; write a unified diff: --- a/FILE, +++ b/FILE, @@"
        )
    for part in parts:
        old, _, rest = part.partition("\n")
        new, _, hunks = rest.partition("\n")
        if not new.startswith("+++ "):
            raise DataError(f"patch of {old[:60]!r}: got {new[:60]!r}; write +++ b/FILE under --- a/FILE")
        before, after = (PREFIX.sub("", name.split("\t")[0].strip()) for name in (old, new[4:]))
        if before != "/dev/null" and before not in found:
            raise DataError(
                f"patch: got {before[:60]!r}, which is no file; files: {', '.join(sorted(found))[:200]}"
            )
        lines = found.pop(before, "").split("\n")
        changed = _apply_hunks(lines, hunks, before)
        if after != "/dev/null":
            found[after] = "\n".join(changed)
    return found


def _apply_hunks(lines: list[str], hunks: str, name: str) -> list[str]:
    """Return `lines` of the file `name` with all hunks applied, in order."""
    result, place = list[str](), 0
    for line in hunks.split("\n"):
        if match := HUNK.match(line):
            start = max(0, int(match[1]) - 1)
            if not place <= start <= len(lines):
                raise DataError(
                    f"patch of {name}: got the hunk {line[:40]!r}, which is not in the file in this order"
                )
            result += lines[place:start]
            place = start
        elif line[:1] in (" ", "-"):
            if place >= len(lines) or lines[place] != line[1:]:
                there = repr(lines[place][:60]) if place < len(lines) else "the end of the file"
                raise DataError(f"patch of {name}: got the line {line[1:][:60]!r} where there is {there}")
            result += [lines[place]] if line[0] == " " else []
            place += 1
        elif line[:1] == "+":
            result.append(line[1:])
        elif line and not line.startswith("\\"):
            raise DataError(f"patch of {name}: got {line[:60]!r}; lines of a hunk begin with a space, + or -")
    return result + lines[place:]
