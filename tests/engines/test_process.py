"""An engine in another process keeps every promise; a process that goes wrong is a failure, and is started again."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.engines.scripts import MAX_LENGTH, PROGRAM, ScriptedHost, scripted

from quintain.engines import process
from quintain.engines.process import ProcessEngine
from quintain.engines.process_host import Host
from quintain.engines.protocol import Grammar, Reply, Request, Sampling
from quintain.engines.settings import EngineSettings
from quintain.engines.wire import to_row
from quintain.errors import EngineFault, ModelError, UsageError
from quintain.processes.frames import frame_request
from quintain.processes.tree import below
from quintain.testing.engines import check_engine
from quintain.types import Completion, Failure

Start = Callable[..., ProcessEngine]
LONG = Sampling(max_tokens=MAX_LENGTH - 100)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start engines whose process is a script, which goes wrong as the name of the folder says."""
    monkeypatch.setattr(process, "PROGRAM", PROGRAM)
    engines: list[ProcessEngine] = []

    def call(wrong: str = "right", **settings: float) -> ProcessEngine:
        chosen = EngineSettings(kind="process", **{"start_timeout": 60.0, **settings})  # type: ignore[arg-type]
        engines.append(ProcessEngine(tmp_path / wrong, chosen, policy="actor"))
        return engines[-1]

    yield call
    for engine in engines:
        engine.close()


def ask(engine: ProcessEngine, *names: str, sampling: Sampling | None = None) -> None:
    for place, name in enumerate(names):
        chosen = sampling or Sampling(max_tokens=8)
        engine.submit(Request(session=name, prompt_ids=(1, 2, place), seed=place, sampling=chosen))


def wait(engine: ProcessEngine, count: int, seconds: float = 60.0) -> list[Reply]:
    replies: list[Reply] = []
    deadline = time.monotonic() + seconds
    while len(replies) < count and time.monotonic() < deadline:
        replies += engine.advance()
    assert len(replies) == count
    return replies


def failure_of(reply: Reply) -> Failure:
    assert isinstance(reply.result, Failure) and reply.result.owner == "engine"
    return reply.result


def kill(engine: ProcessEngine) -> None:
    assert engine.process_id is not None
    for number in [*below(engine.process_id), engine.process_id]:
        os.kill(number, signal.SIGKILL)


UPDATED = {"new weights drop caches", "an update under way is told"}


@pytest.mark.slow
def test_it_passes_what_every_engine_must(start: Start, tmp_path: Path) -> None:
    engine = start()
    updated = {str(found) for found in check_engine(engine, only=UPDATED, update=lambda: tmp_path)}
    assert updated == {f"pass  {name}" for name in UPDATED}
    findings = list(check_engine(engine, spoil=lambda: kill(engine)))
    assert [str(finding) for finding in findings if finding.state == "fail"] == []
    skipped = {finding.name for finding in findings if finding.state == "skip"}
    assert skipped == {"grammars of text", "new weights are served", *UPDATED}


@pytest.mark.slow
def test_after_its_end_sessions_and_version_are_restored(start: Start, tmp_path: Path) -> None:
    engine, here = start(), scripted(tokens_per_round=1)
    for each in (engine, here):
        each.load_weights(3, tmp_path)
        each.submit(Request(session="a", prompt_ids=(1, 2), seed=5, sampling=Sampling(max_tokens=6)))
    first = wait(engine, 1)
    ask(engine, "b", "c", sampling=LONG)
    assert engine.advance() == []
    kill(engine)
    assert {reply.session for reply in wait(engine, 2)} == {"b", "c"}
    assert (engine.stats().num_failed, engine.process_id) == (2, None)
    replies: list[Reply] = []
    while not replies:
        replies = here.advance()
    for each in (engine, here):
        each.submit(Request(session="a", prompt_ids=(9,), seed=6, sampling=Sampling(max_tokens=6)))
    (again,) = wait(engine, 1)
    (second,) = [reply for _ in range(8) for reply in here.advance()]
    for got, expected in ((first[0].result, replies[0].result), (again.result, second.result)):
        assert isinstance(got, Completion) and isinstance(expected, Completion)
        assert (got.token_ids, got.policy_version, got.policy) == (expected.token_ids, 3, "actor")
    assert engine.policy_version == 3


@pytest.mark.slow
def test_a_paused_engine_is_started_again_paused(start: Start) -> None:
    engine = start()
    engine.pause()
    kill(engine)
    with pytest.raises(
        EngineFault, match=r"ended with signal SIGKILL; it is started again when it is used next"
    ):
        engine.score([[1, 2]])
    assert engine.score([[1, 2]]) == [(0.0, -1.0)]
    ask(engine, "a")
    assert [engine.advance() for _ in range(3)] == [[], [], []]
    engine.resume()
    assert isinstance(wait(engine, 1)[0].result, Completion)


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        ("babbles", "protocol", "said what is no reply (a frame of 4294967295 bytes)"),
        ("floods", "output", "printed more than 4 MiB"),
        ("freezes", "timeout", "gave no sign of life for"),
        ("raises", "crash", "ended with exit status 1; it said last: "),
    ],
)
@pytest.mark.slow
def test_a_process_that_goes_wrong_is_a_failure(start: Start, wrong: str, kind: str, message: str) -> None:
    engine = start(wrong, reply_timeout=0.3 if wrong == "freezes" else 60.0)
    ask(engine, "a", "b")
    failures = [failure_of(reply) for reply in wait(engine, 2)]
    assert {failure.kind for failure in failures} == {kind}
    assert message in failures[0].message
    assert "a device ran out of memory" in failures[0].message or wrong != "raises"
    for _ in range(2):
        ask(engine, "a")
        wait(engine, 1)
    ask(engine, "a")
    with pytest.raises(EngineFault, match="it ended 3 times without an answer; see the failures before this"):
        engine.advance()


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        ("broken", ModelError, "model 'broken': got no weights; give some"),
        ("dies", EngineFault, "ended with exit status 3; it said last: out of memory"),
        ("hangs", EngineFault, "open took longer than 0.5 s"),
        ("odd", EngineFault, "got no answer to open that fits"),
    ],
)
def test_a_process_that_does_not_start(start: Start, wrong: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        start(wrong, start_timeout=0.5 if wrong == "hangs" else 60.0)


@pytest.mark.slow
def test_what_is_refused(start: Start) -> None:
    engine = start()
    with pytest.raises(
        UsageError, match="load_weights without a folder needs an engine that can do shared_weights"
    ):
        engine.load_weights(1, None)
    with pytest.raises(UsageError, match=r"grammar of a completion: got .* for fixed tokens"):
        ask(engine, "a", sampling=Sampling(constraint=Grammar(kind="tokens", text="[]")))
    assert engine.stats().num_submitted == 0
    engine.close()
    engine.close()
    with pytest.raises(EngineFault, match="it was closed; build another"):
        ask(engine, "a")


@pytest.mark.slow
def test_a_reply_to_a_released_session_is_not_for_its_successor(start: Start) -> None:
    engine = start()
    ask(engine, "a", sampling=Sampling(max_tokens=2))
    engine.pause()
    engine.resume()
    time.sleep(0.1)
    engine.release("a")
    ask(engine, "a", sampling=Sampling(max_tokens=5))
    (reply,) = wait(engine, 1)
    assert isinstance(reply.result, Completion) and len(reply.result.token_ids) == 5
    stats = engine.stats()
    assert (stats.num_submitted, stats.num_released, stats.num_finished) == (2, 1, 1)


@pytest.mark.slow
def test_many_streams_are_scored_in_portions(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MAX_SCORED", 10)
    engine = start()
    streams = [[1] * length for length in (4, 8, 20, 1, 1)]
    assert [len(row) for row in engine.score(streams)] == [4, 8, 20, 1, 1]
    assert engine.stats().num_scored == 34


def test_nothing_is_left_of_it_when_it_is_dropped(start: Start, tmp_path: Path) -> None:
    owned = tmp_path / "owned"
    owned.mkdir()
    engine = ProcessEngine(tmp_path, EngineSettings(kind="process"), owned=owned)
    assert engine.process_id is not None
    numbers = [*below(engine.process_id), engine.process_id]
    assert len(numbers) == 2
    del engine
    assert not owned.exists()
    assert not any(Path(f"/proc/{number}").exists() for number in numbers)


def spoken(*frames: object) -> list[dict[str, object]]:
    """Return what a host answers to `frames`, in this process."""
    requests, ours = os.pipe()
    theirs, replies = os.pipe()
    os.write(ours, b"".join(frame_request(frame) for frame in frames))  # type: ignore[arg-type] # pyright: ignore
    os.close(ours)
    host = ScriptedHost(requests, replies)
    try:
        host.serve()
    finally:
        os.close(replies)
    with os.fdopen(theirs, "rb") as stream:
        content = stream.read()
    os.close(requests)
    found: list[dict[str, object]] = []
    while content:
        length = 4 + int.from_bytes(content[:4], "big")
        found.append(json.loads(content[4:length]))
        content = content[length:]
    return found


def test_the_other_side_answers_in_order() -> None:
    row = to_row(Request(session="a", prompt_ids=(1,), seed=1, sampling=Sampling(max_tokens=500)))
    opened = {"do": "open", "with": ["right", {}, "actor"], "id": 1}
    submit = {"do": "submit", "with": [7, row]}
    found = spoken(
        opened,
        submit,
        {"do": "submit", "with": [8, row]},
        {"do": "pause", "with": ["abort"], "id": 2},
        {"do": "resume", "with": [], "id": 3},
        {"do": "score", "with": [[[1, 2]], 1.0], "id": 4},
        {"do": "load_weights", "with": [4, "/folder"], "id": 5},
        {"do": "fingerprint", "with": [], "id": 6},
        submit,
        {"do": "release", "with": ["a"]},
        {"do": "stats", "with": [], "id": 7},
    )
    refused, aborted = found[1]["replies"], found[2]["replies"]
    assert isinstance(refused, list) and isinstance(aborted, list)
    assert (refused[0][0], refused[0][1]["result"]["kind"]) == (8, "refused")
    assert (aborted[0][0], aborted[0][1]["result"]["kind"]) == (7, "aborted")
    answers = {answer["id"]: answer for answer in found if "id" in answer}
    assert list(answers) == [1, 2, 3, 4, 5, 6, 7]
    assert answers[4]["value"] == [[0.0, -1.0]]
    assert answers[6]["class"] == "UsageError"
    stats = answers[7]["value"]
    assert isinstance(stats, dict) and (stats["num_submitted"], stats["num_released"]) == (2, 1)


def test_a_host_that_was_not_opened_says_so() -> None:
    reading, writing = os.pipe()
    for descriptor in (reading, writing):
        os.close(descriptor)
    with pytest.raises(EngineFault, match="before it was opened"):
        _ = Host(reading, writing).engine
