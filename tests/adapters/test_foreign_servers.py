"""Servers of OpenEnv and AgentGym that are not ours: what they say is understood, what they break is never a score."""

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest
from starlette.websockets import WebSocket, WebSocketDisconnect

from quintain.adapters.agentgym.environment import WORLDS, AgentGym
from quintain.adapters.openenv.environment import ACT, OpenEnv
from quintain.adapters.remote.world import RemoteFault
from quintain.environments.protocol import advance, begin, tool_action
from quintain.errors import UsageError
from quintain.rollout.stepper import guard_call
from quintain.serve.json_app import Refusal, Request, json_app
from quintain.serve.listener import Listener
from quintain.types import Action, Failure

Row = dict[str, Any]
ONE_TEXT = {"properties": {"word": {"type": "string"}, "metadata": {"type": "object"}}, "required": ["word"]}
SEVERAL = {
    "properties": {"x": {"type": "integer"}, "button": {"type": "string", "enum": ["left", "right"]}},
    "required": ["x", "button"],
}


def seen(text: Any, reward: Any = None, done: Any = False) -> Row:
    """A message of OpenEnv with an observation."""
    observation = {"text": text, "metadata": {}} if isinstance(text, str) else text
    return {"type": "observation", "data": {"observation": observation, "reward": reward, "done": done}}


class Foreign:
    """An OpenEnv server whose answers a test decides: a message, raw text, or None to hang up."""

    def __init__(self, action: Row | None = None) -> None:
        self.action = ONE_TEXT if action is None else action
        self.schema: Any = {"action": self.action}
        self.metadata: Any = {"name": "foreign", "description": "Say it."}
        self.says: Callable[[Row], Any] = lambda message: seen(
            "go" if message["type"] == "reset" else "ok", 0.5
        )
        self.heard: list[Row] = []

    def answer(self, request: Request) -> Any:
        found = {"/metadata": self.metadata, "/schema": self.schema}.get(request.path)
        if found is None:
            raise Refusal(404, "no such path")
        return found

    async def talk(self, connection: WebSocket) -> None:
        await connection.accept()
        with suppress(WebSocketDisconnect):
            while True:
                self.heard.append(json.loads(await connection.receive_text()))
                answer = self.says(self.heard[-1])
                if answer is None:
                    await connection.close(1011)
                    return
                await connection.send_text(answer if isinstance(answer, str) else json.dumps(answer))


@contextmanager
def openenv(foreign: Foreign, *, has_socket: bool = True) -> Generator[str]:
    talk = {"/ws": foreign.talk} if has_socket else {}
    server = Listener(json_app(foreign.answer, talk=talk)).start()
    try:
        yield server.url
    finally:
        server.close()


def test_one_text_is_spoken_as_it_is() -> None:
    foreign = Foreign()
    with openenv(foreign) as url, closing(OpenEnv(url, max_turns=7)) as world:
        assert (world.instructions(), world.tools(), world.max_turns) == ("Say it.", (), 7)
        assert begin(world, world.task("train", 3)) == "go"
        result = advance(world, Action(text="hello"))
        assert (result.observation, result.reward, result.is_terminated) == ("ok", 0.5, False)
        assert foreign.heard[1] == {"type": "step", "data": {"word": "hello"}}
        assert not advance(world, Action(error="unreadable")).is_valid and len(foreign.heard) == 2
        foreign.says = lambda _: seen("over", None, True)
        assert advance(world, Action(text="x")).is_terminated
        foreign.says = lambda _: {
            "type": "error",
            "data": {"code": "VALIDATION_ERROR", "errors": [{"loc": ["word"], "msg": "too long"}]},
        }
        refused = advance(world, Action(text="x" * 9))
        assert (refused.observation, refused.is_valid) == ("Error: word: too long", False)


def test_an_action_of_several_fields_is_a_tool() -> None:
    foreign = Foreign(SEVERAL)
    with openenv(foreign) as url, closing(OpenEnv(url)) as world:
        (spec,) = world.tools()
        assert spec.name == ACT
        begin(world, world.task("eval", 0))
        assert advance(world, tool_action(ACT, x=3, button="left")).reward == 0.5
        assert foreign.heard[-1]["data"] == {"x": 3, "button": "left"}
        for wrong in (tool_action(ACT, x="3", button="left"), tool_action("click", x=3), Action(text="left")):
            assert not advance(world, wrong).is_valid
        assert len(foreign.heard) == 2, "what does not fit is not sent"
        foreign.says = lambda _: seen({"a": 1, "b": "two"})
        assert advance(world, tool_action(ACT, x=3, button="left")).observation == '{"a": 1, "b": "two"}'
    with (
        openenv(foreign) as url,
        closing(OpenEnv(url, observation_field="b", action_field="button")) as world,
    ):
        begin(world, world.task("eval", 0))
        assert advance(world, Action(text="left")).observation == "two"
        with pytest.raises(UsageError, match="action_field of openenv: got 'buton'; did you mean 'button'"):
            OpenEnv(url, action_field="buton")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (None, "openenv_closed"),
        ("no JSON", "openenv_malformed"),
        ("[1]", "openenv_malformed"),
        ({"type": "observation"}, "openenv_malformed"),
        ({"type": "observation", "data": {}}, "openenv_malformed"),
        ({"type": "dance", "data": {}}, "openenv_malformed"),
        (seen([1]), "openenv_malformed"),
        (seen("x", done="no"), "openenv_malformed"),
        (seen("x", reward="much"), "contract"),
        ('{"type": "observation", "data": {"observation": {"text": "x"}, "reward": NaN}}', "contract"),
        ({"type": "error", "data": {"message": "boo", "code": "EXECUTION_ERROR"}}, "openenv_error"),
    ],
)
def test_an_openenv_server_that_breaks_is_a_failure_and_the_next_episode_goes_on(
    answer: Any, kind: str
) -> None:
    foreign = Foreign()
    with openenv(foreign) as url, closing(OpenEnv(url, deadline=20)) as world:
        task = world.task("train", 0)
        begin(world, task)
        usual, foreign.says = foreign.says, lambda _: answer
        found = guard_call(lambda: advance(world, Action(text="x")))
        assert isinstance(found, Failure) and (found.owner, found.kind) == ("environment", kind)
        foreign.says = usual
        assert begin(world, task) == "go"


@pytest.mark.slow
def test_a_server_of_another_kind_or_version_is_told_when_it_is_built() -> None:
    foreign = Foreign()
    with openenv(foreign, has_socket=False) as url, closing(OpenEnv(url)) as world:
        found = guard_call(lambda: begin(world, world.task("train", 0)))
        assert isinstance(found, Failure) and "404 instead of a WebSocket" in found.message
    foreign.metadata = None
    with (
        openenv(foreign) as url,
        pytest.raises(RemoteFault, match=r"/metadata: got HTTP status 404.*check the server"),
    ):
        OpenEnv(url)
    foreign.metadata = [1]
    with openenv(foreign) as url, pytest.raises(RemoteFault, match="no JSON object"):
        OpenEnv(url)


class Gym:
    """An AgentGym server whose answers a test decides, by path."""

    def __init__(self, **answers: Any) -> None:
        self.answers: Row = {"create": 5, "close": True, **answers}
        self.heard: list[tuple[str, Mapping[str, Any]]] = []

    def answer(self, request: Request) -> Any:
        path = request.path.strip("/")
        self.heard.append((path, dict(request.body if request.method == "POST" else request.query)))
        if path not in self.answers:
            raise Refusal(404, "no such path")
        return self.answers[path]


@contextmanager
def agentgym(gym: Gym) -> Generator[str]:
    server = Listener(json_app(gym.answer)).start()
    try:
        yield server.url
    finally:
        server.close()


def told(name: str, text: str, number: float, done: bool = False) -> Row:
    """An answer in the words of world `name`."""
    words = WORLDS[name]
    return {words.state: text, words.score or "reward": number, "reward": number, "done": done}


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_the_words_of_each_agentgym_world(name: str) -> None:
    words = WORLDS[name]
    created = {words.instance: 5} if words.instance != "id" else 5
    gym = Gym(
        create=created, reset=told(name, "first", 0.0), step=told(name, "then", 0.25), observation="first"
    )
    with agentgym(gym) as url, closing(AgentGym(url, world=name)) as world:
        assert str(begin(world, world.task("eval", 4))) == "first"
        path, body = gym.heard[1]
        assert (path, body[words.instance], body[words.index]) == ("reset", 5, 9)
        one, other = advance(world, Action(text="look")), advance(world, Action(text="look"))
        assert gym.heard[-1] == ("step", {words.instance: 5, "action": "look"})
        assert (one.reward, other.reward) == ((0.25, 0.0) if words.score else (0.25, 0.25)), (
            "a score is a sum"
        )
        gym.answers["step"] = told(name, "end", 1.0, True)
        assert advance(world, Action(text="look")).is_terminated
        assert not advance(world, Action(error="unreadable")).is_valid
    assert gym.heard[-1] == ("close", {words.instance: 5})


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ([1], "agentgym_malformed"),
        ({}, "agentgym_malformed"),
        ({"observation": "x", "reward": "much", "done": False}, "agentgym_malformed"),
        ({"error": "boo"}, "agentgym_error"),
        ({"observation": "x", "reward": 1.0, "done": "yes"}, "contract"),
    ],
)
def test_an_agentgym_server_that_breaks_is_a_failure_and_never_a_score(answer: Any, kind: str) -> None:
    gym = Gym(reset=told("textcraft", "first", 0.0), step=answer)
    with agentgym(gym) as url, closing(AgentGym(url)) as world:
        begin(world, world.task("train", 0))
        found = guard_call(lambda: advance(world, Action(text="look")))
        assert isinstance(found, Failure) and (found.owner, found.kind) == ("environment", kind)
        gym.answers.pop("step")
        found = guard_call(lambda: advance(world, Action(text="look")))
        assert isinstance(found, Failure) and found.kind == "agentgym_refused"


@pytest.mark.parametrize("created", [None, "five", True, {"id": "5"}, {}])
def test_an_agentgym_server_that_creates_nothing_is_told_when_it_is_built(created: Any) -> None:
    with agentgym(Gym(create=created)) as url, pytest.raises(RemoteFault, match="instead of a number"):
        AgentGym(url)
