"""The customer played by a language model behind any OpenAI-compatible endpoint.

Each message has one deadline for all attempts; what is worth repeating (no connection, 429, 5xx, an unreadable
answer) is repeated, the rest is not. The one rule: an endpoint that fails is the engine's fault and raises
`UserFault`, so that the episode becomes a `Failure` and never a score.
"""

import http.client
import json
import time
import urllib.error
import urllib.request
from typing import Any, cast
from urllib.parse import urlsplit

from quintain.environments.tools import OwnedFault
from quintain.errors import UsageError
from quintain.processes.http_json import key_in
from quintain.worlds.desk.case import Case
from quintain.worlds.desk.user import OTHERS, STOP, WISHES, Dialogue, Speech

ATTEMPTS = 3
PAUSE = 0.2
"""Seconds before the second attempt; doubled before each further one."""
MOST_BYTES = 1 << 20
LONGEST_REPLY = 2000
"""Characters of a reply that are kept."""
GREETING: Speech = ("agent", "Hello, how can I help?")
"""What the desk is taken to have said before the customer's first words."""
RULES = (
    "You play a customer who talks to a help desk. Say one short sentence at a time. Say only what you are asked "
    "for, and nothing that is not in your role. Do not invent anything. When the desk says that all is done, "
    f"answers your question or refuses for good, answer with {STOP} and nothing after it. Your role: "
)


class UserFault(OwnedFault):
    """The endpoint that plays the user did not give a usable reply."""

    owner = "engine"

    @classmethod
    def of(cls, kind: str, url: str, got: str) -> "UserFault":
        """Return the fault of the endpoint at `url`; `kind` is for counting."""
        fault = cls(f"simulated user at {url}: got {got}; check the endpoint, or use user=scripted")
        fault.kind = f"user_{kind}"
        return fault


class _StaysThere(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would carry the key to whatever host an answer names."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        """Return no request, so that the redirect is an error by its status."""


class EndpointUser:
    """Asks ``POST {url}/chat/completions``: ``EndpointUser("http://127.0.0.1:8000/v1", model="qwen")``."""

    def __init__(self, url: str, *, model: str, key_file: str = "", deadline: float = 20.0) -> None:
        """Prepare to ask; nothing is sent yet. The key is the first line of `key_file`.

        Raises:
            UsageError: `url` is no http(s) URL, the key cannot be read, or the deadline is not positive.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f"desk: got user={url!r}; give scripted, or a base URL such as http://127.0.0.1:8000/v1"
            )
        if not 0 < deadline < float("inf"):
            raise UsageError(f"desk: got user_deadline={deadline}; give a positive number of seconds")
        self.url, self.model, self.deadline = url.rstrip("/"), model, deadline
        self._headers = {"Content-Type": "application/json"}
        if key_file:
            self._headers["Authorization"] = f"Bearer {key_in(key_file, asked='desk: got user_key_file=')}"
        # Proxies come from environment variables, which only the command line reads.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _StaysThere())

    def opening(self, case: Case) -> str:
        """See `User.opening`."""
        return self._ask(case, ())

    def reply(self, case: Case, dialogue: Dialogue) -> str:
        """See `User.reply`."""
        return self._ask(case, dialogue)

    def _ask(self, case: Case, dialogue: Dialogue) -> str:
        """Return the model's reply.

        Raises:
            UserFault: there was none before the deadline.
        """
        body = json.dumps(
            {"model": self.model, "messages": messages(case, dialogue), "temperature": 0, "max_tokens": 100}
        ).encode()
        ends = time.monotonic() + self.deadline
        fault = UserFault.of("timeout", self.url, f"no reply within {self.deadline:g} s")
        for attempt in range(ATTEMPTS):
            try:
                return self._attempt(body, ends)
            except UserFault as error:
                if error.kind == "user_refused":
                    raise
                fault = error
            pause = PAUSE * 2**attempt
            if attempt + 1 == ATTEMPTS or time.monotonic() + pause >= ends:
                break
            time.sleep(pause)
        raise fault

    def _attempt(self, body: bytes, ends: float) -> str:
        """Ask once and return the reply."""
        request = urllib.request.Request(
            f"{self.url}/chat/completions", data=body, headers=self._headers, method="POST"
        )
        try:
            return _content(self._read(request, ends))
        except urllib.error.HTTPError as error:
            error.close()
            kind = "unavailable" if error.code == 429 or error.code >= 500 else "refused"
            raise UserFault.of(kind, self.url, f"HTTP status {error.code}") from error
        except TimeoutError as error:
            raise UserFault.of("timeout", self.url, f"no reply within {self.deadline:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.URLError) and isinstance(error.reason, TimeoutError):
                raise UserFault.of("timeout", self.url, f"no reply within {self.deadline:g} s") from error
            raise UserFault.of("unreachable", self.url, f"{type(error).__name__}: {error}") from error
        except (ValueError, LookupError, TypeError) as error:
            raise UserFault.of("malformed", self.url, f"an answer without a message ({error})") from error

    def _read(self, request: urllib.request.Request, ends: float) -> bytes:
        """Return the body of the answer to `request`; a server that trickles does not outlast the deadline."""
        left = ends - time.monotonic()
        if left <= 0:
            raise TimeoutError
        chunks: list[bytes] = []
        with self._opener.open(request, timeout=left) as response:
            while chunk := response.read1(1 << 16):
                chunks.append(chunk)
                if time.monotonic() >= ends:
                    raise TimeoutError
                if sum(map(len, chunks)) > MOST_BYTES:
                    raise ValueError(f"more than {MOST_BYTES} bytes")
        return b"".join(chunks)


def messages(case: Case, dialogue: Dialogue) -> list[dict[str, str]]:
    """Return the chat as the model that plays the user sees it: the desk is its user."""
    roles = {"agent": "user", "user": "assistant"}
    talk = [{"role": roles[speaker], "content": text} for speaker, text in (GREETING, *dialogue)]
    return [{"role": "system", "content": RULES + role_text(case)}, *talk]


def role_text(case: Case) -> str:
    """Return the hidden role of the customer, in words."""
    if case.kind == "other":
        return f"You are {case.name}. {OTHERS[case.window * case.order % len(OTHERS)]}"
    order = f"the {case.item}" if case.is_vague else f"order {case.order}"
    role = f'You are {case.name}. "{WISHES[case.kind][0]}" It is about {order}.'
    if case.value:
        role += f" You want: {case.first_value}."
        if case.first_value != case.value:
            role += f" When you are asked to confirm, you want {case.value} instead."
    return role + (" When you are refused, insist once." if case.is_pushy else "")


def _content(body: bytes) -> str:
    """Return the reply in an answer of the endpoint."""
    answer = cast("dict[str, Any]", json.loads(body))
    content = answer["choices"][0]["message"]["content"]
    if not isinstance(content, str) or not content.strip():
        raise ValueError("no text")
    return content.strip()[:LONGEST_REPLY]
