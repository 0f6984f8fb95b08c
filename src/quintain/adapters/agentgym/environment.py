"""The worlds of an AgentGym server (arXiv 2406.04151), over its HTTP protocol, without its package.

The servers of AgentGym differ in what they call things; `world` names whose words are spoken. A task is a number:
training task k is ``data_idx`` 2 k, evaluation task k is 2 k + 1, so they never meet (this is not AgentGym's own
split). A step is sent once, since it would be carried out twice; create and reset are repeated.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, cast

from quintain.adapters.remote.world import INFINITE, RemoteFault, RemoteWorld, is_ours
from quintain.environments.wire import OURS, action_row
from quintain.errors import UsageError, suggestion
from quintain.processes.http_json import HttpServer, HttpTrouble, key_in
from quintain.types import Action, Observation, StepResult, Task

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What an AgentGym server calls things: ``Words(index="game")``."""

    instance: str = "id"
    index: str = "data_idx"
    state: str = "observation"
    score: str = ""
    """A field with the return so far, which pays; without one, ``reward`` is what a step pays."""
    before: tuple[str, ...] = ()
    """Fields of the reset that are shown before the first observation."""
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of the reset."""
    is_asked: bool = False
    """Whether the first observation must be asked for."""


WORLDS: dict[str, Words] = {
    "textcraft": Words(),
    "babyai": Words(score="score"),
    "sciworld": Words(score="score", before=("task_description",)),
    "alfworld": Words(index="game", more={"world_type": "Text"}),
    "lmrlgym": Words(index="game"),
    "webshop": Words(instance="env_idx", index="session_id", state="state", is_asked=True),
    "sqlgym": Words(instance="env_idx", index="item_id", state="state", is_asked=True),
    "searchqa": Words(instance="env_idx", index="id", is_asked=True),
}
"""Whose words are spoken, read off the clients in AgentGym's repository (May 2026)."""


class AgentGym(RemoteWorld):
    """Do what the environment asks."""

    protocol = "agentgym"
    tags: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self,
        address: str,
        *,
        world: str = "textcraft",
        key_file: str = "",
        deadline: float = 20.0,
        num_tasks: int = 0,
        max_turns: int = 20,
    ) -> None:
        """Play at the server at `address`, such as ``127.0.0.1:36001``.

        `num_tasks` is how many ``data_idx`` the server has, 0 for no end; `deadline` is for each answer; the key is
        the first word of `key_file`.

        Raises:
            UsageError: the address is none, or an option does not fit.
            RemoteFault: there is no AgentGym server.
        """
        if world not in WORLDS:
            raise UsageError(f"world of agentgym: got {world!r}; {suggestion(world, WORLDS)}")
        if num_tasks < 0 or num_tasks == 1:
            raise UsageError(f"num_tasks of agentgym: got {num_tasks}; give 2 or more, or 0 for no end")
        self.name = f"agentgym/{address}"
        self._words, self._num_tasks, self._score = WORLDS[world], num_tasks, 0.0
        self.max_turns, self.return_range = max_turns, INFINITE
        self._server = HttpServer(address, deadline=deadline, key=key_in(key_file))
        created = self._created = _request_json(self._server, "/create", {}, attempts=3)
        number = cast(Row, created).get(self._words.instance) if isinstance(created, Mapping) else created
        if isinstance(number, bool) or not isinstance(number, int):
            raise RemoteFault.of(
                self.protocol, self._server.url, "malformed", f"{created!r:.80} instead of a number"
            )
        self._id: int | None = number
        if is_ours(created):
            self.adopt(created[OURS])
            if created[OURS]["is_legal"]:
                self.__class__ = cast("type[Self]", ListedAgentGym)

    def reset(self, task: Task) -> Observation:
        """Start the episode of the task's number."""
        index = 2 * int(task.data.get("index", task.seed >> 1)) + (task.split == "eval")
        if self._num_tasks:
            index %= self._num_tasks - self._num_tasks % 2
        self._score = 0.0
        answer = self._request_instance("/reset", {self._words.index: index, **self._words.more}, attempts=3)
        if is_ours(answer):
            return self.first(answer[OURS])
        if self._words.is_asked:
            path = f"/observation?{self._words.instance}={self._id}"
            return self._text(_request_json(self._server, path, None, attempts=3))
        before = [str(answer[name]) for name in self._words.before if name in answer]
        return "\n".join([*before, self._text(answer.get(self._words.state))])

    def step(self, action: Action) -> StepResult:
        """Send the action's text."""
        if is_ours(self._created):
            body = {"action": action.text, OURS: action_row(action)}
            return self.result(self._request_instance("/step", body, attempts=1)[OURS])
        if action.error is not None:
            return StepResult(observation=f"Error: {action.error}", is_valid=False)
        answer = self._request_instance("/step", {"action": action.text}, attempts=1)
        try:
            paid = float(answer[self._words.score or "reward"])
            is_over = answer["done"]
            observation = self._text(answer[self._words.state])
        except (KeyError, TypeError, ValueError) as error:
            got = f"an answer that is not AgentGym's ({type(error).__name__}: {error})"
            raise RemoteFault.of(self.protocol, self._server.url, "malformed", got[:200]) from error
        reward = paid - self._score if self._words.score else paid
        self._score = paid
        return StepResult(observation=observation, reward=reward, is_terminated=is_over)

    def close(self) -> None:
        """Give the instance back; servers without ``/close`` keep it."""
        number, self._id = self._id, None
        if number is not None:
            with suppress(HttpTrouble):  # it is gone, or the server is
                self._server.ask(
                    "POST", "/close", {self._words.instance: number}, read=lambda _: None, attempts=1
                )
        self._server.close()

    def kill(self) -> None:
        """Give up what waits between two attempts."""
        self._server.close()

    def _request_instance(self, path: str, body: Row, *, attempts: int) -> Any:
        """Return the answer to a request for our instance; servers of ours and of AgentGym tell errors in it."""
        answer = _request_json(
            self._server, path, {self._words.instance: self._id, **body}, attempts=attempts
        )
        if not isinstance(answer, Mapping):
            if path == "/reset" and self._words.is_asked:
                return {}
            raise RemoteFault.of(
                self.protocol, self._server.url, "malformed", f"{answer!r:.80} instead of an object"
            )
        found = cast("dict[str, Any]", answer)
        if "error" in found:
            told: Row = found[OURS] if is_ours(found) else {"message": found["error"]}
            raise self.trouble(self._server.url, told)
        return found

    def _text(self, state: object) -> str:
        """Return what is shown; it must be a text."""
        if not isinstance(state, str):
            raise RemoteFault.of(
                self.protocol, self._server.url, "malformed", f"{state!r:.80} instead of a text"
            )
        return state


class ListedAgentGym(AgentGym):
    """A world whose server lists legal actions."""

    is_variant = True

    def legal_actions(self) -> tuple[str, ...]:
        """Return the actions that the server listed last."""
        return self._legal


def _request_json(server: HttpServer, path: str, body: Row | None, *, attempts: int) -> Any:
    """Return the JSON that comes back.

    Raises:
        RemoteFault: none does.
    """
    method = "GET" if body is None else "POST"
    try:
        return server.ask(method, path, body, read=lambda answer: answer, attempts=attempts)
    except HttpTrouble as trouble:
        raise RemoteFault.of("agentgym", server.url + path, trouble.kind, trouble.got) from trouble
