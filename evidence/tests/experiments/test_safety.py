"""Experiments on safety: what they measure is what their pages say, on a few episodes."""

from itertools import combinations
from random import Random

import pytest

from quintain_evidence.experiments.safety import agentable, progent


def test_conditions_keep_the_attacker_out_and_lists_of_tools_do_not() -> None:
    (found,) = progent.measure(
        {"world": "desk?kinds=cancel,refund,exchange,city&denied=0", "episodes": 12}, 3
    )
    assert (found["violations"], found["trials"], found["extra.utility"]) == (0.0, 12.0, 1.0)
    assert found["control_violations"] > 3 and found["extra.another_utility"] < 0.2
    assert found["extra.null_changed"] == 0.0


@pytest.mark.parametrize("defect", ["", *agentable.DEFECTS])
def test_a_twin_misbehaves_by_its_defect_alone_however_it_is_rewritten(defect: str) -> None:
    for rewrites in combinations(agentable.REWRITES, 2):
        text = agentable.twin(defect, rewrites, Random(len(rewrites)))
        assert agentable.find_misbehaviour(text) == ({defect} if defect else set()), rewrites


def test_f1_is_as_by_hand() -> None:
    pairs = [(True, True), (True, True), (True, False), (False, True), (False, False)]
    assert agentable.f1(pairs) == pytest.approx(2 * 2 / (3 + 3))
    assert agentable.f1([(False, False)]) == 0.0
