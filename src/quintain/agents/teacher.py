"""A model behind a chat endpoint that plays: what it does is written as the policy's tokens, to be imitated.

It is told what the policy is told (instructions, the task's prompt, tools or legal actions) as a chat of its own, and
nothing else. It answers with calls of tools, natively or in Hermes markup, with one of the legal actions, or in words;
what cannot be read is asked for once more and is then a failure of the engine, never an action. What it says beside a
call is not written. With a tape, the same tasks are taught again without asking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quintain.agents.harness import system_text
from quintain.agents.protocol import Brief
from quintain.config.ranges import PositiveInt
from quintain.config.spec import options_from
from quintain.data.messages import write_call, write_tool
from quintain.engines.chat_client import ChatClient, ChatSpec
from quintain.engines.chat_client import Reply as Said
from quintain.environments.tools import OwnedFault
from quintain.processes.http_json import HttpTrouble
from quintain.text.parse import parse_choice, parse_text, parse_tool_calls, tools_text
from quintain.types import Action, Observation, Turn, as_text

ATTEMPTS = 2
"""How often it is asked for an action that can be read."""
CHOOSE = "Answer with one of the actions, word for word, and nothing else."
OPTIONS = options_from({"max_tokens": PositiveInt, "written_tools": bool})


class TeacherFault(OwnedFault):
    """The endpoint gave no action."""

    owner = "engine"

    @classmethod
    def of(cls, kind: str, url: str, got: str) -> TeacherFault:
        """Return the fault of the endpoint at `url`; `kind` is for counting."""
        fault = cls(f"teacher at {url}: got {got}; check the endpoint, or take a stronger model")
        fault.kind = f"teacher_{kind}"
        return fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Teacher:
    """Plays by asking `client`: ``Teacher.read("http://127.0.0.1:8000/v1?model=qwen&tape=lessons.jsonl")``."""

    client: ChatClient
    temperature: float = 0.0
    max_tokens: int = 512
    writes_tools: bool = False
    """whether tools are told in the system message, for endpoints that do not take them apart"""

    @classmethod
    def read(cls, spec: str, *, folder: Path | None = None) -> Teacher:
        """Return the teacher that `spec` names: an endpoint (`ChatSpec`), and ``max_tokens``, ``written_tools=1``.

        Raises:
            UsageError: it is no such spec, or its key cannot be read.
            DataError: its tape is broken.
        """
        found = ChatSpec.read(spec, asked="teacher", more=OPTIONS, folder=folder)
        return cls(
            client=found.client(),
            temperature=found.temperature,
            max_tokens=found.more.get("max_tokens", 512),
            writes_tools=found.more.get("written_tools", False),
        )

    def answer(self, brief: Brief, turns: Sequence[Turn], observation: Observation) -> Action:
        """See `quintain.rollout.samplers.DialogueTeacher`.

        Raises:
            TeacherFault: the endpoint gave no action that can be read.
        """
        messages = self.messages(brief, turns, observation)
        tools = [] if self.writes_tools else [write_tool(tool) for tool in brief.tools]
        action = Action()
        for number in range(ATTEMPTS):
            try:
                said = self.client.reply(
                    messages,
                    tools=tools,
                    temperature=self.temperature,
                    max_tokens=self.max_tokens,
                    number=number,
                )
            except HttpTrouble as trouble:
                raise TeacherFault.of(trouble.kind, self.client.url, trouble.got) from trouble
            action = action_of(said, brief)
            if action.error is None:
                return action
        raise TeacherFault.of("unreadable", self.client.url, str(action.error))

    def messages(self, brief: Brief, turns: Sequence[Turn], observation: Observation) -> list[dict[str, Any]]:
        """Return the chat as the teacher sees it."""
        told = [tools_text(brief.tools)] if self.writes_tools and brief.tools else []
        told += [CHOOSE] if brief.legal_actions and not brief.tools else []
        system = system_text(brief, *told)
        found: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        names: list[str] = []
        for number, turn in enumerate(turn for turn in turns if not turn.is_internal):
            found += as_messages(as_text(turn.observation), names)
            calls = () if self.writes_tools or turn.action.error else turn.action.tool_calls
            names = [f"call_{number}_{place}" for place in range(len(calls))]
            said: dict[str, Any] = {"role": "assistant", "content": "" if calls else turn.action.text}
            if calls:
                said["tool_calls"] = [
                    {"id": name, **write_call(call)} for name, call in zip(names, calls, strict=True)
                ]
            found.append(said)
        text = as_text(observation)
        if brief.legal_actions and not brief.tools:
            text += f"\nActions: {', '.join(brief.legal_actions)}"
        return found + as_messages(text, names)


def as_messages(text: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return what was shown as messages: results of the calls `names`, all in the first, else one of the user."""
    if not names:
        return [{"role": "user", "content": text}]
    return [
        {"role": "tool", "tool_call_id": name, "content": "" if place else text}
        for place, name in enumerate(names)
    ]


def action_of(said: Said, brief: Brief) -> Action:
    """Return the action that a teacher's answer is; what is wrong with it stands in its error."""
    if brief.tools:
        action = Action(text=said.text, tool_calls=said.calls) if said.calls else parse_tool_calls(said.text)
        return replace(action, text="") if action.tool_calls else action
    if said.calls:
        return Action(text=said.text, error=f"a call of {said.calls[0].name}, where there are no tools")
    if brief.legal_actions:
        return parse_choice(said.text, brief.legal_actions)
    return parse_text(said.text)
