"""What a table of `fit` is drawn from: a kind of task, which of its columns play which part, and noise.

Three columns ``a b c`` of numbers from 1 to 9, and a target: features of the columns, less what the columns say of
them by a straight line, a straight line of the columns, and noise. Which shapes the features have depends on the kind
of task alone, which one sentence of two describes; which column plays which part is drawn for each task. So who knows
what worked on tasks of a kind knows where to look, and not the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np

from quintain.types import derive_seed
from quintain.worlds.fit.program import Array, fit_columns, run_lines

COLUMNS = ("a", "b", "c")
ROWS = 60
"""Rows of each of the three parts: to fit on, to measure on, and those that pay."""
NOISE, LINE = 0.25, 0.3
"""Deviations of the noise and of each column's part in a straight line, beside 1 of a feature."""
SHAPES = (
    "p / q", "p * q", "abs(p - q)", "max(p - k, 0)", "sin(p)", "p % k", "sin(p + q)", "p * q / r",
)  # fmt: skip
"""Features, where p, q and r are columns and k is a number."""
LIMITS = (3, 4, 5, 6)
KINDS: tuple[tuple[str, str], ...] = (
    ("Price of a parcel by courier", "What a courier takes for a parcel"),
    ("Bicycles rented in an hour", "Hourly count of rented bicycles"),
    ("Rent of a flat in town", "What a flat is let for, in rent"),
    ("Yield of a wheat field", "Wheat that a field brings, its yield"),
    ("Monthly pay of a clerk", "What a clerk earns, pay of a month"),
    ("Power drawn by a house", "A house and the power that it draws"),
    ("Taste of a wine by its judges", "How judges mark the taste of wine"),
    ("Delay of a train at noon", "Minutes of delay of a noon train"),
)
"""Kinds of tasks, each in two wordings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a table is drawn from: ``Problem(kind=0, wording=1, features=("a / b",), line=(1, -1, 1), seed=3)``."""

    kind: int
    wording: int
    features: tuple[str, ...]
    line: tuple[int, int, int]
    """signs of the columns in the straight line"""
    seed: int

    @property
    def words(self) -> str:
        """What is asked."""
        return KINDS[self.kind][self.wording]

    def solution(self) -> str:
        """Return the program that fits all there is."""
        names = [f"x{number}" for number in range(1, len(self.features) + 1)]
        lines = [f"{name} = {feature}" for name, feature in zip(names, self.features, strict=True)]
        return "\n".join([*lines, f"fit({', '.join((*COLUMNS, *names))})"])

    def draw(self) -> tuple[Array, Array]:
        """Return the columns [3 · 60, 3] and the target [3 · 60]."""
        rng = np.random.default_rng(derive_seed("table", repr(self)))
        rows = rng.uniform(1, 9, (3 * ROWS, len(COLUMNS))).round(2)
        target = LINE * scale(rows) @ np.asarray(self.line, np.float64)
        known, _ = run_lines(self.solution(), name_columns(rows))
        for number in range(1, len(self.features) + 1):
            feature = known[f"x{number}"]
            target += scale(feature - fit_columns(rows, feature, rows))
        return rows, target + NOISE * rng.standard_normal(len(rows))


def draw_problem(rng: Random, features: int) -> Problem:
    """Return a problem with this many `features`."""
    kind = rng.randrange(len(KINDS))
    return Problem(
        kind=kind,
        wording=rng.randrange(2),
        features=tuple(fill_shape(shape, rng) for shape in shapes_of(kind)[:features]),
        line=(rng.choice((-1, 1)), rng.choice((-1, 1)), rng.choice((-1, 1))),
        seed=rng.randrange(1 << 30),
    )


def shapes_of(kind: int) -> tuple[str, str]:
    """Return the shapes of the features of a `kind` of task; each is of two kinds, and no two kinds have the same."""
    return SHAPES[kind], SHAPES[(kind + 3) % len(SHAPES)]


def fill_shape(shape: str, rng: Random) -> str:
    """Return `shape` with columns and a number in it, drawn. Example: ``p % k`` → ``b % 3``."""
    filled = dict(zip("pqr", rng.sample(COLUMNS, 3), strict=True)) | {"k": str(rng.choice(LIMITS))}
    words = "".join(
        filled[sign] if sign in filled and is_alone(shape, n) else sign for n, sign in enumerate(shape)
    )
    return words


def is_alone(shape: str, place: int) -> bool:
    """Whether the letter at `place` of `shape` is no part of a word, as the p of ``hypot`` is."""
    return not any(0 <= n < len(shape) and shape[n].isalpha() for n in (place - 1, place + 1))


def name_columns(rows: Array) -> dict[str, Array]:
    """Return the columns of `rows` [N, 3] by name."""
    return {name: rows[:, number] for number, name in enumerate(COLUMNS)}


def scale(values: Array) -> Array:
    """Return `values` [N] or [N, F] with mean 0 and deviation 1."""
    return (values - values.mean(0)) / values.std(0)
