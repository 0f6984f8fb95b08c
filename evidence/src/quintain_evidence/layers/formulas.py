"""Layer 1: does it compute what the paper says? Formulas against plain second versions, and mutants that must be found.

A formula passes on 200 random ragged batches, values and gradients within 1e-6, where five of its mutants are told
from the second version; mutants that are not are named. A short formula has mutants of its own kind as well, of which
those that only break are not counted. Where it has a toy, its gradient is the exact one.
"""

import importlib
import pkgutil
import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quintain.errors import UsageError, suggestion
from quintain_evidence import formulas
from quintain_evidence.formulas.formula import Formula
from quintain_evidence.formulas.mutants import mutant, num_mutants
from quintain_evidence.layers.verdict import Check

NUM_BATCHES, NUM_TRIED_ON, NUM_MUTANTS, MOST_MUTANTS = 200, 25, 5, 20
TOLERANCE, COSINE = 1e-6, 0.999
BREAKS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError, ValueError, RuntimeError,
)  # fmt: skip
"""How a mutant may break."""


@cache
def known_formulas() -> dict[str, Formula]:
    """Return all formulas that have a second version, by name."""
    names = [each.name for each in pkgutil.iter_modules(formulas.__path__, f"{formulas.__name__}.")]
    modules = [importlib.import_module(name) for name in names]
    return {found.name: found for module in modules for found in vars(module).get("FORMULAS", ())}


def check_formulas(names: Sequence[str]) -> tuple[Check, ...]:
    """Return whether the formulas `names` compute what their second versions do.

    Raises:
        UsageError: there is no such formula.
    """
    known = known_formulas()
    for name in names:
        if name not in known:
            raise UsageError(f"formula: got {name!r}; {suggestion(name, known)}")
    if not names:
        return (Check(name="formulas", has_passed=False, detail="none is named; list them as `formulas`"),)
    return tuple(check for name in names for check in checks_of(known[name]))


@dataclass(frozen=True, slots=True)
class Answer:
    """A case, and the numbers that the second version makes of it."""

    case: Any
    numbers: NDArray[np.float64]


@cache
def checks_of(formula: Formula) -> tuple[Check, ...]:
    """Return the checks of one formula."""
    module = importlib.import_module(f"quintain.{formula.module}")
    answers = [answer(formula, seed) for seed in range(NUM_BATCHES)]
    worst = max(error(formula, module, found) for found in answers)
    found = [
        Check(
            name=f"{formula.name}: equal to a second version",
            has_passed=worst <= TOLERANCE,
            detail=f"largest relative difference {worst:.1e} on {NUM_BATCHES} batches",
        ),
        hunted(formula, module, answers[:NUM_TRIED_ON]),
    ]
    if formula.exact is not None:
        cosine = formula.exact(module)
        found.append(
            Check(
                name=f"{formula.name}: exact gradient",
                has_passed=cosine > COSINE,
                detail=f"cosine {cosine:.6f} with the exact gradient of a toy, to be above {COSINE}",
            )
        )
    return tuple(found)


def answer(formula: Formula, seed: int) -> Answer:
    """Return the case of `seed` with what the second version makes of it."""
    case = formula.draw(np.random.default_rng(seed))
    return Answer(case, np.asarray(formula.reference(case), np.float64))


def error(formula: Formula, module: ModuleType, wanted: Answer) -> float:
    """Return the largest relative difference of `module` from the second version; infinite where it is no number."""
    got = np.asarray(formula.ours(module, wanted.case), np.float64)
    if got.shape != wanted.numbers.shape:
        return float("inf")
    if not got.size:
        return 0.0
    difference = float((np.abs(got - wanted.numbers) / np.maximum(1, np.abs(wanted.numbers))).max())
    return difference if difference == difference else float("inf")


def hunted(formula: Formula, module: ModuleType, answers: Sequence[Answer]) -> Check:
    """Return whether five mutants of the formula are found (two thirds, where it has fewer), drawn in a fixed order.

    A mistake in what only other settings read changes nothing and is not found; such mutants are named.
    """
    draw = random.Random(formula.name)
    dead, alive, num = 0, list[str](), 0
    for is_short in (False, True):
        places = num_mutants(module, formula.functions, formula.aside, is_short=is_short)
        if num >= NUM_MUTANTS:
            break
        order = list(range(places))
        draw.shuffle(order)
        for number in order[:MOST_MUTANTS]:
            if dead == NUM_MUTANTS:
                break
            with mutant(module, formula.functions, number, formula.aside, is_short=is_short) as (made, told):
                found = is_found(formula, made, answers, breaking=None if is_short else True)
            if found is None:
                continue
            num += 1
            if found:
                dead += 1
            else:
                alive.append(told)
    wanted = min(NUM_MUTANTS, -(-2 * num // 3))
    tried = dead + len(alive)
    return Check(
        name=f"{formula.name}: mutants",
        has_passed=0 < wanted <= dead,
        detail=f"{dead} of {tried} tried are found" + (f"; not found: {'; '.join(alive)}" if alive else ""),
    )


def is_found(
    formula: Formula, made: ModuleType, answers: Sequence[Answer], *, breaking: bool | None = True
) -> bool | None:
    """Return whether a mutant differs from the second version on a case; `breaking` where it breaks."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return any(error(formula, made, wanted) > TOLERANCE for wanted in answers)
        except BREAKS:
            return breaking
