"""The recording endpoint: agents of others talk to it as to any model server, and each episode is kept as a forest.

It speaks OpenAI's chat completions and responses and Anthropic's messages. An episode is told apart by the path of its
URL (``/e/NAME/v1``) or by its key alone; every request needs the key of its episode, and a key opens no other. Keys are
kept as digests. Sampling is the server's where answers are recorded to be learned from: what clients ask of it is then
counted and not done, and a header says so (`EpisodeLimits.heeds_clients`).

A request is read and planned in a thread of the server, answered by the engine's owner
(`quintain.serve.engine_thread`), and committed there, whether or not the client still waits: one that hangs up leaves a
finished node that was not delivered. Each episode has a lock of its own, so that a long request of one keeps no other
waiting, and what it may hold is bounded (`quintain.serve.bounds`). A request is taken for a repeat only if it says so,
by an idempotency key or the header in which SDKs count retries; equal bodies are two requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import math
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, pairwise
from types import ModuleType
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from quintain.agents.constrained import calls_grammar, compact
from quintain.engines.grammar import check_grammar
from quintain.engines.protocol import Grammar, Request, Sampling
from quintain.errors import ModelError, QuintainError, StoreError, install_command
from quintain.rollout.stepper import guard_call
from quintain.safety.guard import Guard
from quintain.serve import chat_completions, messages_api, responses_api
from quintain.serve.bounds import Bodies, check_grammar_size, check_lists, read_object
from quintain.serve.chat_types import (
    NEUTRAL,
    Answer,
    AssistantMessage,
    ChatRequest,
    RequestError,
    Row,
    digest_of,
)
from quintain.serve.engine_thread import Answered, EngineThread
from quintain.serve.recorder import Node, Plan, Recorder
from quintain.text.chat import Chat
from quintain.types import Completion, Failure, Stop, derive_seed

PING_SECONDS = 5.0
"""Between signs of life in a stream whose answer is not there yet."""
NOTE_SECONDS = 0.02
"""Until it is tried again to note what was seen of an episode that is busy."""
LAST_SECONDS = 2.0
"""What the answers that are being sent when an episode ends have to be read."""
MAX_READERS = 4
"""Requests that are read and planned at once, each in a thread."""
MAX_STREAMS = 8
"""Streams of an episode that the engine keeps, so that calls that go on from them need not be read again."""
AGENT, KIND = "x-quintain-agent", "x-quintain-kind"
"""Headers in which a client may say which agent of several asks, and that a call is ``auxiliary``."""
DIALECTS: Mapping[str, ModuleType] = {
    "chat/completions": chat_completions,
    "responses": responses_api,
    "messages": messages_api,
}
"""End of the path → who reads and writes its bodies."""
PATH = re.compile(r"(?:/e/(?P<name>[\w.-]{1,100}))?(?:/v1)*/(?P<what>[a-z_/]{1,40})")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLimits:
    """How an episode is sampled, and what it may spend: ``EpisodeLimits(temperature=1.0, max_turn_tokens=128)``."""

    temperature: float = 1.0
    max_turn_tokens: int = 1024
    """Tokens of an answer; a client may ask for fewer."""
    usual_turn_tokens: int | None = None
    """Tokens of an answer whose client names no limit; none: `max_turn_tokens`."""
    heeds_clients: bool = False
    """Whether temperature, top_p and seed are as clients ask; what is recorded to be learned from has its own."""
    max_calls: int | None = None
    """Calls of the episode; further ones are refused."""
    max_tokens: int | None = None
    """Sampled tokens of the episode after which further calls are refused."""
    guard: Callable[[], Guard] | None = None
    """What makes the guard that takes refused calls out of answers."""
    answers: Callable[[ChatRequest], tuple[int, ...]] | None = None
    """What is said to a request instead of being sampled, as token ids; see `Outside.expert`."""


@dataclass(slots=True, kw_only=True)
class Pending:
    """A request that was dispatched, and what answers it."""

    asked: ChatRequest
    plan: Plan
    body: str
    """digest of path and body"""
    version: int
    """of the weights that were served when it was dispatched"""
    grammar: Grammar | None = None
    """what the answer keeps to"""
    done: Future[tuple[Answer, Node | None]] = field(default_factory=Future)  # pyright: ignore[reportUnknownVariableType]
    num_retries: int = 0
    stream: str = ""
    """the engine's stream that it was sent to"""
    most: int = 0
    """tokens that may be sampled for it"""


class Session:
    """One episode at the endpoint; made by `Endpoint.open`."""

    def __init__(self, name: str, key: str, chat: Chat, seed: int, terms: EpisodeLimits, number: int) -> None:
        self.name, self.seed, self.terms = name, seed, terms
        self.recorder = Recorder(chat, make_guard=terms.guard)
        self.lock = threading.RLock()
        """held while anything of the episode is read or changed"""
        self.sending = threading.Condition()
        """held while `num_sending` is"""
        self.number = number
        """its place in the order of being opened"""
        self.stop: Stop | None = None
        """which limit refused a call"""
        self.failure: Failure | None = None
        """what the engine failed with"""
        self.is_over = False
        self.num_refused = 0
        self._key = key_digest(key)
        self.pending: list[Pending] = []
        self.by_key: dict[str, Pending] = {}
        """idempotency key → its request"""
        self.streams: deque[Node] = deque()
        """nodes whose streams the engine keeps"""
        self.num_dispatched = 0
        self._started = time.monotonic()
        self.num_sending = 0
        """answers that are being sent, of which it will soon be known whether they were read"""

    def is_opened_by(self, key: str) -> bool:
        """Whether `key` is that of the episode."""
        return hmac.compare_digest(self._key, key_digest(key))

    @property
    def seconds(self) -> float:
        """Time since it was opened."""
        return time.monotonic() - self._started

    @property
    def num_sampled(self) -> int:
        """Tokens that were sampled so far."""
        return sum(len(node.completion.token_ids) for node in self.recorder.nodes)


Notes = Callable[[Session], None]
"""Writes down what is new of an episode: a call that is about to be answered, or what is seen of earlier ones."""


class Endpoint:
    """The endpoint as an ASGI app: ``Listener(Endpoint(pump, chat))``; see the head of the module.

    Args:
        pump: answers requests.
        chat: the chat format of the model.
        terms: of episodes that are opened without others.
        master_key: opens an episode for every new name in a path; without one, only `open` does.
        on_end: called where a client of such an episode says that it is over, with what it says.
        notes: called with each call before it is answered, and with what is seen of calls later; see `Notes`.
    """

    def __init__(
        self,
        pump: EngineThread,
        chat: Chat,
        *,
        terms: EpisodeLimits | None = None,
        master_key: str = "",
        on_end: Callable[[Session, Row], None] | None = None,
        notes: Notes | None = None,
    ) -> None:
        self.pump, self.chat, self.terms = pump, chat, terms or EpisodeLimits()
        self.lock = threading.Lock()
        """held while `sessions` is read or changed"""
        self.sessions: dict[str, Session] = {}
        self.trouble: StoreError | None = None
        """what keeps calls from being noted; nothing is answered any more then"""
        self._numbers = count()
        self._notes = notes
        self._bodies = Bodies(pump.max_length)
        self._turns = asyncio.Semaphore(MAX_READERS)
        self._master = master_key
        self._on_end = on_end

    def open(self, name: str, seed: int, terms: EpisodeLimits | None = None) -> tuple[Session, str]:
        """Return a new episode, and its key, which is kept nowhere."""
        key = secrets.token_hex(24)
        return self._open_episode(name, key, seed, terms or self.terms), key

    def close(self, session: Session) -> None:
        """End an episode: further calls are refused, and the engine forgets it."""
        with session.lock:
            session.is_over = True
        with session.sending:
            session.sending.wait_for(lambda: not session.num_sending, timeout=LAST_SECONDS)
        with session.lock:
            with self.lock:
                if self.sessions.get(session.name) is session:
                    del self.sessions[session.name]
            for node in session.streams:
                self._let_go(node)
            session.streams.clear()
            for pending in session.pending:
                if not pending.done.done():
                    self.pump.release(pending.stream)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        found = PATH.fullmatch(scope["path"])
        what = found["what"] if found else ""
        dialect = DIALECTS.get(what.removesuffix("/count_tokens"), chat_completions)
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        try:
            if found is None:
                raise RequestError(
                    404, f"path: got {scope['path'][:80]!r}; ask /e/NAME/v1/chat/completions", "not_found"
                )
            session = self._session(found["name"], Headers(scope=scope), may_open=what != "end")
            await self._serve(scope, receive, send, session, what, dialect)
        except RequestError as refused:
            # Of a body that was not read to its end the rest may follow, so the connection cannot be used again.
            more = ((b"connection", b"close"),) if refused.status in (408, 413, 503) else ()
            await send_json(send, refused.status, dialect.error(refused), *more)

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, session: Session, what: str, dialect: ModuleType
    ) -> None:
        """Answer a request of `session`."""
        if scope["method"] == "GET" and what == "models":
            model = {"id": self.pump.policy, "object": "model", "created": 0, "owned_by": "quintain"}
            await send_json(send, 200, {"object": "list", "data": [model], "has_more": False})
            return
        if scope["method"] != "POST" or (
            what not in DIALECTS and what not in ("messages/count_tokens", "end")
        ):
            raise RequestError(
                404, f"{scope['method']} {what}: got a request that is not served here", "not_found"
            )
        headers = Headers(scope=scope)
        raw = await self._bodies.read(headers, receive)
        # What may take long is not done in the thread that all connections share.
        async with self._turns:
            body = await asyncio.to_thread(read_object, raw)
        if what == "end":
            if self._on_end is None:
                raise RequestError(404, "end: got a request in an episode that ends by itself", "not_found")
            # The engine's owner may still have to let go of what is sampled: not in the thread of the server.
            await asyncio.to_thread(self._on_end, session, body)
            await send_json(send, 200, {"ended": session.name, "calls": len(session.recorder.nodes)})
            return
        check_lists(body, self.pump.max_length)
        if what == "messages/count_tokens":
            async with self._turns:
                num = await asyncio.to_thread(
                    lambda: self._count_tokens(session, dialect.read(body), headers)
                )
            await send_json(send, 200, {"input_tokens": num})
            return
        async with self._turns:
            asked, pending = await asyncio.to_thread(
                self._accept_request, session, dialect, body, headers, what, raw
            )
        head = sampling_header(asked, session.terms)
        await Writer(receive, send, pending, asked, dialect, partial(self._sending, session), head).run()

    def _count_tokens(self, session: Session, asked: ChatRequest, headers: Headers) -> int:
        """Return how many tokens the prompt of a request has."""
        with session.lock:
            return len(self._plan_request(session, asked, headers, is_counted=False).whole)

    def _accept_request(
        self, session: Session, dialect: ModuleType, body: Row, headers: Headers, what: str, raw: bytes
    ) -> tuple[ChatRequest, Pending]:
        """Return the request that `body` is, and what was dispatched for it."""
        asked: ChatRequest = dialect.read(body)
        return asked, self._dispatch(
            session, asked, headers, digest_of(what, hashlib.sha256(raw).hexdigest())
        )

    @contextmanager
    def _sending(self, session: Session, pending: Pending) -> Generator[Callable[[], None]]:
        """Note that an answer is being sent; what is yielded says that it was read to its end."""
        node = None if pending.done.exception() else pending.done.result(0)[1]

        def was_read() -> None:
            if node is not None:
                node.num_deliveries += 1

        with session.sending:
            session.num_sending += 1
        try:
            yield was_read
        finally:
            with session.sending:
                session.num_sending -= 1
                session.sending.notify_all()
            self._note_soon(session)

    def _note_soon(self, session: Session) -> None:
        """Note what was seen of an episode: now, or when its lock is free; all connections share this thread."""
        if not session.lock.acquire(blocking=False):
            asyncio.get_running_loop().call_later(NOTE_SECONDS, self._note_soon, session)
            return
        try:
            if not session.is_over:
                self._note(session)
        finally:
            session.lock.release()

    def _open_episode(self, name: str, key: str, seed: int, terms: EpisodeLimits) -> Session:
        with self.lock:
            return self._make_episode(name, key, seed, terms)

    def _make_episode(self, name: str, key: str, seed: int, terms: EpisodeLimits) -> Session:
        """Return a new episode; the lock is held."""
        session = Session(name, key, self.chat, seed, terms, next(self._numbers))
        self.sessions[name] = session
        return session

    def _session(self, name: str | None, headers: Headers, *, may_open: bool = True) -> Session:
        """Return the episode that a request is of, a new one for a new name if it `may_open` one.

        Raises:
            RequestError: there is no key, or it is not that of the episode.
        """
        given = headers.get("Authorization", "").removeprefix("Bearer ") or headers.get("X-Api-Key", "")
        if not given:
            raise RequestError(401, "a key is needed: Authorization: Bearer KEY", "authentication_error")
        with self.lock:
            is_master = bool(self._master) and hmac.compare_digest(
                key_digest(self._master), key_digest(given)
            )
            if name is None and not is_master:
                found = next((each for each in self.sessions.values() if each.is_opened_by(given)), None)
            else:
                found = self.sessions.get(name or "default")
                if found is None and is_master and not may_open:
                    raise RequestError(
                        404,
                        f"end: got {name or 'default'!r}, and nothing was asked under that name",
                        "not_found",
                    )
                if found is None and is_master:
                    called = name or "default"
                    found = self._make_episode(called, given, derive_seed("serve", called), self.terms)
            # A name that is not there and one of somebody else are told alike.
            if found is None or not found.is_opened_by(given):
                raise RequestError(
                    401, "key: got one that opens no episode here; it may be over", "authentication_error"
                )
            return found

    def _dispatch(self, session: Session, asked: ChatRequest, headers: Headers, body: str) -> Pending:
        """Return the request that `asked` is, new or the one that it repeats.

        Raises:
            RequestError: the episode is over, its budget is spent, or an idempotency key is used twice.
        """
        grammar = None if session.terms.answers else self._grammar(asked)
        with session.lock:
            if session.is_over:
                raise RequestError(403, "this episode is over", "permission_error")
            if self.trouble is not None:
                raise RequestError(500, f"the call cannot be recorded: {self.trouble}", "server_error")
            name = headers.get("Idempotency-Key", "")
            found = session.by_key.get(name)
            if found is not None and found.body != body:
                raise RequestError(
                    422, f"Idempotency-Key: got {name[:40]!r} with another request; use a new key"
                )
            is_retry = headers.get("X-Stainless-Retry-Count", "0") not in ("", "0")
            if found is None and is_retry:
                found = next((each for each in reversed(session.pending) if each.body == body), None)
            if found is not None and not (found.done.done() and found.done.exception() is not None):
                found.num_retries += 1
                if found.done.done() and (node := found.done.result(0)[1]) is not None:
                    node.num_retries += 1
                return found
            self._refuse_unheeded(session.terms, asked)
            plan = self._plan_request(session, asked, headers)
            grammar = self._find_answer(session, plan.asked) or grammar
            pending = Pending(asked=asked, plan=plan, body=body, version=self.pump.version, grammar=grammar)
            session.pending.append(pending)
            if name:
                session.by_key[name] = pending
            self._send(session, pending)
            return pending

    def _plan_request(
        self, session: Session, asked: ChatRequest, headers: Headers, *, is_counted: bool = True
    ) -> Plan:
        """Return where a request hangs; the lock is held.

        Raises:
            RequestError: the budget is spent, the chat cannot be written, or is too long.
        """
        if not asked.messages:
            raise RequestError(400, "messages: got none; send at least one")
        if asked.before:
            node = session.recorder.find(asked.before)
            if node is None:
                raise RequestError(
                    404,
                    f"previous_response_id: got {asked.before[:40]!r}, which this episode has not",
                    "not_found",
                )
            history = (*node.history, node.spoken)
            if asked.messages[0].role == "system" and history[0].role == "system":
                history = history[1:]
                asked = replace(asked, messages=(asked.messages[0], *history, *asked.messages[1:]))
            else:
                asked = replace(asked, messages=(*history, *asked.messages))
        if asked.messages[-1].role == "assistant":
            raise RequestError(400, "messages: got an answer as the last; end with what is to be answered")
        terms = session.terms
        if is_counted and terms.max_calls is not None and session.num_dispatched >= terms.max_calls:
            session.stop = Stop.CUT
            raise RequestError(403, f"calls of this episode: got more than {terms.max_calls}", "budget_spent")
        if is_counted and terms.max_tokens is not None and session.num_sampled >= terms.max_tokens:
            session.stop = Stop.MAX_TOKENS
            raise RequestError(
                403, f"sampled tokens of this episode: got {terms.max_tokens} already", "budget_spent"
            )
        recorder = session.recorder if is_counted else Recorder(self.chat)
        try:
            plan = recorder.plan(asked, lineage=headers.get(AGENT, "")[:100], kind=headers.get(KIND, "")[:40])
        except ModelError as error:
            raise RequestError(400, str(error)) from error
        if is_counted and len(plan.whole) >= self.pump.max_length:
            session.stop = Stop.MAX_TOKENS
            raise RequestError(
                400,
                f"messages: got {len(plan.whole)} tokens; the model reads less than {self.pump.max_length}",
                "context_length_exceeded",
            )
        return plan

    def _send(self, session: Session, pending: Pending) -> None:
        """Dispatch a request to the engine; the lock is held."""
        plan, terms = pending.plan, session.terms
        session.num_dispatched += 1
        parent = plan.parent
        if parent is not None and parent.session:
            name, parent.session = parent.session, ""
            given = plan.prompt_ids
        else:
            name, given = f"{session.name}/{session.num_dispatched}", plan.whole
        pending.stream = name
        most = min(terms.max_turn_tokens, self.pump.max_length - len(plan.whole))
        asked = pending.asked
        pending.most = (
            most if terms.answers else min(most, asked.max_tokens or terms.usual_turn_tokens or most)
        )
        temperature, top_p = sampling_of(asked, terms)
        sampling = Sampling(
            temperature=temperature,
            top_p=top_p,
            max_tokens=pending.most,
            stop_ids=self.chat.stop_ids,
            constraint=pending.grammar,
        )
        prompt = hashlib.blake2b(repr(plan.whole).encode(), digest_size=16).hexdigest()
        seed = derive_seed(session.seed, prompt, plan.repeat)
        if terms.heeds_clients and asked.seed is not None:
            seed = derive_seed("client", asked.seed, prompt)
        answer = self.pump.ask(Request(session=name, prompt_ids=given, seed=seed, sampling=sampling))
        answer.add_done_callback(partial(self._take, session, pending, name))

    def _refuse_unheeded(self, terms: EpisodeLimits, asked: ChatRequest) -> None:
        """Refuse parameters of sampling that are to be heeded, and that nobody here can do.

        Raises:
            RequestError: there is one.
        """
        if not terms.heeds_clients:
            return
        unknown = [name for name in asked.pinned if name in NEUTRAL]
        if (asked.top_p or 1.0) < 1 and "nucleus" not in self.pump.capabilities:
            unknown.append("top_p")
        if unknown:
            raise RequestError(
                400,
                f"{unknown[0]}: got a value, and this server samples by temperature, top_p and seed; leave it out",
            )

    def _grammar(self, asked: ChatRequest) -> Grammar | None:
        """Return what the answer to a request keeps to: a call that must be made, or the schema of the answer.

        Raises:
            RequestError: the engine keeps to no grammar, or cannot follow this one.
        """
        if not asked.must_call and asked.schema is None:
            return None
        what = "a tool call that must be made" if asked.must_call else "an answer under a schema"
        if "grammar" not in self.pump.capabilities:
            raise RequestError(
                400,
                f"{what}: got a request for one, and the engine keeps to no grammar; "
                f"{install_command('constrained')}, or ask for it in the messages",
            )
        tools = asked.must_call or asked.tools
        schema = None if asked.must_call else asked.schema
        try:
            if tools:
                grammar = Grammar(text=calls_grammar(tools, self.chat, 1, instead=schema))
            else:
                grammar = Grammar(kind="json_schema", text=compact(schema or {}))
            check_grammar_size(what, grammar.text)
            check_grammar(grammar)
        except QuintainError as error:
            raise RequestError(400, f"{what}: {error}") from error
        return grammar

    def _find_answer(self, session: Session, asked: ChatRequest) -> Grammar | None:
        """Return what is to be said to a request, where the terms of the episode have it.

        Raises:
            RequestError: who says it failed, which the episode fails by.
        """
        answers = session.terms.answers
        if answers is None:
            return None
        said = guard_call(lambda: answers(asked))
        if isinstance(said, Failure):
            session.failure = session.failure or said
            raise RequestError(500, said.message, "server_error")
        return Grammar.of_tokens(said)

    def _take(self, session: Session, pending: Pending, name: str, answered: Answered) -> None:
        """Commit what the engine answered; it runs in the thread of the engine's owner."""
        result = answered.result(0)
        with session.lock:
            if isinstance(result, Failure):
                if not session.is_over:
                    session.failure = session.failure or result
                self.pump.release(name)
                status = 403 if session.is_over else 400 if result.kind == "grammar" else 500
                code = "invalid_request_error" if status == 400 else "server_error"
                pending.done.set_exception(RequestError(status, result.message, code))
                return
            made = guard_call(lambda: self._commit_node(session, pending, result, name))
            if isinstance(made, Failure):
                self._lose(session, pending, result, made, name)
                return
            if not session.is_over:
                self._note(session)
            if self.trouble is not None:
                pending.done.set_exception(
                    RequestError(500, f"the call cannot be recorded: {self.trouble}", "server_error")
                )
                return
            answer = guard_call(
                lambda: self._answer(made.spoken, pending, made.completion, made.digest, made)
            )
            if isinstance(answer, Failure):
                pending.done.set_exception(RequestError(500, answer.message, "server_error"))
                return
            pending.done.set_result((answer, made))

    def _lose(
        self, session: Session, pending: Pending, result: Completion, failure: Failure, name: str
    ) -> None:
        """Answer a call that could not be committed: the agent must not notice, the episode is not whole for good."""
        session.recorder.losses.append(f"{failure.kind}: {failure.message}")
        self.pump.release(name)

        def answer() -> Answer:
            spoken = AssistantMessage(role="assistant", text=self.chat.text(result.token_ids))
            return self._answer(spoken, pending, result, secrets.token_hex(16))

        found = guard_call(answer)
        if isinstance(found, Failure):
            pending.done.set_exception(RequestError(500, found.message, "server_error"))
        else:
            pending.done.set_result((found, None))

    def _note(self, session: Session) -> None:
        """Have what is new of an episode noted; what keeps it from being noted is kept as `trouble`."""
        if self._notes is None or self.trouble is not None:
            return
        try:
            self._notes(session)
        except StoreError as error:
            self.trouble = error
            self.pump.bell.set()

    def _commit_node(self, session: Session, pending: Pending, result: Completion, name: str) -> Node:
        """Return the node that `result` becomes."""
        if len(result.logprobs) != len(result.token_ids) or not all(map(math.isfinite, result.logprobs)):
            raise ValueError(
                f"log-probs of {len(result.token_ids)} tokens: got {len(result.logprobs)}, or not finite"
            )
        if result.policy != self.pump.policy:
            raise ValueError(f"an answer of the policy {result.policy!r}, and {self.pump.policy!r} is served")
        if len(result.token_ids) > pending.most:
            raise ValueError(f"{len(result.token_ids)} sampled tokens, and {pending.most} were asked for")
        check_dated(result, pending.version, self.pump.version)
        node = session.recorder.commit(pending.plan, result, session=name)
        node.num_retries = pending.num_retries
        if session.is_over or not node.session:
            self.pump.release(name)
            node.session = ""
        else:
            session.streams.append(node)
            if len(session.streams) > MAX_STREAMS:
                self._let_go(session.streams.popleft())
        return node

    def _let_go(self, node: Node) -> None:
        """Let the engine forget the stream that ends in `node`, unless it goes on."""
        if node.session:
            self.pump.release(node.session)
            node.session = ""

    def _answer(
        self,
        spoken: AssistantMessage,
        pending: Pending,
        completion: Completion,
        name: str,
        node: Node | None = None,
    ) -> Answer:
        """Return what is told to the client."""
        ended = completion.stop == "stop"
        stopped_by = ""
        if node is not None and node.is_cut:
            text = self.chat.text(completion.token_ids)
            stopped_by = next((stop for stop in pending.asked.stop if stop in text), "")
        finish = "text" if stopped_by else "calls" if spoken.calls else "stop" if ended else "length"
        pieces = (
            tuple(self.chat.encoder.decode((token,)) for token in completion.token_ids)
            if pending.asked.has_logprobs
            else ()
        )
        return Answer(
            id=name, spoken=spoken, finish=finish, stopped_by=stopped_by, prompt_ids=pending.plan.whole,
            token_ids=completion.token_ids, logprobs=completion.logprobs, pieces=pieces,
            policy=completion.policy, version=completion.policy_version, created=int(time.time()),
        )  # fmt: skip


def check_dated(result: Completion, dispatched: int, served: int) -> None:
    """Raise where it cannot be said which weights sampled each token of `result`.

    Every token has a version from that at its dispatch to the one that is `served` now, and they only grow.

    Raises:
        ValueError: it does not.
    """
    spans = result.version_spans or ((0, result.policy_version),)
    firsts, versions = [first for first, _ in spans], [version for _, version in spans]
    is_ordered = firsts[0] == 0 and all(a < b for a, b in pairwise(firsts)) and versions == sorted(versions)
    is_within = firsts[-1] < max(len(result.token_ids), 1) and versions[-1] == result.policy_version
    if not is_ordered or not is_within or versions[0] < dispatched or versions[-1] > served:
        raise ValueError(
            f"versions {spans} of {len(result.token_ids)} tokens of the policy at version {result.policy_version}, "
            f"dispatched at {dispatched} and served at {served}"
        )


class Writer:
    """Writes one answer to one client, and learns whether it was read to its end."""

    def __init__(
        self,
        receive: Receive,
        send: Send,
        pending: Pending,
        asked: ChatRequest,
        dialect: ModuleType,
        sending: Callable[[Pending], AbstractContextManager[Callable[[], None]]],
        head: tuple[bytes, bytes],
    ) -> None:
        self._receive, self._send, self._sending = receive, send, sending
        self._pending, self._asked, self._dialect = pending, asked, dialect
        self._head = head

    async def run(self) -> None:
        """Send the answer when it is there, and say whether the client stayed until all of it was sent.

        Raises:
            RequestError: there is no answer, and nothing was sent yet.
        """
        gone = asyncio.ensure_future(wait_for_hangup(self._receive))
        done = asyncio.wrap_future(self._pending.done)
        try:
            if self._asked.is_streamed:
                await self._stream_answer(done, gone)
                return
            await asyncio.wait({done, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                return
            answer, _ = await done
            with self._sending(self._pending) as was_read:
                await send_json(self._send, 200, self._dialect.whole(answer, self._asked), self._head)
                if not gone.done():
                    was_read()
        finally:
            gone.cancel()
            done.add_done_callback(_note_error)

    async def _stream_answer(
        self, done: asyncio.Future[tuple[Answer, Node | None]], gone: asyncio.Future[None]
    ) -> None:
        """Send the answer as events; the connection is kept awake until it is there."""
        await asyncio.wait({done, gone}, timeout=PING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if done.done() and (failed := done.exception()) is not None:
            raise failed
        head = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"), self._head]
        await self._send({"type": "http.response.start", "status": 200, "headers": head})
        while not done.done() and not gone.done():
            await self._send({"type": "http.response.body", "body": b": wait\n\n", "more_body": True})
            await asyncio.wait({done, gone}, timeout=PING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            return
        failed = done.exception()
        if isinstance(failed, RequestError):
            events: Iterator[str] = iter(
                [f"event: error\ndata: {json.dumps(self._dialect.error(failed))}\n\n"]
            )
        else:
            events = self._dialect.stream((await done)[0], self._asked)
        with self._sending(self._pending) as was_read:
            for event in events:
                if gone.done():
                    return
                await self._send({"type": "http.response.body", "body": event.encode(), "more_body": True})
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            if not gone.done():
                was_read()


def _note_error(done: asyncio.Future[Any]) -> None:
    """Take note of an error that nobody waits for any more."""
    if not done.cancelled():
        done.exception()


async def wait_for_hangup(receive: Receive) -> None:
    """Return when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def lifespan(receive: Receive, send: Send) -> None:
    """Say that there is nothing to start or to stop."""
    while True:
        message: Message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        else:
            await send({"type": "lifespan.shutdown.complete"})
            return


def sampling_of(asked: ChatRequest, terms: EpisodeLimits) -> tuple[float, float]:
    """Return the temperature and the top_p by which a request is answered; a top_p of 0 takes the likeliest token."""
    if not terms.heeds_clients:
        return terms.temperature, 1.0
    temperature = terms.temperature if asked.temperature is None else asked.temperature
    return (0.0, 1.0) if asked.top_p == 0 else (temperature, 1.0 if asked.top_p is None else asked.top_p)


def sampling_header(asked: ChatRequest, terms: EpisodeLimits) -> tuple[bytes, bytes]:
    """Return the header that says how an answer was sampled, and what of the request was not done."""
    temperature, top_p = sampling_of(asked, terms)
    said = f"temperature={temperature:g}, top_p={top_p:g}"
    ignored = () if terms.heeds_clients else asked.pinned
    said += f"; not done: {', '.join(ignored)}" if ignored else ""
    return b"x-quintain-sampling", said.encode()


async def send_json(
    send: Callable[[Message], Awaitable[None]], status: int, row: Row, *more: tuple[bytes, bytes]
) -> None:
    """Send `row` as the whole response, with `more` headers."""
    body = json.dumps(row).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def key_digest(key: str) -> bytes:
    """Return what is kept of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
