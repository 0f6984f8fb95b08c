"""Small chats of every shape that a chat template is tried with.

Each holds what agents live through: a plain answer, one with a thought, calls of one tool and of two, with words or a
thought before them, the results of calls with their ids, a system message that comes late. What a model's template
makes of them is what our own stream must be, and what a format of answers must read back.
"""

from collections.abc import Mapping

from quintain.types import Message, ToolCall, ToolSpec, as_content

PROBE_TOOLS = (
    ToolSpec(
        name="find_train",
        description="Find trains to a city.",
        parameters={
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "where to"},
                "seats": {"type": "integer"},
                "direct": {"type": "boolean"},
                "days": {"type": "array", "items": {"type": "string"}},
                "code": {"type": "string"},
            },
            "required": ["city"],
        },
    ),
    ToolSpec(
        name="book",
        description="Book a seat.",
        parameters={"type": "object", "properties": {"train": {"type": "string"}}, "required": ["train"]},
    ),
)
"""Tools that the probe chats call."""


def say(text: str, *calls: ToolCall, thought: str = "") -> Message:
    """Return what an assistant says, thinks and calls."""
    return Message(role="assistant", content=as_content(text), tool_calls=calls, reasoning=thought)


def ask(text: str) -> Message:
    """Return what a user says."""
    return Message(role="user", content=as_content(text))


def tell(text: str) -> Message:
    """Return a system message."""
    return Message(role="system", content=as_content(text))


def answer_call(text: str, call: ToolCall) -> Message:
    """Return the result of `call`."""
    return Message(role="tool", content=as_content(text), tool_call_id=call.id, name=call.name)


FIND = ToolCall(id="callaaaa1", name="find_train", arguments={"city": "Rome"})
FIND_OTHER = ToolCall(id="callbbbb2", name="find_train", arguments={"city": "Oslo"})
BOOK = ToolCall(id="callcccc3", name="book", arguments={"train": "IC 9"})
FIND_TYPED = ToolCall(
    id="calldddd4",
    name="find_train",
    arguments={
        "city": 'the "old" town\nby the sea',
        "seats": 2,
        "direct": True,
        "days": ["Mon", "Sun"],
        "code": "007",
    },
)
"""A call with values of five types, quotes and a newline in one of them, and a text that looks like a number."""

PROBES: Mapping[str, tuple[Message, ...]] = {
    "plain": (tell("Be brief."), ask("Hello."), say("Good morning."), ask("And now?"), say("Good night.")),
    "thought": (
        ask("Two and two?"),
        say("It is four.", thought="Two more than two."),
        ask("And one?"),
        say("Five."),
    ),
    "call": (ask("To Rome."), say("", FIND), answer_call("IC 9 at noon", FIND), say("At noon.")),
    "typed call": (
        ask("To the sea."),
        say("", FIND_TYPED),
        answer_call("none", FIND_TYPED),
        say("There is none."),
    ),
    "words and call": (
        ask("To Rome."),
        say("Let me look.", FIND),
        answer_call("IC 9 at noon", FIND),
        say("At noon."),
    ),
    "thought and call": (
        tell("Be brief."),
        ask("To Rome."),
        say("", FIND, thought="I must look."),
        answer_call("IC 9 at noon", FIND),
        say("Booked.", BOOK, thought="Now the seat."),
        answer_call("done", BOOK),
        say("You leave at noon.", thought="All is done."),
    ),
    "two calls": (
        ask("To Rome and Oslo."),
        say("", FIND, FIND_OTHER),
        answer_call("IC 9 at noon", FIND),
        answer_call("IC 4 at nine", FIND_OTHER),
        say("At noon and at nine."),
    ),
    "late system": (
        tell("Be brief."),
        ask("Hello."),
        say("Good morning."),
        tell("Be kind."),
        ask("And now?"),
        say("Good night."),
    ),
    "result, then user": (
        ask("To Rome."),
        say("", FIND),
        answer_call("IC 9 at noon", FIND),
        ask("And from Oslo?"),
        say("I do not know."),
    ),
}
"""Chats by the name of their shape; the last message of each is an answer."""
