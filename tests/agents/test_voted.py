"""The commonest of several samples of a turn is done, where actions are listed, and nowhere else."""

import json
from collections.abc import Callable

import pytest
from tests.agents.conftest import Talk

from quintain.agents.harness import PlainText
from quintain.agents.protocol import Brief, Deliberates
from quintain.agents.voted import ROLE, Voted, count_votes
from quintain.errors import UsageError
from quintain.text.chat import Chat

LEGAL = ("left", "right")


def test_votes_that_are_not_legal_count_only_where_none_is() -> None:
    assert count_votes(["hop", "up", "down", "down"], ["up", "down"]) == 2
    assert count_votes(["hop", "hop", "up"], ["up"]) == 2, "one legal vote beats two that are not"
    assert count_votes(["hop", "up", "hop"], ["down"]) == 0, "none is legal"
    assert count_votes(["up", "down"], ["up", "down"]) == 0, "of equals the first"
    assert count_votes(["", "x", ""], []) == 1 and count_votes(["", ""], []) == 0


def test_the_same_prompt_is_sampled_from_and_the_commonest_answer_is_said(
    small_chat: Chat, brief_of: Callable[..., Brief]
) -> None:
    talk = Talk(small_chat, Voted(PlainText(small_chat), small_chat, samples=3).open(brief_of()))
    first = talk.session.observe("A wall.", LEGAL)
    asked = talk.text(first)
    assert first.role == ROLE and first.sampling.constraint is None
    for said in ("left", "right"):
        prompt = talk.prompt_after(said)
        assert prompt is not None and prompt.role == ROLE and prompt.starts_segment
        assert talk.text(prompt) == asked, "no vote knows of another"
    act = talk.prompt_after("right")
    assert act is not None and act.role == "" and talk.text(act) == asked
    assert act.sampling.constraint is not None
    ids = tuple(json.loads(act.sampling.constraint.text))
    assert ids == small_chat.write("right") and act.sampling.max_tokens == len(ids)
    assert talk.prompt_after("right") is None and talk.action.text == "right"
    later = talk.session.observe("A door.", LEGAL)
    assert not later.starts_segment and later.role == ROLE
    prompt = talk.prompt_after("left")
    assert prompt is not None
    whole = talk.text(prompt)
    assert "left" not in whole, "what was done stands in the stream, what was voted does not"
    assert whole.startswith(asked) and "right" in whole[len(asked) :] and "A door." in whole


def test_it_is_the_harness_inside_where_nothing_is_listed(
    small_chat: Chat, brief_of: Callable[..., Brief]
) -> None:
    for samples, legal in ((3, ()), (1, LEGAL)):
        session = Voted(PlainText(small_chat), small_chat, samples=samples).open(brief_of())
        talk = Talk(small_chat, session)
        prompt = session.observe("A wall.", legal)
        assert prompt == PlainText(small_chat).open(brief_of()).observe("A wall.", legal)
        assert talk.prompt_after("up") is None and talk.action.text == "up"
        assert isinstance(session, Deliberates)


def test_a_vote_of_nobody_is_refused(small_chat: Chat) -> None:
    with pytest.raises(UsageError, match="voted: got samples=0; give 1 or more"):
        Voted(PlainText(small_chat), small_chat, samples=0)
