"""Drafts are criticised and improved, unreadable ones asked for again, and the last one is carried out."""

from collections.abc import Callable

import pytest
from tests.agents.conftest import Talk

from quintain.agents.harness import Choice, ReAct
from quintain.agents.protocol import Brief
from quintain.agents.rci import ACCEPTED, CRITICISE, IMPROVE, Critique
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
