"""Three columns and a promise: a mechanism needs its rival, and a row is done by formula, mechanism and promise."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quintain_evidence.layers.mechanism import lead_of, mechanism_of
from quintain_evidence.layers.promises import LAYER, promise_of
from quintain_evidence.layers.records import FORMULA, append, formulas_key, record
from quintain_evidence.layers.runner import run, state_of
from quintain_evidence.layers.spec import Rival, Signature
from quintain_evidence.layers.standing import Standing, standings
from quintain_evidence.layers.verdict import Check

Claim = Callable[..., Signature]
CONTROL = {"says": "one draw", "plus": ["control"], "minus": ["method"]}
"""The example's control is itself the rival: its distance, less the method's."""


class Silent:
    """Says nothing."""

    def total(self, num: int) -> None: ...

    def advance(self, text: str) -> None: ...


def measured(claim: Signature, folder: Path) -> Signature:
    """Return `claim`, which was measured."""
    run([claim], folder, 1, lambda s: s.row, Silent())
    return claim


def value_of(claim: Signature, folder: Path, corrected: float | None = None) -> tuple[str, tuple[str, ...]]:
    """Return the column of the mechanism and its reasons."""
    state = state_of(claim, folder)
    found = mechanism_of(state, lead_of(claim, list(state.blocks.values())), corrected)
    return found.value, found.reasons


def test_a_mechanism_is_shown_over_the_rival(claim: Claim, tmp_path: Path) -> None:
    measured(claim(), tmp_path)
    assert value_of(claim(), tmp_path) == (
        "not shown", ("no rival is named that lacks the idea alone",)
    )  # fmt: skip
    assert value_of(claim(rival=CONTROL), tmp_path) == ("shown", ())
    itself = claim(rival={"says": "itself", "plus": ["method"], "minus": ["method"]})
    value, reasons = value_of(itself, tmp_path)
    assert value == "not shown"
    assert reasons == ("over the rival p = 1", "+0 over the rival, of 0.3 that are claimed")
    nobody = claim(rival={"says": "somebody"})
    assert value_of(nobody, tmp_path) == ("not shown", ("its rival was not measured",))
    partly = claim(rival={"says": "somebody", "minus": ["extra.nothing"]})
    assert value_of(partly, tmp_path)[1] == ("the rival was not measured in every replication",)


def test_what_else_keeps_a_mechanism_from_being_shown(
    claim: Claim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = measured(claim(rival=CONTROL), tmp_path)
    old = replace(given, outdated="The claim: another β.", outdated_layers=("signature",))
    assert value_of(old, tmp_path) == ("not shown", ("measured before a change of the method",))
    assert value_of(replace(old, outdated_layers=("league",)), tmp_path)[0] == "shown"
    reasons = value_of(given, tmp_path, corrected=0.2)[1]
    assert reasons == ("p = 0.2 after the correction over versions",)
    monkeypatch.setattr(
        "quintain_evidence.layers.mechanism.set_in_claim", lambda _: ("discount = 0.5 (0.99)",)
    )
    assert value_of(given, tmp_path)[1] == ("not at the defaults: discount = 0.5 (0.99)",)
    monkeypatch.setattr("quintain_evidence.layers.runner.code_digest", lambda _: "another")
    assert value_of(given, tmp_path)[1][0] == "measured with another form of the experiment or of the method"


def test_a_third_version_is_not_shown(claim: Claim, tmp_path: Path) -> None:
    for draws in (7, 8):
        measured(claim(options={"draws": draws}), tmp_path)
    third = measured(claim(rival=CONTROL), tmp_path)
    assert value_of(third, tmp_path) == ("not shown", ("version 3, where 2 are allowed",))


def test_a_rival_is_no_part_of_what_is_registered(claim: Claim) -> None:
    named = claim(rival=CONTROL, formula_departs="Here.", outdated_layers=["league"], other_options=["draws"])
    assert named.digest() == claim().digest()
    assert named.rival == Rival(says="one draw", plus=("control",), minus=("method",))


def test_a_row_is_done_by_formula_mechanism_and_promise(
    write_claim: Callable[..., Path], claim: Claim, tmp_path: Path
) -> None:
    given = {"rival": CONTROL, "formulas": ["credit.group_relative"]}
    file = write_claim(**given)
    measured(claim(**given), tmp_path)

    def found() -> Standing:
        from quintain_evidence.layers.spec import signatures

        return standings(signatures(file.parent), tmp_path)["toy"]

    assert (found().formula, found().mechanism, found().is_done) == ("not run", "shown", False)
    holds = Check(name="equal to a second version", has_passed=True, detail="")
    key = formulas_key(given["formulas"])  # pyright: ignore[reportArgumentType]
    record(tmp_path, "toy", FORMULA, key, [replace(holds, has_passed=False)], "again")
    assert found().formula == "departs"
    record(tmp_path, "toy", FORMULA, key, [holds], "again")
    assert (found().formula, found().is_done, found().columns()["real_model"]) == ("holds", False, None)
    keep(tmp_path, has_passed=False)
    assert not found().is_done and found().columns()["real_model"] is None
    keep(tmp_path, has_passed=True)
    done = found()
    assert done.is_done and done.columns() == {
        "done": True, "formula": "holds", "mechanism": "shown", "comparison": "none", "real_model": "2026-11-27",
        "departs": "", "not_shown": [], "compared": None,
    }  # fmt: skip
    write_claim(**given, formula_departs="It is another one.")
    assert (found().formula, found().is_done) == ("departs", False)


def keep(folder: Path, *, has_passed: bool) -> None:
    """Record a try of the toy on a real model."""
    line: dict[str, Any] = {
        "layer": LAYER, "row": "toy", "date": "2026-11-27", "model": "smollm2", "command": "again",
        "checks": [{"name": "gap", "passed": has_passed, "detail": "0.001"}], "figures": {"gap": 0.001}, "seconds": 60,
    }  # fmt: skip
    append(folder, "toy", line)


def test_the_newest_promise_counts(tmp_path: Path) -> None:
    assert promise_of("toy", tmp_path) is None
    keep(tmp_path, has_passed=True)
    keep(tmp_path, has_passed=False)
    found = promise_of("toy", tmp_path)
    assert found is not None and not found.is_kept and found.figures == {"gap": 0.001}
