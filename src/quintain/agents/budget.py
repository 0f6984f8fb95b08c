"""Budgets of a turn: tokens of thought and number of tool calls.

A thought that is not closed within its budget is closed for the model, which then answers (budget forcing, arXiv
2501.19393); the closing tokens are part of the prompt and are not trained. A turn with too many tool calls is an
error that the model reads, and none is carried out. What is over budget is never cut in silence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from quintain.agents.deliberation import Deliberation
from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.engines.protocol import Sampling
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Observation

START, END = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Budget:
    """Bounds of a turn: ``Budget(JsonTools(chat), chat, think=512, calls=2)``."""

    agent: Agent
    chat: Chat
    think: int = 0
    """Tokens of a thought in ``<think>`` tags; 0 leaves it to the harness's `max_tokens`."""
    calls: int = 0
    """Tool calls of a turn; 0 for any number."""

    def open(self, brief: Brief) -> BudgetSession:
        """See `Agent.open`.

        Raises:
            UsageError: a budget is negative, or the tokenizer has no token that closes a thought.
        """
        if self.think < 0 or self.calls < 0:
            raise UsageError(f"budget: got think={self.think}, calls={self.calls}; give 0 or more")
        if self.think and self.chat.encoder.markup_id(END) is None:
            raise UsageError(
                f"budget: got think={self.think} for a tokenizer without the token {END}; leave think at 0"
            )
        return BudgetSession(self, brief)


class BudgetSession(Deliberation):
    """An episode of `Budget`."""

    def __init__(self, settings: Budget, brief: Brief) -> None:
        """Open the inner session."""
        super().__init__(settings.agent, brief)
        self._settings = settings
        self._end = settings.chat.encoder.markup_id(END) if settings.think else None
        self._answering: Sampling | None = None
        self._before: tuple[int, ...] = ()

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; thoughts come first."""
        return self._limit(super().observe(observation, legal_actions))

    def read(self, completion: Completion) -> Action:
        """See `Session.read`: a thought, or what was thought and answered together."""
        sampling, self._answering = self._answering, None
        if sampling is not None and completion.token_ids[-1] not in sampling.stop_ids:
            return self._close_thought(sampling, completion)
        whole = (*self._before, *completion.token_ids)
        self._before = ()
        action = self._inner_read(replace(completion, token_ids=whole, logprobs=()))
        if self._next is not None:
            self._next = self._limit(self._next)
        most = self._settings.calls
        if most and len(action.tool_calls) > most:
            error = f"{len(action.tool_calls)} tool calls in one turn: at most {most} may be made at once"
            return Action(text=action.text, error=error)
        return action

    def _limit(self, prompt: Prompt) -> Prompt:
        """Return `prompt` with the budget of a thought; a choice among candidates holds none."""
        if self._end is None or prompt.sampling.candidates is not None:
            return prompt
        self._answering = prompt.sampling
        stops = prompt.sampling.stop_ids | {self._end}
        sampling = replace(prompt.sampling, max_tokens=self._settings.think, stop_ids=stops)
        return replace(prompt, sampling=sampling, role=prompt.role or "thought")

    def _close_thought(self, sampling: Sampling, completion: Completion) -> Action:
        """Go on after a thought, and close one that is still open."""
        assert self._end is not None, "only bounded thoughts are closed"
        ids = completion.token_ids
        text = self._settings.chat.encoder.decode(ids)
        forced = (self._end,) if ids[-1] != self._end and START in text else ()
        self._before = (*ids, *forced)
        self._next = Prompt(
            token_ids=forced, starts_segment=False, sampling=sampling, shows=END if forced else ""
        )
        return Action(text=text)
