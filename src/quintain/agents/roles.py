"""A harness in which one model speaks for several roles, and what the role `action` says is done.

The form is that of `quintain.text.roles`. An action without roles is written as the role that acts alone, so that any
expert can demonstrate; a demonstrator that knows the roles gives its whole transcript as the text of its action.
"""

from __future__ import annotations

from dataclasses import dataclass

from quintain.agents.harness import ChatSession, Wording, sampling_of, system_text
from quintain.agents.protocol import Brief
from quintain.text.chat import Chat
from quintain.text.parse import UnreadableError, parse_tool_calls, tools_text, write_tool_calls
from quintain.text.roles import ACT, Activation, read_roles, write_roles
from quintain.types import Action

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
        wording = Wording(parse=lambda text: parse_roles(text, has_tools=has_tools), write=write_action)
        return ChatSession(self.chat, sampling, wording, system_text(brief, told), has_tools=has_tools)


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
    return action.text if is_transcript(action.text) else write_roles([Activation(ACT, said(action))])


def is_transcript(text: str) -> bool:
    """Return whether `text` is what several roles, or the acting one, say."""
    try:
        return read_roles(text)[-1].role == ACT
    except UnreadableError:
        return False


def said(action: Action) -> str:
    """Return an action without roles as text: its calls as JSON, else its words."""
    return write_tool_calls(action.tool_calls) if action.tool_calls else action.text
