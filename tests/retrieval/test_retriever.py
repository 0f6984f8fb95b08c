"""Indexes, a server, a record; and servers that are slow, wrong, empty, or answer with pages."""

import json
import sqlite3
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("bm25s")

from tests.processes.test_http_json import raw

from quintain.errors import DataError, StoreError, UsageError
from quintain.processes import http_json
from quintain.retrieval.passages import Passage
from quintain.retrieval.retriever import FoundPassage, Indexed, Recorded, Remote, RetrievalTrouble
from quintain.serve.listener import Listener
from quintain.serve.retrieval import retrieval_app

PASSAGES = tuple(
    Passage(id=str(n), title=title, text=text)
    for n, (title, text) in enumerate(
        [
            ("Rome", "The mayor of Rome is Ben."),
            ("Orbit", "The seat of Orbit is Rome."),
            ("Ben", "The friend of Ben is Ivo."),
        ]
    )
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_json, "PAUSE", 0.0)


@pytest.fixture
def served() -> Generator[str]:
    with closing(Listener(retrieval_app(Indexed(PASSAGES))).start()) as listener:
        yield listener.url


def test_bm25_by_value() -> None:
    index = Indexed(PASSAGES)
    assert [found.passage.id for found in index.search("mayor Rome", 3)] == ["0", "1"]
    assert index.search("the of", 3) == () == index.search("zebra", 3)
    assert index.name.startswith("bm25/") and Indexed(PASSAGES[:2]).name != index.name
    with pytest.raises(UsageError, match="kind of retriever: got 'bm52'; did you mean 'bm25'"):
        Indexed(PASSAGES, "bm52")
    with pytest.raises(DataError, match="passages to search: got none"):
        Indexed(())


def test_a_server_answers_as_the_index_does(served: str) -> None:
    index = Indexed(PASSAGES)
    for url in (served, f"{served}/retrieve"):
        with closing(Remote(url)) as far:
            for query in ("mayor Rome", "seat", "zebra"):
                assert far.search(query, 2) == index.search(query, 2)
    server = http_json.HttpServer(served, deadline=10)
    assert server.ask("GET", "/health", read=dict) == {"status": "healthy", "retriever": index.name}
    plain = server.ask(
        "POST", "/retrieve", {"queries": ["seat", "friend"], "topk": 1}, read=lambda a: a["result"]
    )
    assert [[row["id"] for row in own] for own in plain] == [["1"], ["2"]], "documents alone, without scores"


@pytest.mark.parametrize(
    "body", [None, [], {"queries": "seat"}, {"queries": []}, {"queries": [1]}, {"queries": ["a"] * 257},
             {"queries": ["a" * 4097]}, {"queries": ["a"], "topk": 0}, {"queries": ["a"], "topk": True}],
)  # fmt: skip
def test_what_the_server_is_not_asked(served: str, body: object) -> None:
    server = http_json.HttpServer(served, deadline=10)
    with pytest.raises(http_json.HttpTrouble) as found:
        server.ask("POST", "/retrieve", body, read=dict)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    assert found.value.status == 422
    with pytest.raises(http_json.HttpTrouble) as found:
        server.ask("GET", "/retrieve", read=dict)
    assert found.value.status == 404


def answer(body: bytes, head: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body


ONE = {"document": {"id": "0", "contents": "Rome\nx"}, "score": 1.0}


@pytest.mark.parametrize(
    ("sent", "kind", "said"),
    [
        (answer(b"<html>busy</html>"), "malformed", "JSONDecodeError"),
        (answer(b""), "malformed", "cannot be read"),
        (answer(b"[]"), "malformed", "must be an object, not list"),
        (answer(b'{"results": []}'), "malformed", "KeyError: 'result'"),
        (answer(b'{"result": []}'), "malformed", "one list of passages"),
        (
            answer(json.dumps({"result": [[ONE, ONE, ONE]]}).encode()),
            "malformed",
            "3 passages, where 2 were asked for",
        ),
        (answer(b'{"result": [["Rome"]]}'), "malformed", "must be an object, not str"),
        (answer(b'{"result": [[{"document": {"id": 1}}]]}'), "malformed", "neither contents nor text"),
        (
            answer(b'{"result": [[{"document": {"text": "x"}, "score": "high"}]]}'),
            "malformed",
            "score must be a number",
        ),
        (
            answer(b'{"result": [[{"document": {"text": "x"}, "score": 1%s}]]}' % (b"0" * 400)),
            "malformed",
            "OverflowError",
        ),
        (
            answer(b'{"result": [[{"document": {"text": "x"}, "score": 1e999}]]}'),
            "malformed",
            "score must be a number",
        ),
        (answer(b'{"result": [["' + b"x" * (5 << 20) + b'"]]}'), "malformed", "more than 4194304 bytes"),
        (answer(b"down", b"HTTP/1.1 503 Busy"), "unavailable", "HTTP status 503"),
        (answer(b"{}", b"HTTP/1.1 401 No"), "refused", "HTTP status 401"),
    ],
)
def test_a_broken_server_is_trouble_in_one_line(sent: bytes, kind: str, said: str) -> None:
    with raw(sent) as (url, _), pytest.raises(RetrievalTrouble) as found:
        Remote(url, deadline=5).search("mayor", 2)
    assert found.value.kind == kind and said in str(found.value) and "\n" not in str(found.value)
    assert str(found.value).endswith("start one with `quintain retrieve CORPUS`")


def test_a_slow_server_has_a_deadline_and_one_that_is_gone_a_line() -> None:
    with raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", *[b"["] * 20, pause=0.2) as (url, _):
        with pytest.raises(RetrievalTrouble, match=r"no answer within 0\.3 s") as found:
            Remote(url, deadline=0.3).search("mayor", 2)
        assert found.value.kind == "timeout"
    with pytest.raises(RetrievalTrouble) as gone:
        Remote(url, deadline=1).search("mayor", 2)
    assert gone.value.kind == "unreachable"
    with pytest.raises(UsageError, match="address of a server: got"):
        Remote("ftp://x")


class Fickle:
    """Answers with another passage every time."""

    name = "fickle"

    def __init__(self) -> None:
        self.asked = 0

    def search(self, query: str, count: int) -> tuple[FoundPassage, ...]:
        self.asked += 1
        if query == "break":
            raise RetrievalTrouble("timeout", "slow")
        return (FoundPassage(PASSAGES[self.asked % 3], 1 / 3),)[:count]


def test_what_was_recorded_comes_back_bit_for_bit_and_is_not_asked_again(tmp_path: Path) -> None:
    inner, path = Fickle(), tmp_path / "record.sqlite"
    with closing(Recorded(inner, path)) as record:
        first = record.search("mayor", 1)
        assert record.search("mayor", 1) == first and inner.asked == 1
        assert record.search("mayor", 2) != first, "another number is another question"
        with pytest.raises(RetrievalTrouble, match="slow"):
            record.search("break", 1)
        assert (record.num_asked, record.num_recalled) == (2, 1)
    with closing(Recorded(None, path)) as replay:
        assert replay.name == "fickle" and replay.search("mayor", 1) == first
        with pytest.raises(RetrievalTrouble, match="got the query 'break', which it does not hold") as found:
            replay.search("break", 1)
        assert found.value.kind == "not_recorded"
        with pytest.raises(UsageError, match="got no retriever to compare with"):
            replay.drift()


def test_drift_is_what_is_answered_otherwise_now(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    with closing(Recorded(Indexed(PASSAGES), path)) as record:
        record.search("mayor Rome", 1)
        record.search("seat Orbit", 1)
        assert record.drift() == []
    changed = Indexed((Passage(id="0", title="Rome", text="The mayor of Rome is Ivo."), *PASSAGES[1:]))
    changed.name = Indexed(PASSAGES).name
    with closing(Recorded(changed, path)) as record:
        assert record.drift() == ["mayor Rome"] and record.drift(most=0) == []


def test_a_record_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing there to replay"):
        Recorded(None, tmp_path / "no")
    (tmp_path / "text").write_text("this is no database, however long it is" * 100)
    with pytest.raises(StoreError, match="give a record, or a new file"):
        Recorded(None, tmp_path / "text")
    with closing(Recorded(Fickle(), tmp_path / "two")) as one:
        one.search("a", 1)
    with closing(Recorded(Indexed(PASSAGES), tmp_path / "two")) as other:
        other.search("mayor", 1)
    with pytest.raises(UsageError, match="got answers of 2 retrievers"):
        Recorded(None, tmp_path / "two")
    with closing(Recorded(None, tmp_path / "two", name="fickle")) as chosen:
        assert chosen.search("a", 1)[0].passage == PASSAGES[1]


ENDLESS = """
CREATE VIEW answers AS WITH RECURSIVE more(retriever, query, count, answer, seconds) AS (
    SELECT 'a', 'b', 1, '[]', 0.0 UNION ALL SELECT retriever, query, count + 1, answer, seconds FROM more
) SELECT * FROM more
"""


def test_a_record_of_others_is_read_as_data(tmp_path: Path) -> None:
    path = tmp_path / "view"
    with closing(sqlite3.connect(path)) as file:
        file.execute(ENDLESS)
    with pytest.raises(StoreError, match="views or triggers"):
        Recorded(None, path)


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [("[[", 0.0), ("7", 0.0), ('[["a", "b", "c"]]', 0.0), ('[["a", "b", 3, 1.0]]', 0.0), ("[" * 100_000, 0.0),
     ('[["a", "b", "c", 1e999]]', 0.0), ("[]", "long"), (b"\xff", 0.0), (None, 0.0)],
)  # fmt: skip
def test_what_a_record_of_others_holds_is_a_fault_of_the_record(
    tmp_path: Path, answer: object, seconds: object
) -> None:
    path = tmp_path / "record"
    with closing(Recorded(Fickle(), path)) as record:
        record.search("mayor \ud800", 1)
        assert record.search("mayor \ud800", 1)
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE answers SET answer = ?, seconds = ?", (answer, seconds))
        file.commit()
    with closing(Recorded(None, path)) as replay, pytest.raises(StoreError, match="cannot be read"):
        replay.search("mayor \ud800", 1)
