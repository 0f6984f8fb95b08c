"""One client for chat endpoints that play a part: teachers, judges, simulated users.

It asks ``POST {url}/chat/completions`` within a deadline, with retries that have one ``Idempotency-Key``, keeps to a
budget, and may keep a tape: a file of JSON lines with each question and its answer. What the tape holds is not asked
again, nor what is being asked, so a run that is repeated or resumed hears the same words; replayed, nothing is asked at
all. Keys are never written.
"""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from quintain.config.fields import Option
from quintain.config.ranges import NonNegativeFloat, NonNegativeInt
from quintain.config.spec import options_from, read_options, split_query
from quintain.errors import DataError, UsageError
from quintain.processes.http_json import HttpServer, HttpTrouble, check_headers, check_url, key_in
from quintain.types import NOTHING, ToolCall
from quintain.types.json_text import load_json

T = TypeVar("T")
AT_ONCE = 16
"""Questions that are asked at the same time."""
MAX_BYTES = 4 << 20
ADVICE = "give a base URL such as http://127.0.0.1:8000/v1"
DEADLINE = 60.0
OPTIONS = options_from(
    {
        "model": str,
        "key_file": str,
        "key_env": str,
        "tape": str,
        "replays": bool,
        "calls": NonNegativeInt,
        "tokens": NonNegativeInt,
        "deadline": NonNegativeFloat,
        "temperature": NonNegativeFloat,
    }
)
"""What may stand after the question mark of a `ChatSpec`."""


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
    """empty where it only calls tools"""
    tokens: int = 0
    """of question and answer, as the endpoint counts them; 0 where it does not"""
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSpec:
    """A chat endpoint in one text: ``http://127.0.0.1:8000/v1?model=qwen&key_env=KEY&tape=t.jsonl&calls=1000``.

    Options: ``model`` (its name there), ``key_file`` or ``key_env`` (the variable of the environment that holds the
    key), ``tape``, ``replays=1``, ``calls`` and ``tokens`` (the budget), ``deadline``, ``temperature``. A key itself
    never stands in it, because it is written into runs.
    """

    url: str
    options: Mapping[str, Any]
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """options of whoever uses the endpoint"""
    folder: Path = Path()
    """where the files are that it names"""
    temperature: float = 0.0

    @classmethod
    def read(
        cls, text: str, *, asked: str, more: Mapping[str, Option] = NOTHING, folder: Path | None = None
    ) -> ChatSpec:
        """Return the endpoint that `text` is; `asked` opens errors, `more` are further options that it may have.

        Raises:
            UsageError: it is none, an option is unknown, or has a value that it cannot have.
        """
        place, _, query = text.partition("?")
        url = check_url(
            place, is_whole=True, asked=f"{asked}: got ", advice="give http://127.0.0.1:8000/v1?model=NAME"
        )
        if "@" in urlsplit(url).netloc:
            raise UsageError(
                f"{asked}: got a URL with a name and password; give key_file=FILE or key_env=NAME"
            )
        whose = f"{asked} {place!r}"
        known = {**OPTIONS, **more}
        found = read_options(split_query(query, whose), known, whose)
        if not found.get("model"):
            raise UsageError(f"{asked}: got {place!r} without a model; add ?model=NAME, its name there")
        if "key_file" in found and "key_env" in found:
            raise UsageError(f"{asked}: got key_file and key_env; give one of them")
        own = {name: value for name, value in found.items() if name in OPTIONS}
        return cls(
            url=url,
            options=own,
            more={name: value for name, value in found.items() if name in more},
            folder=folder or Path(),
            temperature=found.get("temperature", 0.0),
        )

    @property
    def has_answers(self) -> bool:
        """Whether a tape holds answers of it, so that it may never be asked."""
        tape = self.folder / self.options.get("tape", "")
        return bool(self.options.get("replays")) or (tape.is_file() and tape.stat().st_size > 0)

    def client(self, *, has_tape: bool = True) -> ChatClient:
        """Return what asks it; without its tape and its budget, where it `has_tape` no more.

        Raises:
            UsageError: the key cannot be read, or there is no tape to replay.
            DataError: the tape is broken.
        """
        unlimited = ("calls", "tokens", "tape", "replays")
        given = {name: value for name, value in self.options.items() if has_tape or name not in unlimited}
        key = key_in(str(self.folder / given["key_file"])) if given.get("key_file") else ""
        headers: dict[str, str] = {}
        if variable := given.get("key_env"):
            headers = check_headers({"Authorization": f"Bearer ${{{variable}}}"}, asked="key_env: got ")
        return ChatClient(
            self.url,
            model=given["model"],
            key=key,
            headers=headers,
            deadline=given.get("deadline", DEADLINE),
            budget=Spending(calls=given.get("calls"), tokens=given.get("tokens")),
            tape=self.folder / given["tape"] if given.get("tape") else "",
            replays=given.get("replays", False),
        )


def is_endpoint(text: str) -> bool:
    """Whether `text` names a chat endpoint, and no folder, hub id or run."""
    return text.startswith(("http://", "https://"))


class ChatClient:
    """Asks a model behind an endpoint: ``ChatClient("http://127.0.0.1:8000/v1", model="qwen").ask(messages)``.

    Args:
        url: what the paths of the endpoint begin with.
        model: its name there.
        key: sent as a bearer token to this host alone, and kept nowhere else; see `processes.http_json.key_in`.
        headers: sent, too, and kept nowhere else; see `processes.http_json.check_headers`.
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
        headers: Mapping[str, str] | None = None,
        deadline: float = DEADLINE,
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
        self._answered = threading.Condition(self._lock)
        self._asking: set[str] = set()
        """questions that the tape will hold once they are answered"""
        url = check_url(url, is_whole=True, asked="chat endpoint: got ", advice=ADVICE)
        self._server = HttpServer(url, deadline=deadline, key=key, headers=headers, max_bytes=MAX_BYTES)
        self.url, self.deadline = self._server.url, self._server.deadline
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
        found = self.reply(messages, temperature=temperature, max_tokens=max_tokens, number=number)
        if not found.text:
            raise HttpTrouble(
                "malformed", "an answer without text, which calls tools that it was not told of"
            )
        return found.text

    def reply(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        temperature: float = 0.0,
        max_tokens: int = 100,
        number: int = 0,
    ) -> Reply:
        """Return text and calls of `tools` (as OpenAI writes them) with which the model answers; see `ask`."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [dict(message) for message in messages],
            "temperature": temperature,
            "max_tokens": max_tokens,
        }
        if tools:
            body["tools"] = [dict(tool) for tool in tools]
        name = question_name(body, number)
        with self._answered:
            if not self._answered.wait_for(lambda: name not in self._asking, self.deadline):
                raise HttpTrouble("timeout", f"no answer within {self.deadline:g} s to an equal question")
            found = self._known.get(name)
            if found is not None:
                self.num_replayed += 1
                return found
            if self._replays:
                raise HttpTrouble("refused", f"a question that the tape {self._tape} does not hold")
            self._check_budget()
            self.num_calls += 1
            if self._tape is not None:
                self._asking.add(name)
        try:
            reply = self._server.ask(
                "POST", "/chat/completions", body, read=read_reply, once=uuid.uuid4().hex
            )
            with self._lock:
                self.num_tokens += reply.tokens
                self._keep(name, body, number, reply)
            return reply
        finally:
            with self._answered:
                self._asking.discard(name)
                self._answered.notify_all()

    def text_logprobs(self, text: str) -> list[tuple[int, float]]:
        """Return where each token of `text` begins in it, and its log-prob after those before it; not of the first.

        It asks ``POST {url}/completions`` with ``echo``, as vLLM and older OpenAI models have it; tapes do not hold it.

        Raises:
            HttpTrouble: the endpoint gives no log-probs of a prompt, or the budget is spent.
        """
        with self._lock:
            self._check_budget()
            self.num_calls += 1
        body = {
            "model": self.model, "prompt": text, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0.0,
        }  # fmt: skip
        found = self._server.ask("POST", "/completions", body, read=read_echo)
        return [(place, value) for place, value in found if place < len(text)]

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
        if reply.calls:
            row["calls"] = [{"name": call.name, "arguments": dict(call.arguments)} for call in reply.calls]
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
    message, usage = answer["choices"][0]["message"], answer.get("usage") or {}
    if not isinstance(message, dict) or not isinstance(usage, dict):
        raise TypeError("a message or usage that is no object")
    content, calls = message.get("content"), message.get("tool_calls") or ()
    text = content.strip() if isinstance(content, str) else ""
    if not text and not calls:
        raise ValueError("no text")
    return Reply(
        text=text,
        tokens=max(0, int(usage.get("total_tokens") or 0)),
        calls=tuple(_call(call["function"]["name"], call["function"]["arguments"]) for call in calls),
    )


def ask_at_once(ask: Callable[..., T], *asked: Iterable[Any]) -> list[T]:
    """Return what `ask` returns for each of `asked`, in their order; `AT_ONCE` are asked at the same time."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="quintain-asking") as threads:
        return list(threads.map(ask, *asked))


def find_marked_line(text: str, mark: str) -> str | None:
    """Return the last line of an answer, which begins with `mark`; None where it does not, or several lines do."""
    lines = [line.strip() for line in text.strip().splitlines()]
    marked = [line for line in lines if line.startswith(mark)]
    return marked[0] if len(marked) == 1 and marked[0] == lines[-1] else None


def read_echo(answer: Any) -> list[tuple[int, float]]:
    """Return place and log-prob of each token that has one; raises what `HttpServer.ask` takes for a wrong answer."""
    told = answer["choices"][0]["logprobs"]
    pairs = zip(told["text_offset"], told["token_logprobs"], strict=True)
    found = [(int(place), float(value)) for place, value in pairs if value is not None]
    if len(found) < 2:
        raise ValueError("no log-probs of the prompt")
    return found


def _call(name: Any, arguments: Any) -> ToolCall:
    """Return a call whose arguments are an object, or the JSON text of one."""
    found = load_json(arguments or "{}") if isinstance(arguments, str) else arguments
    if not isinstance(name, str) or not isinstance(found, dict):
        raise TypeError(f"a call of {name!r:.40} with arguments of type {type(found).__name__}")
    return ToolCall(name=name, arguments=cast("dict[str, Any]", found))


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
            row = cast("dict[str, Any]", load_json(line))
            name, text, tokens = str(row["name"]), str(row["text"]), int(row["tokens"])
            calls = tuple(_call(call["name"], call["arguments"]) for call in row.get("calls", ()))
            found[name] = Reply(text=text, tokens=tokens, calls=calls)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"tape {path}: got {type(error).__name__}: {error}; name another file") from error
    return found
