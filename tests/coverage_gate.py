"""Hold every room to its share of lines that the tests run; reads `.coverage`, prints one line per room.

The rooms whose faults are silent (a wrong number trains on) must be covered whole, the others for the most
part.
"""

import sys
from collections import defaultdict
from pathlib import Path

import coverage

WHOLE = frozenset({"types", "errors", "rewards", "credit", "losses", "text", "data", "store"})
"""Rooms of which every line is run."""
SHARE = 0.85
"""The least share of lines in every other room."""


def room_of(file: Path) -> str:
    """Return the room of a file: ``credit`` for ``src/quintain/credit/gae.py``; evidence is one room."""
    if "quintain_evidence" in file.parts:
        return "evidence"
    below = file.parts[len(file.parts) - file.parts[::-1].index("quintain") :]
    return Path(below[0]).stem if len(below) > 1 else file.stem


def shortfall(room: str, num_lines: int, missed: dict[str, list[int]]) -> str:
    """Return what `room` lacks, naming the lines, or an empty text."""
    num_missed = sum(map(len, missed.values()))
    asked = 1.0 if room in WHOLE else SHARE
    if num_lines == 0 or 1 - num_missed / num_lines >= asked:
        return ""
    places = "; ".join(
        f"{name}: {', '.join(map(str, lines))}" for name, lines in sorted(missed.items()) if lines
    )
    return f"{room} must be covered to {asked:.0%}; not run: {places}"


def main() -> int:
    """Print the share of each room and return 1 if one falls short."""
    record = coverage.Coverage()
    record.load()
    lines: dict[str, int] = defaultdict(int)
    missed: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for name in sorted(record.get_data().measured_files()):
        _, statements, _, absent, _ = record.analysis2(name)
        room = room_of(Path(name))
        lines[room] += len(statements)
        missed[room][Path(name).name] = absent
    lacks: list[str] = []
    for room in sorted(lines):
        num_missed = sum(map(len, missed[room].values()))
        print(f"coverage {room:<14}{1 - num_missed / max(lines[room], 1):7.1%} of {lines[room]} lines")
        lacks += filter(None, [shortfall(room, lines[room], missed[room])])
    print(*lacks, sep="\n", end="\n" if lacks else "", file=sys.stderr)
    return int(bool(lacks))


if __name__ == "__main__":
    sys.exit(main())
