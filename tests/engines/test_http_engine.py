"""Engines behind HTTP keep every promise, against a small server that speaks their interfaces."""

import os
import re
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engines import fake_server
from tests.engines.fake_server import LENGTH, TOKENIZER, VOCABULARY, FakeServer, write_table

from quintain.engines.http_engine import QUESTION, HttpEngine
from quintain.engines.protocol import Candidates, Grammar, Reply, Request, Sampling
from quintain.engines.server_api import Card
from quintain.engines.server_wire import ServerWire
from quintain.engines.settings import EngineSettings, card_variables, check_settings, read_engine
from quintain.engines.sglang import Sglang
from quintain.engines.vllm import Vllm
from quintain.errors import EngineFault, ModelError, UsageError
from quintain.processes.tree import below
from quintain.serve.listener import Listener
from quintain.testing.engines import CHECKS, check_engine
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Completion, Failure

Connect = Callable[..., HttpEngine]
SHORT = Sampling(max_tokens=6)


def decode(ids: Any) -> str:
    return str(TOKENIZER.decode(list(ids)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_table(tmp_path / "model", 0)


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connect an engine to servers that are there."""
    engines: list[HttpEngine] = []
    listeners: list[Listener] = []

    def call(*servers: FakeServer, kind: str = "vllm", **settings: Any) -> HttpEngine:
        urls = tuple(started(server) for server in servers)
        chosen = EngineSettings(kind=kind, urls=urls, **settings)  # type: ignore[arg-type] # pyright: ignore
        api = Vllm(chosen.weights) if kind == "vllm" else Sglang()
        engines.append(HttpEngine(api, chosen, None, vocabulary=VOCABULARY, decode=decode, policy="actor"))
        return engines[-1]

    def started(server: FakeServer) -> str:
        listeners.append(Listener(server.app).start())
        return listeners[-1].url

    yield call
    for engine in engines:
        engine.close()
    for listener in listeners:
        listener.close()


def ask(engine: HttpEngine, name: str, *ids: int, seed: int = 1, sampling: Sampling = SHORT) -> None:
    engine.submit(Request(session=name, prompt_ids=ids or (9, 8), seed=seed, sampling=sampling))


def wait(engine: HttpEngine, count: int = 1) -> list[Reply]:
    replies: list[Reply] = []
    deadline = time.monotonic() + 60
    while len(replies) < count and time.monotonic() < deadline:
        replies += engine.advance()
    assert len(replies) == count
    return replies


def completion(reply: Reply) -> Completion:
    assert isinstance(reply.result, Completion), reply.result
    return reply.result


def failure(reply: Reply) -> Failure:
    assert isinstance(reply.result, Failure) and reply.result.owner == "engine"
    return reply.result


@pytest.mark.parametrize("kind", ["vllm", pytest.param("sglang", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_it_passes_what_every_engine_must(
    kind: str, connect: Connect, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quintain.testing.engines.LENGTHS", (100,))
    server, seeds = FakeServer(folder), iter(range(1, 99))
    engine = connect(server, kind=kind)

    def spoil() -> None:
        server.table = server.table * float("nan")

    findings = list(
        check_engine(
            engine,
            ids=range(10, 40),
            stop_id=TOKENIZER.eos_token_id,  # type: ignore[arg-type] # pyright: ignore
            decode=decode,
            update=lambda: write_table(tmp_path / "new", next(seeds)),
            spoil=spoil,
        )
    )
    assert [finding.name for finding in findings] == list(CHECKS)
    assert [str(finding) for finding in findings if finding.state != "pass"] == []
    assert engine.max_length == LENGTH - 1


def test_turns_read_only_what_is_new_and_stay_with_their_server(connect: Connect, folder: Path) -> None:
    servers = [FakeServer(folder), FakeServer(folder)]
    engine = connect(*servers)
    for _ in range(3):
        before = engine.stats().num_prefilled
        for name in "abcd":
            ask(engine, name, *range(10, 20), seed=ord(name))
        wait(engine, 4)
        assert engine.stats().num_prefilled - before == 4 * 10, "what came before is in the cache"
    per_server = [[row for row in server.asked if row["path"].endswith("generate")] for server in servers]
    assert [len(rows) for rows in per_server] == [6, 6]
    assert {row["model"] for rows in per_server for row in rows} == {"base"}
    engine.load_weights(1, folder)
    before = engine.stats().num_prefilled
    ask(engine, "a", 7)
    wait(engine)
    assert engine.stats().num_prefilled - before == 3 * 16 + 1, "nothing is left of what old weights computed"


def test_what_is_urgent_does_not_wait_for_turns(connect: Connect, folder: Path) -> None:
    server = FakeServer(folder)
    server.seconds_per_token = 0.05
    engine = connect(server, max_batch=2)
    for name in "abc":
        ask(engine, name, sampling=Sampling(max_tokens=400))
    engine.advance()
    assert engine.stats().num_running == 2 and engine.stats().num_waiting == 1
    said = Sampling(max_tokens=2, constraint=Grammar.of_tokens((5, 6)))
    engine.submit(Request(session="canary", prompt_ids=(9, 8), seed=0, sampling=said, is_urgent=True))
    (reply,) = wait(engine)
    assert reply.session == "canary" and completion(reply).token_ids == (5, 6)
    assert engine.stats().num_running == 2 and engine.stats().num_waiting == 1, "turns wait for their turn"


def test_a_server_of_another_precision_is_refused(connect: Connect, folder: Path) -> None:
    server = FakeServer(folder)
    model = {"logprobs_mode": "processed_logprobs", "dtype": "torch.float32"}
    server.info["vllm_config"] = {**server.info["vllm_config"], "model_config": model}
    with pytest.raises(
        UsageError, match=r"computes in float32 for a policy in bfloat16; start it with --dtype bfl"
    ):
        connect(server, dtype="bfloat16")
    assert connect(server, dtype="float32").max_length == LENGTH - 1


def test_each_server_that_is_started_sees_its_own_cards(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[list[str], dict[str, str]]] = []

    class Started:
        def __init__(self, name: str, command: list[str], variables: dict[str, str]) -> None:
            given.append((command, dict(variables)))
            raise EngineFault(f"{name}: enough") if len(given) == 3 else StopHereError

    class StopHereError(Exception):
        pass

    monkeypatch.setattr("quintain.engines.http_engine.ServerProcess", Started)
    settings = EngineSettings(kind="vllm", program=sys.executable, replicas=3, devices=("1", "2", "3"))
    api = Vllm()
    for number in range(3):
        command, variables = api.command(settings, folder, 8000)
        assert card_variables(settings, number) == {"CUDA_VISIBLE_DEVICES": str(number + 1)}
        assert "CUDA_VISIBLE_DEVICES" not in variables and command
    with pytest.raises(StopHereError):
        HttpEngine(api, settings, folder, vocabulary=VOCABULARY, decode=decode)
    assert given[0][1]["CUDA_VISIBLE_DEVICES"] == "1"
    assert card_variables(EngineSettings(kind="vllm"), 0) == {}


def test_a_released_request_is_sampled_no_longer(connect: Connect, folder: Path) -> None:
    server = FakeServer(folder)
    server.seconds_per_token = 0.01
    engine = connect(server)
    ask(engine, "a", sampling=Sampling(max_tokens=400))
    engine.advance()
    assert server.num_under_way == 1
    engine.release("a")
    deadline = time.monotonic() + 20
    while server.num_under_way and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.num_under_way == 0 and engine.stats().num_released == 1


def test_an_update_under_way_is_told_by_every_server(connect: Connect, folder: Path, tmp_path: Path) -> None:
    servers = [FakeServer(folder), FakeServer(folder)]
    engine = connect(*servers)
    for name in "abcd":
        ask(engine, name, sampling=Sampling(max_tokens=300))
    engine.advance()
    engine.load_weights(1, write_table(tmp_path / "new", 1))
    spans = [completion(reply).version_spans for reply in wait(engine, 4)]
    assert all(found[0] == (0, 0) and found[1][1] == 1 and 0 < found[1][0] < 300 for found in spans)


def test_a_server_that_cannot_take_weights_gets_them_when_it_can(connect: Connect, folder: Path) -> None:
    server = FakeServer(folder)
    engine = connect(server)
    server.wrong["/pause"] = 500
    with pytest.raises(EngineFault, match=r"got HTTP status 500 for /pause.*when asked to pause"):
        engine.load_weights(1, folder)
    server.wrong.clear()
    engine.load_weights(1, folder)
    assert engine.policy_version == 1


def test_all_requests_of_a_lost_server_are_failures(connect: Connect, folder: Path) -> None:
    server = FakeServer(folder)
    server.seconds_per_token = 0.02
    engine = connect(server)
    for name in "abc":
        ask(engine, name, sampling=Sampling(max_tokens=400))
    engine.advance()
    server.wrong["/inference/v1/generate"] = "<html>"
    ask(engine, "d")
    replies = wait(engine, 4)
    assert [reply.session for reply in replies] == list("abcd")
    assert {failure(reply).kind for reply in replies} == {"malformed"}
    assert engine.stats().num_running == 0


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_adapters_are_sent_alone_and_served_by_name(
    kind: str, connect: Connect, folder: Path, tmp_path: Path
) -> None:
    server = FakeServer(folder)
    engine = connect(server, kind=kind, adapters=True)
    assert "adapters" in engine.capabilities
    (base,) = engine.score([[1, 2, 3]])
    for version in (1, 2):
        engine.load_weights(
            version, write_table(tmp_path / "lora", version, file="adapter_model.safetensors")
        )
        (adapted,) = engine.score([[1, 2, 3]])
        assert max(abs(a - b) for a, b in zip(base, adapted, strict=True)) > 0.1
        base = adapted
    assert set(server.adapters) == {"actor"}
    with pytest.raises(ModelError, match=r"got HTTP status 400 for .* .no adapter there., says http"):
        engine.load_weights(3, tmp_path / "nothing")
    assert engine.policy_version == 2


@pytest.mark.parametrize("way", ["shared", "gloo"])
def test_weights_go_another_way_than_by_files(
    way: str, connect: Connect, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    servers = [FakeServer(folder), FakeServer(folder)]
    engine = connect(*servers, weights=way)
    for version in (1, 2):
        new = write_table(tmp_path / f"new{version}", version)
        engine.load_weights(version, new)
        assert all((server.table == FakeServer(new).table).all() for server in servers)
        assert {server.version for server in servers} == {str(version)}
    with pytest.raises(ModelError, match=r"got table of shape \(5, 5\) for"):
        engine.load_weights(3, write_table(tmp_path / "small", 5, size=5))
    (new / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(ModelError, match="got a file that cannot be read"):
        engine.load_weights(3, new)
    assert engine.policy_version == 2


def test_a_server_that_takes_no_weights_over_the_network_is_asked_again(
    connect: Connect, folder: Path
) -> None:
    server = FakeServer(folder)
    engine = connect(server, weights="gloo", start_timeout=20.0)
    take, server.take_quintain_weights = server.take_quintain_weights, lambda: {}["nothing"]  # type: ignore[method-assign]
    with pytest.raises(EngineFault, match="HTTP status 500 for /collective_rpc"):
        engine.load_weights(1, folder)
    server.take_quintain_weights = take  # type: ignore[method-assign]
    del server.group
    engine.load_weights(1, folder)
    assert engine.policy_version == 1


def test_weights_that_one_server_refuses_are_served_by_none(
    connect: Connect, folder: Path, tmp_path: Path
) -> None:
    servers = [FakeServer(folder), FakeServer(folder)]
    engine = connect(*servers)
    engine.load_weights(1, folder)
    servers[1].wrong["/collective_rpc"] = '{"results": [{"wrong": "a full disk"}]}'
    with pytest.raises(
        ModelError, match=r"got a full disk, says http.*give weights of the model that it serves"
    ):
        engine.load_weights(2, write_table(tmp_path / "new", 5))
    assert engine.policy_version == 1
    rows = engine.score([[1, 2, 3], [1, 2, 3]])
    assert rows[0] == rows[1], "the first got its weights again"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"/v1/models": "<!doctype html><title>Hello"}, "got no JSON for /v1/models, but '<!doctype html>"),
        ({"/v1/models": "[]"}, "got an answer that does not fit .*name the URL of such a server"),
        ({"/v1/models": 401}, "got HTTP status 401 for /v1/models .not today."),
        ({"/server_info": 404}, "got a server without development mode; start it as: VLLM_SERVER_DEV_MODE=1"),
    ],
)
def test_a_server_that_is_none_is_refused(
    connect: Connect, folder: Path, change: dict[str, Any], message: str
) -> None:
    server = FakeServer(folder)
    server.wrong.update(change)
    with pytest.raises((UsageError, EngineFault), match=message) as caught:
        connect(server)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_server_of_something_else_is_refused(connect: Connect, folder: Path, tmp_path: Path) -> None:
    other = FakeServer(folder, tokenizer=train_tokenizer(["a wholly other language"] * 20, 300))
    with pytest.raises(UsageError, match=r"got another tokenizer than the model's .tokens that are"):
        connect(other)
    for part, name, value, message in (
        ("model_config", "logprobs_mode", "raw_logprobs", "got --logprobs-mode raw_logprobs; start it as"),
        ("parallel_config", "worker_extension_cls", "", "got --worker-extension-cls nothing; start it as"),
    ):
        server = FakeServer(folder)
        config = server.info["vllm_config"]
        server.info["vllm_config"] = config | {part: config[part] | {name: value}}
        with pytest.raises(UsageError, match=message):
            connect(server)
    server = FakeServer(folder)
    server.info["grammar_backend"] = "xgrammar"
    with pytest.raises(UsageError, match="got --grammar-backend xgrammar; start it with"):
        connect(server, kind="sglang")
    short = FakeServer(folder)
    short.wrong["/v1/models"] = '{"data": [{"id": "base", "max_model_len": 99}]}'
    with pytest.raises(
        UsageError, match=r"got streams of 98 tokens, and 512 at .*serve one model in one way"
    ):
        connect(FakeServer(folder), short)
    engine = connect(FakeServer(folder))
    weights = write_table(tmp_path / "large", 0, size=VOCABULARY + 1)
    with pytest.raises(
        ModelError, match=r"got table of shape .*, says http.*weights of the model that it serves"
    ):
        engine.load_weights(1, weights)
    assert engine.policy_version == 0
    with pytest.raises(EngineFault, match=r"got ConnectError.*name the URL of such a server"):
        HttpEngine(Vllm(), EngineSettings(kind="vllm", urls=("http://127.0.0.1:9",)), None, vocabulary=9)


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        (500, "crash", "got HTTP status 500 for /inference/v1/generate .not today."),
        ("<html>", "malformed", "got no event from /inference/v1/generate, but '<html>'"),
        ("data: {}\n\n", "malformed", "got an answer that does not fit .KeyError"),
        ("data: 7\n\n", "malformed", "an event of /inference/v1/generate that is no object"),
        ('data: {"error": "out of memory"}\n\n', "crash", "got out of memory"),
        ("", "unreachable", "got a stream of /inference/v1/generate that broke off"),
        ("data: [DONE]\n\n", "malformed", "got 0 tokens with 0 log-probs .None., where 6 were asked for"),
        (422, "refused", "got HTTP status 422"),
    ],
)
def test_a_server_that_goes_wrong_is_a_failure_and_is_asked_again(
    connect: Connect, folder: Path, wrong: Any, kind: str, message: str
) -> None:
    server = FakeServer(folder)
    engine = connect(server)
    server.wrong["/inference/v1/generate"] = wrong
    ask(engine, "a")
    found = failure(wait(engine)[0])
    assert found.kind == kind
    assert re.search(message, found.message)
    server.wrong.clear()
    ask(engine, "a")
    assert len(completion(wait(engine)[0]).token_ids) == 6


def test_a_server_that_is_silent_or_lost_thrice(connect: Connect, folder: Path) -> None:
    server = FakeServer(folder)
    engine = connect(server, reply_timeout=0.2)
    server.is_running.clear()
    for _ in range(3):
        ask(engine, "a")
        assert failure(wait(engine)[0]).message.endswith("gave no sign of life for 0 s")
    ask(engine, "a")
    with pytest.raises(
        EngineFault, match="it was lost 3 times without an answer; see the failures before this"
    ):
        engine.advance()


def test_a_pause_waits_for_log_probs_and_paused_engines_score(connect: Connect, folder: Path) -> None:
    engine = connect(FakeServer(folder))
    named = Candidates(token_ids=((5,), (5, 9)), lengths=(1.0, 2.0))
    ask(engine, "a", sampling=Sampling(candidates=named, temperature=0.7))
    ask(engine, "b", sampling=Sampling(constraint=Grammar.of_tokens([4, 5, 6]), stop_ids=frozenset({5})))
    ask(
        engine,
        "c",
        sampling=Sampling(constraint=Grammar.of_choices(["red"]), stop_ids=frozenset({1}), max_tokens=2),
    )
    replies = engine.advance()
    engine.pause()
    engine.load_weights(1, folder)
    engine.resume()
    replies += wait(engine, 3 - len(replies))
    found = {reply.session: completion(reply) for reply in replies}
    assert found["a"].token_ids in named.token_ids and found["c"].stop == "length"
    assert (found["b"].token_ids, found["b"].stop) == ((4, 5), "stop")
    engine.pause()
    (scored,) = engine.score([[9, 8, 4, 5]])
    assert found["b"].logprobs == pytest.approx(scored[2:])
    ask(engine, "d")
    assert engine.advance() == [], "it is still paused"


def test_what_is_refused(connect: Connect, folder: Path) -> None:
    engine = connect(FakeServer(folder))
    with pytest.raises(
        UsageError, match="load_weights without a folder needs an engine that can do shared_weights"
    ):
        engine.load_weights(1, None)
    with pytest.raises(UsageError, match="fingerprint needs an engine that can do fingerprint"):
        engine.fingerprint()
    assert not engine.shares(object())
    engine.close()
    engine.close()
    with pytest.raises(EngineFault, match="it was closed; build another"):
        ask(engine, "a")


@pytest.fixture
def program(tmp_path: Path) -> str:
    """A program that is started like vLLM."""
    file = tmp_path / "vllm"
    root = Path(__file__).resolve().parents[2]
    file.write_text(
        f'#!/bin/sh\ncd {root}; PYTHONPATH= exec {sys.executable} -m {fake_server.__name__} "$@"\n',
        encoding="utf-8",
    )
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


@pytest.mark.slow
def test_servers_that_are_started_end_and_are_started_again(
    program: str, folder: Path, tmp_path: Path
) -> None:
    settings = EngineSettings(kind="vllm", program=program, replicas=2, start_timeout=120.0)
    engine = HttpEngine(Vllm(), settings, folder, vocabulary=VOCABULARY, decode=decode)
    new = write_table(tmp_path / "new", 3)
    engine.load_weights(4, new)
    before = engine.score([[1, 2, 3]])
    for name in "ab":
        ask(engine, name)
    opening = {reply.session: completion(reply) for reply in wait(engine, 2)}
    ask(engine, "a", 7, sampling=Sampling(max_tokens=400))
    ask(engine, "b", 7, sampling=Sampling(max_tokens=400))
    engine.advance()
    killed = engine.process_ids[0]
    for number in below(killed):
        os.kill(number, signal.SIGKILL)
    replies = {reply.session: reply for reply in wait(engine, 2)}
    assert failure(replies["a"]).message.endswith("ended with signal SIGKILL")
    assert completion(replies["b"]).policy_version == 4
    ask(engine, "a", 7)
    again = completion(wait(engine)[0])
    assert (again.policy_version, engine.policy_version) == (4, 4)
    assert engine.score([[1, 2, 3]]) == before
    ask(engine, "c", 9, 8)
    assert completion(wait(engine)[0]).token_ids == opening["a"].token_ids
    numbers = [each for process in engine.process_ids for each in [process, *below(process)]]
    assert len(numbers) >= 4 and killed not in numbers
    engine.close()
    assert not any(Path(f"/proc/{number}").exists() for number in numbers)


@pytest.mark.slow
def test_a_server_that_was_just_started_may_answer_late(
    program: str, connect: Connect, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    usual = Vllm.describe

    async def describe(self: Vllm, wire: ServerWire, seconds: float) -> Card:
        given.append(seconds)
        return await usual(self, wire, seconds)

    monkeypatch.setattr(Vllm, "describe", describe)
    settings = EngineSettings(kind="vllm", program=program, start_timeout=1000.0)
    HttpEngine(Vllm(), settings, folder, vocabulary=VOCABULARY, decode=decode).close()
    connect(FakeServer(folder))
    assert 10 * QUESTION < given[0] <= 1000 and given[1] == QUESTION


@pytest.mark.slow
def test_a_server_that_does_not_start(program: str, folder: Path, tmp_path: Path) -> None:
    broken = write_table(tmp_path / "broken", 0)

    def start(**options: Any) -> HttpEngine:
        settings = EngineSettings(kind="vllm", **{"program": program, "start_timeout": 120.0, **options})  # type: ignore[arg-type]
        return HttpEngine(Vllm(), settings, broken, vocabulary=VOCABULARY)

    with pytest.raises(
        EngineFault, match=r"exit status 3; it said: RuntimeError: head size 16 is not supported; give"
    ):
        start()
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(UsageError, match=r"which is taken .Address already in use.; end what listens there"),
    ):
        start(port=taken.getsockname()[1])
    with pytest.raises(UsageError, match=r"engine vllm: got no program '/no/vllm' here; install it in"):
        start(program="/no/vllm")


def test_an_engine_in_one_text() -> None:
    assert read_engine("process") == {"kind": "process"}
    two = read_engine("vllm?url=http://a:1&url=http://b:2&adapters=1&reply_timeout=2.5")
    assert two == {
        "kind": "vllm",
        "urls": ("http://a:1", "http://b:2"),
        "adapters": True,
        "reply_timeout": 2.5,
    }
    check_settings(EngineSettings(**two))
    for text, message in (
        ("vlm", "engine: got 'vlm'; did you mean 'vllm'?"),
        ("local?replicas=2", "local has no options, leave out '?replicas=2'"),
        ("vllm?replica=2", "option of the engine 'vllm?replica=2': got 'replica'; did you mean 'replicas'?"),
        ("vllm?replicas=two", "replicas of the engine 'vllm?replicas=two': got 'two'; give an integer"),
        ("vllm?adapters=maybe", "got 'maybe'; give true or false"),
        ("vllm?replicas", "got 'replicas'; write them as name=value&name=value"),
        ("vllm?url=http://a:1&port=3", "got port and a url in"),
    ):
        with pytest.raises(UsageError) as caught:
            read_engine(text)
        assert message in str(caught.value)
    with pytest.raises(UsageError, match="replicas of an engine: got 0; give a number above 0"):
        check_settings(EngineSettings(kind="vllm", replicas=0))
