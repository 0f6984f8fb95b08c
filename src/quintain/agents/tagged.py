"""Calls as tags, results between markers: ``<think>why</think><search>query</search>``, as Search-R1 and others write.

What a tool says comes back as ``<information>…</information>``. Markers that stand in it are taken out, so that a
document cannot end its own quotation; it is cut within the markers, never through them. What is trained does not hang
on any of this: the policy's tokens are those that it sampled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from quintain.agents.harness import ChatSession, Wording, sampling_of, system_text
from quintain.agents.protocol import Brief, Prompt
from quintain.engines.protocol import Sampling
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.text.parse import parse_tags, write_tags
from quintain.types import Observation, ToolSpec, as_text

MARKER = re.compile(r"</?information>")


@dataclass(frozen=True, slots=True)
class Tagged:
    """One call in tags in each turn: ``Tagged(chat, max_result=100)``, in the catalogue ``tags?max_result=100``."""

    chat: Chat
    temperature: float = 1.0
    max_tokens: int = 256
    max_result: int = 0
    """Most words of a result that are shown; 0 shows all."""

    def open(self, brief: Brief) -> TaggedSession:
        """See `Agent.open`.

        Raises:
            UsageError: `max_result` is negative.
        """
        if self.max_result < 0:
            raise UsageError(
                f"max_result of tags: got {self.max_result}; give a number of words, or 0 for all"
            )
        wording = Wording(
            parse=partial(parse_tags, tools=brief.tools),
            write=write_tags,
            say=lambda words, action: write_tags(action, words),
            has_own_thoughts=True,
        )
        sampling = sampling_of(self.chat, self.temperature, self.max_tokens)
        return TaggedSession(self, sampling, wording, system_text(brief, tags_text(brief.tools)))


class TaggedSession(ChatSession):
    """An episode of `Tagged`."""

    keeps_words: ClassVar[bool] = False

    def __init__(self, settings: Tagged, sampling: Sampling, wording: Wording, system: str) -> None:
        """Open the chat with the message `system`."""
        super().__init__(settings.chat, sampling, wording, system, has_tools=True)
        self._most = settings.max_result

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; what a call came to stands between markers."""
        if not self._awaits_tool:
            return super().observe(observation, legal_actions)
        words = MARKER.sub(" ", as_text(observation)).split(" ")
        shown = " ".join(words[: self._most] if self._most else words)
        return super().observe(f"<information>{shown}</information>", legal_actions)


def tags_text(tools: Sequence[ToolSpec]) -> str:
    """Return how `tools` are called."""
    told = [f"<{tool.name}>…</{tool.name}> {tool.description}" for tool in tools]
    return "\n".join(["Think in <think>…</think>, then make one call:", *told])
