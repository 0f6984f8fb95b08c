"""A served model: an episode for each path, ended with a score, or not scored; and the command line around it."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from quintain.cli.episodes import recorded_run
from quintain.cli.serving import serve_model
from quintain.engines.scripted import Scripted
from quintain.errors import UsageError
from quintain.serve.recording import NOT_SCORED, Recording
from quintain.store.run import Run
from quintain.text.chat import Chat
from quintain.types import Score, Trajectory

KEY = "s3cret"


@pytest.fixture
def kept() -> list[Trajectory]:
    return []


@pytest.fixture
def recording(chat: Chat, kept: list[Trajectory]) -> Iterator[Recording]:
    made = Recording(Scripted(lambda request, stream: chat.write("go on")), chat, KEY, keep=kept.append)
    thread = threading.Thread(target=made.run)
    thread.start()
    yield made
    made.is_closed.set()
    thread.join(10)
    made.close()


def ask(recording: Recording, name: str) -> None:
    url = f"{recording.listener.url}/e/{name}/v1"
    with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0) as sdk:
        sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "A wall."}])


def end(recording: Recording, name: str, row: Any) -> tuple[int, Any]:
    with httpx2.Client(timeout=20) as plain:
        url = f"{recording.listener.url}/e/{name}/end"
        answer = plain.post(url, headers={"X-Api-Key": KEY}, content=json.dumps(row).encode())
    return answer.status_code, answer.json()


def test_episodes_by_path(recording: Recording, kept: list[Trajectory]) -> None:
    for name in ("one", "two", "three"):
        ask(recording, name)
    assert end(recording, "one", {"score": 0.5}) == (200, {"ended": "one", "calls": 1})
    assert end(recording, "two", {"score": 1, "is_success": False})[0] == 200
    ask(recording, "one")  # another episode of that name
    assert end(recording, "one", {"score": 0.0})[0] == 200
    for row, told in (
        ({}, "must be a finite number: got None"),
        ({"score": 1, "is_success": 3}, "is_success: got 3"),
    ):
        status, answer = end(recording, "three", row)
        assert status == 400 and told in answer["error"]["message"]
    recording.is_closed.set()
    recording.close()
    assert [(t.task.id, t.index, t.outcome) for t in kept] == [
        ("served/one", 0, Score(value=0.5, is_success=True)),
        ("served/two", 0, Score(value=1.0, is_success=False)),
        ("served/one", 1, Score(value=0.0, is_success=False)),
        ("served/three", 0, NOT_SCORED),
    ]
    assert kept[0].turns[0].reward == 0.5 and kept[3].turns[0].reward == 0.0


def test_a_run_of_what_was_recorded(
    recording: Recording, kept: list[Trajectory], chat: Chat, tmp_path: Path
) -> None:
    ask(recording, "one")
    end(recording, "one", {"score": 1.0})
    ask(recording, "two")
    recording.is_closed.set()
    recording.close()
    with recorded_run(chat.tokenizer, tmp_path / "rec", {"model": "m"}) as keep:
        for trajectory in kept:
            keep(trajectory)
    with Run.open(tmp_path / "rec", writable=False) as run:
        assert [t.turns for t in run.trajectories()] == [t.turns for t in kept]
        (row,) = run.metrics()
        assert (row["endpoint/calls"], row["endpoint/delivered"]) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["no-such-model", "--port", "x"], "--port"),
        (["no-such-model", "--host", "192.0.2.1"], "which others can reach; give a key with --token-file"),
        (["no-such-model", "--record", "."], "--record: got '.', which exists"),
        (["no-such-model", "--max-tokens", "0"], "--max-tokens"),
    ],
)
def test_what_is_refused_before_a_model_is_loaded(argv: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        serve_model(argv)
