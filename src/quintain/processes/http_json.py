"""JSON over HTTP to a server that may be slow, down or broken: one deadline for all attempts, faults with a kind.

What is worth repeating (no connection, 429, 5xx, an answer that cannot be read) is repeated with growing pauses, the
rest is not. The one rule: a key goes to the host that was named and nowhere else, so no redirect and no proxy is
followed.
"""

import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from quintain.errors import UsageError

T = TypeVar("T")
Kind = Literal["unavailable", "refused", "timeout", "unreachable", "malformed"]
ATTEMPTS = 3
PAUSE = 0.2
"""Seconds before the second attempt; doubled before each further one."""
MOST_BYTES = 4 << 20
UNREADABLE = (ValueError, LookupError, TypeError)
"""What reading an answer may raise when it is not what it should be."""


class HttpTrouble(Exception):
    """A server did not give a usable answer: ``HttpTrouble("unavailable", "HTTP status 503")``."""

    def __init__(self, kind: Kind, got: str, status: int = 0) -> None:
        """Hold what kind of trouble it is, for counting, what came, for people, and the HTTP status if any came."""
        super().__init__(kind, got, status)
        self.kind: Kind = kind
        self.got = got
        self.status = status


class StaysThere(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would carry the key to whatever host an answer names."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        """Return no request, so that the redirect is an error by its status."""


class HttpServer:
    """A server that is asked: ``HttpServer("http://127.0.0.1:8000", deadline=20.0).ask("POST", "/step", {})``."""

    def __init__(self, url: str, *, deadline: float, key: str = "") -> None:
        """Prepare to ask; nothing is sent yet. A `key` is sent as a bearer token.

        Raises:
            UsageError: `url` is no http(s) URL, or the deadline is not positive.
        """
        self.url, self.deadline = checked_url(url), checked_deadline(deadline)
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        # Proxies come from environment variables, which only the command line reads.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), StaysThere())
        self._closed = threading.Event()

    def ask(
        self,
        method: Literal["GET", "POST"],
        path: str = "",
        body: Mapping[str, Any] | None = None,
        *,
        read: Callable[[Any], T],
        attempts: int = ATTEMPTS,
    ) -> T:
        """Send `body` and return what `read` makes of the JSON that comes back.

        `read` raises one of `UNREADABLE` on an answer that is not what it should be. A request that must not be
        carried out twice has one attempt.

        Raises:
            HttpTrouble: no attempt before the deadline gave a usable answer.
        """
        ends = time.monotonic() + self.deadline
        trouble = HttpTrouble("timeout", f"no answer within {self.deadline:g} s")
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=self._headers, method=method)
        for attempt in range(attempts):
            try:
                return self._attempt(request, ends, read)
            except HttpTrouble as found:
                if found.kind == "refused":
                    raise
                trouble = found
            pause = PAUSE * 2**attempt
            if attempt + 1 == attempts or time.monotonic() + pause >= ends or self._closed.wait(pause):
                break
        raise trouble

    def close(self) -> None:
        """Give up whoever waits between two attempts."""
        self._closed.set()

    def _attempt(self, request: urllib.request.Request, ends: float, read: Callable[[Any], T]) -> T:
        """Ask once and return what `read` makes of the answer."""
        late = f"no answer within {self.deadline:g} s"
        try:
            return read(json.loads(self._answer(request, ends)))
        except urllib.error.HTTPError as error:
            error.close()
            kind = "unavailable" if error.code == 429 or error.code >= 500 else "refused"
            raise HttpTrouble(kind, f"HTTP status {error.code}", error.code) from error
        except TimeoutError as error:
            raise HttpTrouble("timeout", late) from error
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.URLError) and isinstance(error.reason, TimeoutError):
                raise HttpTrouble("timeout", late) from error
            raise HttpTrouble("unreachable", f"{type(error).__name__}: {error}") from error
        except UNREADABLE as error:
            raise HttpTrouble(
                "malformed", f"an answer that cannot be read ({type(error).__name__}: {error})"
            ) from error

    def _answer(self, request: urllib.request.Request, ends: float) -> bytes:
        """Return the body of the answer to `request`; a server that trickles does not outlast the deadline."""
        left = ends - time.monotonic()
        if left <= 0:
            raise TimeoutError
        chunks: list[bytes] = []
        num_bytes = 0
        with self._opener.open(request, timeout=left) as response:
            while chunk := response.read1(1 << 16):
                chunks.append(chunk)
                num_bytes += len(chunk)
                if time.monotonic() >= ends:
                    raise TimeoutError
                if num_bytes > MOST_BYTES:
                    raise ValueError(f"more than {MOST_BYTES} bytes")
        return b"".join(chunks)


def checked_url(url: str) -> str:
    """Return `url` without a slash at its end; ``host:port`` is http.

    Raises:
        UsageError: it is no http(s) URL.
    """
    whole = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(whole)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good:
        raise UsageError(f"address of a server: got {url!r}; write it as http://127.0.0.1:8000")
    return whole.rstrip("/")


def checked_deadline(seconds: float) -> float:
    """Return `seconds`.

    Raises:
        UsageError: they are not a positive, finite number.
    """
    if not 0 < seconds < float("inf"):
        raise UsageError(f"deadline of a server: got {seconds}; give a positive number of seconds")
    return seconds


def key_in(path: str, *, asked: str = "key file: got ") -> str:
    """Return the first word in the file at `path`; nothing where no file is named. `asked` opens its errors.

    Raises:
        UsageError: it cannot be read, or is empty.
    """
    if not path:
        return ""
    try:
        words = Path(path).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{asked}{path!r} ({error}); give a readable text file") from error
    if not words:
        raise UsageError(f"{asked}{path!r}, which is empty; write the key into it")
    return words[0]
