"""What remains of an episode: the ids that were sampled, as they were, or what the agent wrote in their place."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.agents.conftest import Talk

from quintain.agents.context import ACT, REMEMBER, STATE, SUMMARIZE, Form, Memory, Summary, Window
from quintain.agents.deliberation import TASK
from quintain.agents.harness import Choice, JsonTools, PlainText
from quintain.agents.protocol import Brief, Foresees, Session
from quintain.agents.rci import CRITICISE, IMPROVE, Critique
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Text, ToolSpec, as_text
from quintain.worlds.stream.game import Stream

Briefs = Callable[..., Brief]
START = "<|system|>Go."


def answer(chat: Chat, session: Session, ids: tuple[int, ...]) -> None:
    session.read(Completion(token_ids=ids, logprobs=(), stop="stop"))


def test_a_window_holds_the_last_turns_as_they_were_sampled(small_chat: Chat, brief_of: Briefs) -> None:
    talk = Talk(small_chat, Window(PlainText(small_chat), turns=1).open(brief_of()))
    assert talk.sees("one") == f"{START}<|user|>one<|assistant|>"
    talk.says("left")
    assert talk.sees("two") == "...<|user|>two<|assistant|>"
    odd = small_chat.encoder.plain("r") + small_chat.encoder.plain("ight")  # not how "right" is encoded
    assert odd != small_chat.answer_ids("right")
    answer(small_chat, talk.session, (*odd, small_chat.end_id))
    third = talk.session.observe("three")
    told = f"{START}\n\n{TASK}\none"
    assert talk.text(third) == f"{told}<|user|>two<|assistant|>right<|end|><|user|>three<|assistant|>"
    places = [n for n in range(len(third.token_ids)) if third.token_ids[n : n + len(odd)] == odd]
    assert len(places) == 1


def test_the_slack_of_a_window_starts_fewer_segments(small_chat: Chat, brief_of: Briefs) -> None:
    talk = Talk(small_chat, Window(PlainText(small_chat), turns=1, slack=2).open(brief_of()))
    starts: list[bool] = []
    for number in range(8):
        starts.append(not talk.sees(str(number)).startswith("..."))
        talk.says("left")
    assert starts == [True, False, False, False, True, False, False, True]


def test_a_window_keeps_roles_and_critiques(small_chat: Chat, brief_of: Briefs) -> None:
    tool = ToolSpec(name="look", description="", parameters={"type": "object"})
    inner = Critique(JsonTools(small_chat), small_chat)
    talk = Talk(small_chat, Window(inner, turns=1).open(brief_of(tools=(tool,))))
    call = '<tool_call>{"name": "look"}</tool_call>'
    talk.sees("one")
    talk.says(call)
    talk.says("Hm.")
    talk.says(call)
    talk.sees("two")
    talk.says("x")
    talk.says("no problem")
    kept = talk.sees("three").partition("<|user|>")[2]
    assert (
        kept
        == f"two<|assistant|>x<|end|><|user|>{CRITICISE}<|assistant|>no problem<|end|><|user|>three<|assistant|>"
    )
    assert talk.says(call) == f"...<|tool|>{CRITICISE}<|assistant|>"
    assert talk.says("Hm.") == f"...<|user|>{IMPROVE}<|assistant|>"


def test_a_summary_takes_the_place_of_what_happened(small_chat: Chat, brief_of: Briefs) -> None:
    agent = Summary(Choice(small_chat), small_chat, every=2, max_tokens=40)
    talk = Talk(small_chat, agent.open(brief_of(legal=("left", "right"))))
    for word in ("left", "right"):
        talk.sees("A wall.")
        assert talk.says(word) is None
    asked = talk.session.observe("A door.")
    assert (asked.role, asked.sampling.max_tokens, asked.sampling.stop_ids) == (
        "summary",
        40,
        small_chat.stop_ids,
    )
    assert asked.shows == f"A door.\n\n{SUMMARIZE}"
    assert talk.text(asked).endswith(f"<|user|>A door.\n\n{SUMMARIZE}<|assistant|>")
    assert talk.writes(Action(text="left")) == "A wall. > left; A wall. > right"
    told = f"{START}\n\nWhat happened so far: all well\n\n{TASK}\nA wall.<|user|>A door.<|assistant|>"
    assert talk.says("all well") == told
    assert talk.writes(Action(text="left")) == "left"
    assert talk.says("left") is None
    assert talk.sees("A wall.") == "...<|user|>A wall.<|assistant|>"


def test_a_memory_is_all_that_remains(small_chat: Chat, brief_of: Briefs) -> None:
    """The action sees the memory, and neither what was shown nor what was done before it."""
    talk = Talk(small_chat, Memory(PlainText(small_chat), small_chat, max_tokens=24).open(brief_of()))
    assert talk.sees("A wall.") == f"{START}<|user|>A wall.\n\n{REMEMBER}<|assistant|>"
    assert talk.writes(Action(text="left")) == "A wall."
    assert talk.says("a wall") == f"{START}\n\nMemory: a wall\n\n{TASK}\nA wall.<|user|>{ACT}<|assistant|>"
    assert talk.writes(Action(text="left")) == "left"
    assert talk.says("left") is None
    assert talk.action == Action(text="left")
    assert talk.sees("A door.") == (
        f"{START}\n\nMemory: a wall\nYour last action: left\n\n{TASK}\nA wall."
        f"<|user|>A door.\n\n{REMEMBER}<|assistant|>"
    )
    assert talk.writes(Action(text="left")) == "a wall | left | A door."
    assert talk.says("") == f"{START}\n\n{TASK}\nA wall.<|user|>{ACT}<|assistant|>"
    talk.says("right")
    assert talk.sees("A door.").startswith(f"{START}\n\nYour last action: right\n\n{TASK}\nA wall.<|user|>")
    talk.says("many words " * 30)
    talk.says("right")
    talk.sees("A door.")
    written = talk.session.write(Action(text="left"))
    assert len(written) <= 24
    assert small_chat.text(written).endswith("A door.")


def test_a_state_and_an_action_in_one_completion(small_chat: Chat, brief_of: Briefs) -> None:
    """Of a completion the state and the action stay; what stands before the state is gone a turn later."""
    memory = Memory(PlainText(small_chat, max_tokens=8), small_chat, max_tokens=12, form="one")
    talk = Talk(small_chat, memory.open(brief_of()))
    prompt = talk.session.observe("A wall.")
    tags = len(small_chat.answer_ids("<state></state>\n"))
    assert prompt.sampling.max_tokens == 20 + tags and prompt.role == ""
    assert talk.text(prompt) == f"{START}<|user|>A wall.\n\n{STATE}<|assistant|>"
    assert talk.writes(Action(text="left")) == "<state>A wall.</state>\nleft"
    assert talk.says("canary <state>a wall</state>\nleft") is None
    assert talk.action == Action(text="left")
    assert talk.sees("A door.") == (
        f"{START}\n\nMemory: a wall\nYour last action: left\n\n{TASK}\nA wall."
        f"<|user|>A door.\n\n{STATE}<|assistant|>"
    )
    talk.says("right")
    assert talk.action == Action(text="right")
    assert "Memory: a wall\nYour last action: right" in talk.sees("A door."), (
        "without a state the old one stays"
    )
    talk.says(f"<state>{'much ' * 30}</state>right")
    assert talk.action == Action(text="right"), "also where a token holds the end of the state and more"
    kept = talk.sees("A door.").partition("Memory: ")[2].partition("\n")[0]
    assert kept and len(small_chat.answer_ids(kept)) <= 12


def test_notes_of_the_environment_are_the_demonstrated_memory(small_chat: Chat, brief_of: Briefs) -> None:
    book = Stream(pages=1, facts=1, closed_book=0.0)
    asked = book.reset(book.task("train", 0))
    forms: tuple[tuple[Form, str], ...] = (("two", ""), ("one", "\nleft"))
    for form, acts in forms:
        session = Memory(PlainText(small_chat), small_chat, form=form).open(brief_of())
        session.observe(asked)
        assert isinstance(session, Foresees) and session.foresee(book) is None
        written = small_chat.text(session.write(Action(text="left")))
        assert written == (f"<state></state>{acts}" if acts else ""), "nothing was read yet"
    session = Memory(PlainText(small_chat), small_chat, form="one").open(brief_of())
    session.observe(asked)
    session.write(Action(text="left"))
    page = as_text(book.step(Action(text="read")).observation)
    session.observe(page)
    assert isinstance(session, Foresees) and session.foresee(book) is None
    fact = page.removeprefix("Page 1: ").partition(".")[0]
    assert small_chat.text(session.write(Action(text="left"))) == f"<state>{fact}.</state>\nleft"


def test_content_parts_are_asked_about_as_they_are(small_chat: Chat, brief_of: Briefs) -> None:
    session = Memory(PlainText(small_chat), small_chat).open(brief_of())
    prompt = session.observe((Text(text="A "), Text(text="wall.")))
    assert small_chat.encoder.decode(prompt.token_ids).endswith(f"A wall.\n\n{REMEMBER}<|assistant|>")


def test_policies_that_make_no_sense(small_chat: Chat, brief_of: Briefs) -> None:
    with pytest.raises(UsageError, match="window: got turns=-1, slack=0; give 0 or more"):
        Window(PlainText(small_chat), turns=-1).open(brief_of())
    with pytest.raises(UsageError, match="summary: got every=0; give 1 or more"):
        Summary(PlainText(small_chat), small_chat, every=0).open(brief_of())
    with pytest.raises(UsageError, match="memory: got form=one around a harness that chooses among actions"):
        Memory(Choice(small_chat), small_chat, form="one").open(brief_of(legal=("left",))).observe(
            "A.", ("left",)
        )
    wrong: Any = "three"
    with pytest.raises(UsageError, match="form of memory: got 'three'; choose"):
        Memory(PlainText(small_chat), small_chat, form=wrong).open(brief_of())
