"""A harness that is told the answer: prompts with the hint, the same prompts without, and what it is refused for."""

from collections.abc import Callable

import pytest
from tests.agents.conftest import Talk

from quintain.agents.harness import PlainText
from quintain.agents.hints import Hints
from quintain.agents.plan import PlanAndAct
from quintain.agents.protocol import Brief
from quintain.errors import UsageError
from quintain.text.chat import Chat

Briefs = Callable[..., Brief]


def test_the_hint_follows_the_first_observation_and_the_plain_prompt_is_known(
    small_chat: Chat, brief_of: Briefs
) -> None:
    hints = Hints({"t/train/0": "Hint: left."})
    agent = PlainText(small_chat)
    talk = Talk(small_chat, hints.wrap(agent).open(brief_of()))
    prompt = talk.session.observe("A wall.")
    assert talk.text(prompt) == "<|system|>Go.<|user|>A wall.\n\nHint: left.<|assistant|>"
    plain, starts_segment = hints.plain[prompt.token_ids]
    assert small_chat.encoder.decode(plain) == "<|system|>Go.<|user|>A wall.<|assistant|>" and starts_segment
    assert talk.says("left") is None and talk.action.text == "left"
    later = talk.session.observe("A wall.")
    assert "Hint" not in talk.text(later) and later.token_ids not in hints.plain
    assert len(hints.plain) == 1


def test_a_task_without_a_hint_is_refused(small_chat: Chat, brief_of: Briefs) -> None:
    with pytest.raises(UsageError, match="give one for each task"):
        Hints().wrap(PlainText(small_chat)).open(brief_of())


def test_what_is_asked_in_between_is_known_without_the_hint_too(small_chat: Chat, brief_of: Briefs) -> None:
    hints = Hints({"t/train/0": "Hint: left."})
    planning = PlanAndAct(PlainText(small_chat), small_chat, max_tokens=8)
    talk = Talk(small_chat, hints.wrap(planning).open(brief_of()))
    first = talk.session.observe("A wall.")
    assert first.token_ids in hints.plain
    talk.prompt_after("right")
    assert all("Hint" not in small_chat.encoder.decode(plain) for plain, _ in hints.plain.values())
