"""What is known of a row in three columns and a promise, computed from its results and from nothing else.

Formula: does it compute what the paper says? Mechanism: does it do what the paper says, for the reason it says? What
does the comparison with the paper's baseline say? And the promise: does it train a real model end to end? A row is
done when the formula holds, the mechanism is shown or a property, and the promise is kept, whatever the comparison
says. P-values are corrected by Benjamini and Hochberg over all versions of all rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quintain_evidence.layers.comparison import Comparison, comparison_of
from quintain_evidence.layers.inference import false_discovery
from quintain_evidence.layers.league import Entry, Outcome, entries, known, outcome_of
from quintain_evidence.layers.mechanism import (
    NOT_SHOWN,
    PROPERTY,
    SHOWN,
    Lead,
    Mechanism,
    earlier_p_values,
    lead_of,
    mechanism_of,
)
from quintain_evidence.layers.promises import Promise, promise_of
from quintain_evidence.layers.records import FORMULA, OBJECTIVE, formulas_key, found_of
from quintain_evidence.layers.runner import State, state_of
from quintain_evidence.layers.spec import Signature
from quintain_evidence.layers.verdict import Check

HOLDS, DEPARTS, NOT_RUN = "holds", "departs", "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A registered claim, with what was measured and what that says: ``Claim(state=State(…), mechanism=…)``."""

    state: State
    mechanism: Mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of a row: ``Standing(row="gigpo", claims=(Claim(…),), comparison=Comparison(…), …)``."""

    row: str
    title: str
    family: str
    claims: tuple[Claim, ...]
    objective: tuple[Check, ...] | None
    """None: not run for the row as it is"""
    checks: tuple[Check, ...] | None
    """of its formulas; None: not run"""
    departs: str
    """where its formula is another one than the paper's, in a sentence"""
    comparison: Comparison | None
    promise: Promise | None

    @property
    def formula(self) -> str:
        """Return whether it computes what the paper says: holds, departs, or not run."""
        if self.departs:
            return DEPARTS
        if self.checks is None:
            return NOT_RUN
        return HOLDS if all(check.has_passed for check in self.checks) else DEPARTS

    @property
    def mechanism(self) -> str:
        """Return what its claims say together: shown, property or not shown, which is what one of them says."""
        values = {claim.mechanism.value for claim in self.claims}
        if not values or NOT_SHOWN in values:
            return NOT_SHOWN
        return PROPERTY if values == {PROPERTY} else SHOWN

    @property
    def compared(self) -> str:
        """Return what the comparison says: better, not worse, unresolved, worse or none."""
        return "none" if self.comparison is None else self.comparison.verdict

    @property
    def is_done(self) -> bool:
        """Return whether the formula holds, the mechanism is shown or a property, and the promise is kept."""
        return self.formula == HOLDS and self.mechanism != NOT_SHOWN and self.has_promise

    @property
    def has_promise(self) -> bool:
        """Return whether it was seen to run on a real model."""
        return self.promise is not None and self.promise.is_kept

    def columns(self) -> dict[str, Any]:
        """Return what the package itself says of the row, as plain data."""
        reasons = [reason for claim in self.claims for reason in claim.mechanism.reasons]
        found = self.comparison
        return {
            "done": self.is_done,
            "formula": self.formula,
            "mechanism": self.mechanism,
            "comparison": self.compared,
            "real_model": self.promise.date if self.promise is not None and self.has_promise else None,
            "departs": self.departs,
            "not_shown": list(dict.fromkeys(reasons)),
            "compared": None if found is None else compared_with(found),
        }


def compared_with(found: Comparison) -> dict[str, Any]:
    """Return where a comparison was made, and what came of it, as plain data."""
    bound = found.outcome.bound
    return {
        "baseline": found.baseline,
        "world": found.world,
        "model": found.model,
        "difference": None if bound is None else round(bound.mean, 4),
        "interval": None if bound is None else [round(bound.low, 4), round(bound.high, 4)],
        "seeds": None if bound is None else bound.num,
        "power": None if found.power is None else round(found.power, 3),
        "by_values": found.by_values,
        "worst": found.worst,
        "reasons": list(found.reasons),
    }


def standings(signatures: Mapping[str, Signature], folder: Path) -> dict[str, Standing]:
    """Return what is known of every row, from the results in `folder`."""
    rows: dict[str, list[Signature]] = {}
    for signature in signatures.values():
        rows.setdefault(signature.method, []).append(signature)
    registered = {found.row: found for found in entries(None, signatures)}
    every = list(registered.values())
    states = {name: state_of(found, folder) for name, found in signatures.items()}
    outcomes = {name: outcome_of(found, every, folder) for name, found in registered.items()}
    leads = {name: lead_of(state.signature, list(state.blocks.values())) for name, state in states.items()}
    of_claims = corrected_claims(states, leads, folder)
    of_league = corrected_league(outcomes)
    return {
        row: standing(
            row,
            [
                Claim(
                    state=states[s.row],
                    mechanism=mechanism_of(states[s.row], leads[s.row], of_claims.get(s.row)),
                )
                for s in claims
            ],
            registered,
            outcomes,
            of_league,
            folder,
        )
        for row, claims in rows.items()
    }


def standing(
    row: str,
    judged: Sequence[Claim],
    registered: Mapping[str, Entry],
    outcomes: Mapping[str, Outcome],
    of_league: Mapping[str, float],
    folder: Path,
) -> Standing:
    """Return what is known of one row, whose claims are `judged`; `of_league` are corrected p-values of comparisons."""
    claims = [claim.state.signature for claim in judged]
    first = min(claims, key=lambda found: len(found.row))
    entry = registered.get(first.row)
    objective = found_of(folder, row, OBJECTIVE, entry.digest()) if entry else None
    comparison = None
    if entry is not None:
        comparison = comparison_of(
            first, entry, outcomes[first.row], objective, known(entry, folder), of_league.get(first.row)
        )
    return Standing(
        row=row,
        title=first.title,
        family=first.family,
        claims=tuple(judged),
        objective=objective,
        checks=found_of(folder, row, FORMULA, formulas_key(name for s in claims for name in s.formulas)),
        departs=" ".join(s.formula_departs for s in claims if s.formula_departs),
        comparison=comparison,
        promise=promise_of(row, folder),
    )


def corrected_claims(
    states: Mapping[str, State], leads: Mapping[str, Lead | None], folder: Path
) -> dict[str, float]:
    """Return each claim's p-value, the largest over control and rival, corrected for all versions of all claims."""
    own: dict[str, float] = {}
    earlier: list[float] = []
    for row, state in states.items():
        earlier += earlier_p_values(state.signature, folder)
        lead = leads[row]
        found = (state.verdict.p_value, *(lead.p_values if lead is not None else ()))
        if known_values := [p for p in found if p is not None]:
            own[row] = max(known_values)
    corrected = false_discovery([*own.values(), *earlier])
    return dict(zip(own, corrected, strict=False))


def corrected_league(outcomes: Mapping[str, Outcome]) -> dict[str, float]:
    """Return the p-value of each comparison, corrected for all versions of all comparisons."""
    own = {row: found.bound.p_value for row, found in outcomes.items() if found.bound is not None}
    earlier = [
        each.p_value for found in outcomes.values() for each in found.earlier if each.p_value is not None
    ]
    return dict(zip(own, false_discovery([*own.values(), *earlier]), strict=False))
