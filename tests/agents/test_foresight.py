"""What would come of a draft is said before it is done, and an error is not made."""

from collections.abc import Callable

import pytest
from tests.agents.conftest import Talk

from quintain.agents.foresight import CORRECT, FINE, FORETELL, Foresight
from quintain.agents.harness import Choice, PlainText
from quintain.agents.protocol import Brief
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Action

Briefs = Callable[..., Brief]


def user(text: str) -> str:
    return f"...<|user|>{text}<|assistant|>"


def test_a_draft_of_which_an_error_is_foretold_is_not_done(small_chat: Chat, brief_of: Briefs) -> None:
    talk = Talk(small_chat, Foresight(PlainText(small_chat), small_chat, max_tokens=5).open(brief_of()))
    first = talk.session.observe("A door.")
    assert (first.role, first.starts_segment) == ("draft", True)
    asked = talk.prompt_after("open")
    assert asked is not None and (asked.role, asked.shows) == ("feedback", FORETELL)
    assert asked.sampling.max_tokens == 5 and talk.text(asked) == user(FORETELL)
    assert talk.says("locked") == user(CORRECT)
    assert talk.says("unlock") is None
    assert talk.action == Action(text="unlock")
    assert talk.sees("Open now.") == user("Open now.")
    assert talk.says("on") == user(FORETELL)


def test_a_draft_that_is_fine_is_done(small_chat: Chat, brief_of: Briefs) -> None:
    agent = Foresight(Choice(small_chat), small_chat)
    talk = Talk(small_chat, agent.open(brief_of(legal=("left", "right"))))
    talk.sees("A wall.")
    assert talk.writes(Action(text="left")) == "left"
    assert talk.says("left") == user(FORETELL)
    assert talk.writes(Action(text="left")) == FINE, "who does it again finds it fine"
    assert talk.writes(Action(text="hands full")) == "hands full"
    assert talk.says(FINE) is None
    assert talk.action == Action(text="left")


def test_a_limit_without_room_is_refused(small_chat: Chat, brief_of: Briefs) -> None:
    with pytest.raises(UsageError, match="max_tokens"):
        Foresight(PlainText(small_chat), small_chat, max_tokens=0).open(brief_of())
