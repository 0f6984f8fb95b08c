"""A harness in which one model speaks for several roles, and what the role `action` says is done.

The form is that of `quintain.text.roles`. An action without roles is written as the role that acts alone, so that any
expert can demonstrate; a demonstrator that knows the roles gives its whole transcript as the text of its action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from quintain.agents.harness import ChatSession, Wording, sampling_of, system_text
from quintain.agents.protocol import Brief
from quintain.data.seats import speakers
from quintain.text.chat import Chat
from quintain.text.parse import UnreadableError, parse_tool_calls, tools_text, write_tool_calls
from quintain.text.roles import ACT, Activation, read_roles, write_roles
from quintain.types import NOTHING, Action, Trajectory, Turn, as_text

INSTRUCTIONS = (
    "Speak for one role after the other: <think>…</think>, <suggested_answer>…</suggested_answer>, "
    "<double_check>1 to 5</double_check>; below 3 <plan>…</plan> and again, else <action>…</action>."
)


@dataclass(frozen=True, slots=True)
class Roles:
    """What is said in the role `action` is the action, a JSON tool call where there are tools: ``Roles(chat)``."""

    chat: Chat
    temperature: float = 1.0
    max_tokens: int = 256

    def open(self, brief: Brief) -> ChatSession:
        """See `Agent.open`."""
        sampling = sampling_of(self.chat, self.temperature, self.max_tokens)
        has_tools = bool(brief.tools)
        told = f"{INSTRUCTIONS}\n{tools_text(brief.tools)}" if has_tools else INSTRUCTIONS
        wording = Wording(
            parse=lambda text: parse_roles(text, has_tools=has_tools),
            write=write_action,
            has_own_thoughts=True,
        )
        return ChatSession(self.chat, sampling, wording, system_text(brief, told), has_tools=has_tools)


def one_transcript(
    trajectory: Trajectory, text: Callable[[Turn], str], names: Mapping[str, str] = NOTHING
) -> list[dict[str, Any]]:
    """Return an episode of several seats as the messages of one agent that speaks for all in turn (AFM, 2508.13167).

    What a seat said, by `text`, stands in a mark of its name, ``<A>say corn 3</A>``, or of another that `names` gives
    it. What an agent said to itself before it acted (``agent/plan``) stands in front of the action, in the same answer,
    which then reads as `read_roles` has it: ``<plan>…</plan><action>…</action>``. The other messages are what each seat
    was shown; what the seats said before stands there as the agent's own words. An answer that could not be read or
    carried out has weight 0.

    Difference to the paper: what tools showed within a turn of one seat is not there, since each turn is one action.
    """
    is_team = len(speakers(trajectory)) > 1
    messages: list[dict[str, Any]] = []
    parts: list[Activation] = []
    for turn in trajectory.turns:
        speaker, _, role = turn.seat.partition("/")
        own = role or (speaker if is_team else ACT)
        parts.append(Activation(names.get(own, own), text(turn)))
        if turn.is_internal:
            continue
        is_sound = turn.is_valid and turn.action.error is None
        messages += [
            {"role": "user", "content": as_text(turn.observation)},
            {"role": "assistant", "content": write_roles(parts), **({} if is_sound else {"weight": 0})},
        ]
        parts = []
    return messages


def parse_roles(text: str, *, has_tools: bool) -> Action:
    """Return the action of the role that acts, which is the last one; an action with an error where it does not."""
    try:
        role, content = read_roles(text)[-1]
    except UnreadableError as error:
        return Action(text=text, error=str(error))
    if role != ACT:
        return Action(text=text, error=f"the last role must be {ACT}; it is {role}")
    return parse_tool_calls(content) if has_tools else Action(text=content)


def write_action(action: Action) -> str:
    """Return `action` as the model writes it; one whose text is a transcript stays as it is."""
    return action.text if is_transcript(action.text) else write_roles([Activation(ACT, write_words(action))])


def is_transcript(text: str) -> bool:
    """Return whether `text` is what several roles, or the acting one, say."""
    try:
        return read_roles(text)[-1].role == ACT
    except UnreadableError:
        return False


def write_words(action: Action) -> str:
    """Return an action without roles as text: its calls as JSON, else its words."""
    return write_tool_calls(action.tool_calls) if action.tool_calls else action.text
