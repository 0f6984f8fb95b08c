"""InfoNav: which facts a plan takes, what marks say of them, what is looked up, and that no card leaks."""

import re
from collections.abc import Callable
from contextlib import closing
from typing import cast

import pytest
from tests.agents.conftest import Talk

from quintain.agents.harness import PlainText
from quintain.agents.infonav import MARK, PLAN, UPDATE, WHOLE, Facts, InfoNav, find_value, has_name
from quintain.agents.protocol import Brief
from quintain.environments.catalog import find
from quintain.errors import UsageError
from quintain.rollout.collect import Rollout
from quintain.testing.pupil import tasks_from
from quintain.text.chat import Chat
from quintain.types import Action, flatten_scored
from quintain.warm_start.start import build_agent, expert_action
from quintain.worlds.twocards.game import TwoCards

Briefs = Callable[..., Brief]


def test_facts_are_in_brackets_and_marks_name_them() -> None:
    facts = Facts.read("Add [fig] and [blue], then [fig] again.", 8)
    assert facts.values == {"fig": "", "blue": ""}
    facts.mark("- Fig: 3\nblue: unknown\nred: 4\nI think so\n(blue: none)")
    assert facts.values == {"fig": "3", "blue": ""}, "no fact is added, and an unknown one stays unknown"
    assert facts.words == "Facts: (fig: 3), [blue]. Unknown: blue."
    facts.mark("[blue] = 2")
    assert facts.words == "Facts: (fig: 3), (blue: 2). Nothing is unknown: conclude."
    assert Facts.read("[a] [b] [c]", 2).values == {"a": "", "b": ""}


@pytest.mark.parametrize("plan", ["", "no idea", "[]", "[[", "(fig: 3)", "[" + "x" * 200 + "]"])
def test_a_plan_that_cannot_be_read_leaves_the_whole_task_unknown(plan: str) -> None:
    assert Facts.read(plan, 8).values == {WHOLE: ""}


def test_values_and_names_are_whole_words() -> None:
    assert find_value("fig", "fig = 3. say fig 4") == "4" and find_value("fig", "figs = 3, a fig") == ""
    assert has_name("the red ball is here", "red ball") and not has_name("redder balls", "red")


def test_a_first_message_takes_a_plan_and_marks_and_later_ones_marks(
    small_chat: Chat, brief_of: Briefs
) -> None:
    session = InfoNav(PlainText(small_chat), small_chat, max_tokens=40).open(brief_of())
    talk = Talk(small_chat, session)
    asked = session.observe("A. fig = 3. fig + blue?")
    assert asked.role == "plan" and asked.sampling.max_tokens == 40
    assert talk.text(asked) == f"<|system|>Go.<|user|>A. fig = 3. fig + blue?\n\n{PLAN}<|assistant|>"
    assert talk.writes(Action()) == "[fig] [blue]"
    marks = talk.prompt_after("[fig] [blue]")
    assert marks is not None and marks.role == "marks"
    assert talk.text(marks) == f"...<|user|>Facts: [fig], [blue]. Unknown: fig, blue. {MARK}<|assistant|>"
    assert talk.writes(Action()) == "fig: 3"
    act = talk.prompt_after("fig: 3")
    assert act is not None and act.role == ""
    assert talk.text(act) == "...<|user|>Facts: (fig: 3), [blue]. Unknown: blue. Now act.<|assistant|>"
    assert talk.says("ask blue") is None and talk.action.text == "ask blue"
    assert talk.sees("A. B: say blue 2.") == f"...<|user|>A. B: say blue 2.\n\n{UPDATE}<|assistant|>"
    assert talk.writes(Action()) == "blue: 2"
    assert talk.says("none") == "...<|user|>Facts: (fig: 3), [blue]. Unknown: blue. Now act.<|assistant|>"
    talk.says("pass")
    talk.sees("A.")
    assert talk.says("blue: 2") == (
        "...<|user|>Facts: (fig: 3), (blue: 2). Nothing is unknown: conclude. Now act.<|assistant|>"
    )
    talk.says("answer 5")
    done = session.observe("B: answer 4.")
    assert done.role == "" and talk.text(done) == (
        "...<|user|>B: answer 4.\n\nFacts: (fig: 3), (blue: 2). Nothing is unknown: conclude.<|assistant|>"
    ), "nothing is unknown: it is answered at once"


def test_what_is_private_is_looked_up_by_what_is_unknown(small_chat: Chat, brief_of: Briefs) -> None:
    session = InfoNav(PlainText(small_chat), small_chat, recall=2).open(brief_of())
    talk = Talk(small_chat, session)
    record = (
        "Ann likes tea. The red ball costs 7. Bob came late. The ball of Eve is new. What is the red ball?"
    )
    assert talk.sees(record) == f"<|system|>Go.<|user|>What is the red ball?\n\n{PLAN}<|assistant|>"
    found = talk.says("I need [red ball].")
    assert found is not None and found.startswith(
        "...<|user|>You recall: The red ball costs 7.\nYou recall: The ball of Eve is new.\nFacts: [red ball]."
    ), "exact first, then the most like it"
    assert "tea" not in found and len(session.bank) == 4


def test_an_empty_plan_is_refused(small_chat: Chat) -> None:
    with pytest.raises(UsageError, match="facts=0"):
        InfoNav(PlainText(small_chat), small_chat, facts=0)


@pytest.mark.parametrize("recall", [0, 2])
def test_no_fact_is_in_a_prompt_before_its_owner_said_it(small_chat: Chat, recall: int) -> None:
    spec = "twocards?facts=3&terms=3&values=5000&max_turns=16&consensus=true"
    agent = build_agent(
        small_chat.tokenizer,
        find(spec),
        temperature=1.0,
        max_tokens=200,
        agent=f"infonav?recall={recall}+text",
    )
    with closing(Rollout(agent, find(spec), None)) as rollout:
        talks = flatten_scored(rollout.demonstrations(tasks_from(spec, 8), expert_action, seed=1))
    assert len(talks) == 8 and all(t.is_success for t in talks)
    for talk in talks:
        with closing(find(spec)()) as world:
            world.reset(talk.task)
            cards = [{value for _, value in card} for card in cast(TwoCards, world).snapshot().deal.cards]
        said: dict[str, set[str]] = {"A": set(), "B": set()}
        shown = 0
        for turn in talk.turns:
            other, foreign = ("B", cards[1]) if turn.speaker == "A" else ("A", cards[0])
            seen = set(re.findall(r"\d+", small_chat.text(turn.prompt_ids)))
            secret = {value for value in foreign - cards[turn.speaker == "B"] if len(value) > 2}
            assert not (seen & secret) - said[other], (turn.speaker, seen & secret)
            shown += len(seen & secret)
            said[turn.speaker] |= set() if turn.is_internal else set(re.findall(r"\d+", turn.action.text))
        assert shown, "what was said is heard"
