"""The viewer over HTTP: who may ask, what comes back, and that nothing is written."""

import hashlib
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.build import make_episode, make_turn

from quintain.dashboard.viewer.server import view_app
from quintain.dashboard.viewer.viewed import Viewer
from quintain.errors import StoreError, UsageError
from quintain.serve.listener import Listener
from quintain.store import Run

KEY = "k3y-that-nobody-guesses"


@pytest.fixture
def server(viewer: Viewer) -> Iterator[Listener]:
    made = Listener(view_app(viewer, KEY)).start()
    yield made
    made.close()


def ask(
    server: Listener, path: str, method: str = "GET", body: str = "", **headers: str
) -> tuple[int, str, dict[str, str]]:
    """Return status, body and headers of the answer."""
    connection = http.client.HTTPConnection(*server.address, timeout=20)
    connection.request(method, path, body.encode() or None, headers=headers)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(), dict(answer.headers)
    connection.close()
    return found


def find(server: Listener, what: str) -> Any:
    status, text, _ = ask(server, f"/{KEY}/api/{what}")
    assert status == 200, text
    return json.loads(text)


def test_pages_and_files_under_a_strict_policy(server: Listener) -> None:
    status, page, headers = ask(server, f"/{KEY}/")
    policy = headers["content-security-policy"]
    assert status == 200 and "front/app.js" in page
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    for file, kind in (("app.js", "text/javascript"), ("viewer.css", "text/css"), ("icon.svg", "image/svg")):
        status, _, headers = ask(server, f"/{KEY}/front/{file}")
        assert status == 200 and headers["content-type"].startswith(kind)
    for odd in ("..%2fserver.py", "%2e%2e/server.py", "index.html", "nothing.js"):
        assert ask(server, f"/{KEY}/front/{odd}")[0] == 404


def test_who_does_not_know_the_key_sees_nothing(server: Listener) -> None:
    for path in ("", "front/app.js", "api/runs", "api/live?runs=one", "report/one"):
        assert ask(server, f"/other/{path}")[0] == 401
    assert ask(server, "/other/act/begin", "POST", "{}")[0] == 401
    assert ask(server, f"/{KEY}/", Host="evil.example")[0] == 421
    assert ask(server, f"/{KEY}/act/begin", "POST", "{}", Origin="http://evil.example")[0] == 403
    assert ask(server, f"/{KEY}/api/runs", "POST", "{}")[0] == 405


def test_answers_are_json_whose_texts_are_spelled_out(server: Listener) -> None:
    assert {run["name"] for run in find(server, "runs")["runs"]} == {"one", "two"}
    text = json.dumps(find(server, "run?run=one"), ensure_ascii=False)
    assert "\u202e" not in text and "\\\\u202e" in text, "what turns the direction is seen"
    for odd in (
        "run?run=nobody",
        "episodes?run=one&sort=x",
        "episode?run=one&id=zz",
        "episode?run=one&id=a&first=x",
    ):
        status, text, _ = ask(server, f"/{KEY}/api/{odd}")
        assert status == 400 and json.loads(text)["error"], odd
    assert ask(server, f"/{KEY}/api/nothing")[0] == 404


def test_what_is_sent_must_be_an_object_of_some_size(server: Listener) -> None:
    assert ask(server, f"/{KEY}/act/begin", "POST", "[")[0] == 400
    assert ask(server, f"/{KEY}/act/begin", "POST", "[" * 100_000)[0] == 400
    assert ask(server, f"/{KEY}/act/begin", "POST", "[1]")[0] == 400
    assert ask(server, f"/{KEY}/act/begin", "POST", '"' + "x" * (1 << 20) + '"')[0] == 413
    assert ask(server, f"/{KEY}/act/go", "POST", '{"session": "gone"}')[0] == 400
    assert ask(server, f"/{KEY}/act/nothing", "POST", "{}")[0] == 404


def test_the_page_for_browsers_without_scripts(server: Listener) -> None:
    status, page, _ = ask(server, f"/{KEY}/report/one")
    assert status == 200 and "script-src" not in page and "<script" not in page and "entropy fell" in page
    assert ask(server, f"/{KEY}/report/nobody")[0] == 404


@pytest.mark.slow
def test_a_stream_says_when_there_is_more(server: Listener, runs: Path) -> None:
    with Run.create(runs / "live", recipe="r", config={"steps": 9}) as run:
        connection = http.client.HTTPConnection(*server.address, timeout=20)
        connection.request("GET", f"/{KEY}/api/live?runs=live")
        answer = connection.getresponse()

        def hear() -> Any:
            while not (line := answer.readline()).startswith(b"data: "):
                assert line
            return json.loads(line[6:])["live"]

        assert (hear()["trajectories"], find(server, "now?run=live")["status"]) == (0, "running")
        run.append([make_episode(make_turn((1,), shows="x"))], step=1)
        assert hear()["trajectories"] == 1
        assert find(server, "now?run=live")["collected"] == {"train": 1}
        run.commit(1, {"train/success": 1.0})
        while hear()["steps"] != 1:
            pass
        connection.close()


def test_nothing_is_written_to_the_runs(server: Listener, viewer: Viewer, runs: Path) -> None:
    def digests() -> dict[str, str]:
        files = [
            file
            for file in sorted(runs.rglob("*"))
            if file.is_file() and not file.name.endswith(("-shm", "-wal"))
        ]
        return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

    before = digests()
    ids = [row["id"] for row in find(server, "episodes?run=one")["episodes"]]
    for what in (
        "run?run=one",
        "metrics?run=one&names=train/loss",
        "facets?run=one",
        f"episode?run=one&id={ids[0]}",
        "data?run=one",
        "compare?run=one&with=two",
    ):
        find(server, what)
    while viewer.get("one").read_on():
        pass
    assert digests() == before


def test_others_reach_it_with_a_key_alone(viewer: Viewer) -> None:
    everywhere = ".".join("0000")
    with pytest.raises(UsageError, match="--token-file"):
        Listener(view_app(viewer, KEY), host=everywhere)
    Listener(view_app(viewer, KEY), host=everywhere, asks_key=True).close()


def test_a_run_that_cannot_be_read_says_so(runs: Path) -> None:
    (runs / "one" / "config.json").write_text("{")
    with pytest.raises(StoreError, match="broken"):
        Viewer(runs / "one", cache=None)
    beside = Viewer(runs, cache=None)
    assert {info.name: info.status == "damaged" for info in beside.list_runs()} == {"one": True, "two": False}
    with pytest.raises(StoreError):
        beside.get("one")
    beside.close()
