"""What a row is called, computed from its results and from nothing else.

A row *works* when its objective, its formula and all of its registered claims hold and the league does not find it
worse. Beside it stands what the league says: better here, not worse, unresolved. Everything else is *not shown*, with
what is missing. Over all rows of the league the p-values are corrected by Benjamini and Hochberg.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from quintain_evidence.layers.inference import false_discovery
from quintain_evidence.layers.league import Entry, Outcome, entries, outcome_of
from quintain_evidence.layers.records import FORMULA, OBJECTIVE, formulas_key, found_of
from quintain_evidence.layers.runner import State, state_of
from quintain_evidence.layers.spec import Signature
from quintain_evidence.layers.verdict import Check

WORKS, NOT_SHOWN = "works", "not shown"
BADGES = {"better": "better here", "not worse": "not worse", "unresolved": "unresolved"}
"""verdict of the league → what stands beside *works*; with the others a row is not shown"""
FALSE_DISCOVERIES = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of a row: ``Standing(row="gigpo", claims=(State(…),), league=Outcome(…), …)``."""

    row: str
    title: str
    family: str
    claims: tuple[State, ...]
    """its registered claims, with what was measured"""
    objective: tuple[Check, ...] | None
    """None: not run for the row as it is"""
    formula: tuple[Check, ...] | None
    league: Outcome | None
    corrected: float | None = None
    """p-value of the league, corrected for the number of rows"""

    @property
    def missing(self) -> tuple[str, ...]:
        """Return what keeps the row from being shown."""
        found: list[str] = []
        for name, checks in (("objective", self.objective), ("formula", self.formula)):
            if checks is None:
                found.append(f"{name} not run")
            elif failed := [check.name for check in checks if not check.has_passed]:
                found.append(f"{name}: {', '.join(failed)}")
        found += [f"{state.signature.row} {state.word()}" for state in self.claims if state.word() != "shown"]
        if self.league is None:
            found.append("no league")
        elif self.league.verdict not in BADGES:
            found.append(f"league {self.league.verdict}")
        return tuple(found)

    @property
    def badge(self) -> str:
        """Return what the league says; a gain counts when it survives the correction over rows."""
        if self.league is None:
            return ""
        is_lost = (
            self.league.verdict == "better"
            and self.corrected is not None
            and self.corrected > FALSE_DISCOVERIES
        )
        return BADGES.get("not worse" if is_lost else self.league.verdict, self.league.verdict)

    @property
    def word(self) -> str:
        """Return the state of the row: ``works, better here``, ``not shown``, …"""
        return NOT_SHOWN if self.missing else f"{WORKS}, {self.badge}"


def standings(signatures: Mapping[str, Signature], folder: Path) -> dict[str, Standing]:
    """Return what is known of every row, from the results in `folder`."""
    rows: dict[str, list[Signature]] = {}
    for signature in signatures.values():
        rows.setdefault(signature.method, []).append(signature)
    registered = entries(None, signatures)
    found = {row: standing(row, claims, registered, folder) for row, claims in rows.items()}
    tested = {
        row: s.league.bound.p_value for row, s in found.items() if s.league is not None and s.league.bound
    }
    corrected = dict(zip(tested, false_discovery(list(tested.values())), strict=True))
    return {row: replace(each, corrected=corrected.get(row)) for row, each in found.items()}


def standing(row: str, claims: Sequence[Signature], registered: Sequence[Entry], folder: Path) -> Standing:
    """Return what is known of one row."""
    first = min(claims, key=lambda found: len(found.row))
    entry = next((found for found in registered if found.row == first.row), None)
    return Standing(
        row=row,
        title=first.title,
        family=first.family,
        claims=tuple(state_of(found, folder) for found in claims),
        objective=found_of(folder, row, OBJECTIVE, entry.digest()) if entry else None,
        formula=found_of(folder, row, FORMULA, formulas_key(name for s in claims for name in s.formulas)),
        league=outcome_of(entry, registered, folder) if entry else None,
    )
