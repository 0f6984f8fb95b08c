"""JSON over HTTP to a server that may be slow, down or broken: one deadline for all attempts, faults with a kind.

What is worth repeating (no connection, 429, 5xx, an answer that cannot be read) is repeated with growing pauses, the
rest is not. A key goes to the host that was named and nowhere else: redirects, proxies and cookies are not followed,
used or kept, and of the environment nothing is read but the variables that a person names as ``${NAME}``.
"""

import functools
import json
import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit

from quintain.errors import UsageError

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")
Kind = Literal["unavailable", "refused", "timeout", "unreachable", "malformed"]
ATTEMPTS = 3
PAUSE = 0.2
"""Seconds before the second attempt; doubled before each further one."""
MAX_BYTES = 4 << 20
VARIABLE = re.compile(r"\$\{(\w*)\}")
"""How a header names the variable of the environment that holds a secret."""
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
UNREADABLE = (ValueError, LookupError, TypeError, RecursionError, OverflowError)
"""What reading an answer may raise when it is not what it should be."""


class HttpTrouble(Exception):
    """A server did not give a usable answer: ``HttpTrouble("unavailable", "HTTP status 503")``."""

    def __init__(self, kind: Kind, got: str, status: int = 0) -> None:
        """Hold what kind of trouble it is, for counting, what came, for people, and the HTTP status if any came."""
        super().__init__(kind, got, status)
        self.kind: Kind = kind
        self.got = got
        self.status = status


class HttpServer:
    """A server that is asked: ``HttpServer("http://127.0.0.1:8000", deadline=20.0).ask("POST", "/step", {})``."""

    def __init__(
        self,
        url: str,
        *,
        deadline: float,
        key: str = "",
        headers: Mapping[str, str] | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """Prepare to ask; nothing is sent yet. A `key` is sent as a bearer token; answers have at most `max_bytes`.

        `headers` are sent with every request, and may replace that of the key; see `check_headers`.

        Raises:
            UsageError: `url` is no http(s) URL, or the deadline is not positive.
        """
        self.url, self.deadline = check_url(url), check_deadline(deadline)
        self._max_bytes = max_bytes
        self._client = make_client(self.url, key)
        self._client.headers.update(headers or {})
        self._closed = threading.Event()

    def ask(
        self,
        method: Literal["GET", "POST"],
        path: str = "",
        body: Mapping[str, Any] | None = None,
        *,
        read: Callable[[Any], T],
        attempts: int = ATTEMPTS,
        once: str = "",
    ) -> T:
        """Send `body` and return what `read` makes of the JSON that comes back.

        `read` raises one of `UNREADABLE` on an answer that is not what it should be. A request that must not be
        carried out twice has one attempt, or a key `once` by which the server knows its attempts as one request.

        Raises:
            HttpTrouble: no attempt before the deadline gave a usable answer.
        """
        ends = time.monotonic() + self.deadline
        trouble = HttpTrouble("timeout", f"no answer within {self.deadline:g} s")
        data = None if body is None else json.dumps(body).encode()
        headers = {"Idempotency-Key": once} if once else {}
        request = self._client.build_request(method, self.url + path, content=data, headers=headers)
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

    def _attempt(self, request: "httpx2.Request", ends: float, read: Callable[[Any], T]) -> T:
        """Ask once and return what `read` makes of the answer."""
        from httpx2 import TimeoutException, TransportError

        try:
            return read(json.loads(self._answer(request, ends)))
        except (TimeoutError, TimeoutException) as error:
            raise HttpTrouble("timeout", f"no answer within {self.deadline:g} s") from error
        except TransportError as error:
            raise HttpTrouble("unreachable", f"{type(error).__name__}: {error}") from error
        except UNREADABLE as error:
            raise HttpTrouble(
                "malformed", f"an answer that cannot be read ({type(error).__name__}: {error})"
            ) from error

    def _answer(self, request: "httpx2.Request", ends: float) -> bytes:
        """Return the body of the answer to `request`; a server that trickles does not outlast the deadline."""
        left = ends - time.monotonic()
        if left <= 0:
            raise TimeoutError
        request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), left)
        body = bytearray()
        response = self._client.send(request, stream=True)
        try:
            if not response.is_success:
                code = response.status_code
                kind = "unavailable" if code == 429 or code >= 500 else "refused"
                raise HttpTrouble(kind, f"HTTP status {code}", code)
            for chunk in response.iter_raw():
                body += chunk
                if time.monotonic() >= ends:
                    raise TimeoutError
                if len(body) > self._max_bytes:
                    raise ValueError(f"more than {self._max_bytes} bytes")
        finally:
            response.close()
        return bytes(body)


def make_client(url: str, key: str) -> "httpx2.Client":
    """Return a client for the server at `url` alone; it keeps no connection, so it need not be closed.

    A connection that is kept may be closed by the server at the moment when it is used again; a request that must
    not be sent twice could then not be told from one that was lost.

    Raises:
        UsageError: there can be no such host.
    """
    import httpx2  # it takes a fifth of a second, and most worlds ask no server

    try:
        httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise UsageError(
            f"address of a server: got {url!r} ({error}); write it as http://127.0.0.1:8000"
        ) from error
    return httpx2.Client(**client_options(url, key))


def client_options(url: str, key: str) -> dict[str, Any]:
    """Return how a client of httpx is made that asks the server at `url` alone, with `key` as a bearer token."""
    import httpx2

    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "quintain"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    return {
        "headers": headers,
        "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=())),
        "verify": certificates(url),
        "trust_env": False,
        "follow_redirects": False,
        "limits": httpx2.Limits(max_keepalive_connections=0),
    }


def certificates(url: str) -> ssl.SSLContext | bool:
    """Return what the server at `url` is verified with: nothing where there is no TLS, which is never turned to."""
    return load_certificates() if url.lower().startswith("https:") else False


@functools.cache
def load_certificates() -> ssl.SSLContext:
    """Return the certificates that this machine trusts; reading them takes a tenth of a second."""
    return ssl.create_default_context()


def check_url(
    url: str,
    *,
    is_whole: bool = False,
    asked: str = "address of a server: got ",
    advice: str = "write it as http://127.0.0.1:8000",
) -> str:
    """Return `url` without a slash at its end; unless it must be whole, ``host:port`` is http.

    Raises:
        UsageError: it is no http(s) URL; the message opens with `asked` and ends with `advice`.
    """
    whole = url if is_whole or "://" in url else f"http://{url}"
    try:
        parts = urlsplit(whole)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good:
        raise UsageError(f"{asked}{url!r}; {advice}")
    return whole.rstrip("/")


def check_deadline(seconds: float) -> float:
    """Return `seconds`.

    Raises:
        UsageError: they are not a positive, finite number.
    """
    if not 0 < seconds < float("inf"):
        raise UsageError(f"deadline of a server: got {seconds}; give a positive number of seconds")
    return seconds


def check_headers(given: Mapping[str, object], *, asked: str) -> dict[str, str]:
    """Return the headers `given`, with ``${NAME}`` replaced by that variable of the environment; `asked` opens errors.

    Example: ``{"Authorization": "Bearer ${SHOP_KEY}"}``. What the variable holds stands in no message.

    Raises:
        UsageError: a name or a value can be no header's, or a variable is not set.
    """
    found: dict[str, str] = {}
    for name, written in given.items():
        if not HEADER_NAME.fullmatch(name) or not isinstance(written, str):
            raise UsageError(
                f'{asked}the header {name!r:.40}; write it as {{"Authorization": "Bearer ${{KEY}}"}}'
            )
        value = written
        for variable in VARIABLE.findall(written):
            secret = os.environ.get(variable, "").strip()  # noqa: TID251 - a person names it, in a file of theirs
            if not secret:
                raise UsageError(
                    f"{asked}${{{variable}}} in the header {name}, which is not set; export {variable}=…"
                )
            value = value.replace(f"${{{variable}}}", secret)
        if not value.isascii() or not value.isprintable():
            raise UsageError(f"{asked}the header {name}, whose value is no line of ASCII; mend it")
        found[name] = value
    return found


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
    if not words[0].isascii():
        raise UsageError(f"{asked}{path!r}, whose first word is not ASCII; write the key into it")
    return words[0]
