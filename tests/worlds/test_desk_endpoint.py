import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from quintain.environments.baselines import expert, play
from quintain.environments.dialogue import STOP, UserFault
from quintain.environments.protocol import advance, begin, tool_action
from quintain.errors import UsageError
from quintain.processes import http_json
from quintain.rollout.stepper import guard_call
from quintain.types import Failure
from quintain.worlds.desk.endpoint import GREETING, EndpointUser, messages, role_text
from quintain.worlds.desk.game import Desk
from quintain.worlds.desk.user import Dialogue, ScriptedUser

Answer = Callable[[dict[str, Any]], tuple[int, bytes]]


class Endpoint(ThreadingHTTPServer):
    """An OpenAI-compatible endpoint that answers what `answers` say, the last for ever."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Answer] = []
        self.seen: list[tuple[str, str | None, dict[str, Any]]] = []
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = cast(Endpoint, self.server)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.seen.append((self.path, self.headers.get("Authorization"), body))
        answer = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
        status, content = answer(body)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setattr(http_json, "PAUSE", 0.001)
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005}, daemon=True)
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()
    thread.join(5)


def saying(text: str) -> Answer:
    return lambda _: (200, json.dumps({"choices": [{"message": {"content": text}}]}).encode())


def with_status(status: int, content: bytes = b"{}") -> Answer:
    return lambda _: (status, content)


def desk_at(url: str, **options: Any) -> Desk:
    return Desk(user=url, **options)


def test_a_model_can_play_the_customer(endpoint: Endpoint) -> None:
    scripted, world = Desk(denied=0.0), desk_at(endpoint.url, denied=0.0, user_model="mini")
    task = world.task("train", 3)
    begin(scripted, task)
    case = scripted.snapshot().case

    def customer(body: dict[str, Any]) -> tuple[int, bytes]:
        talk = body["messages"][2:]
        said: Dialogue = tuple(
            ("agent" if message["role"] == "user" else "user", message["content"]) for message in talk
        )
        user = ScriptedUser()
        return saying(user.reply(case, said) if said else user.opening(case))(body)

    endpoint.answers = [customer]
    episode = play(world, task, expert)
    assert episode.is_success and episode.observations == play(scripted, task, expert).observations
    path, key, body = endpoint.seen[0]
    assert (path, key, body["model"], body["temperature"]) == ("/v1/chat/completions", None, "mini", 0)
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["messages"][0]["content"].endswith(role_text(case))
    for built in (scripted, world):
        built.close()


def test_what_the_model_is_told(endpoint: Endpoint) -> None:
    world = Desk(kinds="exchange,other", pushy=1.0, changes_of_mind=1.0, vague=1.0, denied=0.0)
    roles: set[str] = set()
    for index in range(12):
        begin(world, world.task("train", index))
        case = world.snapshot().case
        told = messages(case, (("user", "Hello."), ("agent", "Yes?")))
        assert [row["role"] for row in told] == ["system", "user", "assistant", "user"]
        assert told[1]["content"] == GREETING[1] and case.name in told[0]["content"]
        if case.kind == "exchange":
            assert f"You want: {case.first_value}." in role_text(case)
            assert f"you want {case.value} instead" in role_text(case)
            assert f"the {case.item}" in role_text(case) and str(case.order) not in role_text(case)
            assert role_text(case).endswith("insist once.")
        roles.add(case.kind)
    assert roles == {"exchange", "other"}
    world.close()


def test_a_failed_attempt_is_repeated(endpoint: Endpoint, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("s3cret\n")
    endpoint.answers = [with_status(503), with_status(200, b"not json"), saying("  I am Ann. ")]
    world = desk_at(endpoint.url, user_key_file=str(key))
    assert begin(world, world.task("train", 0)) == "I am Ann."
    assert [seen[1] for seen in endpoint.seen] == ["Bearer s3cret"] * 3
    endpoint.answers = [saying(f"Bye. {STOP}")]
    result = advance(world, tool_action("respond", text="Hm."))
    assert result.is_terminated and result.is_success is False and result.reward == 0
    world.close()


@pytest.mark.parametrize(
    ("answer", "kind", "num_asked"),
    [
        (with_status(500), "user_unavailable", 3),
        (with_status(429), "user_unavailable", 3),
        (with_status(401), "user_refused", 1),
        (with_status(200, b'{"choices": []}'), "user_malformed", 3),
        (with_status(200, b'{"choices": [{"message": {"content": null}}]}'), "user_malformed", 3),
        (with_status(200, b"x" * ((1 << 20) + 1)), "user_malformed", 3),
        (saying(" "), "user_malformed", 3),
    ],
)
def test_a_broken_endpoint_is_a_failure_of_the_engine(
    endpoint: Endpoint, answer: Answer, kind: str, num_asked: int
) -> None:
    endpoint.answers = [saying("Hello."), answer]
    world = desk_at(endpoint.url)
    begin(world, world.task("train", 0))
    broken = guard_call(lambda: advance(world, tool_action("respond", text="What is your name?")))
    assert isinstance(broken, Failure) and (broken.owner, broken.kind) == ("engine", kind)
    assert endpoint.url in broken.message and "check the endpoint" in broken.message
    assert len(endpoint.seen) == 1 + num_asked
    world.close()


def test_a_silent_endpoint_is_given_up_at_the_deadline(endpoint: Endpoint) -> None:
    def wait(_: dict[str, Any]) -> tuple[int, bytes]:
        endpoint.released.wait(60)
        return 500, b""

    endpoint.answers = [wait]
    world = desk_at(endpoint.url, user_deadline=0.1)
    started = time.monotonic()
    broken = guard_call(lambda: begin(world, world.task("train", 0)))
    assert isinstance(broken, Failure) and (broken.owner, broken.kind) == ("engine", "user_timeout")
    assert time.monotonic() - started < 30
    world.close()


def test_an_endpoint_that_is_not_there(endpoint: Endpoint) -> None:
    endpoint.answers = [saying("")]
    user = EndpointUser("http://127.0.0.1:9/v1/", model="m")
    world = Desk()
    begin(world, world.task("train", 0))
    with pytest.raises(UserFault, match=r"simulated user at http://127.0.0.1:9/v1: got") as found:
        user.opening(world.snapshot().case)
    assert found.value.kind == "user_unreachable" and found.value.owner == "engine"
    world.close()


def test_desks_of_a_process_share_budget_and_tape(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.answers = [saying("Hello."), saying("Never heard.")]
    options: dict[str, Any] = {"user_tape": str(tmp_path / "tape.jsonl"), "user_calls": 1}
    first, second = desk_at(endpoint.url, **options), desk_at(endpoint.url, **options)
    assert begin(first, first.task("train", 0)) == begin(second, second.task("train", 0)) == "Hello."
    broken = guard_call(lambda: begin(second, second.task("train", 1)))
    assert isinstance(broken, Failure) and (broken.owner, broken.kind) == ("engine", "user_refused")
    assert "a budget of 1 calls, which are spent" in broken.message
    replayed = desk_at(endpoint.url, user_tape=options["user_tape"], user_replays=True)
    assert begin(replayed, replayed.task("train", 0)) == "Hello."
    broken = guard_call(lambda: begin(replayed, replayed.task("train", 1)))
    assert isinstance(broken, Failure) and "a question that the tape" in broken.message
    assert len(endpoint.seen) == 1
    for world in (first, second, replayed):
        world.close()


@pytest.mark.parametrize("option", ["user_calls", "user_tokens"])
def test_a_budget_is_not_negative(option: str) -> None:
    with pytest.raises(UsageError, match=f"desk: got .*{option}=-1.*; give no negative numbers"):
        Desk(**cast("dict[str, Any]", {option: -1}))
