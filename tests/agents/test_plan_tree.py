"""Plans in a tree: which turns are shown, and what the environment is asked."""

from collections.abc import Callable

import pytest
from tests.agents.conftest import Talk

from quintain.agents.harness import PlainText
from quintain.agents.plan_tree import EXPLAIN, Branching, PlanTree
from quintain.agents.protocol import Brief
from quintain.errors import UsageError
from quintain.text.chat import Chat

Briefs = Callable[..., Brief]


def test_plans_by_hand() -> None:
    tree = PlanTree()
    assert (
        tree.take("branch [1] find it")
        == tree.take("note [it costs 12]")
        == tree.take("branch [2] ask")
        == ""
    )
    assert tree.write() == (
        "Plans:\nplan 1: do the task\n  plan 2: find it\n    note: it costs 12\n    plan 3: ask <- now"
    )
    assert tree.take("branch [1] buy it") == ""
    assert (tree.current, tree.take("prune [2] sold out")) == (4, "")
    assert tree.current == 4, "another plan was given up"
    assert tree.write() == (
        "Plans:\nplan 1: do the task\n  plan 2: find it (given up: sold out)\n  plan 4: buy it <- now"
    )
    assert tree.take("prune [3] again") == "there is no plan 3; the plans are 1, 4"
    assert tree.take("branch [9] x") == "there is no plan 9; the plans are 1, 4"
    assert tree.take("prune [1] no") == "plan 1 is the task, which cannot be given up"
    assert tree.take("prune [4] too dear") == "" and tree.current == 1
    assert tree.take("click [4]") is None and tree.take("branch [4]") is None


def test_pruning_a_plan_above_the_current_one_goes_on_above_it() -> None:
    tree = PlanTree()
    for text in ("branch [1] a", "branch [2] b", "prune [2] no"):
        assert tree.take(text) == ""
    assert tree.current == 1 and [tree.is_pruned(n) for n in (1, 2, 3)] == [False, True, True]


def test_a_plan_shows_its_own_turns_and_giving_it_up_restores_those_above(
    small_chat: Chat, brief_of: Briefs
) -> None:
    talk = Talk(small_chat, Branching(PlainText(small_chat)).open(brief_of()))
    assert talk.sees("A wall.") == f"<|system|>Go.\n\n{EXPLAIN}<|user|>A wall.<|assistant|>"
    inner = talk.says("branch [1] go left")
    assert inner is not None and talk.action.text == "branch [1] go left"
    tree = "Plans:\nplan 1: do the task\n  plan 2: go left <- now"
    assert (
        inner.endswith(f"<|user|>A wall.\n\n{tree}<|assistant|>") and "branch [1] go left<|end|>" not in inner
    )
    assert talk.says("left") is None
    assert talk.sees("A pit.") == f"...<|user|>A pit.\n\n{tree}<|assistant|>"
    back = talk.says("prune [2] a pit")
    assert back is not None and "left<|end|>" not in back.replace("go left<|end|>", "")
    assert "<|user|>A wall.<|assistant|>branch [1] go left<|end|><|user|>A pit.\n\nPlans:" in back
    assert "plan 2: go left (given up: a pit)" in back


def test_planning_actions_are_bounded_and_mistakes_are_said(small_chat: Chat, brief_of: Briefs) -> None:
    session = Branching(PlainText(small_chat), commands=1).open(brief_of())
    talk = Talk(small_chat, session)
    talk.sees("A wall.")
    again = talk.says("branch [7] x")
    assert again is not None and "Error: there is no plan 7; the plans are 1" in again
    assert talk.says("note [x]") is None
    assert talk.action.error == "1 planning actions in a row; act now"
    talk.sees("A wall.")
    assert talk.says("note [x]") is not None, "it counts anew"
    with pytest.raises(UsageError, match="branching: got commands=-1"):
        Branching(PlainText(small_chat), commands=-1).open(brief_of())


def test_words_of_the_paper_stand_for_those_of_the_environment(small_chat: Chat, brief_of: Briefs) -> None:
    talk = Talk(small_chat, Branching(PlainText(small_chat)).open(brief_of()))
    for said, legal, done in [
        ("go_back", ("back", "click a"), "back"),
        ("stop [12]", ("answer 12",), "answer 12"),
        ("stop [12]", ("stop [12]", "answer 12"), "stop [12]"),
        ("go_back", ("left",), "go_back"),
    ]:
        talk.sees("A wall.", legal)
        assert talk.says(said) is None
        assert talk.action.text == done
