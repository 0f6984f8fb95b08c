"""A served model: an episode for each path, ended with a score, or not scored; and the command line around it."""

import errno
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import openai
import pytest

import quintain
from quintain import api
from quintain.api import record_run
from quintain.cli.serving import serve_model
from quintain.cli.training import resume
from quintain.engines.scripted import Scripted
from quintain.errors import ModelError, QuintainError, StoreError, UsageError
from quintain.models.tiny import build_tiny
from quintain.serve.recording import NOT_SCORED, Recording, recover_calls
from quintain.store.calls import CALLS, CallLog
from quintain.store.run import Run
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Failure, Score, Trajectory

KEY = "s3cret"


@pytest.fixture
def kept() -> list[Trajectory]:
    return []


ANSWERING = "answering"


@pytest.fixture
def recording(chat: Chat, kept: list[Trajectory], tmp_path: Path) -> Iterator[Recording]:
    engine, calls = Scripted(lambda request, stream: chat.write("go on")), CallLog(tmp_path / CALLS)
    made = Recording(engine, chat, KEY, keep=kept.append, calls=calls)
    raised: list[BaseException] = []

    def run() -> None:
        try:
            made.run()
        except StoreError as error:
            raised.append(error)

    thread = threading.Thread(target=run, name=ANSWERING)
    thread.start()
    yield made
    made.is_closed.set()
    thread.join(10)
    assert not raised or made.endpoint.trouble in raised
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
        ({"score": True}, "end: score must be a number: got True"),
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


def test_an_episode_that_was_never_asked_anything_cannot_be_ended(
    recording: Recording, kept: list[Trajectory]
) -> None:
    status, answer = end(recording, "zzz", {"score": 1.0})
    assert status == 404 and "nothing was asked under that name" in answer["error"]["message"]
    assert recording.endpoint.sessions == {} and kept == []


def test_an_episode_whose_first_call_failed_is_recorded_as_that_failure(
    recording: Recording, kept: list[Trajectory], tmp_path: Path
) -> None:
    failure = Failure(owner="engine", kind="grammar", message="past a limit")
    script, recording.engine.script = recording.engine.script, lambda *_: failure  # type: ignore[attr-defined] # pyright: ignore
    with pytest.raises(openai.BadRequestError, match="past a limit"):
        ask(recording, "one")
    assert end(recording, "one", {"score": 1.0}) == (200, {"ended": "one", "calls": 0})
    recording.engine.script = script  # type: ignore[attr-defined] # pyright: ignore
    ask(recording, "one")
    (first,) = kept
    assert (first.turns, first.outcome, first.index) == ((), failure, 0)
    (left,), _ = recover_calls(tmp_path / CALLS, known(kept))
    assert (left.index, len(left.turns)) == (1, 1)


def known(kept: list[Trajectory]) -> Callable[[str, int], bool]:
    return lambda name, index: (name, index) in {(each.group, each.index) for each in kept}


def test_what_was_answered_is_there_after_a_kill(
    recording: Recording, kept: list[Trajectory], tmp_path: Path
) -> None:
    """What the file holds when the server is killed makes the episodes that the server itself would have recorded."""
    for name in ("one", "two", "one"):
        ask(recording, name)
    assert end(recording, "one", {"score": 0.5})[0] == 200
    ask(recording, "one")
    left = tmp_path / "left.jsonl"
    episodes, num_broken = recover_calls(tmp_path / CALLS, known(kept))
    for _ in range(500):  # what was read of the last answer is noted a moment after it was sent
        shutil.copy(tmp_path / CALLS, left)
        episodes, num_broken = recover_calls(left, known(kept))
        if all(turn.facts["delivery"] == "whole" for each in episodes for turn in each.turns):
            break
        threading.Event().wait(0.01)
    assert (num_broken, [(each.group, each.index, len(each.turns)) for each in episodes]) == (
        0,
        [("two", 0, 1), ("one", 1, 1)],
    )
    recording.is_closed.set()
    for thread in threading.enumerate():
        if thread.name == ANSWERING:
            thread.join(10)
    recording.close()
    assert not (tmp_path / CALLS).exists(), "the journal has it all"
    ours = {(each.group, each.index): each for each in kept}
    for each in episodes:
        assert ours[each.group, each.index] == replace(each, seconds=ours[each.group, each.index].seconds)
    # An episode that was recorded in the moment of the kill is not recorded again.
    assert recover_calls(left, known(kept))[0] == []


def test_what_is_damaged_of_the_calls_is_counted(recording: Recording, tmp_path: Path) -> None:
    for _ in range(3):
        ask(recording, "one")
    lines = (tmp_path / CALLS).read_bytes().splitlines(keepends=True)
    calls = [place for place, line in enumerate(lines) if b'"turn"' in line]
    left = tmp_path / "left.jsonl"
    nothing = known([])
    for damaged, num_turns, num_broken in (
        ([*lines[: calls[-1]], lines[calls[-1]][:-9]], 2, 1),  # the last write was cut off
        ([line.replace(b"go on", b"go up") if n == calls[1] else line for n, line in enumerate(lines)], 1, 1),
        ([b"\xff\n", b"00000000 \n", b"\n", *lines], 3, 3),
        ([], 0, 0),
    ):
        left.write_bytes(b"".join(damaged))
        episodes, broken = recover_calls(left, nothing)
        assert [len(each.turns) for each in episodes] == [num_turns][: len(damaged)], damaged
        assert broken >= num_broken
    with pytest.raises(StoreError, match=r"reading .*; make it readable"):
        recover_calls(tmp_path / "nothing", nothing)


def test_a_call_that_cannot_be_noted_is_not_answered(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(recording, "one")

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(openai.InternalServerError, match="the call cannot be recorded: noting a call in"):
        ask(recording, "one")
    monkeypatch.undo()
    assert isinstance(recording.endpoint.trouble, StoreError)


def test_a_recording_that_was_killed_is_taken_up_by_resume(
    recording: Recording, kept: list[Trajectory], chat: Chat, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ask(recording, "one")
    end(recording, "one", {"score": 1.0})
    ask(recording, "two")
    folder = tmp_path / "rec"
    with pytest.raises(KeyError), record_run(chat.tokenizer, folder, {"model": "m"}) as keep:
        keep(kept[0])
        raise KeyError("the server breaks")
    with Run.open(folder, writable=False) as run:
        assert run.status == "failed" and not caplog.messages
    shutil.copy(tmp_path / CALLS, folder / CALLS)
    with open(folder / CALLS, "ab") as file:
        file.write(b"cut off")
    with Run.open(folder, writable=False) as run:
        assert f"`quintain resume {folder}` records them" in caplog.messages[0]
    assert resume([str(folder)]) == 0
    with Run.open(folder, writable=False) as run:
        assert [(each.group, each.outcome) for each in run.trajectories()] == [
            ("one", Score(value=1.0, is_success=True)),
            ("two", NOT_SCORED),
        ]
        kinds = [each["kind"] for each in run.events()]
        assert run.status == "done" and {"calls lost", "calls recovered", "finish"} <= {*kinds}
    assert not (folder / CALLS).exists()


def test_a_run_of_what_was_recorded(
    recording: Recording, kept: list[Trajectory], chat: Chat, tmp_path: Path
) -> None:
    ask(recording, "one")
    end(recording, "one", {"score": 1.0})
    ask(recording, "two")
    recording.is_closed.set()
    recording.close()
    with record_run(chat.tokenizer, tmp_path / "rec", {"model": "m"}) as keep:
        for trajectory in kept:
            keep(trajectory)
    with Run.open(tmp_path / "rec", writable=False) as run:
        assert [t.turns for t in run.trajectories()] == [t.turns for t in kept]
        (row,) = run.metrics()
        assert (row["endpoint/calls"], row["endpoint/delivered"]) == (1.0, 1.0)


def test_serving_from_python_takes_what_the_command_takes(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["<|system|>a<|user|>b<|assistant|>c<|end|>"], 300)
    build_tiny(tokenizer, size="micro", seed=0).save_pretrained(str(tmp_path / "model"))
    tokenizer.save_pretrained(str(tmp_path / "model"))
    template = tmp_path / "own.jinja"
    template.write_text(
        "{% for m in messages %}<|{{ m.role }}|>{{ 'NEW ' if m.role == 'user' }}{{ m.content }}"
        "{{ '<|end|>' if m.role == 'assistant' }}{% endfor %}{{ '<|assistant|>' if add_generation_prompt }}",
        encoding="utf-8",
    )
    options: Any = {"api_key": "s3cret", "chat_template": template, "max_tokens": 3}
    with (
        quintain.serving(tmp_path / "model", record=tmp_path / "rec", **options) as served,
        openai.OpenAI(base_url=served.base_url("one"), api_key="s3cret", max_retries=0) as sdk,
    ):
        more: Any = {"extra_body": {"return_token_ids": True}}
        said: Any = sdk.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], **more
        )
        assert "<|user|>NEW hi" in tokenizer.decode(said.prompt_token_ids)
        assert len(said.choices[0].token_ids) <= 3 and served.api_key == "s3cret" and served.chat_format
    with Run.open(tmp_path / "rec", writable=False) as run:
        assert [t.task.id for t in run.trajectories()] == ["served/one"]
        assert run.config["max_tokens"] == 3
    refused: Any = (
        ({"record": tmp_path / "rec"}, "rec"),
        ({"host": "192.0.2.1"}, "which others can reach; give a key"),
        ({"template_differs": "never"}, "template_differs: got 'never'"),
        ({"chat_template": "none.jinja"}, "none.jinja"),
    )
    for wrong, told in refused:
        with pytest.raises(QuintainError, match=told), quintain.serving(tmp_path / "model", **wrong):
            pass


def test_a_model_whose_chats_differ_from_its_template_is_refused_where_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = SimpleNamespace(is_followed=False, line="differs at token 3")
    loaded = SimpleNamespace(tokenizer=train_tokenizer(["<|user|>b<|end|>"], 300), model=None)
    monkeypatch.setattr(api, "policy_of", lambda _: loaded)
    monkeypatch.setattr(api, "check_template", lambda _: report)
    with (
        pytest.raises(ModelError, match="chat template of m: got differs at token 3; give another"),
        quintain.serving("m", template_differs="refuse"),
    ):
        pass


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
