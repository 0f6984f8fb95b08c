"""A headless Chromium that is shared by a whole process: one browser, a tab for each environment.

It is spoken to in its own protocol (Chrome DevTools, https://chromedevtools.github.io/devtools-protocol) through two
pipes: nothing listens on a port, and a browser whose process is gone ends by itself. Every call has a deadline, and
what was started is counted and closed.
"""

import atexit
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quintain.environments.extras import extra_program
from quintain.environments.tools import OwnedFault

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    "--disable-backgrounding-occluded-windows",
    "--allow-file-access-from-files",
    "--hide-scrollbars",
    "--mute-audio",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--remote-debugging-pipe",
)
TIMEOUT = 30.0
"""Seconds that a call may take."""
IDLE = 30.0
"""Seconds after which a browser without tabs is closed."""
LONGEST_READ = 1 << 20
NO_DIALOGS = "window.alert = () => {}; window.confirm = () => true; window.prompt = () => '';"
"""A dialog would stop its page for ever."""
PREFIX = "quintain-chromium-"
SCRIPT = 'TMPDIR="$0"; export TMPDIR; exec "$@" 3<&0 4>&1 0</dev/null 1>/dev/null'
"""Hands the pipes over as the file descriptors that Chromium speaks on, and keeps its files in one folder."""


class BrowserFault(OwnedFault):
    """Chromium ended, did not answer in time, or refused a call."""

    kind = "browser"


@dataclass(slots=True)
class _Call:
    """A call that was sent, and its answer when it is there."""

    done: threading.Event = field(default_factory=threading.Event)
    answer: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Browser:
    """A running Chromium with a profile folder of its own.

    Raises:
        MissingExtra: there is none on this machine.
        BrowserFault: it does not start.
    """

    def __init__(self, executable: str = "") -> None:
        """Start `executable`, or the Chromium that is on the path."""
        program = executable or extra_program(
            NAMES, package="chromium", feature="an environment in a browser"
        )
        self.folder = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")
        self.owner = os.getpid()
        self.tabs: set[str] = set()
        self._idle_since = time.monotonic()
        self._calls: dict[int, _Call] = {}
        self._lock = threading.Lock()
        self._last = 0
        self._is_closed = self._has_ended = False
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, self.folder, program, *FLAGS, f"--user-data-dir={self.folder}/profile"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="quintain-chromium", daemon=True)
        self._reader.start()
        try:
            self.version = str(self.call("Browser.getVersion")["product"])
        except BrowserFault:
            self.close()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether it can be spoken to, from this process."""
        return not self._is_closed and not self._has_ended and self.owner == os.getpid()

    def call(self, method: str, session: str = "", /, **arguments: Any) -> Mapping[str, Any]:
        """Return the answer to `method`; `session` names a tab.

        Raises:
            BrowserFault: there is no answer, or it is an error.
        """
        call = _Call()
        with self._lock:
            self._last += 1
            number = self._last
            self._calls[number] = call
            message: dict[str, Any] = {"id": number, "method": method, "params": arguments}
            if session:
                message["sessionId"] = session
            try:
                self._write(json.dumps(message).encode() + b"\0")
            except OSError as error:
                self._calls.pop(number, None)
                raise BrowserFault(
                    f"Chromium, asked for {method}: got {error}; it has ended, start again"
                ) from error
        try:
            if not self.is_alive or not call.done.wait(TIMEOUT):
                state = f"no answer within {TIMEOUT:g} s" if self.is_alive else "the end of its process"
                raise BrowserFault(f"Chromium, asked for {method}: got {state}; start again")
        finally:
            self._calls.pop(number, None)
        if "result" not in call.answer:
            reason = call.answer.get("error", {}).get("message", "the end of its process")
            raise BrowserFault(f"Chromium, asked for {method}: got {reason}; start again")
        return call.answer["result"]

    def close(self) -> None:
        """End it with all its processes, and remove its profile; may be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        if self.owner != os.getpid():
            return
        # The whole group at once: it has nothing to save.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        if threading.current_thread() is not self._reader:
            self._reader.join(TIMEOUT)
        self.process.stdout.close()
        _remove(Path(self.folder))

    def add_tab(self, tab: str) -> None:
        """Count `tab` as open."""
        self.tabs.add(tab)

    def drop_tab(self, tab: str) -> None:
        """Count `tab` as closed."""
        self.tabs.discard(tab)
        self._idle_since = time.monotonic()

    def _write(self, data: bytes) -> None:
        """Send `data` whole; a browser that does not read any more must not keep us."""
        assert self.process.stdin is not None
        pipe, deadline = self.process.stdin.fileno(), time.monotonic() + TIMEOUT
        while data:
            _, ready, _ = select.select([], [pipe], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise OSError(f"a full pipe for {TIMEOUT:g} s")
            data = data[os.write(pipe, data[: select.PIPE_BUF]) :]

    def _read(self) -> None:
        """Hand answers to those who wait for them until the pipe ends or nobody has needed it for a while."""
        assert self.process.stdout is not None
        pipe, rest = self.process.stdout.fileno(), b""
        while not self._is_closed:
            ready, _, _ = select.select([pipe], [], [], 1.0)
            if not ready:
                if not self.tabs and not self._calls and time.monotonic() - self._idle_since > IDLE:
                    _dismiss(self)
                continue
            data = os.read(pipe, LONGEST_READ)
            if not data:
                break
            *messages, rest = (rest + data).split(b"\0")
            for message in messages:
                self._take(json.loads(message))
        self._has_ended = True
        for call in tuple(self._calls.values()):
            call.done.set()

    def _take(self, message: Mapping[str, Any]) -> None:
        """Give an answer to the call it belongs to; what the browser tells unasked is not needed."""
        call = self._calls.get(message.get("id", 0))
        if call is not None:
            call.answer = message
            call.done.set()


class Tab:
    """A page of the shared browser: ``Tab(width=160, height=210)``.

    Raises:
        MissingExtra: there is no Chromium.
        BrowserFault: it does not start.
    """

    def __init__(self, *, width: int, height: int, executable: str = "", prelude: str = "") -> None:
        """Open a page; `prelude` is JavaScript that runs first in whatever is loaded."""
        self.browser = share_browser(executable)
        self._target = str(self.browser.call("Target.createTarget", url="about:blank")["targetId"])
        self.browser.add_tab(self._target)
        attached = self.browser.call("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = str(attached["sessionId"])
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call("Page.addScriptToEvaluateOnNewDocument", source=NO_DIALOGS + prelude)

    def call(self, method: str, /, **arguments: Any) -> Mapping[str, Any]:
        """Return the answer to `method` in this tab."""
        return self.browser.call(method, self._session, **arguments)

    def run(self, script: str) -> Any:
        """Return the value of the JavaScript expression `script`; a promise is waited for.

        Raises:
            BrowserFault: it raised.
        """
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            reason = details.get("exception", {}).get("description") or details.get("text", "an exception")
            raise BrowserFault(
                f"JavaScript in Chromium: got {' '.join(str(reason).split())[:200]}; report this"
            )
        return answer["result"].get("value")

    def close(self) -> None:
        """Close the page; what is left of it is gone when the browser is."""
        if self._target in self.browser.tabs:
            self.browser.drop_tab(self._target)
            if self.browser.is_alive:
                with contextlib.suppress(BrowserFault):
                    self.browser.call("Target.closeTarget", targetId=self._target)


_shared: dict[str, Browser] = {}
_starting = threading.Lock()


def share_browser(executable: str = "") -> Browser:
    """Return the browser of this process, started if there is none."""
    with _starting:
        found = _shared.get(executable)
        if found is None or not found.is_alive:
            if found is not None:
                found.close()
            _sweep()
            found = _shared[executable] = Browser(executable)
        return found


def close_browsers() -> None:
    """Close every browser of this process."""
    with _starting:
        while _shared:
            _shared.popitem()[1].close()


def _dismiss(browser: Browser) -> None:
    """Close `browser` unless a tab was opened meanwhile."""
    if _starting.acquire(blocking=False):
        try:
            if not browser.tabs:
                browser.close()
        finally:
            _starting.release()


def _sweep() -> None:
    """Remove the profiles that processes left behind which were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = folder.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and Path("/proc/self").exists():
            _remove(folder)


def _remove(folder: Path) -> None:
    """Remove `folder`, which a dying process may still write into."""
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.05)


atexit.register(close_browsers)
