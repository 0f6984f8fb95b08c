"""A client of chat endpoints: what it sends, retries, budget, tape, and that keys are not kept."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from quintain.engines.chat_client import ChatClient, Spending, question_name, read_tape
from quintain.errors import DataError, UsageError
from quintain.processes import http_json
from quintain.processes.http_json import HttpTrouble
from quintain.serve.listener import Listener

ASK = [{"role": "user", "content": "Is it right?"}]


class Model:
    """An endpoint that answers what it is told, and notes what it was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.seen: list[Any] = []
        app = Starlette(routes=[Route("/v1/chat/completions", self.answer, methods=["POST"])])
        self.listener = Listener(app, token="s3cret").start()
        self.url = f"{self.listener.url}/v1"

    async def answer(self, request: Request) -> JSONResponse:
        self.seen.append(await request.json())
        status, text = self.answers.pop(0)
        usage = {"total_tokens": 10}
        return JSONResponse({"choices": [{"message": {"content": text}}], "usage": usage}, status)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    monkeypatch.setattr(http_json, "PAUSE", 0.001)
    made = Model()
    yield made
    made.listener.close()


def client(model: Model, **options: Any) -> ChatClient:
    return ChatClient(model.url, model="judge", key="s3cret", **options)


def test_what_is_asked_and_answered(model: Model) -> None:
    model.answers = [(503, ""), (200, None), (200, " yes\n")]
    asker = client(model)
    assert asker.ask(ASK, temperature=0.5, max_tokens=7) == "yes"
    assert model.seen == [{"model": "judge", "messages": ASK, "temperature": 0.5, "max_tokens": 7}] * 3
    assert (asker.num_calls, asker.num_tokens, asker.num_replayed) == (1, 10, 0)
    model.answers = [(400, "")]
    with pytest.raises(HttpTrouble, match="HTTP status 400"):
        asker.ask(ASK)
    asker.close()


def test_a_budget(model: Model) -> None:
    model.answers = [(200, "yes")] * 9
    asker = client(model, budget=Spending(calls=2))
    asker.ask(ASK)
    asker.ask(ASK)
    with pytest.raises(HttpTrouble, match="a budget of 2 calls, which are spent"):
        asker.ask(ASK)
    asker = client(model, budget=Spending(tokens=15))
    asker.ask(ASK)
    asker.ask(ASK)
    with pytest.raises(HttpTrouble, match="a budget of 15 tokens"):
        asker.ask(ASK)
    assert len(model.seen) == 4


def test_a_tape_is_recorded_and_replayed(model: Model, tmp_path: Path) -> None:
    tape = tmp_path / "judge.jsonl"
    model.answers = [(200, "yes"), (200, "no"), (200, "perhaps")]
    asker = client(model, tape=tape, budget=Spending(calls=3))
    assert [asker.ask(ASK), asker.ask(ASK), asker.ask(ASK, number=1), asker.ask(ASK, temperature=1.0)] == [
        "yes", "yes", "no", "perhaps",
    ]  # fmt: skip
    assert "s3cret" not in tape.read_text()
    again = ChatClient("http://127.0.0.1:9/v1", model="judge", tape=tape, replays=True)
    assert [again.ask(ASK), again.ask(ASK, number=1), again.num_replayed] == ["yes", "no", 2]
    with pytest.raises(HttpTrouble, match=r"a question that the tape .* does not hold"):
        again.ask(ASK, number=2)
    whole = tape.read_bytes()
    tape.write_bytes(whole[:-5])  # a process that was killed
    assert len(read_tape(tape)) == 2
    model.answers = [(200, "maybe")]
    assert client(model, tape=tape).ask(ASK, temperature=1.0) == "maybe"
    assert len(read_tape(tape)) == 3
    tape.write_text("[]\n")
    with pytest.raises(DataError, match=r"judge\.jsonl: got TypeError"):
        client(model, tape=tape)
    with pytest.raises(DataError, match="name a file that can be written"):
        model.answers = [(200, "yes")]
        client(model, tape=tmp_path / "absent" / "judge.jsonl").ask(ASK)


def test_names_of_questions() -> None:
    body = {"model": "m", "messages": ASK}
    assert question_name(body, 0) == question_name(json.loads(json.dumps(body)), 0)
    assert (
        len({question_name(body, 0), question_name(body, 1), question_name({**body, "model": "n"}, 0)}) == 3
    )


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="chat endpoint: got 'x'; give a base URL"):
        ChatClient("x", model="m")
    with pytest.raises(UsageError, match="which is no file; record one before it is replayed"):
        ChatClient("http://127.0.0.1:9", model="m", tape=tmp_path / "absent", replays=True)
