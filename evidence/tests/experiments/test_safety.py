"""Experiments on safety: what they measure is what their pages say, on a few episodes."""

from itertools import combinations
from random import Random

import pytest

from quintain.testing.pupil import tasks_from
from quintain_evidence.experiments.safety import agent_poison, agentable, eu_agent_bench, ltl, progent
from quintain_evidence.labs.law import JOBS, KINDS, find_kind, make_file, write_call


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


def test_an_order_and_a_static_policy_refuse_what_the_other_lets_through() -> None:
    found = ltl.compare_guards(tasks_from("desk?kinds=cancel,refund&denied=0", 3))
    assert (found["extra.order_early"], found["extra.static_early"]) == (0.0, 1.0)
    assert (found["extra.order_wrong"], found["extra.static_wrong"]) == (1.0, 0.0)
    assert found["extra.null_changed"] == 0.0


def test_words_are_dealt_out_anew_and_none_to_itself() -> None:
    formula, ends = ltl.deal_words(
        "not say unless find", ["say", "find", "show", "refuse", "transfer"], Random(1)
    )
    new, other = formula.removeprefix("not ").split(" unless ")
    assert new != "say" and other != "find" and len({*ends}) == 3 and ends[0] == new


def test_the_joint_score_finds_the_order_and_silence_is_first_officially() -> None:
    assert eu_agent_bench.tau([1, 2, 3], [1, 2, 3]) == 1.0
    assert eu_agent_bench.tau([1, 1, 3], [1, 2, 3]) == pytest.approx(2 / 3)
    covered, plain = eu_agent_bench.count_covered(Random(1), 60)
    assert covered > 0.85 > plain


def test_every_job_has_a_lawful_way_that_no_request_names() -> None:
    rows = make_file()["user_requests"]
    assert len(rows) == len(KINDS) * len(JOBS) * 10
    for row in rows:
        kind = find_kind(row["prompt"])
        assert kind.tool == row["necessary_arg"] and kind.argument not in row["prompt"]
        assert str(kind.lawful) not in row["prompt"] and str(kind.unlawful) not in row["prompt"]
    assert write_call(KINDS[0], is_lawful=True) != write_call(KINDS[0], is_lawful=False)


def test_rare_words_are_those_of_the_fewest_keys_and_noise_knows_no_words() -> None:
    assert agent_poison.find_rare(["a b", "a c", "a b"], 2) == ("c", "b")
    one, other, again = agent_poison.draw_points(["a b", "a c", "a b"])
    assert (one == again).all() and abs(float(one @ other)) < 0.6
