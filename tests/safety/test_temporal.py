"""Formulas over traces: brute force beside the automaton, what may come next, guards, and what is refused."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from tests.build import make_episode, make_turn

from quintain.agents.guarded import apply_policy
from quintain.environments.catalog import find
from quintain.environments.protocol import advance, begin, tool_action
from quintain.errors import ConfigError
from quintain.safety.policy import Policy, read_order_of, read_policy
from quintain.safety.temporal import TemporalGuard, build_automaton, trace_of
from quintain.types import Action, Task, ToolError

TASK = Task(id="t", environment="e", seed=0)
ORDER = "not refund unless show_order and not show_order unless find_customer"


@pytest.mark.parametrize(
    ("formula", "accepted"),
    [
        ("A and next (B and next (D and last))", ["ABD"]),
        ("not b unless a", ["", "a", "c", "ab", "cc", "ca", "cab"]),
        ("eventually (last and a)", ["a", "ca", "ba"]),
        ("a until[1,2] b", ["ab", "aab"]),
        ("always[0,1] a", ["", "a", "aa", "aab"]),
        ("next a", ["ca", "ba"]),
        ("weak_next a", ["", "c", "ca"]),
        ("a implies eventually b", ["", "b", "cc", "ab", "acb"]),
    ],
)
def test_a_trace_is_accepted_as_the_words_say(formula: str, accepted: list[str]) -> None:
    made = build_automaton(formula, names=["a", "b", "c"])
    for trace in accepted:
        assert made.accepts(trace), trace
    wrong = {
        "A and next (B and next (D and last))": ["AD", "DDD", "AB", "ABDD"],
        "not b unless a": ["b", "cb"],
    }
    for trace in wrong.get(formula, ["ac" if "b" in formula and "implies" in formula else "cb"]):
        assert not made.accepts(trace), trace


def test_what_follows_a_loop_is_offered_beside_it() -> None:
    made = build_automaton("C and next (A until (D and last) or B until (D and last))")
    for trace, offered in (("C", "ABD"), ("CA", "AD"), ("CB", "BD")):
        state = 0
        for name in trace:
            state = made.move(state, name)
        assert [name for name in made.names if made.allows(state, name)] == [*offered], trace


def test_what_is_allowed_looks_ahead_to_the_last_turn() -> None:
    made = build_automaton("not c unless b and not b unless a and eventually c", names=["d"])
    for turns in range(1, 6):
        for first in made.names:
            ways = itertools.product(made.names, repeat=turns - 1)
            assert made.allows(0, first, turns) == any(made.accepts((first, *rest)) for rest in ways)
    assert made.allows(0, "d") and not made.allows(0, "b")


def test_what_may_end_an_episode_waits_until_it_may() -> None:
    made = build_automaton("eventually a", ends=["stop"])
    assert not made.allows(0, "stop", 2) and made.allows(made.move(0, "a"), "stop", 2)
    assert not made.allows(0, "stop")


@pytest.mark.parametrize(
    ("formula", "told"),
    [
        ("a and not a", "no trace can fulfil"),
        ("always a and eventually b", "no trace can fulfil"),
        ("a and", "ends too early"),
        ("(a", "ends too early"),
        ("a b", "'b' follows"),
        ("a until[3,1] b", "bounds 3 and 1"),
        ("a and[1,2] b", "and has bounds"),
        ("a & b", "cannot be read"),
        ("and", "stands where an action should"),
        ("eventually[0,99] a", "at most 50"),
    ],
)
def test_a_formula_that_is_none_or_never_holds_is_refused(formula: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told.replace("(", r"\(")):
        build_automaton(formula)


def test_a_limit_too_short_for_a_formula_is_refused() -> None:
    with pytest.raises(ConfigError, match="got 1 turns"):
        TemporalGuard(build_automaton("next a"), turns=1)


def test_an_order_is_a_part_of_a_policy_and_goes_back_with_it(tmp_path: Path) -> None:
    file = tmp_path / "desk.json"
    file.write_text(json.dumps({"$order": {"formula": ORDER}}))
    assert read_policy(file) == {} and read_order_of(file) is not None
    environment = apply_policy(find("desk?kinds=refund&denied=0")(), str(file))
    begin(environment, environment.task("train", 0))
    state = environment.snapshot()
    refused = advance(environment, tool_action("show_order", order=3))
    assert refused.reward_terms["refused"] == 1.0
    assert refused.observation == ("Error: show_order: not now; allowed are find_customer.")
    advance(environment, tool_action("find_customer", name="Ann"))
    assert "refused" not in advance(environment, tool_action("show_order", order=3)).reward_terms
    environment.restore(state)
    assert "refused" in advance(environment, tool_action("show_order", order=3)).reward_terms


def test_rules_and_order_must_both_allow_a_call(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(
        json.dumps({"a": [{"installs": {"c": [{}]}}], "b": [{}], "$order": {"formula": "not a unless b"}})
    )
    made = Policy.load(file)
    made.begin(TASK, "")
    names = ("a", "c", "b", "a", "c")
    effects = [made.judge(tool_action(name)).effect for name in names]
    assert effects == ["forbid", "forbid", "allow", "allow", "allow"]


@pytest.mark.parametrize(
    ("order", "told"),
    [
        ("not refund unless show", "got the tool 'show' in"),
        ([], "give a table with a formula"),
        ({"formula": 3}, "got formula 3"),
        ({"formula": "a", "end": []}, "got 'end'; did you mean 'ends'"),
    ],
)
def test_an_order_that_is_none_is_refused_with_its_place(order: object, told: str, tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(json.dumps({"$order": {"formula": order} if isinstance(order, str) else order}))
    with pytest.raises(ConfigError, match=told):
        apply_policy(find("desk")(), str(file))


@pytest.mark.parametrize(
    ("rules", "formula", "is_met"),
    [
        ({"find": [{}], "pay": [{}]}, "eventually pay", True),
        ({"find": [{}], "pay": [{"effect": "forbid"}]}, "eventually pay", False),
        ({"find": [{"installs": {"pay": [{}]}}]}, "eventually pay", True),
        ({"find": [{}]}, "eventually say", True),
        ({"find": [{}], "say": []}, "eventually say", False),
        ({"find": [{}]}, "eventually (not pay and last)", True),
        ({"pay": [{}], "say": []}, "next not pay", False),
        ({"pay": [{}]}, "always (find or pay)", True),
    ],
)
def test_rules_that_allow_nothing_of_what_the_order_asks_for_are_a_contradiction(
    rules: dict[str, object], formula: str, is_met: bool, tmp_path: Path
) -> None:
    file = tmp_path / "p.json"
    file.write_text(json.dumps({**rules, "$order": {"formula": formula}}))
    if is_met:
        assert read_order_of(file) is not None
        return
    with pytest.raises(
        ConfigError, match=r"policy p.json: got rules that allow no trace which \$order accepts;"
    ):
        read_order_of(file)


def test_a_formula_that_only_doing_nothing_fulfils_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(json.dumps({"$order": {"formula": "always pay and always not pay"}}))
    with pytest.raises(ConfigError, match="holds of no action at all"):
        read_order_of(file)
    file.write_text(json.dumps({"$order": {"formula": "always pay"}}))
    assert read_order_of(file) is not None


def test_an_end_counts_where_the_formula_holds_then(tmp_path: Path) -> None:
    made = build_automaton("eventually find", ends=["stop"])
    assert made.can_accept({"find"}) and not made.can_accept({"stop"}) and made.can_accept({"find", "stop"})


def test_a_trace_is_what_was_carried_out() -> None:
    turns = (
        make_turn(action=tool_action("a")),
        make_turn(action=Action(text="?", error="unreadable")),
        make_turn(action=tool_action("b"), tool_errors=(ToolError(tool="b", cause="refused"),)),
        make_turn(action=Action(text="hello")),
    )
    assert trace_of(make_episode(*turns)) == ["a", "say"]
