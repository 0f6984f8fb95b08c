"""The pages in a real Chromium: each shows what it is for, follows a run, and runs nothing that a run says."""

import json
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.build import make_episode, make_turn
from tests.dashboard.viewer.test_trees import play as play_search

from quintain.adapters.miniwob import chromium
from quintain.dashboard.viewer.server import view_app
from quintain.dashboard.viewer.viewed import Viewer
from quintain.data.labels import read_labels
from quintain.serve.listener import Listener
from quintain.store import Run

pytestmark = [pytest.mark.slow, pytest.mark.real("starlette", "serve", program="chromium")]
KEY = "k3y-that-nobody-guesses"
AXE = "4.14.1"
SECONDS = 60.0
WATCH = """
window.faults = [];
addEventListener("error", (event) => faults.push(String(event.message)));
addEventListener("unhandledrejection", (event) => faults.push(String(event.reason)));
addEventListener("securitypolicyviolation", (event) => faults.push(`policy ${event.violatedDirective}`));
"""

WIDE = """
document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("main *")].filter(
    (each) => each.getBoundingClientRect().right > innerWidth && !each.closest(".scroll")
).map((each) => `${each.tagName}.${each.className}`)
"""
"""What reaches beyond the right edge of the window, where anything does."""


class Page:
    """A tab at the viewer: ``Page(listener)``; every page that it leaves must have been without a fault."""

    def __init__(self, server: Listener, *, width: int = 1280, height: int = 900) -> None:
        self.server, self.tab = server, chromium.Tab(width=width, height=height)
        self.tab.call("Page.enable")
        self.tab.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)

    def open(self, address: str, condition: str = "true") -> None:
        self.tab.call("Page.navigate", url="about:blank")
        self.tab.call("Page.navigate", url=f"{self.server.url}/{KEY}/#/{address}")
        self.wait(f"document.querySelector('main .page') && ({condition})")

    def wait(self, condition: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < deadline, (
                f"{condition}: {self.run('document.body?.innerText')} {self.faults}"
            )
            time.sleep(0.05)

    def run(self, script: str) -> Any:
        return self.tab.run(script)

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if kind == "keyDown" and len(key) == 1 else {}
            self.tab.call("Input.dispatchKeyEvent", type=kind, key=key, **text)

    @property
    def text(self) -> str:
        return str(self.run("document.querySelector('main').innerText"))

    @property
    def faults(self) -> list[str]:
        return list(self.run("window.faults ?? []"))


@pytest.fixture
def server(viewer: Viewer, read_all: Callable[[Viewer, str], None]) -> Iterator[Listener]:
    viewer.get("one").decode()
    read_all(viewer, "one")
    made = Listener(view_app(viewer.start(), KEY)).start()
    yield made
    made.close()


@pytest.fixture
def page(server: Listener) -> Iterator[Page]:
    made = Page(server)
    yield made
    made.tab.close()
    chromium.close_browsers()


def first_id(viewer: Viewer, **asked: str) -> str:
    from quintain.dashboard.viewer.payloads import list_episodes

    return list_episodes(viewer.get("one"), {"limit": "1", **asked})["episodes"][0]["id"]


def pages_of(viewer: Viewer) -> dict[str, tuple[str, str]]:
    """Each page with hostile text in it → its address, and what shows that it is there."""
    odd = first_id(viewer, group="0:odd")
    plain = first_id(viewer, task="t/train/1", step="2", outcome="solved")
    branch = first_id(viewer, group="1:branch")
    return {
        "overview": (
            "overview?run=one",
            "document.querySelectorAll('.chart svg').length > 2 && document.querySelector('.options')",
        ),
        "overlaid": (
            "overview?run=one&with=two&axis=tokens",
            "document.querySelector('.legend').innerText.match('two')",
        ),
        "episodes": ("episodes?run=one", "document.querySelectorAll('tbody tr').length === 18"),
        "tokens": (f"episode?run=one&id={plain}", "document.querySelectorAll('.t').length > 5"),
        "hostile": (f"episode?run=one&id={odd}", "document.querySelector('.given img')"),
        "raw": (f"episode?run=one&id={plain}&view=tokens", "document.querySelector('details.given')"),
        "group": (f"group?run=one&id={plain}", "document.querySelectorAll('.member-card').length === 2"),
        "data": ("data?run=one", "document.querySelectorAll('.member-card').length === 2"),
        "compare": ("compare?run=one&with=two", "document.querySelector('.interval')"),
        "replay": (f"replay?run=one&id={plain}", "document.querySelector('.world').innerText"),
        "branches": (f"episode?run=one&id={branch}", "document.querySelector('.tree .node')"),
    }


def test_every_page_is_there_and_runs_nothing_that_a_run_says(page: Page, viewer: Viewer) -> None:
    for name, (address, condition) in pages_of(viewer).items():
        page.open(address, condition)
        assert "pwned" not in page.run("document.title"), name
        assert (
            page.run("document.querySelectorAll('main script, main img[onerror], main [onclick]').length")
            == 0
        )
        assert page.faults == [], name
        assert page.run(WIDE) == [], name
    page.open(pages_of(viewer)["hostile"][0], pages_of(viewer)["hostile"][1])
    assert "<img src=x" in page.text and "\\u202e" in page.text, "it is shown as text"


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_narrow_and_dark(page: Page, viewer: Viewer, width: int, dark: bool) -> None:
    page.tab.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False
    )
    scheme = "dark" if dark else "light"
    page.tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    for name, (address, condition) in pages_of(viewer).items():
        page.open(address, condition)
        assert page.run(WIDE) == [], name
        assert page.faults == [], name
        light = page.run(
            "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((part) => part > 128)"
        )
        assert light is not dark, name


def test_who_worked_and_who_waited(page: Page) -> None:
    """Of the time of its steps the engine worked 75 %, environments 10 % and the learner 25 %, in part at once."""
    page.open("overview?run=one", "document.querySelectorAll('.strip').length === 4")
    said = "[...document.querySelectorAll('.strip')].map((each) => each.innerText.replaceAll('\\n', ' '))"
    assert page.run(said) == ["engine 75 %", "environments 10 %", "learner 25 %", "nobody 0 %"]


def test_filters_keys_and_addresses(page: Page, viewer: Viewer) -> None:
    page.open("episodes?run=one")
    page.press("/")
    page.wait("document.activeElement.id === 'f-words'")
    page.run(
        "document.activeElement.value = 'blue'; document.activeElement.dispatchEvent(new Event('change'))"
    )
    page.wait("document.querySelectorAll('tbody tr').length === 4")
    assert "words=blue" in page.run("location.hash"), "the address can be shared"
    page.run("document.activeElement.blur()")
    page.press("j")
    page.press("j")
    page.press("Enter")
    page.wait("location.hash.startsWith('#/episode?') && document.querySelector('.t')")
    page.press("ArrowRight")
    page.press("ArrowRight")
    page.wait("document.querySelector('.inspector').innerText.includes('2 of 2')")
    before = page.run("location.hash")
    page.press("p")
    page.wait(f"location.hash !== {json.dumps(before)}")
    page.press("o")
    page.wait("document.querySelector('nav a[aria-current]').innerText === 'Overview'")


def test_tokens_are_coloured_by_what_is_asked_for(page: Page, viewer: Viewer) -> None:
    plain = first_id(viewer, task="t/train/1", step="2", outcome="solved")
    page.open(f"episode?run=one&id={plain}&colour=advantage", "document.querySelectorAll('.t').length > 5")
    classes = "[...document.querySelectorAll('.sampled .t')].map((each) => each.className.trim())"
    assert page.run(classes) == ["t d8", "t d8", "t d0", "t d0", "t d0"]
    page.run("document.querySelector('[data-colour=ratio]').click()")
    assert page.run(classes) == ["t", "t flag", "t", "t", "t flag"], "e^0.4 and e^-1 are beyond 0.8 to 1.2"
    page.run("document.querySelector('[data-colour=mask]').click()")
    assert page.run(classes)[3] == "t" and page.run(classes)[0] == "t flag"
    page.run("document.querySelectorAll('.sampled .t')[1].click()")
    said = page.run("document.querySelector('.inspector').innerText")
    assert "advantage\t1.000" in said and "clipped\tyes" in said


def test_a_page_follows_a_trainer_while_two_look(server: Listener, page: Page, runs: Path) -> None:
    other = Page(server)
    with Run.create(runs / "live", recipe="grpo", config={"steps": 3, "tasks": 1, "group_size": 1}) as run:
        run.commit(0, {"eval/success": 0.1})
        time.sleep(3.1)  # until the list of runs is read anew
        page.open("overview?run=live", "document.querySelector('.now').innerText.includes('step 0 of 3')")
        other.open("episodes?run=live", "document.getElementById('total')")

        def train() -> None:
            for step in (1, 2, 3):
                run.append([make_episode(make_turn((1,), shows="x"))], step=step)
                run.commit(step, {"train/success": step / 3, "time/step": 1.0})
                time.sleep(0.5)

        trainer = threading.Thread(target=train)
        trainer.start()
        page.wait("document.querySelector('.now').innerText.includes('step 3 of 3')")
        other.wait("document.getElementById('total').innerText.endsWith('of 3')")
        trainer.join(60)
        assert "running" in page.run("document.getElementById('state').innerText")
        run.finish("done")
    page.run("0")
    page.open("overview?run=live", "document.getElementById('state').innerText.includes('done')")
    assert page.faults == [] and other.faults == []
    other.tab.close()


def test_a_page_is_saved_as_one_file_without_scripts(page: Page, tmp_path: Path) -> None:
    page.open("overview?run=one", "document.querySelectorAll('.chart svg').length > 2")
    text = page.run(f"import('{page.server.url}/{KEY}/front/save.js').then((found) => found.save('x'))")
    file = tmp_path / "saved.html"
    file.write_text(text, encoding="utf-8")
    assert "<script" not in text and "default-src 'none'" in text
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    page.tab.call("Page.navigate", url=file.as_uri())
    page.wait("document.querySelectorAll('.chart svg .curve').length > 2")
    assert page.run("getComputedStyle(document.querySelector('.chart')).borderRadius") == "8px"
    assert "pwned" not in page.run("document.title")


def test_trees_are_drawn(page: Page, viewer: Viewer, runs: Path) -> None:
    """A search, whose nodes lead to their turns, and the episodes that were played on from each other."""
    with Run.create(runs / "searched", recipe="collect", config={"agent": "searched?size=3+text"}) as run:
        (name,) = run.append([play_search("ccbgf", by="best", size=3, steps=20)], step=0)
        run.finish("done")
    time.sleep(3.1)  # until the list of runs is read anew
    page.open(f"episode?run=searched&id={name}", "document.querySelectorAll('.tree .node').length === 5")
    chosen = (
        "[...document.querySelectorAll('.tree .node.chosen text:first-of-type')].map((e) => e.textContent)"
    )
    assert page.run(chosen) == ["start", "c", "✓ f"]
    assert page.run("document.querySelectorAll('.edge.chosen').length") == 2
    click = "new MouseEvent('click', {bubbles: true, cancelable: true})"
    page.run(f"document.querySelectorAll('.tree .node')[4].dispatchEvent({click})")
    assert "#/episode" in page.run("location.hash") and page.faults == []
    branch = first_id(viewer, group="1:branch", step="1")
    page.open(f"episode?run=one&id={branch}", "document.querySelectorAll('.tree .node').length === 3")
    assert page.run("document.querySelectorAll('.tree .node.chosen').length") == 2 and page.faults == []


def test_a_person_compares_two_episodes(page: Page, runs: Path) -> None:
    """From the Data page to the page of `quintain label` and back; what a run says runs nothing there, either."""
    page.open("data?run=one", "document.getElementById('labeller')")
    page.run(
        "document.getElementById('labeller').value = 'ann'; document.querySelector('form.filters button').click()"
    )
    page.wait("location.pathname.endsWith('/label/one/ann/') && document.querySelector('[data-key=\"1\"]')")
    assert page.faults == [] and page.run("document.querySelectorAll('td h2').length") == 2
    page.press("1")
    page.wait("document.title.includes('1 of ')")
    page.run("document.querySelector('a[href*=data]').click()")
    page.wait("document.querySelector('.page.data') && document.body.innerText.includes('ann answered 1.')")
    (label,) = read_labels(runs / "one" / "labels.jsonl").given
    assert (label.choice, label.labeller, page.faults) == ("first", "ann", [])


def test_a_person_takes_over_from_a_turn(runs: Path, tmp_path: Path) -> None:
    """Of a real episode of the game of guessing: the world shows what was recorded, then answers a person."""
    folder = runs / "guessed"
    with Run.create(folder, recipe="grpo", config={"environment": "guess"}) as run:
        name = run.append([play_guess()], step=1)[0]
    viewer = Viewer(folder, cache=None).start()
    server = Listener(view_app(viewer, KEY)).start()
    page = Page(server)
    try:
        page.open(f"replay?run=guessed&id={name}", "document.querySelector('.world .given')")
        page.press("ArrowRight")
        page.wait("document.querySelector('.world').innerText.includes('before turn 2 of 2')")
        assert "turn=1" in page.run("location.hash"), "the address can be shared"
        assert any(word in page.text for word in ("higher", "lower"))
        page.run(
            "document.querySelector('.tool input').value = '3'; document.querySelector('.tool button').click()"
        )
        page.wait("document.querySelector('.own')?.innerText.includes('guess({\"number\":3})')")
        page.run(
            "document.getElementById('policy').value = 'nobody@3'; document.getElementById('one-turn').click()"
        )
        page.wait("document.querySelector('.world .problem')?.innerText.includes(\"run: got 'nobody'\")")
        assert page.faults == []
    finally:
        page.tab.close()
        chromium.close_browsers()
        server.close()
        viewer.close()


def play_guess() -> Any:
    """Return an episode of two guesses, both wrong."""
    from contextlib import closing

    from quintain.environments.catalog import find
    from quintain.environments.protocol import advance, begin
    from quintain.types import Action, Score, Stop, ToolCall, as_content

    with closing(find("guess")()) as world:
        task = world.task("train", 0)
        seen, turns = begin(world, task), []
        for number in (1, 2):
            action = Action(
                text=f"{number}", tool_calls=(ToolCall(name="guess", arguments={"number": number}),)
            )
            turns.append(make_turn((1,), shows=as_content(seen), action=action))
            result = advance(world, action)
            assert result.reward == 0, "the number is another"
            seen = result.observation
    lost = Score(value=0.0, is_success=False)
    return make_episode(*turns, task=task, outcome=lost, stop=Stop.CUT, final_observation=as_content(seen))


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program of axe-core, which is fetched from npm; the test is skipped where that does not come."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed, and axe-core is a package of npm")
    folder = tmp_path_factory.mktemp("axe")
    command = ["npm", "pack", "--silent", f"axe-core@{AXE}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        pytest.skip(f"axe-core could not be fetched: {done.stderr.strip()[-200:]}")
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        file = archive.extractfile("package/axe.min.js")
        assert file is not None
        return file.read().decode()


@pytest.mark.templates
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page: Page, viewer: Viewer, axe: str, scheme: str) -> None:
    page.tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    ask = "axe.run(document, {resultTypes: ['violations']}).then((found) => JSON.stringify(found.violations))"
    for name, (address, condition) in pages_of(viewer).items():
        page.open(address, condition)
        page.run(f"{axe};0")
        found = [(each["id"], each["nodes"][0]["html"][:200]) for each in json.loads(page.run(ask))]
        assert found == [], name
