"""Pages come by themselves, and each is read into a memory: MemAgent's workflow (arXiv 2507.02259).

A turn is a stream of its own: the question, the memory and a page, and what is said is the next memory, which replaces
the one before. When there are no more pages, the question and the memory are all that the answer is given by. So no
prompt is longer than instructions, question, memory and page, however long the text is, and an earlier page is in no
later prompt. The memory is bounded in tokens by what may be sampled.

`Chunks` does ``read`` for the agent (any action that `reads` names) as long as that is legal; what the agent says of a
page is its memory. `Memory` of `quintain.agents.context` is the same where the agent decides itself what it does.

Differences to the paper: pages are those of the environment, `pages` of them at a time, in the place of 5,000 tokens; a
memory is what its tokens say, where the released code passes the sampled ids on: encoded again they may be others, and
what is trained are the sampled ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from quintain.agents.context import ACT, Remembering
from quintain.agents.deliberation import Words
from quintain.agents.protocol import Agent, Brief, Prompt, equip
from quintain.environments.protocol import Environment, Legal, advance, environment_name, join_results
from quintain.environments.wrapped import Wrapped
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import (
    Action,
    Completion,
    Content,
    Observation,
    StepResult,
    Task,
    Text,
    as_content,
    as_text,
)


@dataclass(frozen=True, slots=True)
class Chunks:
    """Reading by pages: ``Chunks(PlainText(chat), chat)``, in the catalogue ``chunks+text``."""

    agent: Agent
    chat: Chat
    pages: int = 1
    """Pages of a turn."""
    max_tokens: int = 128
    """Tokens of the memory."""
    reads: str = "read"
    """The action that turns a page."""

    def open(self, brief: Brief) -> ChunksSession:
        """See `Agent.open`."""
        return ChunksSession(self, brief)

    def equip(self, environment: Environment) -> Environment:
        """See `Equips`.

        Raises:
            UsageError: `pages` is below 1, or the environment does not say which actions are legal.
        """
        if self.pages < 1:
            raise UsageError(f"pages of chunks: got {self.pages}; give 1 or more")
        inner = equip(self.agent, environment)
        if not isinstance(inner, Legal):
            raise UsageError(
                f"chunks: got {environment_name(inner)}, which does not say when {self.reads!r} is legal; take an "
                "environment with pages, such as stream"
            )
        return PagesWorld(inner, self.pages, self.reads)


class PagesWorld(Wrapped):
    """`inner`, whose pages come by themselves: ``PagesWorld(Stream(), 1, "read")``.

    While a page is open nothing else is legal than to turn it, and whatever is done turns it.
    """

    own: ClassVar[tuple[str, ...]] = ("_is_open", "_begun")

    def __init__(self, inner: Environment, pages: int, reads: str) -> None:
        """Turn `pages` pages at a time by the action `reads`."""
        super().__init__(inner)
        self._pages, self._reads, self._is_open = pages, reads, False
        self._begun: tuple[StepResult, ...] = ()
        """what the first pages paid, until there is a turn for it"""

    def reset(self, task: Task) -> Observation:
        """Begin, and show what is asked and the first pages, as parts.

        Raises:
            UsageError: there is no page.
        """
        asked = self.begin_inner(task)
        if not self._can_turn():
            raise UsageError(
                f"chunks: got the task {task.id}, which begins where {self._reads!r} is not legal; take an environment "
                "with pages, such as stream"
            )
        first = self._turn(())
        self._begun = (first,)
        return (Text(text=as_text(asked)), *as_content(first.observation))

    def step(self, action: Action) -> StepResult:
        """Turn the page; where there is none left, ask to act; after that carry out `action`."""
        if not self._is_open:
            return advance(self.inner, action)
        begun, self._begun = self._begun, ()
        if self._can_turn():
            return self._turn(begun)
        self._is_open = False
        return join_results([*begun, StepResult(observation=ACT, is_success=False)])

    def legal_actions(self) -> tuple[str, ...]:
        """Return the action that turns the page, or all others."""
        if self._is_open:
            return (self._reads,)
        return tuple(action for action in self._legal() if action != self._reads)

    def state_key(self) -> str:
        """Return the state of the environment, and whether a page is open."""
        return f"{self._is_open} {self.inner.state_key()}"  # pyright: ignore[reportAttributeAccessIssue]

    def _turn(self, begun: Sequence[StepResult]) -> StepResult:
        """Return what the next pages show and pay, with what those that were `begun` with paid."""
        self._is_open = True
        results: list[StepResult] = []
        while len(results) < self._pages and self._can_turn():
            results.append(advance(self.inner, Action(text=self._reads)))
            if results[-1].is_over:
                break
        shown = "\n".join(as_text(each.observation) for each in results)
        return join_results([*begun, *results[:-1], replace(results[-1], observation=shown)])

    def _can_turn(self) -> bool:
        return self._reads in self._legal()

    def _legal(self) -> tuple[str, ...]:
        assert isinstance(self.inner, Legal), "looked at when it was put around"
        return self.inner.legal_actions()


class ChunksSession(Remembering):
    """An episode of `Chunks`."""

    def __init__(self, settings: Chunks, brief: Brief) -> None:
        """Begin with an empty memory."""
        super().__init__(settings.agent, brief, Words(settings.chat, settings.max_tokens))
        self._reads = settings.reads
        self._is_page = False

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`: the memory is asked for after a page, and an action where there is none."""
        self._is_page = legal_actions == (self._reads,)
        if self._first is None:
            asked, *page = as_content(observation)
            self._first, observation = (asked,), tuple[Content, ...](page)
        self._seen = (observation, legal_actions)
        if not self._is_page:
            return self._ask_to_act(observation, legal_actions)
        return self._ask_for_memory(observation, legal_actions, self.brief_without([observation]))

    def read(self, completion: Completion) -> Action:
        """See `Session.read`: the memory, which turns the page, or an action."""
        if not self._is_page:
            return self._inner_read(completion)
        self.memory = self._words.read(completion)
        return Action(text=self.memory)

    def foresee(self, environment: Environment) -> Action | None:
        """See `Foresees`; a thought is for the action, not for the memory."""
        found = super().foresee(environment)
        return None if self._is_page else found

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`: the memory that is demonstrated, or the action."""
        return self._words.write(self._draft()) if self._is_page else self._inner.write(action)
