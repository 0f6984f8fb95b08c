"""A rollout of verifiers that asks us for its answers: its own loop runs, in a thread, with a client that is ours.

So every kind of environment works, however it builds its prompts. What the loop says is a question, the end with its
reward, or an error; and whoever asked waits no longer than the deadline.
"""

import asyncio
import json
import logging
import queue
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from quintain.environments.extras import extra_module
from quintain.environments.tools import GraderFault, OwnedFault
from quintain.errors import EnvironmentFault
from quintain.processes.portal import LoopThread
from quintain.types import Action, Owner

INSTALL = 'pip install "verifiers>=0.1.14,<0.2"'
UNGRADED = "Error calling"
"""How what a rubric logs begins when a reward function raised; it goes on with 0."""
CLOSING = 5.0
"""Seconds that an abandoned episode has to clean up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the environment wants answered: messages and tools of the package."""

    messages: Sequence[Any]
    tools: Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How an episode ended: the package's state."""

    state: Mapping[str, Any]


class EpisodeFault(OwnedFault):
    """An environment of verifiers broke in the middle of an episode."""

    @classmethod
    def of(cls, error: BaseException) -> "EpisodeFault":
        """Return the fault that the package's `error` stands for: of a tool, or of the environment."""
        cause = error.__cause__ or error
        fault = cls(f"verifiers: got {type(error).__name__}: {cause or type(cause).__name__}; mend it")
        fault.owner = cast(Owner, "tool" if type(error).__name__.startswith("Tool") else "environment")
        fault.kind = type(error).__name__
        return fault


class Loop:
    """Plays episodes of `environment`, an environment of verifiers, one after the other."""

    def __init__(self, environment: Any, *, deadline: float) -> None:
        self._environment, self._deadline = environment, deadline
        self._said: queue.SimpleQueue[Question | End | BaseException] = queue.SimpleQueue()
        self._episode: Future[None] | None = None
        self._answer: Future[Any] | None = None
        self._client = _client(self._ask_agent)
        self._loop = LoopThread("quintain-verifiers")

    def begin(self, row: Mapping[str, Any]) -> Question | End:
        """Start an episode of the data set's `row` and return what is asked first."""
        self.abandon()
        self._said = queue.SimpleQueue()
        self._episode = self._loop.start(self._play, row, self._said)
        return self._next()

    def reply(self, action: Action) -> Question | End:
        """Say `action` and return what comes then."""
        if self._answer is None:
            raise EnvironmentFault("verifiers: got an action when nothing was asked; reset first")
        answer, self._answer = self._answer, None
        if answer.set_running_or_notify_cancel():  # unless the episode was broken off
            answer.set_result(response(action))
        return self._next()

    def abandon(self) -> None:
        """Break the episode off, if there is one, and let it clean up."""
        episode, self._episode, self._answer = self._episode, None, None
        if episode is not None and episode.cancel():
            with suppress(queue.Empty):  # it takes too long, and is left alone
                while not isinstance(self._said.get(timeout=CLOSING), (End, BaseException)):
                    pass

    def close(self) -> None:
        """End the episode, the environment and the thread."""
        self.abandon()
        try:
            self._loop.start(self._environment._teardown).result(self._deadline)
        finally:
            self._loop.close(CLOSING)

    async def _play(self, row: Mapping[str, Any], said: "queue.SimpleQueue[Any]") -> None:
        """Play and grade an episode; whatever comes of it is `said`."""
        try:
            state = await self._environment.rollout(dict(row), self._client, "policy", {})
            if state.get("error") is None:
                with _Watched() as watched:
                    await self._environment.rubric.score_rollout(state)
                if watched.errors:
                    raise GraderFault(f"verifiers: got {watched.errors[0]}; mend the reward function")
            await self._environment.rubric.cleanup(state)
        except BaseException as error:
            said.put(error)
            if not isinstance(error, Exception):
                raise
        else:
            said.put(End(state=state))

    async def _ask_agent(self, messages: Sequence[Any], tools: Sequence[Any]) -> Any:
        """Put a question and wait for its answer."""
        answer = self._answer = Future[Any]()
        self._said.put(Question(messages=messages, tools=tools))
        return await asyncio.wrap_future(answer)

    def _next(self) -> Question | End:
        """Return what is said next.

        Raises:
            OwnedFault: the environment or a reward function broke.
            EnvironmentFault: nothing was said within the deadline.
        """
        try:
            found = self._said.get(timeout=self._deadline)
        except queue.Empty as error:
            self.abandon()
            raise EnvironmentFault(
                f"verifiers: got nothing within {self._deadline:g} s; mend the environment, or give a longer deadline"
            ) from error
        if isinstance(found, BaseException):
            raise found if isinstance(found, OwnedFault) else EpisodeFault.of(found) from found
        if isinstance(found, End) and found.state.get("error") is not None:
            raise EpisodeFault.of(found.state["error"])
        return found


class _Watched(logging.Handler):
    """Takes down what rubrics log of reward functions that raised: verifiers itself goes on with 0."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def __enter__(self) -> "_Watched":
        logging.getLogger("verifiers").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("verifiers").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message if it is about a reward function."""
        message = record.getMessage()
        if message.startswith(UNGRADED):
            self.errors.append(message)


def response(action: Action) -> Any:
    """Return `action` as a response of a model."""
    types = package("verifiers.types")
    calls = [
        types.ToolCall(id=f"call_{number}", name=call.name, arguments=json.dumps(dict(call.arguments)))
        for number, call in enumerate(action.tool_calls)
    ]
    message = types.ResponseMessage(
        content="" if calls else action.text,
        tool_calls=calls or None,
        finish_reason="tool_calls" if calls else "stop",
        is_truncated=False,
    )
    return types.Response(id="policy", created=0, model="policy", message=message)


def package(module: str = "verifiers") -> Any:
    """Return a module of the package.

    Raises:
        MissingExtra: it is not installed.
    """
    return extra_module(module, package="verifiers", feature="the environment verifiers", command=INSTALL)


def _client(ask: Any) -> Any:
    """Return a client of the package that asks `ask` instead of a model."""
    base = package("verifiers.clients").Client

    async def get_response(_self: object, prompt: Any, *_: object, tools: Any = None, **__: object) -> Any:
        return await ask(list(prompt), list(tools or ()))

    async def refuse_request(*_: object) -> None:
        """Nothing goes over the wire."""

    members: dict[str, Any] = dict.fromkeys(base.__abstractmethods__, refuse_request)
    return type("Policy", (base,), {**members, "get_response": get_response})(None)
