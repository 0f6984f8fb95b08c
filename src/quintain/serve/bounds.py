"""What a request at the endpoint may hold, and how long it may take to arrive; more is refused at once.

Bytes are bounded by what the model's context can hold, since nothing longer could be answered. Messages, tools and
schemas are bounded in number and size, because each of them costs more than its bytes: a message is compared with what
was recorded, a tool is written into the prompt, a schema is compiled.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any, cast

from starlette.datastructures import Headers
from starlette.types import Receive

from quintain.serve.chat_types import RequestError, Row
from quintain.types.json_text import load_json

MIN_BODY_BYTES, MAX_BODY_BYTES = 1 << 20, 64 << 20
BYTES_OF_A_TOKEN = 64
"""Bytes of a body for each token that a context can hold: generous, since blanks and escapes are many to a token."""
MAX_HELD_BYTES = 256 << 20
"""Bytes of bodies that are being read at once."""
BODY_SECONDS = 60.0
"""How long a body may take to arrive."""
MAX_TOOLS = 512
MAX_STOPS = 64
MAX_GRAMMAR_BYTES = 1 << 17
"""The longest grammar, as text: one of this length takes about a second to compile."""
LISTS = {"messages": 0, "input": 0, "tools": MAX_TOOLS, "stop": MAX_STOPS, "stop_sequences": MAX_STOPS}
"""Lists in a body and how long they may be; 0: as many as a context has tokens, since each costs one at least."""


def most_bytes(max_length: int) -> int:
    """Return how long a body may be for a model that reads `max_length` tokens."""
    return min(MAX_BODY_BYTES, MIN_BODY_BYTES + BYTES_OF_A_TOKEN * max_length)


class Bodies:
    """Reads the bodies of requests to a model that reads `max_length` tokens: ``await Bodies(4096).read(…)``."""

    def __init__(self, max_length: int) -> None:
        """Hold nothing yet."""
        self.most = most_bytes(max_length)
        self._num_held = 0
        self._lock = threading.Lock()

    async def read(self, headers: Headers, receive: Receive) -> bytes:
        """Return the body of a request.

        Raises:
            RequestError: it is too long, takes too long, breaks off, or too many are being read.
        """
        length = headers.get("Content-Length", "0")
        if len(length) > 20 or (length.isdigit() and int(length) > self.most):
            raise self._too_long()
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RequestError(400, "the body did not arrive")
                    parts.append(cast(bytes, message.get("body", b"")))
                    size += len(parts[-1])
                    self._hold(len(parts[-1]))
                    if size > self.most:
                        raise self._too_long()
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise RequestError(408, f"the body did not arrive within {BODY_SECONDS:g} s") from None
        finally:
            self._hold(-size, is_free=True)

    def _hold(self, num_bytes: int, *, is_free: bool = False) -> None:
        """Count bytes that are held.

        Raises:
            RequestError: there are too many.
        """
        with self._lock:
            self._num_held += num_bytes
            if not is_free and self._num_held > MAX_HELD_BYTES:
                raise RequestError(
                    503, "bodies of requests: got too many long ones at once; ask again", "overloaded"
                )

    def _too_long(self) -> RequestError:
        return RequestError(
            413, f"body: got more than {self.most} bytes, which is more than the model can read; send less"
        )


def read_object(raw: bytes) -> Row:
    """Return the object that a body is.

    Raises:
        RequestError: it is none.
    """
    try:
        found: object = load_json(raw)
    except ValueError:
        raise RequestError(400, "body: got no JSON; send a JSON object") from None
    if not isinstance(found, dict):
        raise RequestError(400, "body: got no JSON object; send one")
    return cast(Row, found)


def check_lists(body: Mapping[str, Any], max_length: int) -> None:
    """Refuse a body with more messages, tools or texts that end an answer than can be answered.

    Raises:
        RequestError: there are too many.
    """
    for name, most in LISTS.items():
        found = body.get(name)
        limit = most or max_length
        if isinstance(found, list) and len(cast("list[Any]", found)) > limit:
            raise RequestError(400, f"{name}: got {len(cast('list[Any]', found))}; give at most {limit}")


def check_grammar_size(what: str, text: str) -> None:
    """Refuse the grammar `text` of `what` where it would take long to compile.

    Raises:
        RequestError: it is too long.
    """
    if len(text) > MAX_GRAMMAR_BYTES:
        raise RequestError(
            400,
            f"{what}: got {len(text)} letters of schemas; give at most {MAX_GRAMMAR_BYTES}, or fewer tools",
        )
