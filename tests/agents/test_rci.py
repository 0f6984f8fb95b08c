"""Drafts are criticised and improved, unreadable ones asked for again, and the last one is carried out."""

from collections.abc import Callable

import pytest
from tests.agents.conftest import Talk

from quintain.agents.harness import Choice, PlainText, ReAct
from quintain.agents.plan import PlanAndAct
from quintain.agents.protocol import Brief
from quintain.agents.rci import ACCEPTED, CRITICISE, DRAFT, GROUNDS, IMPROVE, Critique
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Action

Briefs = Callable[..., Brief]


def user(text: str) -> str:
    return f"...<|user|>{text}<|assistant|>"


def test_a_draft_is_improved_once(small_chat: Chat, brief_of: Briefs) -> None:
    talk = Talk(small_chat, Critique(ReAct(small_chat), small_chat, rounds=1, max_tokens=7).open(brief_of()))
    first = talk.session.observe("A wall.")
    assert (first.role, first.starts_segment) == ("draft", True)
    critique = talk.prompt_after("Action: left")
    assert critique is not None
    assert (critique.role, critique.shows) == ("critique", CRITICISE)
    assert (critique.sampling.max_tokens, critique.sampling.stop_ids) == (7, small_chat.stop_ids)
    assert talk.text(critique) == user(CRITICISE)
    assert talk.says("There is a wall.") == user(IMPROVE)
    assert talk.says("Action: right") is None
    assert talk.action == Action(text="right")
    assert talk.sees("A door.") == user("A door.")
    assert talk.says("Action: on") == user(CRITICISE)


def test_an_accepted_draft_is_the_action(small_chat: Chat, brief_of: Briefs) -> None:
    talk = Talk(small_chat, Critique(ReAct(small_chat), small_chat, rounds=2).open(brief_of()))
    talk.sees("A wall.")
    assert talk.writes(Action(text="left")) == "Action: left"
    assert talk.says("Action: left") == user(CRITICISE)
    assert talk.writes(Action(text="left")) == ACCEPTED
    assert talk.says("I see No problem.") is None
    assert talk.action == Action(text="left")


def test_rounds_and_retries_are_bounded(small_chat: Chat, brief_of: Briefs) -> None:
    agent = Critique(Choice(small_chat), small_chat, rounds=2, retries=1)
    talk = Talk(small_chat, agent.open(brief_of(legal=("left", "right"))))
    talk.sees("A wall.")
    error = "Error: not a legal action: got 'up'; choose one of: left, right"
    assert talk.says("up") == user(error)
    assert talk.says("up") is None
    assert talk.action.error is not None
    talk.sees("A wall.")
    for _ in range(2):
        assert talk.says("left") == user(CRITICISE)
        assert talk.says("Hm.") == user(IMPROVE)
    assert talk.says("right") is None
    plain = Talk(small_chat, Critique(ReAct(small_chat), small_chat, rounds=0, retries=0).open(brief_of()))
    plain.sees("A wall.")
    assert plain.says("left") is None
    assert plain.action.error is not None


def test_a_critique_needs_room(small_chat: Chat, brief_of: Briefs) -> None:
    with pytest.raises(UsageError, match="max_tokens of what is not an action: got 0"):
        Critique(ReAct(small_chat), small_chat, max_tokens=0).open(brief_of())


def test_an_action_is_grounded_in_the_plan_and_in_what_is_seen(small_chat: Chat, brief_of: Briefs) -> None:
    agent = Critique(ReAct(small_chat), small_chat, rounds=0, retries=0, grounds=True)
    talk = Talk(small_chat, agent.open(brief_of()))
    first = talk.session.observe("A wall.")
    assert first.role == "ground" and talk.text(first).endswith(
        f"<|user|>A wall.\n\n{GROUNDS[0]}<|assistant|>"
    )
    assert talk.writes(Action(text="left")) == "left", "a demonstration knows the action from the beginning"
    second = talk.prompt_after("Go around.")
    assert second is not None and (second.role, second.shows) == ("ground", GROUNDS[1])
    assert talk.action == Action(text="Go around.") and talk.text(second) == user(GROUNDS[1])
    draft = talk.prompt_after("There is room left.")
    assert draft is not None and (draft.role, talk.text(draft)) == ("draft", user(DRAFT))
    assert talk.writes(Action(text="left")) == "Action: left"
    assert talk.says("Action: left") is None and talk.action == Action(text="left")
    assert talk.sees("A door.") == user(f"A door.\n\n{GROUNDS[0]}"), "and again in the next turn"


def test_what_a_harness_says_before_it_acts_is_no_draft(small_chat: Chat, brief_of: Briefs) -> None:
    plan = PlanAndAct(PlainText(small_chat), small_chat)
    talk = Talk(small_chat, Critique(plan, small_chat).open(brief_of()))
    assert talk.session.observe("A wall.").role == "plan"
    with pytest.raises(UsageError, match="got a harness inside that speaks before it acts"):
        Critique(plan, small_chat, grounds=True).open(brief_of())


def test_the_papers_agent_criticises_its_plan_and_grounds_its_actions(
    small_chat: Chat, brief_of: Briefs
) -> None:
    acting = Critique(PlainText(small_chat), small_chat, rounds=0, retries=0, grounds=True)
    talk = Talk(small_chat, PlanAndAct(acting, small_chat, critiques=1).open(brief_of()))
    roles = [talk.session.observe("A wall.").role]
    for said in ("1. left", ACCEPTED, "left", "There is room.", "left"):
        prompt = talk.prompt_after(said)
        roles += [] if prompt is None else [prompt.role]
    assert roles == ["plan", "critique", "ground", "ground", "draft"] and talk.action == Action(text="left")
    assert talk.session.observe("A door.").role == "ground", "the plan stays"
