"""A corrected plan is what is acted on, and what the planner said in the episode that is kept."""

from collections.abc import Callable

import pytest
from tests.agents.conftest import Talk

from quintain.agents.corrected_plans import CorrectedPlans, correct_plans
from quintain.agents.harness import PlainText
from quintain.agents.plan import Plan, PlanAndAct
from quintain.agents.protocol import Brief
from quintain.errors import UsageError
from quintain.text.chat import Chat

Briefs = Callable[..., Brief]


class Person:
    """Says the lines, and keeps what it was asked."""

    def __init__(self, *lines: str) -> None:
        self.lines, self.asked = list(lines), list[tuple[str, Plan, str]]()

    def correct(self, shown: str, plan: Plan, problem: str) -> str:
        self.asked.append((shown, plan, problem))
        return self.lines.pop(0)


def planner(chat: Chat, person: Person, *, max_tokens: int = 64, replan_every: int = 0) -> CorrectedPlans:
    agent = PlanAndAct(PlainText(chat), chat, replan_every=replan_every, max_tokens=max_tokens)
    return correct_plans(agent, person.correct)


def test_the_corrected_plan_is_acted_on_and_said(small_chat: Chat, brief_of: Briefs) -> None:
    person = Person("change 2: right")
    agent = planner(small_chat, person)
    talk = Talk(small_chat, agent.open(brief_of()))
    talk.sees("A wall.")
    told = talk.says("1. left\n2. left")
    assert told is not None and "1. left\n2. right" in told and "2. left" not in told
    (shown, draft, problem) = person.asked[0]
    assert (draft.text, problem) == ("1. left\n2. left", "") and shown.startswith("A wall.")
    (said,) = agent.said
    assert said.token_ids == small_chat.write("1. left\n2. right") and said.logprobs == ()


def test_an_empty_line_keeps_what_was_sampled(small_chat: Chat, brief_of: Briefs) -> None:
    agent = planner(small_chat, Person("  "))
    talk = Talk(small_chat, agent.open(brief_of()))
    talk.sees("A wall.")
    talk.says("well, left")
    assert agent.said[0].token_ids == small_chat.write("well, left"), "token for token"


@pytest.mark.parametrize(
    ("line", "problem"),
    [("drop 1", "leaves no step"), ("keep", "changes nothing"), ("1. " + "right " * 40, "make it shorter")],
)
def test_a_correction_that_is_none_is_asked_again(
    small_chat: Chat, brief_of: Briefs, line: str, problem: str
) -> None:
    person = Person(line, "1. right")
    agent = planner(small_chat, person, max_tokens=24)
    talk = Talk(small_chat, agent.open(brief_of()))
    talk.sees("A wall.")
    talk.says("1. left")
    assert problem in person.asked[1][2]
    assert agent.said[0].token_ids == small_chat.write("1. right")


def test_a_revised_plan_is_shown_with_what_was_done(small_chat: Chat, brief_of: Briefs) -> None:
    person = Person("", "change 1: right")
    agent = planner(small_chat, person, replan_every=1)
    talk = Talk(small_chat, agent.open(brief_of()))
    talk.sees("A wall.")
    talk.says("1. left")
    talk.says("left")
    talk.sees("higher")
    talk.says("keep")
    shown, draft, _ = person.asked[1]
    assert "higher" in shown and "Done so far: left" in shown and draft.text == "1. left"
    assert len(agent.said) == 2 and agent.said[1].token_ids == small_chat.write("1. right")


def test_other_harnesses_are_refused(small_chat: Chat) -> None:
    plain = PlainText(small_chat)
    agents = (
        plain,
        PlanAndAct(plain, small_chat, actor="scripted"),
        PlanAndAct(plain, small_chat, critiques=1),
    )
    for agent in agents:
        with pytest.raises(UsageError, match="plans to be corrected"):
            correct_plans(agent, Person().correct)
