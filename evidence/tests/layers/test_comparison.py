"""Which comparisons are none, whatever their values say, and what is told of those that are one."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quintain.config import build
from quintain_evidence.layers.comparison import Comparison, comparison_of, warm_up
from quintain_evidence.layers.league import BASELINE, METHOD, Entry, entry_of, known, outcome_of
from quintain_evidence.layers.records import append
from quintain_evidence.layers.settings import differing, is_same, own_defaults, set_in_claim
from quintain_evidence.layers.spec import Signature
from quintain_evidence.layers.verdict import Check

CLAIM: dict[str, Any] = {
    "row": "toy", "title": "Toy", "family": "toys", "source": "0000.00000", "kind": "tabular", "experiment": "example",
    "number": "distance", "least": 0.3, "unit": "points", "world": "numbers", "control": "one draw", "null": "none",
    "seeds": 24, "registered": "2026-01-31", "minutes": 0.1,
}  # fmt: skip
PASSED = (Check(name="equal rewards", has_passed=True, detail=""),)
BASE = [0.50, 0.52, 0.48, 0.51, 0.49, 0.50]


def signature(row: str = "rft", **league: Any) -> Signature:
    """Return a claim of `row` with a league of rounds, whose learning rate does not rise."""
    given = {
        "baseline": "rft", "world": "guess", "budget": 100, "rates": [], "seeds": 6,
        "shared": {"model": "micro", "demonstrations": 2}, **league,
    }  # fmt: skip
    return build(Signature, {**CLAIM, "row": row, "league": given}, "a test")


def judged(
    of: Signature,
    folder: Path,
    *,
    gain: float = 0.2,
    starts: Sequence[float | None] = (0.3, 0.3),
    updates: Sequence[int] = (200, 200),
    base: Sequence[float] = BASE,
    objective: Sequence[Check] | None = PASSED,
    corrected: float | None = None,
    **fields: Any,
) -> Comparison:
    """Return what is said of runs in which the method ends `gain` above the baseline."""
    entry = entry_of(of)
    assert entry is not None
    for place, arm in enumerate((METHOD, BASELINE)):
        for seed, value in enumerate(base):
            ends = value + (gain + 0.01 * (-1) ** seed if arm == METHOD else 0.0)
            start = starts[place]
            line = {
                "layer": "league", "row": of.row, "spec": entry.digest(), "version": 1, "arm": arm, "factor": 1.0,
                "seed": seed, "rate": None, "value": ends, "area": ends, "turns": 100, "tokens": 200,
                "updates": updates[place], "seconds": 1.0, "alarms": [], "command": "again", "run": f"{arm}-{seed}",
                "curve": [] if start is None else [[0.0, start], [100.0, ends]], **fields,
            }  # fmt: skip
            append(folder, of.row, line)
    outcome = outcome_of(entry, [entry], folder)
    return comparison_of(of, entry, outcome, objective, known(entry, folder), corrected)


def test_a_comparison_without_a_fault_says_what_its_values_say(tmp_path: Path) -> None:
    found = judged(signature(), tmp_path)
    assert (found.verdict, found.reasons, found.worst) == ("better", (), "better")
    assert (found.baseline, found.world, found.model, found.loss) == ("rft", "guess", "micro", 0.1)
    assert found.power == pytest.approx(1.0)


def test_power_is_small_where_seeds_differ(tmp_path: Path) -> None:
    noisy = [0.2, 0.9, 0.4, 0.8, 0.3, 0.7]
    found = judged(signature(), tmp_path, base=noisy, gain=0.0)
    assert found.power == pytest.approx(1.0), "what a seed does to both arms is no noise"
    (tmp_path / "rft.jsonl").unlink()
    for seed, value in enumerate(noisy):
        append(tmp_path, "rft", _line(signature(), METHOD, seed, value))
        append(tmp_path, "rft", _line(signature(), BASELINE, seed, noisy[-1 - seed]))
    entry = entry_of(signature())
    assert entry is not None
    outcome = outcome_of(entry, [entry], tmp_path)
    found = comparison_of(signature(), entry, outcome, PASSED, known(entry, tmp_path), None)
    assert found.verdict == "unresolved" and found.power is not None and found.power < 0.2


def _line(of: Signature, arm: str, seed: int, value: float) -> dict[str, Any]:
    entry = entry_of(of)
    assert entry is not None
    return {
        "layer": "league", "row": of.row, "spec": entry.digest(), "version": 1, "arm": arm, "factor": 1.0,
        "seed": seed, "rate": None, "value": value, "area": value, "turns": 100, "tokens": 200, "updates": 200,
        "seconds": 1.0, "alarms": [], "command": "again", "run": f"{arm}-{seed}", "curve": [[0, 0.3], [100, value]],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("league", "fields", "reason"),
    [
        ({}, {"starts": (0.34, 0.3)}, "starts differ by 0.040"),
        ({}, {"updates": (200, 140)}, "optimizer steps differ: 200 and 140"),
        ({}, {"starts": (0.47, 0.47)}, "the baseline gains +0.030"),
        ({}, {"starts": (None, None)}, "what the baseline gains is not stored: no arm was evaluated before it began"),
        ({}, {"base": [0.5] * 6}, "every seed of the baseline ends alike"),
        ({}, {"objective": None}, "objective not run"),
        ({}, {"objective": (replace(PASSED[0], has_passed=False),)}, "objective: equal rewards"),
        ({}, {"alarms": ["hacking"]}, "alarms at the end (baseline: hacking, method: hacking)"),
        ({"settings": {"model": "mini"}}, {}, "arms differ in model"),
        ({"settings": {"environment": "guess?high=9"}}, {}, "arms differ in environment"),
        ({"settings": {"expert_noise": 0.5}}, {}, "arms differ in expert_noise"),
        ({"recipe": "eto"}, {}, "the method alone has a teacher after the start"),
        ({"recipe": "rest", "settings": {"lr_decay": 0.125}}, {}, "not at the defaults: lr_decay = 0.125 ("),
        ({"recipe": "grpo"}, {"updates": (50, 50)}, "warm-up of 10 of 50 steps of the method"),
    ],
)  # fmt: skip
def test_gates(tmp_path: Path, league: dict[str, Any], fields: dict[str, Any], reason: str) -> None:
    found = judged(signature(**league), tmp_path, **fields)
    assert any(told.startswith(reason) for told in found.reasons), found.reasons
    assert found.verdict == "none" and found.by_values == "better"


def test_what_is_the_idea_is_no_fault(tmp_path: Path) -> None:
    found = judged(signature(idea=["updates"]), tmp_path, updates=(200, 100))
    assert found.reasons == ()


def test_the_start_of_one_arm_is_the_others_where_both_begin_with_one_policy(tmp_path: Path) -> None:
    assert judged(signature(), tmp_path / "one", starts=(0.3, None)).reasons == ()
    another = signature(settings={"temperature": 0.5})
    reasons = judged(another, tmp_path / "another", starts=(0.3, None)).reasons
    assert reasons == ("arms differ in temperature", "the start of one arm is not stored")


def test_the_correction_takes_a_gain_back_and_a_loss_stays(tmp_path: Path) -> None:
    assert judged(signature(), tmp_path / "lost", corrected=0.2).verdict == "not worse"
    assert judged(signature(), tmp_path / "worse", gain=-0.2, corrected=0.9).verdict == "worse"


def test_a_third_version_is_none_and_the_worst_of_all_is_shown(tmp_path: Path) -> None:
    for number, gain in enumerate((-0.2, 0.1)):
        judged(signature(budget=number + 1), tmp_path, gain=gain)
    found = judged(signature(), tmp_path)
    assert found.reasons == ("version 3, where 2 are allowed",)
    assert (found.by_values, found.worst) == ("better", "worse")


def test_what_was_not_run_is_none(tmp_path: Path) -> None:
    entry = entry_of(signature())
    assert entry is not None
    outcome = outcome_of(entry, [entry], tmp_path)
    found = comparison_of(signature(), entry, outcome, PASSED, {}, None)
    assert (found.verdict, found.reasons, found.power) == ("none", ("not run with six seeds",), None)
    old = replace(signature(), outdated="The league: another KL.", outdated_layers=("league",))
    reasons = comparison_of(old, entry, outcome, PASSED, {}, None).reasons
    assert reasons[1:] == ("measured before a change of the method",)


def test_a_schedule_of_the_configuration_takes_the_place_of_the_methods() -> None:
    from quintain.methods.find import find_method

    found = find_method("grpo")
    method = found.make(found.config_class())
    assert warm_up(method, {"lr_schedule": "method", "lr_warmup": 3}) == 10
    assert warm_up(method, {"lr_schedule": "linear", "lr_warmup": 3}) == 3


def test_settings_that_are_not_the_defaults() -> None:
    assert own_defaults("epo") == {"discount": 0.5, "is_weighted": True}
    assert own_defaults("nobody") == {}
    assert differing("epo", {"discount": 0.9, "episodes": 3}) == ("discount = 0.9 (0.5)",)
    assert differing("epo", {"discount": 0.9}, ("discount",)) == ()
    assert is_same([1, 2], (1, 2)) and is_same({"a": "b"}, {"a": "b"}) and not is_same(1, (1,))
    claim = build(Signature, {**CLAIM, "row": "epo", "options": {"discount": 0.9, "draws": 3}}, "a test")
    assert set_in_claim(claim) == ("discount = 0.9 (0.5)",)
    assert set_in_claim(replace(claim, other_options=("discount",))) == ()


def test_entries_keep_their_digest_where_an_idea_is_named() -> None:
    one, two = entry_of(signature()), entry_of(signature(idea=["updates"]))
    assert isinstance(one, Entry) and two is not None and one.digest() == two.digest()
