"""Draw docs/images/house.svg: the rooms by floor, as pyproject.toml has them, and one step's way through them.

python docs/house.py
"""

import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTH, FLOOR, MARGIN = 980, 58, 16
WAY = (
    ("1", "curriculum", "which task"),
    ("2", "rollout", "plays it"),
    ("3", "engines", "samples tokens"),
    ("4", "environments", "answers"),
    ("5", "store", "journal first"),
    ("6", "rewards", "score"),
    ("7", "credit", "advantages"),
    ("8", "losses", "loss"),
    ("9", "learning", "new weights, served"),
    ("10", "runs", "evaluated, watched, saved"),
)


def floors() -> list[list[str]]:
    """Return the rooms of each floor, the highest first, that are there."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    layers = [[room.strip(" ()") for room in layer.split("|")] for layer in contract["layers"]]
    package = ROOT / "src" / "quintain"
    found = [
        [r for r in layer if (package / r).is_dir() or (package / f"{r}.py").is_file()] for layer in layers
    ]
    return [layer for layer in found if layer]


def main() -> None:
    """Write the picture."""
    rows = floors()
    places: dict[str, tuple[float, float, float]] = {}
    parts: list[str] = []
    for number, rooms in enumerate(rows):
        y = MARGIN + number * FLOOR
        width = (WIDTH - 2 * MARGIN - 30) / len(rooms)
        parts.append(f'<text x="{MARGIN}" y="{y + 26}" class="floor">{len(rows) - 1 - number}</text>')
        for column, room in enumerate(rooms):
            x = MARGIN + 30 + column * width
            places[room] = (x, y, width)
            parts.append(
                f'<rect x="{x + 3:.1f}" y="{y}" width="{width - 6:.1f}" height="40" rx="6" class="room"/>'
            )
            parts.append(f'<text x="{x + width / 2:.1f}" y="{y + 17}" class="name">{escape(room)}</text>')
    for mark, room, what in WAY:
        x, y, width = places[room]
        told = f"{mark} {what}" if width > 130 else mark
        parts.append(f'<text x="{x + width / 2:.1f}" y="{y + 33}" class="way">{escape(told)}</text>')
    y = MARGIN + len(rows) * FLOOR + 14
    parts.append(
        f'<text x="{MARGIN}" y="{y}" class="note">One step: '
        + escape(" → ".join(f"{mark} {room}" for mark, room, _ in WAY))
        + "</text>"
    )
    style = (
        ".room{fill:#eef3fb;stroke:#2a6fdb}.name{font:600 13px sans-serif;text-anchor:middle;fill:#16263f}"
        ".way{font:11px sans-serif;text-anchor:middle;fill:#b3541e}.floor{font:12px sans-serif;fill:#6b7787}"
        ".note{font:12px sans-serif;fill:#16263f}"
    )
    height = y + MARGIN
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="Rooms by floor">\n<style>{style}</style>\n' + "\n".join(parts) + "\n</svg>\n"
    )
    (ROOT / "docs" / "images" / "house.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
