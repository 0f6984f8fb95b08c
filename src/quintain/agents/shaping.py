"""Observations in a shape that a model can use: AgentOccam (arXiv 2410.13825), as wrappers of a harness.

Pages are trees of nodes, one line each: indentation, an id in brackets, a role, a name (``[12] button "Buy"``).
`Simplified` removes what says nothing; `Pivotal` shows past pages by the nodes that the agent spoke of and what they
are in. The id of a node that can be acted on is never lost or changed by simplifying, and text without ids stays as
it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from quintain.agents.context import Exchange, Rewriting
from quintain.agents.deliberation import Deliberation
from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Image, Observation, Text, as_text

_NODE = re.compile(r"(\s*)\[(\w+)\]\s*(\w+)?\s*(.*)")
_STATIC = frozenset({"StaticText", "text", "LineBreak", "InlineTextBox"})
_MENTION = re.compile(r"\[(\w+)\]|\b(\d+)\b")
_WORD = re.compile(r"[^\s\"']+")


def simplify(text: str) -> str:
    """Return the page `text` without repeated lines, empty lines and static text that a node around it says already.

    It says a text whose words stand in it as whole words, one after the other: "Order 100" says "100" and not "10".
    """
    lines = text.splitlines()
    nodes = [_NODE.fullmatch(line) for line in lines]
    is_repeated = _find_repeated([node for node in nodes if node is not None])
    kept: list[str] = []
    for line, node in zip(lines, nodes, strict=True):
        if node is None:
            if line.strip() and line != (kept[-1] if kept else None):
                kept.append(line.rstrip())
        elif not next(is_repeated):
            kept.append(line.rstrip())
    return "\n".join(kept)


def _find_repeated(nodes: Sequence[re.Match[str]]) -> Iterator[bool]:
    """Return whether each of `nodes` is static text without words of its own, and nothing that stays is in it."""
    around: list[list[tuple[int, list[str]]]] = []
    stack: list[tuple[int, list[str]]] = []
    for node in nodes:
        stack = [(level, said) for level, said in stack if level < len(node[1])]
        around.append(stack)
        stack = [*stack, (len(node[1]), _WORD.findall(node[4]))]
    found: list[bool] = []
    next_depth = 0  # of the node after it that stays
    for node, parents in zip(reversed(nodes), reversed(around), strict=True):
        depth, words = len(node[1]), _WORD.findall(node[4])
        is_said = not words or any(_holds(said, words) for _, said in parents)
        found.append((node[3] or "") in _STATIC and next_depth <= depth and is_said)
        next_depth = next_depth if found[-1] else depth
    return reversed(found)


def _holds(said: Sequence[str], words: Sequence[str]) -> bool:
    """Whether `words` stand in `said`, one after the other."""
    return any(said[n : n + len(words)] == words for n in range(len(said) - len(words) + 1))


def keep_pivotal(text: str, ids: frozenset[str]) -> str:
    """Return the lines of the page `text` with one of `ids`, and the nodes that they are in.

    Lines before the first node (an address, a message) stay; a page without nodes stays whole.
    """
    lines = text.splitlines()
    nodes = [_NODE.fullmatch(line) for line in lines]
    if not any(nodes):
        return text
    kept = [False] * len(lines)
    stack: list[tuple[int, int]] = []
    for number, node in enumerate(nodes):
        if node is None:
            kept[number] = not any(nodes[:number])
            continue
        depth = len(node[1])
        stack = [(level, place) for level, place in stack if level < depth]
        stack.append((depth, number))
        if node[2] in ids:
            for _, place in stack:
                kept[place] = True
    return "\n".join(line for line, is_kept in zip(lines, kept, strict=True) if is_kept)


def find_ids(text: str) -> frozenset[str]:
    """Return the ids that `text` speaks of: in brackets, or numbers."""
    return frozenset(found[1] or found[2] for found in _MENTION.finditer(text))


@dataclass(frozen=True, slots=True)
class Simplified:
    """A harness that sees every observation as `simplify` returns it."""

    agent: Agent

    def open(self, brief: Brief) -> SimplifiedSession:
        """See `Agent.open`."""
        return SimplifiedSession(self.agent, brief)


class SimplifiedSession(Deliberation):
    """An episode of `Simplified`."""

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`."""
        return super().observe(with_text(observation, simplify(as_text(observation))), legal_actions)


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
