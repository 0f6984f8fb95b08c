"""Observations in a shape that a model can use: AgentOccam (arXiv 2410.13825), as wrappers of a harness.

Pages are trees of nodes (`quintain.agents.pages`). `Simplified` shows them in fewer words, as a whole or cut after so
many lines, which is said; `Pivotal` shows past pages by the nodes that the agent spoke of and what they are in. The
plan tree, which decides which past turns are shown, is in `quintain.agents.plan_tree`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from quintain.agents.context import Exchange, Rewriting
from quintain.agents.deliberation import Deliberation
from quintain.agents.pages import NODE, simplify
from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Image, Observation, Text, as_text

_ID = re.compile(r"\[(\w+)\]")
_MENTION = re.compile(r"\[(\w+)\]|\b(\d+)\b")


def keep_pivotal(text: str, ids: frozenset[str]) -> str:
    """Return the lines of the page `text` with one of `ids`, and the nodes that they are in.

    Lines before the first node (an address, a message) stay, and rows and items with one of `ids`; a page without
    nodes stays whole.
    """
    lines = text.splitlines()
    nodes = [NODE.fullmatch(line) for line in lines]
    if not _ID.search(text):
        return text
    kept = [False] * len(lines)
    stack: list[tuple[int, int]] = []
    for number, node in enumerate(nodes):
        if node is None:
            inside = _ID.findall(lines[number])
            kept[number] = any(each in ids for each in inside) or not (inside or any(nodes[:number]))
            continue
        depth = len(node[1])
        stack = [(level, place) for level, place in stack if level < depth]
        stack.append((depth, number))
        if not ids.isdisjoint(_ID.findall(lines[number])):
            for _, place in stack:
                kept[place] = True
    return "\n".join(line for line, is_kept in zip(lines, kept, strict=True) if is_kept)


def find_ids(text: str) -> frozenset[str]:
    """Return the ids that `text` speaks of: in brackets, or numbers."""
    return frozenset(found[1] or found[2] for found in _MENTION.finditer(text))


@dataclass(frozen=True, slots=True)
class Simplified:
    """A harness that sees every page in fewer words: ``Simplified(agent, rows=500)``."""

    agent: Agent
    rows: int = 500
    """Lines of a page that are shown; what is left out is said. 0: all."""

    def open(self, brief: Brief) -> SimplifiedSession:
        """See `Agent.open`.

        Raises:
            UsageError: there are fewer than 0 rows.
        """
        if self.rows < 0:
            raise UsageError(f"simplified: got rows={self.rows}; give 0 or more")
        return SimplifiedSession(self, brief)


class SimplifiedSession(Deliberation):
    """An episode of `Simplified`."""

    def __init__(self, settings: Simplified, brief: Brief) -> None:
        """Open the inner session."""
        super().__init__(settings.agent, brief)
        self._rows = settings.rows

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`."""
        page = simplify(as_text(observation), self._rows)
        return super().observe(with_text(observation, page), legal_actions)


@dataclass(frozen=True, slots=True)
class Pivotal:
    """The last `turns` turns, their pages cut to the nodes that were spoken of: ``Pivotal(agent, chat, turns=3)``."""

    agent: Agent
    chat: Chat
    turns: int = 3

    def open(self, brief: Brief) -> PivotalSession:
        """See `Agent.open`.

        Raises:
            UsageError: there are fewer than 0 turns.
        """
        if self.turns < 0:
            raise UsageError(f"pivotal: got turns={self.turns}; give 0 or more")
        return PivotalSession(self, brief)


class PivotalSession(Rewriting):
    """An episode of `Pivotal`: every turn after the first starts a segment where a page was cut."""

    def __init__(self, settings: Pivotal, brief: Brief) -> None:
        """Begin with an empty history."""
        super().__init__(settings.agent, brief)
        self._settings = settings

    def kept(self, history: Sequence[Exchange]) -> Sequence[Exchange] | None:
        """See `Rewriting.kept`."""
        recent = history[max(0, len(history) - self._settings.turns) :]
        cut = [self._cut(exchange) for exchange in recent]
        return None if cut == list(history) else cut

    def _cut(self, exchange: Exchange) -> Exchange:
        """Return `exchange` with the nodes of its page that its completions speak of."""
        said = " ".join(self._settings.chat.text(each.token_ids) for each in exchange.completions)
        page = keep_pivotal(as_text(exchange.observation), find_ids(said))
        return replace(exchange, observation=with_text(exchange.observation, page))


def with_text(observation: Observation, text: str) -> Observation:
    """Return `observation` with `text` in the place of its text; pictures stay, after it."""
    if isinstance(observation, str):
        return text
    pictures = tuple(part for part in observation if isinstance(part, Image))
    return (Text(text=text), *pictures) if pictures else text
