"""What registered claims say of a method as a column: its mechanism is shown, not shown, or a property that holds.

A claim that holds over its control shows that there is a learner. The mechanism is shown where the same effect stands
over the nearest rival that lacks the idea alone (`Rival`), at the method's defaults, as it is now, in one of the first
two versions of the claim, and after the correction over all versions of all claims.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quintain_evidence.layers.comparison import FALSE_DISCOVERIES, VERSIONS
from quintain_evidence.layers.inference import Estimate, estimate, smallest_flip, stouffer
from quintain_evidence.layers.records import lines
from quintain_evidence.layers.runner import LAYER, State
from quintain_evidence.layers.settings import set_in_claim
from quintain_evidence.layers.spec import Rival, Signature
from quintain_evidence.layers.verdict import Block, both_tests, mean

SHOWN, NOT_SHOWN, PROPERTY = "shown", "not shown", "property"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """The method's lead over its rival: ``Lead(effect=Estimate(…), p_values=(1e-4, 1e-3))``."""

    effect: Estimate
    p_values: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """What is said of a claim: ``Mechanism(value="shown", reasons=(), lead=Lead(…))``."""

    value: str
    """shown, not shown or property"""
    reasons: tuple[str, ...]
    """why it is not shown"""
    lead: Lead | None = None


def mechanism_of(state: State, lead: Lead | None, corrected: float | None) -> Mechanism:
    """Return the column of a registered claim with its `lead` over the rival; `corrected` is its p-value over all
    versions of all claims.
    """
    signature = state.signature
    reasons = list(state_reasons(state, corrected))
    if signature.kind != "property":
        reasons += rival_reasons(signature, lead)
    value = NOT_SHOWN if reasons else PROPERTY if signature.kind == "property" else SHOWN
    return Mechanism(value=value, reasons=tuple(reasons), lead=lead)


def state_reasons(state: State, corrected: float | None) -> list[str]:
    """Return what of the claim's own results keeps it from being shown."""
    signature, found = state.signature, list[str]()
    if state.is_stale:
        found.append("measured with another form of the experiment or of the method")
    elif state.word() != "shown":
        found.append(state.word() if state.word() != NOT_SHOWN else "its checks do not hold")
    if state.version > VERSIONS:
        found.append(f"version {state.version}, where {VERSIONS} are allowed")
    if signature.outdated and "signature" in signature.outdated_layers:
        found.append("measured before a change of the method")
    if others := set_in_claim(signature):
        found.append(f"not at the defaults: {', '.join(others)}")
    if corrected is not None and corrected > FALSE_DISCOVERIES:
        found.append(f"p = {corrected:.2g} after the correction over versions")
    return found


def lead_of(signature: Signature, blocks: Sequence[Block]) -> Lead | None:
    """Return the lead over the registered rival; None where not every replication measured it."""
    rival = signature.rival
    if rival is None or not (rival.plus or rival.minus) or not blocks:
        return None
    keys = (*rival.plus, *rival.minus)
    if any(key not in part for block in blocks for part in block for key in keys):
        return None
    strata = [[lead_in(rival, part) for part in block] for block in blocks]
    if signature.kind == "training" or all(len(part) == 1 for part in strata):
        strata = [[mean(part) for part in strata]]
    tests = [both_tests(signature, part) for part in strata]
    first, second = (stouffer([pair[k] for pair in tests]) for k in (0, 1))
    return Lead(effect=estimate(strata), p_values=(first, second))


def lead_in(rival: Rival, measured: Mapping[str, float]) -> float:
    """Return the lead in one replication."""
    return sum(measured[key] for key in rival.plus) - sum(measured[key] for key in rival.minus)


def rival_reasons(signature: Signature, lead: Lead | None) -> list[str]:
    """Return why the lead over the rival is no evidence of the idea."""
    rival = signature.rival
    if rival is None:
        return ["no rival is named that lacks the idea alone"]
    if lead is None:
        is_named = bool(rival.plus or rival.minus)
        return [
            "the rival was not measured in every replication" if is_named else "its rival was not measured"
        ]
    found: list[str] = []
    bounds = (signature.alpha, max(signature.alpha, smallest_flip(lead.effect.num)))
    worst = [p for p, bound in zip(lead.p_values, bounds, strict=True) if p > bound]
    if worst:
        found.append(f"over the rival p = {max(worst):.2g}")
    if lead.effect.mean < signature.least:
        found.append(f"{lead.effect.mean:+.3g} over the rival, of {signature.least:g} that are claimed")
    return found


def earlier_p_values(signature: Signature, folder: Path) -> list[float]:
    """Return the p-value of every version of a claim before this one: of method over control, by its lines."""
    known = [line for line in lines(folder, signature.row, LAYER) if not line["error"]]
    found: list[float] = []
    for spec in dict.fromkeys(line["spec"] for line in known):
        blocks = [line["measurements"] for line in known if line["spec"] == spec]
        strata = [
            [signature.sign * (part["method"] - part["control"]) for part in block]
            for block in blocks
            if block and all({"method", "control"} <= part.keys() for part in block)
        ]
        if strata and (signature.kind == "training" or all(len(part) == 1 for part in strata)):
            strata = [[mean(part) for part in strata]]
        if spec != signature.digest() and strata and all(len(part) > 1 for part in strata):
            tests = [both_tests(signature, part) for part in strata]
            found.append(max(stouffer([pair[k] for pair in tests]) for k in (0, 1)))
    return found
