"""An answer is a draft until it was asked about; what is said next is done, whatever it is."""

from collections.abc import Callable

import pytest
from tests.agents.conftest import Talk

from quintain.agents.again import CHECK, Again
from quintain.agents.catalog import check
from quintain.agents.harness import Choice, JsonTools, PlainText
from quintain.agents.protocol import Brief
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Action, ToolCall, ToolSpec

Briefs = Callable[..., Brief]


def user(text: str) -> str:
    return f"...<|user|>{text}<|assistant|>"


def tool(name: str) -> ToolSpec:
    return ToolSpec(name=name, description="", parameters={"type": "object", "properties": {}})


def test_what_stops_is_asked_about_and_a_look_is_done(small_chat: Chat, brief_of: Briefs) -> None:
    talk = Talk(small_chat, Again(PlainText(small_chat)).open(brief_of()))
    first = talk.session.observe("A wall.")
    assert (first.role, first.starts_segment) == ("draft", True)
    asked = talk.prompt_after("answer left")
    assert asked is not None and (asked.shows, asked.role) == (CHECK, "")
    assert talk.text(asked) == user(CHECK)
    assert talk.says("look right") is None and talk.action == Action(text="look right")
    assert talk.sees("A door.") == user("A door.")
    assert talk.says("answer right") is None, "once in an episode, and no more"
    assert talk.action == Action(text="answer right")


def test_it_is_asked_as_often_as_is_said(small_chat: Chat, brief_of: Briefs) -> None:
    talk = Talk(small_chat, Again(PlainText(small_chat), times=2).open(brief_of()))
    talk.sees("A wall.")
    assert talk.says("answer left") == talk.says("answer left") == user(CHECK)
    assert talk.says("answer left") is None


def test_without_times_and_for_what_does_not_stop_it_is_the_harness_inside(
    small_chat: Chat, brief_of: Briefs
) -> None:
    for agent, said in (
        (Again(PlainText(small_chat), times=0), "answer left"),
        (Again(PlainText(small_chat)), "left"),
    ):
        talk = Talk(small_chat, agent.open(brief_of()))
        plain = Talk(small_chat, PlainText(small_chat).open(brief_of()))
        assert talk.sees("A wall.") == plain.sees("A wall.")
        assert talk.says(said) is None and talk.action == Action(text=said)


def test_tools_stop_by_their_names(small_chat: Chat, brief_of: Briefs) -> None:
    brief = brief_of(tools=(tool("search"), tool("submit")))
    with pytest.raises(
        UsageError, match=r"again: got ends=answer, and here are search, submit; name what stops"
    ):
        Again(JsonTools(small_chat)).open(brief)
    session = Again(JsonTools(small_chat), ends="answer, submit").open(brief)
    talk = Talk(small_chat, session)
    session.observe("Go.")
    ids = session.write(Action(tool_calls=(ToolCall(name="search"),)))
    assert talk.prompt_after(small_chat.text(ids)) is None
    session.observe("Found.")
    ids = session.write(Action(tool_calls=(ToolCall(name="submit"),)))
    asked = talk.prompt_after(small_chat.text(ids))
    assert asked is not None and asked.shows == CHECK


def test_what_cannot_be_read_is_not_asked_about(small_chat: Chat, brief_of: Briefs) -> None:
    session = Again(JsonTools(small_chat)).open(brief_of(tools=(tool("answer"),)))
    talk = Talk(small_chat, session)
    session.observe("Go.")
    assert talk.prompt_after("<tool_call>{answer") is None
    assert talk.action.error is not None
    talk = Talk(small_chat, Again(Choice(small_chat)).open(brief_of(legal=("left", "answer 1"))))
    talk.sees("A wall.")
    assert talk.says("answer 2") is None and talk.action.error is not None


def test_settings_that_nothing_reads(small_chat: Chat, brief_of: Briefs) -> None:
    with pytest.raises(UsageError, match="again: got times=-1; give 0 or more"):
        Again(PlainText(small_chat), times=-1).open(brief_of())
    with pytest.raises(UsageError, match="window forgets what again stands on"):
        check("window+again+text")
