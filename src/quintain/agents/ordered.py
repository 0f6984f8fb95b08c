"""An order of actions that decoding cannot leave: the name of each is chosen among those that a formula allows next.

The order is that of a policy file (``$order``, `quintain.safety.temporal`). With tools every completion is one call of
a tool that is allowed now, under its schema; without, its first word is an allowed one and the rest is free. What is
allowed looks ahead to the last turn, so that no episode runs into a limit before the formula holds. Log-probs are those
of the model without the constraint, or with ``masked`` those under it, as `quintain.agents.constrained` says.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import ClassVar

from quintain.agents.constrained import calls_grammar
from quintain.agents.deliberation import Deliberation
from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.engines.protocol import Capability, Grammar
from quintain.errors import UsageError
from quintain.safety.policy import read_order_of, refuse_unknown_order
from quintain.safety.temporal import Automaton, TemporalGuard
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Observation, ToolCall

MAX_REST = 60
"""Characters behind the first word of an action in words."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """Tools, or words, in an order: ``Ordered(PlainText(chat), chat, policy="desk.json", turns=20)``."""

    agent: Agent
    chat: Chat
    policy: str = ""
    """A policy with an order, a .json file."""
    turns: int = 0
    """Turns of an episode that the order is to be fulfilled in; 0: whoever can end one ends it."""
    masked: bool = False
    """Let log-probs be those among the allowed tokens, in what is sampled and in what is learned."""
    needs: ClassVar[frozenset[Capability]] = frozenset({"grammar"})
    """What the engine must be able to do."""
    _known: dict[str, Automaton] = field(
        default_factory=dict[str, Automaton], init=False, repr=False, compare=False
    )

    def open(self, brief: Brief) -> OrderedSession:
        """See `Agent.open`.

        Raises:
            UsageError: there is no policy with an order.
            ConfigError: it cannot be read, names what is no tool, or cannot be fulfilled in so many turns.
        """
        if self.policy not in self._known:
            order = read_order_of(self.policy) if self.policy else None
            if order is None:
                raise UsageError(
                    f"ordered: got policy={self.policy!r}, which has no $order; name a policy that has one"
                )
            self._known[self.policy] = order
        order = self._known[self.policy]
        if brief.tools:
            refuse_unknown_order(order, brief.tools, "ordered")
        return OrderedSession(self, brief, order)


class OrderedSession(Deliberation):
    """An episode of `Ordered`."""

    def __init__(self, settings: Ordered, brief: Brief, order: Automaton) -> None:
        """Open the inner session at the beginning of the order."""
        super().__init__(settings.agent, brief)
        self._chat, self._is_masked = settings.chat, settings.masked
        self._guard = TemporalGuard(order, turns=settings.turns or None)

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; only what is allowed now can be sampled."""
        prompt = super().observe(observation, legal_actions)
        return replace(prompt, sampling=prompt.sampling.under(self._constrain(), is_masked=self._is_masked))

    def read(self, completion: Completion) -> Action:
        """See `Session.read`; the order goes on by what was said, carried out or not."""
        action = super().read(completion)
        if self._brief.tools:
            self._guard.judge(action)
        else:
            name = (action.text.split() or [""])[0]
            self._guard.judge(Action(tool_calls=(ToolCall(name=name),)))
        return action

    def _constrain(self) -> Grammar:
        """Return the grammar of what may be said now."""
        names = self._guard.list_allowed()
        tools = [tool for tool in self._brief.tools if tool.name in names or self._is_free(tool.name)]
        if self._brief.tools and tools:
            return Grammar(text=calls_grammar(tools, self._chat, 1))
        words = " | ".join(json.dumps(name) for name in names if name)
        if not words:
            raise UsageError(
                "ordered: got an order that allows no action that it names; name those it should"
            )
        return Grammar(text=f"%llguidance {{}}\nstart: ({words}) /( [^\\n]{{1,{MAX_REST}}})?/\n")

    def _is_free(self, name: str) -> bool:
        """Whether the tool `name` is one that the formula does not tell from others, and those are allowed."""
        return name not in self._guard.automaton.names and "" in self._guard.list_allowed()
