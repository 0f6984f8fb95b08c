"""One client for chat endpoints that play a part: teachers, judges, simulated users.

It asks ``POST {url}/chat/completions`` with retries and a deadline, keeps to a budget, and may keep a tape: a file of
JSON lines with each question and its answer. What the tape holds is not asked again, so a run that is repeated or
resumed hears the same words; replayed, nothing is asked at all. Keys are never written.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from quintain.errors import DataError, UsageError
from quintain.processes.http_json import HttpServer, HttpTrouble, checked_url

MAX_BYTES = 4 << 20
ADVICE = "give a base URL such as http://127.0.0.1:8000/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a client may ask for, and has: ``Spending(calls=100, tokens=50_000)``; None is no limit."""

    calls: int | None = None
    tokens: int | None = None
    """Tokens of questions and answers, as the endpoint counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What an endpoint said: ``Reply(text="yes", tokens=12)``."""

    text: str
    tokens: int = 0
    """of question and answer, as the endpoint counts them; 0 where it does not"""


class ChatClient:
    """Asks a model behind an endpoint: ``ChatClient("http://127.0.0.1:8000/v1", model="qwen").ask(messages)``.

    Args:
        url: what the paths of the endpoint begin with.
        model: its name there.
        key: sent as a bearer token to this host alone, and kept nowhere else; see `processes.http_json.key_in`.
        deadline: seconds of a question with all its attempts.
        budget: asking goes on until it is spent; what a tape holds costs nothing.
        tape: file of questions and answers, made if it is not there.
        replays: whether only the tape is read, and nothing is asked.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str,
        key: str = "",
        deadline: float = 60.0,
        budget: Spending | None = None,
        tape: str | Path = "",
        replays: bool = False,
    ) -> None:
        """Read the tape; nothing is sent yet.

        Raises:
            UsageError: `url` is no http(s) URL, the deadline is not positive, or there is no tape to replay.
            DataError: the tape is broken.
        """
        self.model, self.budget = model, budget or Spending()
        self.num_calls = self.num_tokens = self.num_replayed = 0
        self._lock = threading.Lock()
        url = checked_url(url, is_whole=True, asked="chat endpoint: got ", advice=ADVICE)
        self._server = HttpServer(url, deadline=deadline, key=key, max_bytes=MAX_BYTES)
        self.url = self._server.url
        self._tape = Path(tape) if tape else None
        self._replays = replays
        if replays and (self._tape is None or not self._tape.is_file()):
            raise UsageError(
                f"tape of {self.url}: got {str(tape)!r}, which is no file; record one before it is replayed"
            )
        self._known = {} if self._tape is None else read_tape(self._tape)
        if self._tape is not None and not replays:
            drop_broken_end(self._tape)

    def ask(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        temperature: float = 0.0,
        max_tokens: int = 100,
        number: int = 0,
    ) -> str:
        """Return what the model says after `messages`; `number` tells equal questions apart that want their own answer.

        Raises:
            HttpTrouble: there was no answer before the deadline, none on the tape that is replayed, or the budget is
                spent (kind ``refused``).
            DataError: the tape cannot be written.
        """
        body = {
            "model": self.model,
            "messages": [dict(message) for message in messages],
            "temperature": temperature,
            "max_tokens": max_tokens,
        }
        name = question_name(body, number)
        with self._lock:
            found = self._known.get(name)
            if found is not None:
                self.num_replayed += 1
                return found.text
            if self._replays:
                raise HttpTrouble("refused", f"a question that the tape {self._tape} does not hold")
            self._check_budget()
            self.num_calls += 1
        reply = self._server.ask("POST", "/chat/completions", body, read=read_reply)
        with self._lock:
            self.num_tokens += reply.tokens
            self._keep(name, body, number, reply)
        return reply.text

    def close(self) -> None:
        """Give up whoever waits between two attempts."""
        self._server.close()

    def _check_budget(self) -> None:
        for what, spent, most in (
            ("calls", self.num_calls, self.budget.calls),
            ("tokens", self.num_tokens, self.budget.tokens),
        ):
            if most is not None and spent >= most:
                raise HttpTrouble("refused", f"a budget of {most} {what}, which are spent; raise it")

    def _keep(self, name: str, body: Mapping[str, Any], number: int, reply: Reply) -> None:
        """Put a question and its answer on the tape."""
        if self._tape is None:
            return
        self._known[name] = reply
        row = {"name": name, "number": number, **body, "text": reply.text, "tokens": reply.tokens}
        try:
            with open(self._tape, "a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=True) + "\n")
        except OSError as error:
            raise DataError(
                f"tape {self._tape}: got {error.strerror}; name a file that can be written"
            ) from error


def question_name(body: Mapping[str, Any], number: int) -> str:
    """Return 32 hexadecimal digits that equal questions have in common."""
    text = json.dumps([body, number], sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def read_reply(answer: Any) -> Reply:
    """Return the reply in an answer of an endpoint; raises what `HttpServer.ask` takes for an answer to be repeated."""
    content = answer["choices"][0]["message"]["content"]
    if not isinstance(content, str) or not content.strip():
        raise ValueError("no text")
    usage = answer.get("usage") or {}
    return Reply(text=content.strip(), tokens=int(usage.get("total_tokens") or 0))


def drop_broken_end(path: Path) -> None:
    """Take away the last line of the tape at `path` where it broke off, so that the next one can be written.

    Raises:
        DataError: it cannot be written.
    """
    whole = path.read_bytes() if path.exists() else b""
    kept = whole[: whole.rfind(b"\n") + 1]
    if kept == whole:
        return
    try:
        path.write_bytes(kept)
    except OSError as error:
        raise DataError(f"tape {path}: got {error.strerror}; name a file that can be written") from error


def read_tape(path: Path) -> dict[str, Reply]:
    """Return the answers on the tape at `path` by the names of their questions; a last line that broke off is left out.

    Raises:
        DataError: it cannot be read.
    """
    if not path.exists():
        return {}
    found: dict[str, Reply] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        for line in lines:
            if not line.endswith("\n"):
                break
            row = cast("dict[str, Any]", json.loads(line))
            found[str(row["name"])] = Reply(text=str(row["text"]), tokens=int(row["tokens"]))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"tape {path}: got {type(error).__name__}: {error}; name another file") from error
    return found
