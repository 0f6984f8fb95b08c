"""Formulas agree with their second versions, and the harness tells a wrong one."""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import quintain.credit
import quintain.losses
import quintain.rewards
from quintain.errors import UsageError
from quintain_evidence.formulas.mutants import called_by, mutant, num_mutants
from quintain_evidence.layers.formulas import (
    answer,
    check_formulas,
    checks_of,
    error,
    hunted,
    known_formulas,
)


@pytest.mark.parametrize("name", sorted(known_formulas()))
def test_a_formula_is_equal_to_its_second_version(name: str) -> None:
    formula = known_formulas()[name]
    module = importlib.import_module(f"quintain.{formula.module}")
    assert max(error(formula, module, answer(formula, seed)) for seed in range(6)) < 1e-6
    assert formula.exact is None or formula.exact(module) > 0.999


@pytest.mark.parametrize("name", ["credit.leave_one_out", "rewards.turn_shaped"])
def test_mutants_are_found(name: str) -> None:
    assert [check.detail for check in check_formulas([name]) if not check.has_passed] == []


def test_a_wrong_formula_and_a_check_that_sees_nothing_fail() -> None:
    formula = known_formulas()["rewards.turn_shaped"]
    wrong = replace(formula, reference=lambda case: [1.0 for _ in case])
    assert not checks_of(wrong)[0].has_passed
    blind = replace(formula, ours=lambda _m, case: formula.reference(case))
    module = importlib.import_module(f"quintain.{formula.module}")
    assert not hunted(blind, module, [answer(blind, 0)]).has_passed
    missing = replace(formula, ours=lambda _m, _c: [float("nan")] * 30)
    assert error(missing, module, answer(formula, 0)) == float("inf")
    short = replace(formula, ours=lambda _m, _c: [])
    assert error(short, module, answer(formula, 0)) == float("inf")


def test_a_mutant_is_a_copy_and_the_module_stays() -> None:
    module = importlib.import_module("quintain.rewards.search")
    before = module.turn_shaped(False, 6)
    told = set[str]()
    for number in range(num_mutants(module, ("turn_shaped",))):
        with mutant(module, ("turn_shaped",), number) as (made, what):
            assert made.__name__ != module.__name__
            told.add(what)
    assert module.turn_shaped(False, 6) == before
    assert {"minus dropped", "min taken for max"} <= {what.split(": ", 1)[1] for what in told}


def test_a_short_formula_has_mutants_of_its_own_kind() -> None:
    module = importlib.import_module("quintain.losses.imitation")
    assert num_mutants(module, ("imitation",)) == 1
    told = list[str]()
    for number in range(num_mutants(module, ("imitation",), is_short=True)):
        with mutant(module, ("imitation",), number, is_short=True) as (_, what):
            told.append(what.split(": ", 1)[1])
    assert told == [
        "-weighted_sum(batch, outputs.logprobs) twice", "-weighted_sum(batch, outputs.logprobs) and one",
        "outputs.logprobs twice", "outputs.logprobs and one",
    ]  # fmt: skip
    assert checks_of(known_formulas()["losses.imitation"])[1].detail == "5 of 5 tried are found"


def test_a_mutant_of_a_short_formula_that_only_breaks_is_not_counted() -> None:
    formula = known_formulas()["losses.imitation"]
    module = importlib.import_module("quintain.losses.imitation")

    def broken(made: ModuleType, case: Any) -> Sequence[float]:
        if made is not module:
            raise TypeError("a tensor and a word")
        return formula.ours(made, case)

    assert (
        hunted(replace(formula, ours=broken), module, [answer(formula, 0)]).detail == "1 of 1 tried are found"
    )


def test_rows_name_formulas_that_exist() -> None:
    assert check_formulas([])[0].has_passed is False
    with pytest.raises(UsageError, match=r"formula: got 'credit\.leave_one'; did you mean"):
        check_formulas(["credit.leave_one"])


def test_random_batches_are_ragged() -> None:
    draw = known_formulas()["credit.leave_one_out"].draw
    cases = [draw(np.random.default_rng(seed)) for seed in range(20)]
    sizes = {len(group.trajectories) for case in cases for group in case.groups}
    assert 1 in sizes and len(sizes) > 3
    assert any(len(case.plays) < sum(len(g.trajectories) for g in case.groups) for case in cases), "failures"


LAYOUT = {
    "quintain.credit.decomposition": {"EarlierSteps", "describe_turn"},
    "quintain.credit.layout": None,
    "quintain.credit.whiten": {"by_environment", "by_seat"},
    "quintain.losses.measure": {"is_trained", "token_means", "numbers", "reference_of"},
    "quintain.rewards.dealt": None,  # an exchange by chance, whose tests say what it keeps
    "quintain.rewards.conduct": {"environment_reward", "success"},
    "quintain.rewards.efficiency": {"num_tokens", "num_turns"},
    "quintain.rewards.exploration": {"by_environment"},
    "quintain.rewards.feedback": {"RemarkPool"},
    "quintain.rewards.legality": {"read_rubric"},
    "quintain.rewards.pointing": {"as_call"},
    "quintain.rewards.retrieval": {
        "answer_score",
        "has_searched",
        "is_well_formed",
        "pay_stages",
        "pay_with_floor",
        "search_rate",
    },
    "quintain.rewards.terms": {"acts", "mean_terms"},
}
"""what counts, reads or arranges, and computes nothing that a paper says; None: the whole file"""


def test_all_of_credit_losses_and_rewards_has_a_second_version() -> None:
    checked: dict[str, set[str]] = {}
    for formula in known_formulas().values():
        tree = ast.parse(inspect.getsource(importlib.import_module(f"quintain.{formula.module}")))
        reached = called_by(tree, formula.functions, ())
        checked.setdefault(f"quintain.{formula.module}", set()).update(name.split(".")[0] for name in reached)
    missing: list[str] = []
    for room in (quintain.credit, quintain.losses, quintain.rewards):
        for info in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
            aside = LAYOUT.get(info.name, set[str]())
            tree = ast.parse(inspect.getsource(importlib.import_module(info.name)))
            missing += [
                f"{info.name}.{node.name}"
                for node in tree.body
                if isinstance(node, (ast.FunctionDef, ast.ClassDef))
                and aside is not None
                and node.name not in checked.get(info.name, set()) | aside
            ]
    assert missing == [], (
        "give each a second version in quintain_evidence/formulas, or a place in LAYOUT above"
    )
