"""Labels in the viewer: they go where `quintain label` writes them, for whoever knows the key, from several at once."""

import http.client
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quintain.dashboard.viewer.server import view_app
from quintain.dashboard.viewer.viewed import Viewer
from quintain.data.labels import read_labels
from quintain.serve.listener import Listener

KEY = "k3y-that-nobody-guesses"


@pytest.fixture
def server(viewer: Viewer) -> Iterator[Listener]:
    made = Listener(view_app(viewer, KEY)).start()
    yield made
    made.close()


def ask(
    server: Listener, path: str, method: str = "GET", body: Any = None, **headers: str
) -> tuple[int, str, str]:
    """Return status, body and place of the answer."""
    connection = http.client.HTTPConnection(*server.address, timeout=20)
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(), answer.headers.get("Location", "")
    connection.close()
    return found


def begin(server: Listener, **asked: Any) -> Any:
    return json.loads(ask(server, f"/{KEY}/act/label", "POST", {"run": "one", **asked})[1])


def read_data(server: Listener) -> Any:
    return json.loads(ask(server, f"/{KEY}/api/data?run=one")[1])["labels"]


def test_answers_stand_in_the_file_of_quintain_label(server: Listener, runs: Path) -> None:
    """Of the six episodes of t/train/1 two say the same in five pairs of fifteen; 2 of the other ten are asked for."""
    place = f"/{KEY}/" + begin(server, labeller="ann", count=2)["address"]
    labels = read_labels(runs / "one" / "labels.jsonl")
    assert len(labels.queries) == 2 and begin(server, labeller="ann", count=99) == begin(
        server, labeller="ann"
    )
    assert len(read_labels(runs / "one" / "labels.jsonl").queries) == 10
    status, page, _ = ask(server, place)
    (query,) = re.findall(r'action="answer/(\w+)/first"', page)
    assert status == 200 and "0 of 10 answered by ann" in page and "#/data?run=one" in page
    assert ask(server, f"{place}answer/{query}/first", "POST")[::2] == (303, "../../")
    assert ask(server, f"{place}answer/{query}/second", "POST")[0] == 303, "the first answer stays"
    (label,) = read_labels(runs / "one" / "labels.jsonl").given
    assert (label.query, label.choice, label.labeller) == (query, "first", "ann")
    told = read_data(server)
    assert (told["queries"], told["num_given"]) == (10, 1)
    assert told["labellers"] == [{"name": "ann", "answered": 1}]
    assert ask(server, f"{place}answer/none/undo", "POST")[0] == 303
    assert read_data(server)["num_given"] == 0


def test_several_answer_at_once(server: Listener, runs: Path) -> None:
    """Two labellers in two pages each: every question is asked once, and answered once by each of them."""
    barrier = threading.Barrier(4)

    def answer(name: str) -> None:
        barrier.wait(20)
        place = f"/{KEY}/" + begin(server, labeller=name)["address"]
        for _ in range(10):
            for query in re.findall(r'action="answer/(\w+)/tie"', ask(server, place)[1]):
                if query != "none":
                    ask(server, f"{place}answer/{query}/tie", "POST")

    threads = [threading.Thread(target=answer, args=(name,)) for name in ("ann", "bob", "ann", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    lines = [json.loads(line) for line in (runs / "one" / "labels.jsonl").read_text().splitlines()]
    asked = [line["query"] for line in lines if "choice" not in line]
    said = [(line["query"], line["labeller"]) for line in lines if "choice" in line]
    assert len(asked) == len(set(asked)) == 10
    assert sorted(said) == sorted((query, name) for query in asked for name in ("ann", "bob"))
    (agreement,) = read_data(server)["agreements"]
    assert (agreement["share"], agreement["num"]) == (1.0, 10)


def test_nobody_without_the_key_says_anything(server: Listener, runs: Path) -> None:
    assert begin(server, labeller="ann")["address"] == "label/one/ann/"
    query = next(iter(read_labels(runs / "one" / "labels.jsonl").queries))
    before = (runs / "one" / "labels.jsonl").read_bytes()
    assert ask(server, "/other/label/one/ann/")[0] == 404
    for path, headers, status in (
        ("/other/label/one/ann", {}, 404),
        (f"/{KEY}/label/one/ann", {"Origin": "http://evil.example"}, 403),
        (f"/{KEY}/label/one/ann", {"Host": "evil.example"}, 421),
        (f"/{KEY}/label/none/ann", {}, 409),
    ):
        assert ask(server, f"{path}/answer/{query}/first", "POST", **headers)[0] == status
    assert ask(server, "/other/act/label", "POST", {"run": "one", "labeller": "eve"})[0] == 401
    assert ask(server, f"/{KEY}/label/one/ann/answer/{query}/first")[0] == 405, "a link answers nothing"
    assert (runs / "one" / "labels.jsonl").read_bytes() == before


def test_what_cannot_be_asked(server: Listener, runs: Path) -> None:
    for name in ("", "a/b", "..", "x" * 61, "<b>"):
        assert begin(server, labeller=name)["error"].startswith("labeller: got ")
    assert begin(server, labeller="ann", count=-1)["error"].startswith("questions: got -1 of 'episode'")
    assert begin(server, labeller="ann", level="word")["error"].startswith("questions: got 0 of 'word'")
    assert not (runs / "one" / "labels.jsonl").exists()
    (runs / "one" / "labels.jsonl").mkdir()
    assert "labels.jsonl" in begin(server, labeller="ann")["error"], "no file can be written there"
