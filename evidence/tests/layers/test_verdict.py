"""What a claim must pass: each check fails alone where its part of the measurements is spoilt."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from quintain.errors import DataError
from quintain_evidence.layers.spec import Signature
from quintain_evidence.layers.verdict import Verdict, judge

Claim = Callable[..., Signature]
SEEN: dict[str, Any] = {"direction": "higher", "least": 0.5, "null_tolerance": None, "seeds": 12, "blocks": 2}


def block(
    num: int, effect: float, *, seed: int = 0, null: float = 0.0, **extra: float
) -> list[dict[str, float]]:
    rng = np.random.default_rng(seed)
    control, noise, doses = rng.normal(size=num), rng.normal(size=num) * 0.3, rng.normal(size=(num, 3)) * 0.1
    return [
        {
            "control": float(c),
            "method": float(c + effect + n),
            "null_control": float(c),
            "null_method": float(c + null + n / 10),
            **{f"extra.dose{k}": float(k * effect + d[k]) for k in range(3)},
            **extra,
        }
        for c, n, d in zip(control, noise, doses, strict=True)
    ]


def failed(found: Verdict) -> list[str]:
    return [check.name for check in found.checks if not check.has_passed]


def two(effect: float, **fields: float) -> Sequence[Sequence[Mapping[str, float]]]:
    return [block(12, effect, seed=1, **fields), block(12, effect, seed=2, **fields)]


def test_a_claim_holds_when_all_is_there(claim: Claim) -> None:
    seen = claim(**SEEN)
    found = judge(seen, two(1.0))
    assert found.holds and failed(found) == [] and found.blocks == 2
    assert found.effect is not None and found.effect.mean == pytest.approx(1.0, abs=0.2)
    assert not judge(seen, two(1.0)[:1]).is_complete, "a block is missing"
    assert not judge(seen, []).holds


def test_each_check_can_fail_alone(claim: Claim) -> None:
    seen = claim(**SEEN)
    assert failed(judge(seen, two(0.4))) == ["effect"]
    assert failed(judge(seen, two(1.0, null=0.4))) == ["null world"]
    gates = [{"key": "extra.start", "says": "it can", "least": 0.4, "most": 0.7}]
    assert failed(judge(claim(**SEEN, gates=gates), two(1.0, **{"extra.start": 0.5}))) == []
    assert failed(judge(claim(**SEEN, gates=gates), two(1.0, **{"extra.start": 0.8}))) == ["gate extra.start"]
    bound = [{"key": "extra.dose0", "says": "no lower", "least": -0.1, "by": "bound"}]
    assert failed(judge(claim(**SEEN, gates=bound), two(1.0))) == []
    bound[0]["least"] = -0.01
    assert failed(judge(claim(**SEEN, gates=bound), two(1.0))) == ["gate extra.dose0"], (
        "the mean is 0, its bound below"
    )
    keys = ["extra.dose0", "extra.dose1", "extra.dose2"]
    dose = {"keys": keys, "says": "more is more"}
    assert failed(judge(claim(**SEEN, dose=dose), two(1.0))) == []
    keys.reverse()
    assert failed(judge(claim(**SEEN, dose=dose), two(1.0))) == ["dose"]


def test_a_fall_can_be_claimed(claim: Claim) -> None:
    fields = {**SEEN, "direction": "lower"}
    assert judge(claim(**fields), two(-1.0)).holds
    assert failed(judge(claim(**fields), two(1.0))) == ["paired t test", "sign-flip test", "effect"]


def test_training_is_a_sequence(claim: Claim) -> None:
    seen = claim(**{**SEEN, "kind": "training", "seeds": 1, "blocks": 16})

    def seeds(num: int, effect: float, spread: float = 0.2) -> list[list[dict[str, float]]]:
        shifts = spread * np.tile([-1.0, 1.0], num)[:num]
        return [block(1, effect + shift, seed=k) for k, shift in enumerate(shifts)]

    assert not judge(seen, seeds(5, 1.0)).is_complete
    early = judge(seen, seeds(6, 1.0))
    assert early.holds and early.look is not None and early.look.num == 6, "six of one sign are enough at six"
    later = judge(seen, seeds(6, 0.6, spread=1.0))
    assert not later.is_complete, "not clear at six: goes on"
    futile = judge(seen, seeds(6, -0.5))
    assert futile.is_complete and futile.is_futile and not futile.holds
    last = judge(seen, seeds(16, 0.6, spread=2.0))
    assert last.is_complete and not last.holds and last.blocks == 16
    assert judge(seen, [*seeds(6, 1.0), *seeds(10, -9.0)]).blocks == 6, (
        "what came after its end does not count"
    )


def test_a_property_has_no_exception_and_its_control_has(claim: Claim) -> None:
    seen = claim(**{**SEEN, "kind": "property", "blocks": 1, "least": 0.05})
    counts = {"violations": 0.0, "trials": 500.0, "control_violations": 60.0, "control_trials": 500.0}
    assert judge(seen, [[counts]]).holds
    assert failed(judge(seen, [[{**counts, "violations": 1.0}]])) == ["property"]
    assert failed(judge(seen, [[{**counts, "control_violations": 30.0}]])) == ["control"], (
        "6 %, but the bound is lower"
    )
    with pytest.raises(DataError, match="got no control"):
        judge(seen, [[{"violations": 0.0, "trials": 500.0}]])
    with pytest.raises(DataError, match="got no trials"):
        judge(seen, [[{"violations": 0.0}]])


@pytest.mark.parametrize("name", ["wilcoxon", "mcnemar"])
def test_problems_are_paired_by_other_tests(claim: Claim, name: str) -> None:
    seen = claim(**{**SEEN, "kind": "counterfactual", "test": name, "seeds": 40, "blocks": 1, "least": 0.3})
    solved = [
        {"method": 1.0, "control": float(k % 2), "null_method": 0.0, "null_control": 0.0} for k in range(40)
    ]
    found = judge(seen, [solved])
    assert found.holds and found.checks[0].name == f"{name} test"


def test_a_measurement_that_is_missing_is_named(claim: Claim) -> None:
    bare = [{"method": 1.0, "control": 0.0} for _ in range(12)]
    with pytest.raises(DataError, match=r"got control, method; example.measure must return 'null_method'"):
        judge(claim(**SEEN), [bare, bare])
    gates = [{"key": "extra.a", "says": "x", "least": 0.0}]
    with pytest.raises(DataError, match=r"must return 'extra\.a'"):
        judge(claim(**SEEN, gates=gates), two(1.0))


def test_the_null_world_may_be_measured_in_some_replications(claim: Claim) -> None:
    blocks = two(1.0)
    some = [
        [
            found if k < 6 else {"method": found["method"], "control": found["control"]}
            for k, found in enumerate(part)
        ]
        for part in blocks
    ]
    found = judge(claim(**SEEN), some)
    assert found.holds and found.null is not None and found.null.num == 12
