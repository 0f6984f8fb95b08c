"""A client of chat endpoints: what it sends, retries, budget, tape, and that keys are not kept."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from tests.engines.chat_model import KEY, ChatModel

from quintain.engines.chat_client import ChatClient, Spending, question_name, read_reply, read_tape
from quintain.errors import DataError, UsageError
from quintain.processes import http_json
from quintain.processes.http_json import HttpTrouble
from quintain.serve.listener import Listener
from quintain.types import ToolCall

ASK = [{"role": "user", "content": "Is it right?"}]


class Model:
    """An endpoint that answers what it is told, and notes what it was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.seen: list[Any] = []
        self.keys: list[str] = []
        app = Starlette(routes=[Route("/v1/chat/completions", self.answer, methods=["POST"])])
        self.listener = Listener(app, token="s3cret").start()
        self.url = f"{self.listener.url}/v1"

    async def answer(self, request: Request) -> JSONResponse:
        self.seen.append(await request.json())
        self.keys.append(request.headers["Idempotency-Key"])
        status, text = self.answers.pop(0)
        usage = {"total_tokens": 10}
        message = text if isinstance(text, dict) else {"content": text}
        return JSONResponse({"choices": [{"message": message}], "usage": usage}, status)


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
    assert len(set(model.keys[:3])) == 1 and len(set(model.keys)) == 2
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


@pytest.mark.parametrize("tokens", [-1_000_000, None, False])
def test_no_answer_gives_a_budget_back(tokens: object) -> None:
    answer = {"choices": [{"message": {"content": "yes"}}], "usage": {"total_tokens": tokens}}
    assert read_reply(answer).tokens == 0


@pytest.mark.parametrize("tokens", [float("inf"), float("nan"), "many", [1], "9" * 5000])
def test_what_cannot_be_counted_is_an_answer_that_cannot_be_read(tokens: object) -> None:
    answer = {"choices": [{"message": {"content": "yes"}}], "usage": {"total_tokens": tokens}}
    with pytest.raises(http_json.UNREADABLE):
        read_reply(answer)


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


def test_equal_questions_at_the_same_time_are_asked_once(tmp_path: Path) -> None:
    def think(_: object) -> str:
        time.sleep(0.05)
        return f"answer {len(made.seen)}"

    made = ChatModel(think)
    tape = tmp_path / "tape.jsonl"
    asker = ChatClient(made.url, model="m", key=KEY, tape=tape)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: asker.ask(ASK), range(4))) == ["answer 1"] * 4
        assert (len(made.seen), asker.num_calls, asker.num_replayed) == (1, 1, 3)
        assert ChatClient(made.url, model="m", tape=tape, replays=True).ask(ASK) == "answer 1"
        without = ChatClient(made.url, model="m", key=KEY)
        assert sorted(threads.map(lambda _: without.ask(ASK), range(2))) == ["answer 2", "answer 3"]
    made.listener.close()


def test_whoever_waits_for_an_equal_question_has_a_deadline(tmp_path: Path) -> None:
    asker = ChatClient("http://127.0.0.1:9/v1", model="m", tape=tmp_path / "tape.jsonl", deadline=0.01)
    body = {"model": "m", "messages": ASK, "temperature": 0.0, "max_tokens": 100}
    asker._asking.add(question_name(body, 0))  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(HttpTrouble) as found:
        asker.ask(ASK)
    assert (found.value.kind, found.value.got) == ("timeout", "no answer within 0.01 s to an equal question")


def test_calls_of_tools_are_asked_for_and_kept(model: Model, tmp_path: Path) -> None:
    tape = tmp_path / "teacher.jsonl"
    tools = [{"type": "function", "function": {"name": "say", "parameters": {"type": "object"}}}]

    def calling(name: Any, arguments: Any) -> Any:
        return {"content": None, "tool_calls": [{"function": {"name": name, "arguments": arguments}}]}

    model.answers = [
        (200, calling("say", "[1]")), (200, calling(None, "{}")), (200, calling("say", '{"n": 1}')),
        (200, calling("say", {})), (200, calling("say", "")), (200, "text"), (200, calling("say", "")),
    ]  # fmt: skip
    asker = client(model, tape=tape)
    found = asker.reply(ASK, tools=tools)
    assert (found.text, found.calls) == ("", (ToolCall(name="say", arguments={"n": 1}),))
    assert model.seen[0]["tools"] == tools and len(model.seen) == 3
    assert [asker.reply(ASK, tools=tools, number=n).calls[0].arguments for n in (1, 2)] == [{}, {}]
    assert client(model, tape=tape, replays=True).reply(ASK, tools=tools) == found
    assert asker.reply(ASK, tools=tools, number=3).text == "text"
    with pytest.raises(HttpTrouble, match="which calls tools that it was not told of"):
        asker.ask(ASK)


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
