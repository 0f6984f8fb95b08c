"""Whether a registered claim holds, by its measurements: effect, tests, null world, gates and doses.

The effect is method minus control, turned so that it is to rise. It must be above 0 by a paired t test and by the
sign-flip test, at least as large as registered, and absent in the null world. Labs are tested within each block
(checkpoint, table) and combined; training is one pair a block, and a sequence of 6, 10 or 16.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quintain.errors import DataError
from quintain_evidence.layers.inference import (
    Estimate,
    Look,
    clopper_pearson,
    estimate,
    flip_test,
    looks,
    mcnemar_test,
    smallest_flip,
    stouffer,
    t_test,
    trend_test,
    wilcoxon_test,
)
from quintain_evidence.layers.spec import Gate, Signature

Block = Sequence[Mapping[str, float]]
"""paired replications of a checkpoint, or of a training seed"""
NULL_LEVEL = 0.9
BOUND_LEVEL = 0.9
"""two-sided level of the one-sided 95 % bound of a gate"""
TREND_ALPHA = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that a claim must pass: ``Check(name="effect", has_passed=True, detail="+0.07 ≥ 0.03")``."""

    name: str
    has_passed: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the measurements say of a claim."""

    row: str
    is_complete: bool
    """whether all blocks that the claim asks for are there"""
    checks: tuple[Check, ...]
    effect: Estimate | None = None
    null: Estimate | None = None
    p_value: float | None = None
    """the larger one of the two tests'"""
    blocks: int = 0
    look: Look | None = None
    """where a sequence of training seeds stands"""
    is_futile: bool = False
    """whether a sequence ends because the effect has the wrong sign"""

    @property
    def holds(self) -> bool:
        """Return whether the claim is shown."""
        return self.is_complete and bool(self.checks) and all(check.has_passed for check in self.checks)


def judge(signature: Signature, blocks: Sequence[Block]) -> Verdict:
    """Return what `blocks`, in order, say of the claim.

    Raises:
        DataError: a measurement lacks what the claim names.
    """
    if not blocks:
        return Verdict(row=signature.row, is_complete=False, checks=())
    if signature.kind == "property":
        return judge_property(signature, blocks)
    if signature.kind == "training":
        return judge_sequence(signature, blocks)
    differences = paired(signature, blocks, "method", "control")
    tests = [both_tests(signature, part) for part in differences]
    p_values = tuple(stouffer([pair[k] for pair in tests]) for k in (0, 1))
    return assembled(
        signature, blocks, differences, p_values, signature.alpha, len(blocks) >= signature.blocks
    )


def judge_sequence(signature: Signature, blocks: Sequence[Block]) -> Verdict:
    """Return the verdict of training seeds at the last look that they have reached."""
    places = looks(signature.blocks)
    reached = [look for look in places if look.num <= len(blocks)]
    if not reached:
        return Verdict(row=signature.row, is_complete=False, checks=(), blocks=len(blocks))
    found: Verdict | None = None
    for look in reached:
        seen = blocks[: look.num]
        differences = [[mean(part) for part in paired(signature, seen, "method", "control")]]
        tests = both_tests(signature, differences[0])
        found = assembled(
            signature, seen, differences, tests, look.alpha, True, look, look == places[0], look == places[-1]
        )
        if found.is_complete:
            return found
    assert found is not None
    return found


def assembled(
    signature: Signature,
    blocks: Sequence[Block],
    differences: Sequence[Sequence[float]],
    p_values: Sequence[float],
    alpha: float,
    is_there: bool,
    look: Look | None = None,
    is_first: bool = False,
    is_last: bool = True,
) -> Verdict:
    """Return the verdict over all checks; a sequence is complete where it may stop."""
    effect = estimate(differences)
    num = min(map(len, differences))
    names = (f"{signature.test} test" if signature.test != "t" else "paired t test", "sign-flip test")
    # With few pairs "all of one sign" is the smallest p-value that a flip test has.
    bounds = (alpha, max(alpha, smallest_flip(num)))
    checks = [
        Check(name=name, has_passed=p <= bound, detail=f"p = {p:.2g}, to be at most {bound:.2g}")
        for name, p, bound in zip(names, p_values, bounds, strict=True)
    ]
    checks.append(
        Check(
            name="effect",
            has_passed=effect.mean >= signature.least,
            detail=f"{effect.mean:+.4g} [{effect.low:+.4g}, {effect.high:+.4g}] {signature.unit}, to be at least "
            f"{signature.least:g}",
        )
    )
    measured = blocks[: signature.null_blocks] if signature.null_blocks else blocks
    null = null_effect(signature, measured)
    checks.append(
        Check(
            name="null world",
            has_passed=null.is_within(signature.tolerance),
            detail=f"{null.mean:+.4g} [{null.low:+.4g}, {null.high:+.4g}], to be within ± {signature.tolerance:.4g}",
        )
    )
    checks += [gate_check(gate, blocks, signature) for gate in signature.gates]
    if signature.dose is not None:
        checks.append(dose_check(signature, blocks))
    is_futile = is_first and effect.mean <= 0
    all_passed = all(check.has_passed for check in checks)
    return Verdict(
        row=signature.row,
        is_complete=is_there and (is_last or all_passed or is_futile),
        checks=tuple(checks),
        effect=effect,
        null=null,
        p_value=max(p_values),
        blocks=len(blocks),
        look=look,
        is_futile=is_futile,
    )


def both_tests(signature: Signature, differences: Sequence[float]) -> tuple[float, float]:
    """Return the p-values of the registered test and of the sign-flip test."""
    first = {"t": t_test, "wilcoxon": wilcoxon_test, "mcnemar": mcnemar_test}[signature.test]
    return first(differences), flip_test(differences)


def paired(
    signature: Signature, blocks: Sequence[Block], method: str, control: str, sign: float | None = None
) -> list[list[float]]:
    """Return the differences of two keys in every replication, by block, turned so that the claim is a rise."""
    factor = signature.sign if sign is None else sign
    return [
        [
            factor * (value(signature, found, method) - value(signature, found, control))
            for found in replications
        ]
        for replications in blocks
    ]


def null_effect(signature: Signature, blocks: Sequence[Block]) -> Estimate:
    """Return the effect in the null world with its 90 % interval, over the replications that measured it."""
    measured = [[found for found in part if "null_method" in found] or part[:1] for part in blocks]
    differences = paired(signature, measured, "null_method", "null_control")
    if signature.kind == "training" or all(len(part) == 1 for part in differences):
        differences = [[mean(part) for part in differences]]
    return estimate(differences, NULL_LEVEL)


def value(signature: Signature, measured: Mapping[str, float], key: str) -> float:
    """Return the measurement `key`."""
    if key not in measured:
        raise DataError(
            f"measurement of {signature.row}: got {', '.join(sorted(measured)) or 'nothing'}; "
            f"{signature.experiment}.measure must return {key!r}, too"
        )
    return float(measured[key])


def values_of(signature: Signature, blocks: Sequence[Block], key: str) -> list[list[float]]:
    """Return the measurement `key`, by block; of training, and where a block has it once, blocks are the values."""
    found = [
        [value(signature, measured, key) for measured in replications if key in measured] or [float("nan")]
        for replications in blocks
    ]
    if any(part != part for row in found for part in row):
        value(signature, {}, key)
    is_flat = signature.kind == "training" or all(len(part) == 1 for part in found)
    return [[mean(part) for part in found]] if is_flat else found


def gate_check(gate: Gate, blocks: Sequence[Block], signature: Signature) -> Check:
    """Return whether the number of `gate` lies in its range."""
    values = values_of(signature, blocks, gate.key)
    centre = mean([mean(part) for part in values])
    low = high = centre
    if gate.by == "bound":
        found = estimate(values, BOUND_LEVEL)
        low, high = found.low, found.high
    is_within = (gate.least is None or low >= gate.least) and (gate.most is None or high <= gate.most)
    asked = [f"at least {gate.least:g}"] if gate.least is not None else []
    asked += [f"at most {gate.most:g}"] if gate.most is not None else []
    told = f"{centre:.4g}" + (f" [{low:.4g}, {high:.4g}]" if gate.by == "bound" else "")
    return Check(
        name=f"gate {gate.key}",
        has_passed=is_within,
        detail=f"{told}, to be {' and '.join(asked)}: {gate.says}",
    )


def dose_check(signature: Signature, blocks: Sequence[Block]) -> Check:
    """Return whether the values rise with the dose: Page's test in each block, combined."""
    dose = signature.dose
    assert dose is not None
    columns = [values_of(signature, blocks, key) for key in dose.keys]
    p_value = stouffer([trend_test(list(zip(*parts, strict=True))) for parts in zip(*columns, strict=True)])
    means = ", ".join(f"{mean([mean(part) for part in column]):.4g}" for column in columns)
    return Check(
        name="dose",
        has_passed=p_value <= TREND_ALPHA,
        detail=f"p = {p_value:.2g}, to be at most {TREND_ALPHA:g}; means {means}: {dose.says}",
    )


def judge_property(signature: Signature, blocks: Sequence[Block]) -> Verdict:
    """Return the verdict of what must always hold; its control, where it is measured, must break it."""
    counts = {
        key: sum(int(found.get(key, 0)) for block in blocks for found in block)
        for key in ("violations", "trials", "control_violations", "control_trials")
    }
    if not counts["trials"]:
        raise DataError(f"measurement of {signature.row}: got no trials; measure must return 'trials'")
    _, high = clopper_pearson(counts["violations"], counts["trials"])
    checks = [
        Check(
            name="property",
            has_passed=counts["violations"] == 0,
            detail=f"{counts['violations']} of {counts['trials']:,} violate it; the rate is below {high:.2g} (95 %)",
        )
    ]
    if not counts["control_trials"]:
        raise DataError(
            f"measurement of {signature.row}: got no control; measure must return 'control_violations' and "
            "'control_trials', or nobody knows that the check can fail"
        )
    low, _ = clopper_pearson(counts["control_violations"], counts["control_trials"])
    checks.append(
        Check(
            name="control",
            has_passed=low >= signature.least,
            detail=f"{counts['control_violations']} of {counts['control_trials']:,} of the control violate it; the "
            f"rate is above {low:.2g} (95 %), to be at least {signature.least:g}",
        )
    )
    checks += [gate_check(gate, blocks, signature) for gate in signature.gates]
    return Verdict(
        row=signature.row,
        is_complete=len(blocks) >= signature.blocks,
        checks=tuple(checks),
        blocks=len(blocks),
    )


def mean(values: Sequence[float]) -> float:
    """Return the mean of `values`."""
    return sum(values) / len(values)
