"""The page over HTTP, and in a browser."""

import http.client
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.learning.test_labelling import query

from quintain.adapters.miniwob import chromium
from quintain.dashboard.label_server import label_app
from quintain.data.labels import read_labels
from quintain.learning.labelling import Session
from quintain.serve.listener import Listener

KEY = "k3y"


@pytest.fixture
def session(tmp_path: Path) -> Session:
    made = Session(tmp_path / "labels.jsonl", "ann")
    made.ask([query("a", "b"), query("c", "<img src=x onerror=\"document.title='pwned'\">")])
    return made


@pytest.fixture
def server(session: Session) -> Iterator[Listener]:
    made = Listener(label_app(session, KEY)).start()
    yield made
    made.close()


def ask(server: Listener, path: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
    """Return status, body and place of the answer."""
    connection = http.client.HTTPConnection(*server.address, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(), answer.headers.get("Location", "")
    connection.close()
    return found


def test_answers_come_by_forms(server: Listener, session: Session) -> None:
    first, second = session.labels.queries
    status, page, _ = ask(server, f"/{KEY}/")
    assert status == 200 and f'action="answer/{first}/first"' in page
    assert ask(server, f"/{KEY}/answer/{first}/second", "POST")[::2] == (303, "../../")
    assert f'action="answer/{second}/tie"' in ask(server, f"/{KEY}/")[1]
    assert ask(server, f"/{KEY}/answer/none/undo", "POST")[0] == 303
    assert session.labels.given == ()
    status, told, _ = ask(server, f"/{KEY}/answer/nobody/tie", "POST")
    assert status == 409 and "reload it" in told


def test_nobody_else_sees_or_says_anything(server: Listener, session: Session) -> None:
    (first, _) = session.labels.queries
    assert ask(server, "/other/")[0] == 404
    assert ask(server, f"/other/answer/{first}/first", "POST")[0] == 404
    assert ask(server, f"/{KEY}/answer/{first}/best", "POST")[0] == 404
    assert ask(server, f"/{KEY}/answer/{first}/first", "GET")[0] == 405
    assert ask(server, f"/{KEY}/", Host="evil.example")[0] == 421
    assert ask(server, f"/{KEY}/answer/{first}/first", "POST", Origin="http://evil.example")[0] == 403
    assert session.labels.given == ()


@pytest.mark.slow
@pytest.mark.real("starlette", "serve", program="chromium")
def test_keys_in_a_browser(server: Listener, session: Session) -> None:
    tab = chromium.Tab(width=1000, height=700)
    try:
        tab.call("Page.navigate", url=f"{server.url}/{KEY}/")
        for number, key in enumerate("1=u2"):
            title = f"{(0, 1, 2, 1)[number]} of 2"
            wait(tab, f"document.title.includes({title!r}) && document.readyState === 'complete'")
            for kind in ("keyDown", "keyUp"):
                tab.call("Input.dispatchKeyEvent", type=kind, key=key, text=key if kind == "keyDown" else "")
        wait(tab, "document.title.includes('2 of 2')")
        assert "pwned" not in str(tab.run("document.title"))
    finally:
        tab.close()
        chromium.close_browsers()
    assert [label.choice for label in read_labels(session.file).given] == ["first", "second"]


def wait(tab: chromium.Tab, condition: str) -> None:
    """Return when `condition` holds in the page."""
    deadline = time.monotonic() + 30
    while not tab.run(condition):
        assert time.monotonic() < deadline, f"{condition}: {tab.run('document.documentElement.outerHTML')}"
        time.sleep(0.02)
