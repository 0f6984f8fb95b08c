from collections.abc import Callable
from typing import Any

import pytest
from tests.agents.conftest import Talk

from quintain.agents.catalog import build
from quintain.agents.protocol import Brief
from quintain.agents.refined import (
    NONE_LEFT,
    NOTHING_HELPFUL,
    REPEATED,
    Refined,
    RefinedSession,
    find_sentence,
)
from quintain.agents.tagged import Tagged
from quintain.environments.protocol import tool_action
from quintain.environments.tools import tool_specs
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Completion
from quintain.worlds.hopqa.game import HopQA

pytest.importorskip("bm25s")
TOOLS = tool_specs(HopQA)
BriefOf = Callable[..., Brief]
DOCUMENTS = "The sky is blue. The seat of Orbit is Rome. Nothing else."


def talking(chat: Chat, brief: Brief, **options: Any) -> Talk:
    return Talk(chat, Refined(Tagged(chat), chat, **options).open(brief))


def test_documents_are_shown_to_the_refiner_alone_and_the_chain_goes_on_from_its_own_ids(
    small_chat: Chat, brief_of: BriefOf
) -> None:
    session = Refined(Tagged(small_chat), small_chat).open(brief_of(TOOLS))
    first = session.observe("What is the seat of Orbit?")
    call = small_chat.write("<think>first</think><search>seat Orbit</search>")
    assert session.read(Completion(token_ids=call, logprobs=(), stop="stop")).tool_calls
    assert session.more() is None
    asked = session.observe(DOCUMENTS)
    told = small_chat.encoder.decode(asked.token_ids)
    assert asked.starts_segment and asked.role == "refine"
    assert DOCUMENTS in told and "<think>first</think>" in told and "What is the seat" not in told
    said = session.write(tool_action("answer", text="Rome"))
    assert small_chat.text(said) == "The seat of Orbit is Rome."
    session.read(Completion(token_ids=said, logprobs=(), stop="stop"))
    after = session.more()
    assert after is not None and after.starts_segment and after.shows == "The seat of Orbit is Rome."
    assert after.token_ids[: len(first.token_ids) + len(call)] == (*first.token_ids, *call)
    chain = small_chat.encoder.decode(after.token_ids)
    assert "The sky is blue" not in chain and "<information>The seat of Orbit is Rome.</information>" in chain
    end = small_chat.write("<answer>Rome</answer>")
    assert (
        session.read(Completion(token_ids=end, logprobs=(), stop="stop")).tool_calls
        and session.more() is None
    )


def test_a_query_is_made_once_and_there_are_so_many(small_chat: Chat, brief_of: BriefOf) -> None:
    talk = talking(small_chat, brief_of(TOOLS), max_searches=2)
    talk.sees("A question")
    for query, error in (("a", None), ("a", REPEATED), ("b", None), ("c", NONE_LEFT)):
        assert talk.says(f"<search>{query}</search>") is None
        assert talk.action.error == error
        if error is None:
            assert "Documents:" in talk.sees("a text")
            assert "<information>it" in str(talk.says("it"))
        else:
            assert "Documents:" not in talk.sees(error)
    assert talk.says("<answer>Rome</answer>") is None and talk.action.error is None
    with pytest.raises(UsageError, match="max_searches of refined: got -1"):
        Refined(Tagged(small_chat), small_chat, max_searches=-1).open(brief_of(TOOLS))


def test_what_is_needed_is_a_sentence_with_all_words_or_nothing() -> None:
    assert find_sentence('search[{"query":"seat orbit"}]', DOCUMENTS) == "The seat of Orbit is Rome."
    assert find_sentence('search[{"query":"seat Delta"}]', DOCUMENTS) == NOTHING_HELPFUL
    assert find_sentence("search[]", DOCUMENTS) == NOTHING_HELPFUL == find_sentence("", "")


def test_it_has_a_name_in_the_catalogue(small_chat: Chat, brief_of: BriefOf) -> None:
    agent = build("refined?max_searches=3+tools", small_chat, HopQA())
    assert isinstance(agent, Refined) and agent.max_searches == 3
    assert isinstance(agent.open(brief_of(TOOLS)), RefinedSession)
