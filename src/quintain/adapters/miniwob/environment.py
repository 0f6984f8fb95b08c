"""MiniWoB++ (arXiv 1802.08802; package miniwob) in headless Chromium: small web tasks, told as a list of elements.

Pages, instructions and verdicts are the package's own; the pages are driven directly, so its Selenium is not needed.
The clock decides nothing. The reward does not fall with time, no page times out, and effects that would be animated
happen at once.
"""

import base64
import importlib.util
import re
import time
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

from quintain.adapters.miniwob.chromium import BrowserFault, Tab, close_browsers
from quintain.adapters.miniwob.experts import EXPERTS
from quintain.adapters.miniwob.page import Page, fields_of, page_of
from quintain.environments.extras import extra_module
from quintain.environments.protocol import Environment
from quintain.environments.splitting import is_eval
from quintain.errors import EnvironmentFault, UsageError, suggestion
from quintain.types import Action, Image, Observation, StepResult, Task, Text

WIDTH, HEIGHT = 160, 210
SEED_BITS = 31
MAX_DRAWS = 16
"""Pages drawn for a task before one of the other split is taken: some tasks have only one content."""
LOADED = "document.readyState === 'complete' && typeof core === 'object' && core.cover_div !== null"
LOOK = """new Promise(done => setTimeout(() => setTimeout(() => done({
  is_done: WOB_DONE_GLOBAL, reward: WOB_RAW_REWARD_GLOBAL, is_ready: WOB_TASK_READY,
  utterance: core.getUtterance(), dom: WOB_DONE_GLOBAL ? null : core.getDOMInfo()}), 0), 0))"""
START = """core.EPISODE_MAX_TIME = 1e9; if (window.jQuery) { jQuery.fx.off = true; }
core.endEpisode(0); Math.seedrandom(%d); core.startEpisodeReal(); """
MOUSE: dict[str, Any] = {"button": "left", "clickCount": 1}
KEYS = {
    "Enter": 13,
    "Tab": 9,
    "Backspace": 8,
    "Delete": 46,
    "Escape": 27,
    "Space": 32,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}
SHORTCUTS = {"Ctrl+a": "selectAll", "Ctrl+c": "copy", "Ctrl+v": "paste", "Ctrl+x": "cut"}
COMMANDS = re.compile(
    r"click (?P<click>\d+)|type (?P<type>\d+) (?P<text>.+)|press (?P<press>\S+)"
    r"|click at (?P<x>\d+) (?P<y>\d+)|drag (?P<from>\d+) to (?P<to>\d+)",
    re.DOTALL,
)


class MiniWoB(Environment):
    """Do what the first line asks on the web page whose elements follow, each with its number. Act: click NUMBER,
    type NUMBER TEXT, press KEY, click at X Y, or drag NUMBER to NUMBER."""

    tags: ClassVar[frozenset[str]] = frozenset({"perception", "planning"})
    parallel = 16

    def __new__(cls, task: str = "click-test-2", *, listed: bool = False, **_options: Any) -> Self:
        """Return an environment with an expert where the task has one, and with legal actions if `listed`."""
        kinds = {(True, True): SolvedListed, (True, False): Solved, (False, True): Listed}
        kind = kinds.get((task in EXPERTS, listed), cls) if cls is MiniWoB else cls
        return super().__new__(cast("type[Self]", kind))

    def __init__(  # pyright: ignore[reportInconsistentConstructor]
        self,
        task: str = "click-test-2",
        *,
        listed: bool = False,
        reward: Literal["binary", "raw"] = "binary",
        screenshot: bool = False,
        max_turns: int = 15,
        chromium: str = "",
    ) -> None:
        """Prepare `task`, such as ``login-user``; a tab is opened when the first episode starts.

        With `listed` the legal actions can be asked for: clicks, and what the instruction says to type.
        `reward` is 1 for a task done in full, or the page's own (-1 to 1, without its decay). With `screenshot`
        an observation carries the picture of the page. `chromium` is the browser's path.

        Raises:
            MissingExtra: miniwob or Chromium is not installed.
            UsageError: there is no such task, or an option does not fit.
        """
        self._pages = pages()
        known = sorted(path.stem for path in self._pages.glob("*.html"))
        if task not in known:
            near = suggestion(task, known)
            raise UsageError(f"MiniWoB++ task: got {task!r}; {near if len(near) < 80 else 'check its name'}")
        if reward not in ("binary", "raw") or max_turns < 1:
            raise UsageError(
                f"miniwob: got reward={reward!r}, max_turns={max_turns}; choose 'binary' or 'raw', and 1 or more"
            )
        self.name = f"miniwob/{task}"
        self.max_turns = max_turns
        self.return_range = (0.0, 1.0) if reward == "binary" else (-1.0, 1.0)
        self.is_listed = listed
        self._task, self._reward, self._screenshot, self._chromium = task, reward, screenshot, chromium
        self._tab: Tab | None = None
        self._page = Page(utterance="", elements=())

    def reset(self, task: Task) -> Observation:
        """Load the page anew and start the episode; equal content is in one split only, as far as there is more."""
        if self._tab is None or not self._tab.browser.is_alive:
            self.close()
            self._tab = Tab(width=WIDTH, height=HEIGHT, executable=self._chromium)
        self._load()
        key = (self._task, task.seed, task.split)
        if key not in _drawn:
            seed = attempt = 0
            for attempt in range(MAX_DRAWS):  # noqa: B007 (its last value is looked at)
                seed = task.rng.getrandbits(SEED_BITS)
                self._look(START % seed)
                if is_eval((self._task, self._page.content)) == (task.split == "eval"):
                    break
            _drawn[key] = seed
            if attempt:
                # What the pages before it left behind is gone.
                self._load()
                self._look(START % seed)
        else:
            self._look(START % _drawn[key])
        self._values = fields_of(self._pages.parent.parent, self._task, self._page.utterance)
        return self._show()

    def step(self, action: Action) -> StepResult:
        """Act on the page; a command that cannot be read, or names no element, changes nothing."""
        complaint = action.error or self._act(action.text.strip())
        if complaint:
            return StepResult(observation=f"Error: {complaint}\n{self._page.text}", is_valid=False)
        is_done, raw = self._look("")
        is_success = is_done and raw >= 1
        reward = float(is_success) if self._reward == "binary" else max(-1.0, min(1.0, raw)) * is_done
        return StepResult(
            observation=f"done, reward {reward:g}" if is_done else self._show(),
            reward=reward,
            is_terminated=is_done,
            is_success=is_success if is_done else None,
        )

    def close(self) -> None:
        """Close the tab."""
        tab, self._tab = self._tab, None
        if tab is not None:
            tab.close()

    def drain(self) -> None:
        """Close the browsers of this process."""
        close_browsers()

    def _load(self) -> None:
        """Load the page of the task.

        Raises:
            BrowserFault: it does not load.
        """
        assert self._tab is not None
        self._tab.call("Page.navigate", url=(self._pages / f"{self._task}.html").as_uri())
        for attempt in range(200):
            if self._tab.run(LOADED):
                return
            time.sleep(0.002 * min(attempt, 50))
        raise BrowserFault(f"page of {self.name}: got no START button; install miniwob again")

    def _look(self, script: str) -> tuple[bool, float]:
        """Run `script`, read the page, and return whether the episode is over and the page's verdict."""
        assert self._tab is not None
        if script:
            self._tab.run(f"{{ {script} }}")
        found = self._tab.run(LOOK)
        for _ in range(100):
            if found["is_ready"]:
                break
            time.sleep(0.02)
            found = self._tab.run(LOOK)
        if not found["is_done"]:
            self._page = page_of(found["utterance"], found["dom"])
        return bool(found["is_done"]), float(found["reward"] or 0.0)

    def _act(self, command: str) -> str:
        """Carry out `command`; return what is wrong with it, if anything is."""
        read = COMMANDS.fullmatch(command)
        if read is None:
            return "unknown command; write click 3, type 3 words, press Enter, click at 40 90 or drag 3 to 5"
        said = read.groupdict()
        known = {str(element.ref): element for element in self._page.elements if element.ref > 0}
        for name in ("click", "type", "from", "to"):
            if said[name] is not None and said[name] not in known:
                return f"there is no element {said[name]}"
        if said["press"] is not None and said["press"] not in {*KEYS, *SHORTCUTS}:
            return f"there is no key {said['press']}; press one of {', '.join([*KEYS, *SHORTCUTS])}"
        assert self._tab is not None
        if said["x"] is not None:
            self._mouse((int(said["x"]), int(said["y"])))
        elif said["press"] is not None:
            self._press(said["press"])
        elif said["from"] is not None:
            self._mouse(known[said["from"]].centre, known[said["to"]].centre)
        else:
            self._tab.run(f"core.elementClick({said['click'] or said['type']})")
            for sign in said["text"] or "":
                self._key(text=sign, key=sign)
        return ""

    def _mouse(self, start: tuple[float, float], end: tuple[float, float] | None = None) -> None:
        """Press at `start` and let go at `end`, or where it was pressed."""
        assert self._tab is not None
        for kind, (x, y) in (
            ("mouseMoved", start),
            ("mousePressed", start),
            *([("mouseMoved", end)] if end else []),
            ("mouseReleased", end or start),
        ):
            self._tab.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **MOUSE)

    def _press(self, name: str) -> None:
        """Press a key by name, or a shortcut."""
        if name in SHORTCUTS:
            self._key(key=name[-1], modifiers=2, commands=[SHORTCUTS[name]])
            return
        text = {"Enter": "\r", "Space": " "}.get(name)
        key = " " if name == "Space" else name
        self._key(key=key, windowsVirtualKeyCode=KEYS[name], **({"text": text} if text else {}))

    def _key(self, **facts: Any) -> None:
        """Press and release a key."""
        assert self._tab is not None
        self._tab.call("Input.dispatchKeyEvent", type="keyDown", **facts)
        facts.pop("text", None)
        facts.pop("commands", None)
        self._tab.call("Input.dispatchKeyEvent", type="keyUp", **facts)

    def _show(self) -> Observation:
        """Return the page as text, with its picture if that was asked for."""
        if not self._screenshot:
            return self._page.text
        assert self._tab is not None
        picture = self._tab.call("Page.captureScreenshot", format="png")["data"]
        return (
            Text(text=self._page.text),
            Image(data=base64.b64decode(picture), media_type="image/png"),
        )


class Listed(MiniWoB):
    """A task whose actions are listed."""

    is_variant = True

    def legal_actions(self) -> tuple[str, ...]:
        """Return a click for every element, and each field of the instruction typed into every text field.

        These are the package's own actions on elements and fields; other commands are accepted too.
        """
        clicks = [f"click {element.ref}" for element in self._page.elements if element.ref > 0]
        typed = [
            f"type {element.ref} {value}"
            for element in self._page.elements
            if element.is_text_field
            for value in self._values
        ]
        return (*clicks, *typed)


class Solved(MiniWoB):
    """A task with a scripted expert."""

    is_variant = True

    def expert_action(self) -> Action:
        """Return the next action of the expert, which reads the page as the agent does.

        Raises:
            EnvironmentFault: it finds no action on this page.
        """
        try:
            return Action(text=EXPERTS[self._task](self._page))
        except (LookupError, ValueError) as error:
            raise EnvironmentFault(
                f"expert of {self.name} has no action: got {type(error).__name__}: {error}; "
                "skip this episode's demonstration"
            ) from error


class SolvedListed(Solved, Listed):
    """A task with both."""

    is_variant = True


_drawn: dict[tuple[str, int, str], int] = {}
"""(task of the package, seed, split) → the page's seed: episodes of one group need one draw."""


def pages() -> Path:
    """Return the folder with the package's pages; the package itself is not imported, nor is its Selenium.

    Raises:
        MissingExtra: it is not installed.
    """
    found = importlib.util.find_spec("miniwob")
    if found is None or not found.submodule_search_locations:
        extra_module("miniwob", package="miniwob", extra="miniwob", feature="the environment miniwob")
        raise EnvironmentFault("package miniwob: got no folder of its own; install it again")
    return Path(found.submodule_search_locations[0]) / "html" / "miniwob"
