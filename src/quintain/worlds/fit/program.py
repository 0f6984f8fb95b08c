"""Programs of `fit`: lines of arithmetic over columns, and a last one that says what is fitted.

``x = a / max(b - 4, 0)`` makes a column, ``fit(a, x)`` fits the target on columns by least squares, with a constant.
The lines are Python's grammar, read by its parser and computed here: numbers, names, ``+ - * / % **``, some functions.
Nothing is executed, so that no text can do anything but arithmetic. What cannot be computed for every row is an error
that names the line.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
MAX_LINES, MAX_LENGTH = 20, 200
"""Lines of a program, and characters of a line."""
FIT = "fit"
BINARY: Mapping[type[ast.operator], Callable[[Array, Array], Array]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Mod: np.mod,
    ast.Pow: np.power,
}
FUNCTIONS: Mapping[str, tuple[int, Callable[..., Array]]] = {
    "abs": (1, np.abs),
    "cos": (1, np.cos),
    "exp": (1, np.exp),
    "log": (1, np.log),
    "max": (2, np.maximum),
    "min": (2, np.minimum),
    "sin": (1, np.sin),
    "sqrt": (1, np.sqrt),
}
"""name → how many arguments, and what computes it"""


class ProgramError(Exception):
    """A program does not run: ``ProgramError(2, "x / 0 is no number")``."""

    def __init__(self, number: int, reason: str) -> None:
        """Say that line `number` failed for `reason`."""
        super().__init__(f"line {number}: {reason}")


def split_lines(text: str) -> list[str]:
    """Return the lines of a program, which end with a line or a semicolon; empty ones are left out."""
    return [line.strip() for line in text.replace(";", "\n").splitlines() if line.strip()]


def run_lines(text: str, columns: Mapping[str, Array]) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Return all columns [N] after the program `text`, and the names that its last line fits; none: nothing is fitted.

    Raises:
        ProgramError: a line is none, or cannot be computed for every row.
    """
    known, chosen = dict(columns), tuple[str, ...]()
    lines = split_lines(text)
    if len(lines) > MAX_LINES:
        raise ProgramError(MAX_LINES + 1, f"got {len(lines)} lines; write {MAX_LINES} at most")
    for number, line in enumerate(lines, start=1):
        if chosen:
            raise ProgramError(number, f"got {line[:40]!r} after {FIT}; {FIT} is the last line")
        statement = _parse(number, line)
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]
            if len(statement.targets) > 1 or not isinstance(target, ast.Name) or target.id in columns:
                raise ProgramError(number, f"got {line[:40]!r}; write NAME = EXPRESSION with a new name")
            with np.errstate(all="ignore"):
                value = _compute(number, statement.value, known)
            if not np.isfinite(value).all():
                raise ProgramError(number, f"{ast.unparse(statement.value)[:40]} is no number in every row")
            known[target.id] = value + np.zeros_like(next(iter(columns.values())))
        else:
            chosen = _read_fit(number, line, statement, known)
    return known, chosen


def fit_columns(train: Array, target: Array, other: Array) -> Array:
    """Return what least squares of `target` [N] on `train` [N, F] with a constant says of `other` [M, F]."""

    def extend(rows: Array) -> Array:
        return np.column_stack([np.ones(len(rows)), rows])

    weights = np.linalg.lstsq(extend(train), target, rcond=None)[0]
    return extend(other) @ weights


def score_fit(said: Array, target: Array) -> float:
    """Return R² = 1 - Σ (y - ŷ)² / Σ (y - ȳ)² of what was `said` of `target` [M], and 0 where it is below."""
    return float(max(0.0, 1 - ((target - said) ** 2).sum() / ((target - target.mean()) ** 2).sum()))


def _parse(number: int, line: str) -> ast.stmt:
    """Return the statement of a `line`."""
    if len(line) > MAX_LENGTH:
        raise ProgramError(number, f"got {len(line)} characters; write {MAX_LENGTH} at most")
    try:
        body = ast.parse(line).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ProgramError(number, f"{line[:40]!r} cannot be read") from error
    if len(body) != 1 or not isinstance(body[0], ast.Assign | ast.Expr):
        raise ProgramError(number, f"got {line[:40]!r}; write NAME = EXPRESSION, and {FIT}(NAMES) at the end")
    return body[0]


def _read_fit(number: int, line: str, statement: ast.stmt, known: Mapping[str, Array]) -> tuple[str, ...]:
    """Return the names in ``fit(a, x)``."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    is_fit = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == FIT
    if not isinstance(call, ast.Call) or not is_fit or call.keywords or not call.args:
        raise ProgramError(number, f"got {line[:40]!r}; write NAME = EXPRESSION, and {FIT}(NAMES) at the end")
    found: list[str] = []
    for part in call.args:
        if not isinstance(part, ast.Name) or part.id not in known:
            raise ProgramError(number, f"{ast.unparse(part)[:40]} is no column; there are {', '.join(known)}")
        found.append(part.id)
    return tuple(dict.fromkeys(found))


def _compute(number: int, node: ast.expr, known: Mapping[str, Array]) -> Array:
    """Return what `node` comes to in each row."""

    def go(part: ast.expr) -> Array:
        return _compute(number, part, known)

    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return np.asarray(float(value) if abs(value) < 1e9 else np.inf)
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.Name(id=name):
            raise ProgramError(number, f"{name[:40]} is no column; there are {', '.join(known)}")
        case ast.UnaryOp(op=ast.USub(), operand=part):
            return -go(part)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
            return BINARY[type(op)](go(left), go(right))
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if name in FUNCTIONS:
            count, function = FUNCTIONS[name]
            if len(parts) != count:
                raise ProgramError(number, f"{name} takes {count}, got {len(parts)}")
            return function(*[go(part) for part in parts])
        case _:
            told: Any = ast.unparse(node)
            raise ProgramError(
                number, f"{told[:40]} cannot be computed; use + - * / % ** and {', '.join(FUNCTIONS)}"
            )
