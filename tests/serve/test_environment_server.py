"""Our worlds over both protocols: our client at our server plays what the world plays at home."""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from typing import Any, cast

import pytest
from starlette.applications import Starlette

from quintain.adapters.agentgym.environment import AgentGym
from quintain.adapters.openenv.environment import OpenEnv
from quintain.adapters.remote.websocket import WebSocket, connect
from quintain.adapters.remote.world import RemoteFault
from quintain.environments.baselines import play, random_policy
from quintain.environments.catalog import find
from quintain.environments.check import check
from quintain.environments.protocol import Environment, Factory, Legal, advance, begin, tool_action
from quintain.environments.tools import OwnedFault, tool
from quintain.environments.wire import OURS
from quintain.errors import UsageError
from quintain.processes.http_json import HttpServer, HttpTrouble
from quintain.rollout.stepper import guard_call
from quintain.serve import agentgym as serve_agentgym
from quintain.serve import environment_server as served_module
from quintain.serve import json_app
from quintain.serve.agentgym import agentgym_app
from quintain.serve.environment_server import ServedEnvironment, WorldTrouble, action_in, close_all
from quintain.serve.listener import Listener
from quintain.serve.openenv import openenv_app
from quintain.types import Action, Failure, Image, StepResult, Task, Text

SERVICES: dict[str, Callable[..., Starlette]] = {"openenv": openenv_app, "agentgym": agentgym_app}
PROTOCOLS = sorted(SERVICES)
WORLDS = ["guess", "keydoor", "desk", "sokoban?boxes=1&size=5", "twocards", "calc"]


@contextmanager
def serving(protocol: str, make: Factory, *, token: str = "", most: int = 64) -> Generator[Listener]:
    listener = Listener(SERVICES[protocol](make, most=most), token=token).start()
    try:
        yield listener
    finally:
        listener.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("spec", WORLDS)
def test_an_episode_is_the_same_near_and_far(protocol: str, spec: str) -> None:
    with (
        serving(protocol, find(spec)) as server,
        closing(find(spec)()) as near,
        closing(find(f"{protocol}/{server.url}")()) as far,
    ):
        assert far.tools() == near.tools() and far.max_turns == near.max_turns
        assert far.return_range == near.return_range and far.instructions() == near.instructions()
        assert isinstance(far, Legal) == isinstance(near, Legal)
        for index in range(3):
            for split in ("train", "eval"):
                one = play(near, near.task(split, index), random_policy(index))
                other = play(far, far.task(split, index), random_policy(index))
                assert (one.observations, one.rewards, one.ends, one.is_success) == (
                    other.observations,
                    other.rewards,
                    other.ends,
                    other.is_success,
                )


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.slow
def test_a_served_world_keeps_the_contract(protocol: str) -> None:
    with serving(protocol, find("keydoor")) as server:
        report = check(f"{protocol}/{server.url}", episodes=3, deadline=250.0)  # a busy machine takes long
        failed = [finding.name for finding in report.findings if finding.state == "fail"]
        assert set(failed) <= {"closing"}, list(report.lines())  # the server's threads are in this process


class Odd(Environment):
    """Do as you like."""

    is_built = True
    is_over = threading.Event()
    """Whether what is late need not wait any longer."""

    def __init__(self, *, image: bool = False) -> None:
        if not self.is_built:
            raise ValueError("out of order")
        self.image = image

    def reset(self, task: Task) -> Any:
        return (Text(text="look"), Image(data=b"\x89PNG", media_type="image/png")) if self.image else "go"

    def step(self, action: Action) -> StepResult:
        return super().step(action)

    @tool
    def fail(self, how: str) -> str:
        """Break."""
        if how == "judge":
            fault = OwnedFault("no verdict")
            fault.owner, fault.kind = "judge", "grader_timeout"
            raise fault
        if how == "tool":
            raise ValueError("tool trouble")
        if how == "late":
            self.is_over.wait(20)
        return self.failure("did not work", cause="timeout")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_breaks_in_a_served_world_keeps_its_owner(protocol: str) -> None:
    with serving(protocol, Odd) as server, closing(find(f"{protocol}/{server.url}")()) as world:
        for how, owner, kind in (("judge", "judge", "grader_timeout"), ("tool", "tool", "contract")):
            begin(world, world.task("train", 0))
            found = guard_call(lambda how=how: advance(world, tool_action("fail", how=how)))
            assert isinstance(found, Failure) and (found.owner, found.kind) == (owner, kind)
        begin(world, world.task("train", 0))
        result = advance(world, tool_action("fail", how="else"))
        assert [(error.tool, error.cause) for error in result.tool_errors] == [("fail", "timeout")]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_world_for_evaluation_only_stays_so(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for is_exam in (False, True):
        monkeypatch.setattr(Odd, "evaluation_only", is_exam)
        with serving(protocol, Odd) as server, closing(find(f"{protocol}/{server.url}")()) as world:
            assert world.evaluation_only is is_exam


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_pictures_travel(protocol: str) -> None:
    with (
        serving(protocol, lambda: Odd(image=True)) as server,
        closing(find(f"{protocol}/{server.url}")()) as world,
    ):
        first = cast("tuple[Any, ...]", begin(world, world.task("train", 0)))
        assert first == (Text(text="look"), Image(data=b"\x89PNG", media_type="image/png"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_late_answer_is_a_failure_and_the_next_episode_goes_on(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Odd, "is_over", threading.Event())
    with serving(protocol, Odd) as server, closing(find(f"{protocol}/{server.url}")()) as world:
        begin(world, world.task("train", 0))
        with monkeypatch.context() as hurried:
            hurried.setattr(vars(world)["_server"], "deadline", 0.8)
            if protocol == "openenv":
                hurried.setattr(world, "_deadline", 0.8)
            found = guard_call(lambda: advance(world, tool_action("fail", how="late")))
        assert isinstance(found, Failure) and (found.owner, found.kind) == (
            "environment",
            f"{protocol}_timeout",
        )
        if protocol == "openenv":
            assert guard_call(lambda: advance(world, Action(text="x"))) is not None
            assert begin(world, world.task("train", 1)) == "go"
        Odd.is_over.set()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.slow
def test_a_server_that_goes_away_is_a_failure_of_the_environment(protocol: str) -> None:
    with serving(protocol, find("guess")) as server:
        world = find(f"{protocol}/{server.url}")()
        begin(world, world.task("train", 0))
    found = guard_call(lambda: advance(world, tool_action("guess", number=1)))
    assert isinstance(found, Failure) and found.owner == "environment" and found.kind.startswith(protocol)
    found = guard_call(lambda: begin(world, world.task("train", 0)))
    assert isinstance(found, Failure) and found.owner == "environment"
    world.close()
    with pytest.raises(RemoteFault, match="check the server"):
        find(f"{protocol}/{server.url}")()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_token_is_asked_for(protocol: str, tmp_path: Any) -> None:
    (tmp_path / "right").write_text("s3cret")
    (tmp_path / "wrong").write_text("s3cre")
    with serving(protocol, find("guess"), token="s3cret") as server:
        for key in ("", "&key_file=" + str(tmp_path / "wrong")):
            with pytest.raises(RemoteFault, match="401"):
                find(f"{protocol}/{server.url}?deadline=5{key}")()
        with closing(find(f"{protocol}/{server.url}?key_file={tmp_path / 'right'}")()) as world:
            assert begin(world, world.task("train", 0))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_there_is_room_for_so_many(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(protocol, find("guess"), most=1) as server:
        first = find(f"{protocol}/{server.url}")()
        begin(first, first.task("train", 0))

        def second() -> str:
            with closing(find(f"{protocol}/{server.url}")()) as world:
                return str(begin(world, world.task("train", 0)))

        found = guard_call(second)
        assert isinstance(found, Failure) and found.owner == "environment" and "taken" in found.message
        if protocol == "agentgym":
            monkeypatch.setattr(serve_agentgym, "IDLE", -1.0)  # whoever is silent loses its instance
            assert second()
        first.close()


def test_a_world_that_cannot_be_built_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("openenv", Odd) as openenv, serving("agentgym", Odd) as agentgym:
        far = find(f"openenv/{openenv.url}")()
        monkeypatch.setattr(Odd, "is_built", False)
        for attempt in (
            lambda: begin(far, far.task("train", 0)),
            lambda: find(f"agentgym/{agentgym.url}")(),
        ):
            found = guard_call(cast("Callable[[], object]", attempt))
            assert isinstance(found, Failure) and "out of order" in found.message
        far.close()


def asked(connection: WebSocket, message: object) -> dict[str, Any]:
    connection.send(message if isinstance(message, str) else json.dumps(message))
    answer = connection.receive(deadline=10)
    assert answer is not None
    return json.loads(answer)


def test_messages_of_a_foreign_openenv_client() -> None:
    with serving("openenv", find("guess")) as server:
        connection = connect(f"{server.url}/ws", deadline=10)
        for message, code in (
            ("{", "INVALID_JSON"),
            ([1], "UNKNOWN_TYPE"),
            ({"type": "dance"}, "UNKNOWN_TYPE"),
            ({"type": "step", "data": 1}, "VALIDATION_ERROR"),
            ({"type": "step", "data": {"text": "x"}}, "SESSION_ERROR"),
            ({"type": "reset", "data": {"split": "test"}}, "VALIDATION_ERROR"),
            ({"type": "reset", "data": {"seed": -1}}, "VALIDATION_ERROR"),
        ):
            answer = asked(connection, message)
            assert (answer["type"], answer["data"]["code"]) == ("error", code)
        first = asked(connection, {"type": "reset", "data": {"seed": 4, "episode_id": "e"}})["data"]
        assert first["done"] is False and "between 1 and 32" in first["observation"]["text"]
        assert '"name": "guess"' in first["observation"]["instructions"]
        assert first == asked(connection, {"type": "reset", "data": {"seed": 4}})["data"]
        bad = asked(connection, {"type": "step", "data": {"text": 5}})
        assert bad["data"]["code"] == "VALIDATION_ERROR"
        call = json.dumps({"name": "guess", "arguments": {"number": 1}})
        step = asked(connection, {"type": "step", "data": {"text": call}})["data"]
        assert step["observation"]["text"] in ("higher", "correct")
        state = asked(connection, {"type": "state"})
        assert state == {"type": "state", "data": {"episode_id": None, "step_count": 1}}
        connection.send(json.dumps({"type": "close"}))
        assert connection.receive(deadline=10) is None
        http = HttpServer(server.url, deadline=10)
        assert http.ask("GET", "/health", read=dict) == {"status": "healthy"}
        assert http.ask("GET", "/metadata", read=dict)["name"] == "guess"
        assert set(http.ask("GET", "/schema", read=dict)) == {"action", "observation", "state"}
        for method, path in (("POST", "/step"), ("GET", "/absent")):
            with pytest.raises(HttpTrouble):
                http.ask(cast(Any, method), path, {}, read=dict)


def test_requests_of_a_foreign_agentgym_client() -> None:
    with serving("agentgym", find("keydoor")) as server:
        http = HttpServer(server.url, deadline=10)

        def post(path: str, **body: Any) -> Any:
            return http.ask("POST", path, body, read=lambda answer: answer)

        def get(path: str) -> Any:
            return http.ask("GET", path, read=lambda answer: answer)

        assert get("/") == "This is environment keydoor."
        number = post("/create")["id"]
        assert "reset first" in get(f"/detail?id={number}")["error"]
        assert "reset first" in post("/step", id=number, action="left")["error"]
        first = post("/reset", id=number, data_idx=3)
        assert (first["reward"], first["done"], first["score"]) == (0.0, False, 0.0)
        assert get(f"/observation?id={number}") in first["observation"]
        actions = get(f"/available_actions?id={number}")
        step = post("/step", id=number, action=actions[0])
        assert set(step) == {"observation", "reward", "score", "done", OURS}
        assert get(f"/detail?id={number}") == {key: step[key] for key in step if key != OURS}
        assert "is not valid" in post("/step", id=99, action="x")["error"]
        assert "is not valid" in post("/step", id=True, action="x")["error"]
        for path, body in (
            ("/step", {"id": number}),
            ("/step", {"id": number, "action": 1}),
            ("/reset", {"id": number, "data_idx": -1}),
        ):
            with pytest.raises(HttpTrouble) as found:
                post(path, **body)
            assert found.value.status == 422
        with pytest.raises(HttpTrouble) as found:
            http.ask("POST", "/step", cast(Any, [1]), read=dict)
        assert found.value.status == 422
        with pytest.raises(HttpTrouble) as found:
            get("/absent")
        assert found.value.status == 404
        assert post("/close", id=number) is True
        assert "is not valid" in post("/close", id=number)["error"]


def test_actions_of_foreign_clients() -> None:
    assert action_in("left", False) == Action(text="left")
    call = '{"name": "guess", "arguments": {"number": 3}}'
    assert action_in(call, False) == Action(text=call)
    assert action_in(call, True).tool_calls == tool_action("guess", number=3).tool_calls
    assert len(action_in(f"[{call}, {call}]", True).tool_calls) == 2
    assert action_in("no json", True) == Action(text="no json")
    assert action_in('{"name": 1}', True).error is not None
    assert action_in("[1]", True).error is not None


def test_options_that_no_client_can_have() -> None:
    with serving("agentgym", find("guess")) as server:
        for query, told in (("world=zork", "choose"), ("num_tasks=1", "2 or more")):
            with pytest.raises(UsageError, match=told):
                find(f"agentgym/{server.url}?{query}")()
        with closing(AgentGym(server.url, num_tasks=5)) as world:
            assert begin(world, world.task("eval", 7))
    with pytest.raises(UsageError, match="max_turns"):
        OpenEnv("127.0.0.1:1", max_turns=0)
    with pytest.raises(UsageError, match=r"http://127\.0\.0\.1:8000"):
        OpenEnv("ftp://x")


def test_a_world_that_is_busy_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_module, "BUSY_SECONDS", 0.05)
    began, released, closed = threading.Event(), threading.Event(), threading.Event()

    class Slow(Odd):
        @tool
        def work(self) -> str:
            """Take long."""
            began.set()
            released.wait(60)
            return "done"

        def close(self) -> None:
            closed.set()

    world = ServedEnvironment(Slow)
    world.begin("train", 0)
    thread = threading.Thread(target=world.act, args=(tool_action("work"),), daemon=True)
    thread.start()
    assert began.wait(20)
    with pytest.raises(WorldTrouble, match="busy"):
        world.act(tool_action("work"))
    monkeypatch.setattr(served_module, "CLOSE_SECONDS", 0.05)
    close_all([world])
    assert not closed.is_set(), "it is closed when the call is over"
    released.set()
    thread.join(20)
    assert closed.is_set()
    with pytest.raises(WorldTrouble, match="closed"):
        world.begin("train", 0)
    world.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_step_that_takes_too_long_is_told_to_the_client(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_module, "CLOSE_SECONDS", 0.1)
    monkeypatch.setattr(Odd, "is_over", threading.Event())
    with serving(protocol, Odd) as server, closing(find(f"{protocol}/{server.url}")()) as world:
        begin(world, world.task("train", 0))
        monkeypatch.setattr(json_app, "CALL_SECONDS", 0.3)
        found = guard_call(lambda: advance(world, tool_action("fail", how="late")))
        assert isinstance(found, Failure) and found.owner == "environment"
        assert "no answer within" in found.message or "HTTP status 504" in found.message
        Odd.is_over.set()


def test_an_end_closes_the_worlds_of_its_clients() -> None:
    num_open: list[int] = []

    class Counted(Odd):
        def __init__(self) -> None:
            super().__init__()
            num_open.append(1)

        def close(self) -> None:
            num_open.append(-1)

    for protocol in PROTOCOLS:
        with serving(protocol, Counted) as server:
            far = find(f"{protocol}/{server.url}")()
            begin(far, far.task("train", 0))
            assert sum(num_open) == 1
        assert sum(num_open) == 0, protocol
        far.close()
