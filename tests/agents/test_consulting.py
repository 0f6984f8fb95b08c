"""Questions one after the other with a bank: what is told before each, and what advice leaves."""

from collections.abc import Callable

import pytest
from tests.agents.conftest import Talk

from quintain.agents.consulting import REFLECT, Consulting
from quintain.agents.harness import PlainText
from quintain.agents.protocol import Brief
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, Expert, begin
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Action

Briefs = Callable[..., Brief]
FIRST = "Question 1 of 3, amber. Color of a wall?"


def test_advice_is_reflected_on_and_told_when_the_question_comes_again(
    small_chat: Chat, brief_of: Briefs
) -> None:
    session = Consulting(PlainText(small_chat), small_chat, max_tokens=40).open(brief_of())
    talk = Talk(small_chat, session)
    start = "<|system|>Go.<|user|>"
    assert talk.sees(FIRST) == (
        f"{start}amber. Color of a wall?\nMemory: 0 entries, 0 like this question.<|assistant|>"
    )
    assert talk.says("advice") is None
    shown = "advice: answer 5. Right.\nQuestion 2 of 3, violet. Age?"
    asked = session.observe(shown)
    assert asked.role == "reflection" and asked.sampling.max_tokens == 40
    assert talk.text(asked) == f"...<|user|>advice: answer 5. Right.\n\n{REFLECT}<|assistant|>"
    assert talk.writes(Action(text="left")) == "answer 5. Right."
    assert talk.says("It is 5.") == (
        f"{start}violet. Age?\nMemory: 1 entries, 0 like this question.<|assistant|>"
    )
    (entry,) = session.bank.entries
    assert (entry.key, entry.text, entry.source) == ("amber. Color of a wall?", "It is 5.", "advice")
    assert talk.says("answer 7") is None
    assert talk.sees("No.\nQuestion 3 of 3, amber. Color of a wall?") == (
        f"{start}amber. Color of a wall?\nMemory: 1 entries, 1 like this question.\n"
        "amber. Color of a wall?: It is 5.<|assistant|>"
    ), "nothing but the bank is left of what was before"
    assert len(session.bank) == 1, "only advice writes into the bank"


def test_a_bank_belongs_to_an_episode(small_chat: Chat, brief_of: Briefs) -> None:
    agent = Consulting(PlainText(small_chat), small_chat)
    one, other = agent.open(brief_of()), agent.open(brief_of())
    talk = Talk(small_chat, one)
    talk.sees(FIRST)
    talk.says("advice")
    talk.sees("advice: left.\nQuestion 2 of 3, violet. Age?")
    talk.says("Left.")
    assert (len(one.bank), len(other.bank)) == (1, 0)


def play_session(spec: str) -> tuple[Environment, list[str]]:
    """Return the environment and what its expert did in the first session."""
    world = find(spec)()
    begin(world, world.task("train", 0))
    done: list[str] = []
    for _ in range(world.max_turns):
        assert isinstance(world, Expert)
        action = world.expert_action()
        done.append(action.text or action.tool_calls[0].name)
        if world.step(action).is_terminated:
            break
    return world, done


def test_an_expert_that_asks_does_so_once_for_a_question() -> None:
    _, done = play_session("session:sums?digits=1&slips=0&revisions=0&tasks=6&repeats=3&advice=0.3&asks=1")
    assert done.count("advice") == 4, "the others are the question that comes again"
    _, never = play_session("session:sums?digits=1&tasks=6&repeats=3&advice=0.3")
    assert "advice" not in never
    with pytest.raises(
        UsageError, match=r"session: got asks=0\.5, and advice=None; give a share from 0 to 1"
    ):
        find("session:sums?tasks=2&repeats=1&asks=0.5")()
