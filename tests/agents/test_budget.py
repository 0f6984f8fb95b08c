"""A thought that runs over its budget is closed for the model, and too many calls are refused."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.agents.conftest import CORPUS
from tokenizers import AddedToken

from quintain.agents.budget import Budget
from quintain.agents.harness import Choice, JsonTools, PlainText
from quintain.agents.protocol import Brief
from quintain.agents.scored import Scored
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Action, Completion, ToolCall, ToolSpec

Briefs = Callable[..., Brief]
LOOK = ToolSpec(name="look", description="", parameters={"type": "object"})


@pytest.fixture(scope="module")
def thinking() -> Chat:
    tokenizer = train_tokenizer(CORPUS, 300)
    for token in ("<think>", "</think>"):
        tokenizer.add_tokens(cast(Any, AddedToken(token, special=False)))
    return Chat(tokenizer)


def said(ids: tuple[int, ...]) -> Completion:
    return Completion(token_ids=ids, logprobs=(-1.0,) * len(ids), stop="stop")


def test_a_thought_is_closed_at_its_budget(thinking: Chat, brief_of: Briefs) -> None:
    end = thinking.encoder.markup_id("</think>")
    assert end is not None
    session = Budget(PlainText(thinking, max_tokens=9), thinking, think=4).open(brief_of())
    first = session.observe("A wall.")
    assert (first.role, first.sampling.max_tokens, first.sampling.stop_ids) == (
        "thought",
        4,
        {end, thinking.end_id},
    )
    thought = thinking.answer_ids("<think>left")
    session.read(said(thought))
    more = session.more()
    assert more is not None
    assert (more.token_ids, more.shows, more.starts_segment) == ((end,), "</think>", False)
    assert (more.sampling.max_tokens, more.sampling.stop_ids) == (9, thinking.stop_ids)
    assert session.read(said(thinking.write("right"))) == Action(text="right")
    assert session.more() is None
    assert thinking.encoder.decode(session.observe("A door.").token_ids) == "<|user|>A door.<|assistant|>"


def test_a_thought_within_its_budget_goes_on(thinking: Chat, brief_of: Briefs) -> None:
    session = Budget(PlainText(thinking), thinking, think=8).open(brief_of())
    session.observe("A wall.")
    session.read(said(thinking.answer_ids("<think>left</think>")))
    more = session.more()
    assert more is not None
    assert (more.token_ids, more.shows) == ((), "")
    session.read(said(thinking.write("right")))
    session.observe("A door.")
    session.read(said(thinking.answer_ids("go on")))  # an answer that begins without a thought
    more = session.more()
    assert more is not None
    assert more.token_ids == ()
    assert session.read(said(thinking.write(" left"))) == Action(text="go on left")
    session.observe("A door.")
    assert session.read(said(session.write(Action(text="left")))) == Action(text="left")
    assert session.more() is None


def test_too_many_calls_are_refused(thinking: Chat, brief_of: Briefs) -> None:
    session = Budget(JsonTools(thinking), thinking, calls=1).open(brief_of(tools=(LOOK,)))
    session.observe("A wall.")
    call = ToolCall(name="look")
    action = session.read(said(session.write(Action(tool_calls=(call, call)))))
    assert (action.tool_calls, action.error) == (
        (),
        "2 tool calls in one turn: at most 1 may be made at once",
    )
    session.observe("A wall.")
    assert session.read(said(session.write(Action(tool_calls=(call,))))).tool_calls == (call,)


def test_budgets_that_make_no_sense(thinking: Chat, small_chat: Chat, brief_of: Briefs) -> None:
    with pytest.raises(UsageError, match="budget: got think=-1, calls=0; give 0 or more"):
        Budget(PlainText(thinking), thinking, think=-1).open(brief_of())
    with pytest.raises(UsageError, match="budget: got think=3 for a tokenizer without the token </think>"):
        Budget(Choice(small_chat), small_chat, think=3).open(brief_of())


def test_a_choice_among_candidates_holds_no_thought(thinking: Chat, brief_of: Briefs) -> None:
    session = Budget(Scored(thinking), thinking, think=4).open(brief_of(legal=("left",)))
    assert session.observe("A wall.").role == ""
