"""An engine behind HTTP: servers of one model, of a program that serves many streams at once (vLLM, SGLang).

The streams are kept here. A request sends its whole stream, of which the server has the part before the last turn in
its prefix cache: a session stays with the server that it began with. Tokens come back one by one, so that it is known
what was sampled with which weights, and a request whose session is released costs nothing more.

Servers that we start are started again when they end, with the weights that were loaded last; what they worked on comes
back as failures. The event loop runs while the engine is asked something, and not in between.
"""

from __future__ import annotations

import asyncio
import math
import shutil
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from quintain.engines.grammar import check_grammar, is_available, tokens_of
from quintain.engines.protocol import (
    ABORTED,
    Capability,
    EngineStats,
    PauseMode,
    Reply,
    Request,
    check_request,
    check_streams,
    needs_of,
    note_version,
    require,
)
from quintain.engines.scoring import cut_candidates, draw_candidate
from quintain.engines.server_api import BROKEN, Card, ServerApi
from quintain.engines.server_process import HERE, ServerProcess, free_port
from quintain.engines.server_wire import ServerTrouble, ServerWire
from quintain.engines.settings import KINDS, EngineSettings, card_variables
from quintain.engines.tally import Tally
from quintain.errors import EngineFault, ModelError, UsageError
from quintain.models.precision import DTYPES
from quintain.processes.child import PATIENCE
from quintain.processes.http_json import key_in
from quintain.types import Completion, Failure

T = TypeVar("T")
SLICE = 0.05
"""Seconds that `HttpEngine.advance` waits for a reply."""
QUIET = 0.02
"""Seconds without a token after which a paused server has said what it sampled."""
TICK = 0.1
"""Seconds between two looks at a server that starts."""
QUESTION = 30.0
"""Seconds for an answer that needs no computing."""
MAX_ASKED = 64
"""Questions to a server at once while streams are scored."""
MAX_DEATHS = 3
"""Times that a server may be lost without having answered anything."""


@dataclass(slots=True, eq=False)
class _Replica:
    """One server, as far as it is there."""

    number: int
    url: str
    wire: ServerWire | None = None
    process: ServerProcess | None = None
    num_sessions: int = 0
    num_deaths: int = 0
    heard: float = 0.0
    """when it last said something, on the clock of `HttpEngine`"""


@dataclass(slots=True)
class _Stream:
    """A session: its ids so far, and the server that has read them."""

    replica: _Replica
    ids: list[int] = field(default_factory=list[int])


@dataclass(slots=True, eq=False)
class _Job:
    """A request that has no reply yet."""

    request: Request
    stream: _Stream
    versions: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    task: asyncio.Task[None] | None = None
    result: Completion | Failure | None = None
    is_scoring: bool = False
    """whether it asks for log-probs, during which weights must not change"""


class HttpEngine:
    """Samples from servers that serve one model.

    Args:
        api: how they are talked to.
        settings: where they are, or how they are started.
        folder: the model that they are started with; it must stay as long as the engine.
        vocabulary: tokens of that model.
        decode: what the model's tokenizer makes of ids; servers that have another are refused.
        policy: name of the policy that the model is.
        owned: a folder that is deleted when the engine is closed.
    """

    def __init__(
        self,
        api: ServerApi,
        settings: EngineSettings,
        folder: Path | None,
        *,
        vocabulary: int,
        decode: Callable[[Sequence[int]], str] | None = None,
        policy: str = "policy",
        owned: Path | None = None,
    ) -> None:
        """Find the servers, or start them.

        Raises:
            UsageError: a program is missing, a port is taken, or a server serves something else, or in another way.
            EngineFault: a server does not answer, or does not start in time.
        """
        self.policy, self.settings, self.folder = policy, settings, folder
        self._api, self._vocabulary, self._decode = api, vocabulary, decode
        self._name = f"engine {api.name}"
        self._key = key_in(settings.key_file)
        self._patience = max(QUESTION, settings.reply_timeout)
        """seconds that a server which may be busy has for a question"""
        self._loop = asyncio.new_event_loop()
        self._weights: tuple[int, Path] | None = None
        self._is_paused = self._is_closed = False
        self._streams: dict[str, _Stream] = {}
        self._jobs: dict[str, _Job] = {}
        """unanswered requests by session, in order of submission"""
        self._tally = Tally()
        self._num_heard = 0
        """pieces of completions so far"""
        self._away, self._left_at = 0.0, time.monotonic()
        urls = settings.urls or [""] * settings.replicas
        self._replicas = [_Replica(number, url) for number, url in enumerate(urls)]
        self._finalizer = weakref.finalize(self, _free, self._loop, self._replicas, owned)
        try:
            self._card = self._open_all()
        except BaseException:
            self.close()
            raise

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What servers of the kind can do, as far as these do."""
        lacking: set[Capability] = set() if self._card.has_seeds else {"seeds"}
        lacking |= set() if is_available() else {"grammar"}
        lacking |= set() if self.settings.adapters else {"adapters"}
        return KINDS[self.settings.kind] - lacking

    @property
    def policy_version(self) -> int:
        """Version of the weights that is served."""
        return self._weights[0] if self._weights is not None else 0

    @property
    def max_length(self) -> int:
        """Longest token stream the servers can hold."""
        return min(self._card.max_length, self.settings.max_length or self._card.max_length)

    @property
    def vocabulary(self) -> int | None:
        """Number of tokens of the model."""
        return self._vocabulary

    @property
    def urls(self) -> list[str]:
        """Where the servers are."""
        return [replica.url for replica in self._replicas]

    @property
    def process_ids(self) -> list[int]:
        """Numbers of the processes that keep the servers that were started, as far as these are there."""
        return [replica.process.process_id for replica in self._replicas if replica.process is not None]

    def submit(self, request: Request) -> None:
        """See `Engine.submit`."""
        self._check_open()
        require(self._name, self.capabilities, needs_of(request.sampling), by=f"session {request.session}")
        stream = self._streams.get(request.session)
        check_request(
            request,
            num_known=len(stream.ids) if stream else 0,
            max_length=self.max_length,
            is_busy=request.session in self._jobs,
            vocabulary=self._vocabulary,
        )
        if request.sampling.constraint is not None:
            check_grammar(request.sampling.constraint)
        if stream is None:
            replica = min(self._replicas, key=lambda each: each.num_sessions)
            replica.num_sessions += 1
            stream = self._streams[request.session] = _Stream(replica)
        self._jobs[request.session] = _Job(request, stream)
        self._tally.submit(request.session)

    def advance(self) -> list[Reply]:
        """Send what was submitted, and return the replies that are there, or come within a moment.

        Raises:
            EngineFault: a server cannot be started again, or was lost several times without an answer.
        """
        if self._jobs and not self._is_paused:
            began = time.monotonic()
            self._away += began - self._left_at
            self._begin()
            self._run(self._listen())
            self._settle()
            self._left_at = time.monotonic()
            self._tally.add(busy_seconds=self._left_at - began)
        replies = [
            Reply(session=name, result=job.result)
            for name, job in self._jobs.items()
            if job.result is not None
        ]
        for reply in replies:
            del self._jobs[reply.session]
        return self._tally.answer(replies)

    def release(self, session: str) -> None:
        """See `Engine.release`; the server stops sampling for it."""
        stream = self._streams.pop(session, None)
        if stream is None:
            return
        stream.replica.num_sessions -= 1
        job = self._jobs.pop(session, None)
        if job is not None:
            self._tally.release(session)
            self._drop([job])

    def score(self, token_ids: Sequence[Sequence[int]], temperature: float = 1.0) -> list[tuple[float, ...]]:
        """See `Engine.score`; at another temperature than 0 or 1 each token is a question of its own."""
        self._check_open()
        check_streams(token_ids, max_length=self.max_length, vocabulary=self._vocabulary)
        self._revive()
        places = [self._replicas[place % len(self._replicas)] for place in range(len(token_ids))]

        async def ask() -> list[list[float]]:
            turns = asyncio.Semaphore(MAX_ASKED)

            async def one(replica: _Replica, ids: Sequence[int]) -> list[float]:
                async with turns:
                    return await self._logprobs(replica, ids, 0, temperature)

            pairs = zip(places, token_ids, strict=True)
            return await _together(one(replica, ids) for replica, ids in pairs)

        began = time.monotonic()
        if self._is_paused and self._running():
            raise EngineFault(
                "streams to score: got a paused engine with requests under way; resume it first"
            )
        if self._is_paused:
            self._go_on()
        rows = self._ask(places[0], "score", ask()) if places else []
        if self._is_paused:
            self._halt()
        self._tally.add(num_scored=sum(map(len, token_ids)), busy_seconds=time.monotonic() - began)
        if not all(math.isfinite(value) for row in rows for value in row):
            raise EngineFault("streams to score: got a log-prob that is not finite; the weights are broken")
        return [tuple(row) for row in rows]

    def load_weights(self, version: int, source: Path | None) -> None:
        """See `Engine.load_weights`; the files must stay until the next call, for servers that are started again."""
        self._check_open()
        if source is None:
            require(self._name, self.capabilities, ["shared_weights"], by="load_weights without a folder")
            return
        source = source.resolve()
        try:
            self._renew(version, source)
        except EngineFault:  # a server was lost meanwhile; it is started again, and once that is worth it
            self._renew(version, source)

    def _renew(self, version: int, source: Path) -> None:
        """Have all servers take new weights, between two tokens."""
        self._revive()
        try:
            if not self._is_paused:
                self._halt()
            for replica in self._replicas:
                wrong = self._ask(replica, "load weights", self._load(replica, version, source))
                if wrong:
                    for each in self._replicas[: replica.number]:
                        self._lose(each, "crash", "took weights that another server refused")
                    raise ModelError(
                        f"weights in {str(source)!r}: got {wrong}, says {replica.url}; give weights of the model "
                        "that it serves, in a folder that it can read"
                    )
            self._weights = version, source
            self._tally.add(num_weight_loads=1)
            for job in self._running():
                note_version(job.versions, len(job.token_ids), version)
        finally:
            if not self._is_paused:
                self._go_on()

    def pause(self, mode: PauseMode = "keep") -> None:
        """See `Engine.pause`."""
        self._check_open()
        if mode == "abort":
            self._drop(self._jobs.values())
            for job in self._jobs.values():
                job.result = job.result or ABORTED
        if not self._is_paused:
            self._halt()
        self._is_paused = True

    def resume(self) -> None:
        """See `Engine.resume`."""
        self._check_open()
        if self._is_paused:
            self._is_paused = False
            self._go_on()

    def stats(self) -> EngineStats:
        """See `Engine.stats`; tokens that were read are those that the servers had not in their caches."""
        num_running = len(self._running())
        return self._tally.stats(
            num_running=num_running,
            num_waiting=len(self._jobs) - num_running,
            num_sessions=len(self._streams),
        )

    def shares(self, model: object) -> bool:
        """See `Engine.shares`: it never does."""
        return False

    def fingerprint(self) -> str:
        """See `Engine.fingerprint`: servers hold weights in a form of their own, which has none."""
        require(self._name, self.capabilities, ["fingerprint"], by="fingerprint")
        raise AssertionError("it cannot")

    def close(self) -> None:
        """End the servers that were started and delete what is owned; it must not be used any more."""
        if not self._is_closed:
            self._is_closed = True
            self._drop(self._jobs.values())
            self._finalizer()

    def _running(self) -> list[_Job]:
        return [job for job in self._jobs.values() if job.task is not None and job.result is None]

    def _begin(self) -> None:
        """Send requests that wait, as many as the servers may work on at once, and those that are urgent."""
        room = self.settings.max_batch * len(self._replicas) - len(self._running())
        for job in list(self._jobs.values()):
            if (room > 0 or job.request.is_urgent) and job.task is None and job.result is None:
                self._open(job.stream.replica)
                job.versions = [(0, self.policy_version)]
                job.task = self._loop.create_task(self._work(job))
                room -= 1

    async def _listen(self) -> None:
        """Take in what servers say, until something is done or a moment has passed."""
        tasks = {job.task for job in self._running() if job.task is not None}
        if tasks:
            await asyncio.wait(tasks, timeout=SLICE, return_when=asyncio.FIRST_COMPLETED)

    def _settle(self) -> None:
        """Note what became of tasks that are done, and give up servers that are gone or silent."""
        for job in self._running():
            assert job.task is not None, "it runs"
            if not job.task.done() or job.result is not None:  # its server may have been lost with another's
                continue
            trouble = job.task.exception()
            assert trouble is not None, "it would have a result"
            if isinstance(trouble, ServerTrouble) and trouble.kind == "refused":
                job.result = self._failure(job.stream.replica, "refused", f"got {trouble.got}")
            elif isinstance(trouble, ServerTrouble):
                self._lose(job.stream.replica, trouble.kind, f"got {trouble.got}")
            elif isinstance(trouble, BROKEN):
                self._lose(job.stream.replica, "malformed", f"got an answer that does not fit ({trouble!r})")
            else:
                # Nothing that the server said, but what was asked of it: the others go on.
                job.result = self._failure(job.stream.replica, "request", f"got {trouble!r:.200}")
        now = time.monotonic() - self._away
        for replica in {job.stream.replica for job in self._running()}:
            if replica.process is not None and replica.process.poll_end():
                self._lose(replica, "crash")
            elif now - replica.heard > self.settings.reply_timeout:
                self._lose(replica, "timeout", f"gave no sign of life for {now - replica.heard:.0f} s")

    async def _work(self, job: _Job) -> None:
        """Keep what becomes of `job`."""
        job.result = await self._answer(job)
        if isinstance(job.result, Completion):
            job.stream.ids += (*job.request.prompt_ids, *job.result.token_ids)
            job.stream.replica.num_deaths = 0

    async def _answer(self, job: _Job) -> Completion | Failure:
        """Return what becomes of a request."""
        request, stream = job.request, job.stream
        sampling = request.sampling
        ids = [*stream.ids, *request.prompt_ids]
        most = min(sampling.max_tokens, self.max_length - len(ids))
        if sampling.candidates is not None:
            found = await self._choose(job, ids)
        elif sampling.constraint is not None and sampling.constraint.kind == "tokens":
            found = await self._say(job, ids, most)
        else:
            found = await self._sample(job, ids, most)
        if isinstance(found, Completion) and not all(map(math.isfinite, found.logprobs)):
            return self._failure(stream.replica, "not_finite", "gave a log-prob that is not finite")
        return found

    async def _sample(self, job: _Job, ids: Sequence[int], most: int) -> Completion | Failure:
        """Sample a completion; under a grammar its log-probs are then asked for anew, without the grammar."""
        sampling, replica = job.request.sampling, job.stream.replica
        path, body = self._api.generate(self._model, ids, sampling, job.request.seed, most)
        read = self._api.reader()
        stop, spans = None, ()
        async for event in self._wire(replica).events(path, body):
            piece = read(event)
            self._note_alive(replica)
            job.token_ids += piece.token_ids
            job.logprobs += piece.logprobs
            self._tally.add(num_sampled=len(piece.token_ids), num_prefilled=piece.num_read)
            stop = piece.stop or stop
            # What a server calls its weights is not what an adapter on them is.
            spans = spans if self.settings.adapters else piece.versions or spans
        if stop == "abort":
            return self._failure(replica, "aborted", "stopped sampling before the completion was over")
        if stop is None or len(job.token_ids) != len(job.logprobs) or not 0 < len(job.token_ids) <= most:
            counts = f"{len(job.token_ids)} tokens with {len(job.logprobs)} log-probs"
            raise ServerTrouble("malformed", f"{counts} ({stop}), where {most} were asked for")
        versions = spans or tuple(job.versions)
        if sampling.constraint is not None:
            whole = [*ids, *job.token_ids]
            job.logprobs = await self._score_ids(job, whole, len(ids))
        return Completion(
            token_ids=tuple(job.token_ids),
            logprobs=tuple(job.logprobs),
            stop=stop,
            policy_version=versions[-1][1],
            policy=self.policy,
            version_spans=versions if len(versions) > 1 else (),
        )

    async def _say(self, job: _Job, ids: Sequence[int], most: int) -> Completion:
        """Say the one sequence of tokens that a grammar of tokens admits, up to the first that ends a completion."""
        sampling = job.request.sampling
        assert sampling.constraint is not None, "it was asked for"
        said = tokens_of(sampling.constraint, self._vocabulary)
        ends = [place for place, token in enumerate(said, 1) if token in sampling.stop_ids]
        whole = said[: ends[0]] if ends else said
        logprobs = await self._score_ids(job, [*ids, *whole[:most]], len(ids))
        self._tally.add(num_sampled=len(logprobs))
        return Completion(
            token_ids=whole[:most],
            logprobs=tuple(logprobs),
            stop="stop" if len(whole) <= most else "length",
            policy_version=self.policy_version,
            policy=self.policy,
        )

    async def _choose(self, job: _Job, ids: Sequence[int]) -> Completion | Failure:
        """Choose one of the candidates."""
        candidates = cut_candidates(job.request.sampling)
        rows = await _together(self._score_ids(job, [*ids, *each], len(ids)) for each in candidates)
        found = draw_candidate(job.request.sampling, candidates, rows, job.request.seed, self.policy_version)
        if isinstance(found, Completion):
            self._tally.add(num_sampled=len(found.token_ids))
            return replace(found, policy=self.policy)
        return found

    async def _score_ids(self, job: _Job, ids: Sequence[int], first: int) -> list[float]:
        """Return the log-probs of `ids` from number `first` on at the temperature of `job`."""
        job.is_scoring = True
        try:
            return await self._logprobs(job.stream.replica, ids, first, job.request.sampling.temperature)
        finally:
            job.is_scoring = False

    async def _logprobs(
        self, replica: _Replica, ids: Sequence[int], first: int, temperature: float
    ) -> list[float]:
        """Return the log-probs of `ids` from number `first` on; that of the first of all is 0."""
        wire, seconds = self._wire(replica), self.settings.reply_timeout
        if temperature in (0.0, 1.0) or len(ids) == 1:
            found = await self._api.prompt_logprobs(wire, self._model, ids, seconds)
            self._tally.add(num_prefilled=len(ids))
        else:
            found = await _together(
                self._api.next_logprob(wire, self._model, ids[:place], ids[place], temperature, seconds)
                for place in range(max(first, 1), len(ids))
            )
            found = [0.0] * (len(ids) - len(found)) + found
            self._tally.add(num_prefilled=len(ids) - first)
        self._note_alive(replica)
        return found[first:]

    def _drop(self, jobs: Iterable[_Job]) -> None:
        """End the tasks of `jobs`, so that their servers stop sampling."""
        tasks = [job.task for job in jobs if job.task is not None and not job.task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            self._run(asyncio.wait(tasks, timeout=QUESTION))

    def _halt(self) -> None:
        """Let all servers stop at a token boundary, and take in what they had sampled until then.

        What asks for log-probs is answered first, by the weights that it was said with.
        """
        there = [replica for replica in self._replicas if replica.wire is not None]
        while True:
            self._run(self._until_scored())
            for replica in there:
                self._ask(replica, "pause", self._api.pause(self._wire(replica), self._patience))
            self._run(self._drain())
            self._settle()
            if not self._is_scoring():
                return
            self._go_on()

    async def _until_scored(self) -> None:
        """Wait until nothing asks for log-probs, as long as a server may be silent."""
        deadline = time.monotonic() + self.settings.reply_timeout
        while self._is_scoring() and time.monotonic() < deadline:
            await asyncio.sleep(QUIET / 4)

    async def _drain(self) -> None:
        """Take in what paused servers said before, until they have been quiet for a moment."""
        num_before = -1
        while num_before != self._num_heard and self._running():
            num_before = self._num_heard
            await asyncio.sleep(QUIET)

    def _is_scoring(self) -> bool:
        return any(job.is_scoring for job in self._running())

    def _go_on(self) -> None:
        """Let all servers sample again."""
        for replica in self._replicas:
            if replica.wire is not None:
                self._ask(replica, "resume", self._api.resume(replica.wire, self._patience))
                self._note_alive(replica)

    async def _load(self, replica: _Replica, version: int, source: Path) -> str:
        """Let a paused server take new weights."""
        load = self._api.load
        wire, seconds = self._wire(replica), self.settings.start_timeout
        if self.settings.adapters:
            return await self._api.adapt(wire, self.policy, source, version, seconds)
        return await load(wire, source, version, seconds)

    @property
    def _model(self) -> str:
        """What requests name as the model: the adapter, once there is one."""
        return self.policy if self.settings.adapters and self._weights is not None else self._card.model

    def _open_all(self) -> Card:
        """Start all servers at once, wait for each, and return what they say of themselves."""
        for replica in self._replicas:
            self._launch(replica)
        cards = [self._meet(replica) for replica in self._replicas]
        for replica, card in zip(self._replicas, cards, strict=True):
            if card.max_length != cards[0].max_length:
                raise UsageError(
                    f"{self._name} at {replica.url}: got streams of {card.max_length} tokens, and "
                    f"{cards[0].max_length} at {self._replicas[0].url}; serve one model in one way"
                )
            if card.dtype in DTYPES and card.dtype != self.settings.dtype:
                raise UsageError(
                    f"{self._name} at {replica.url}: got a server that computes in {card.dtype} for a policy in "
                    f"{self.settings.dtype}; start it with --dtype {self.settings.dtype}, or say that it is meant: "
                    f"{self.settings.kind}?url={replica.url}&dtype={card.dtype}"
                )
        return cards[0]

    def _launch(self, replica: _Replica) -> None:
        """Start the server of `replica`, if it is ours to start."""
        if self.settings.urls:
            return
        assert self.folder is not None, "a server is started with a model"
        port = free_port(self.settings.port + replica.number if self.settings.port else 0)
        command, variables = self._api.command(self.settings, self.folder, port)
        replica.url = f"http://{HERE}:{port}"
        cards = card_variables(self.settings, replica.number)
        replica.process = ServerProcess(self._name, command, {**variables, **cards})

    def _meet(self, replica: _Replica) -> Card:
        """Wait until a server answers, and check that it serves what we have."""
        replica.wire = ServerWire(replica.url, self._key)
        self._note_alive(replica)
        asked = f"{self._name} at {replica.url}"
        try:
            return self._run(self._greet(replica))
        except ServerTrouble as error:
            is_ours = replica.process is not None
            hint = (
                "give it other arguments=, or another model" if is_ours else "name the URL of such a server"
            )
            raise EngineFault(f"{asked}: got {error.got}; {hint}") from error
        except BROKEN as error:
            if isinstance(error, UsageError):
                raise
            raise EngineFault(
                f"{asked}: got an answer that does not fit ({error!r}); name the URL of such a server"
            ) from error

    async def _greet(self, replica: _Replica) -> Card:
        """Return what a server says of itself once it is there."""
        wire, process = self._wire(replica), replica.process
        deadline = time.monotonic() + self.settings.start_timeout
        while process is not None:
            try:
                await wire.ask("GET", "/health", seconds=QUESTION)
                break
            except ServerTrouble as error:
                ended = process.poll_end()
                if ended:
                    raise ServerTrouble("crash", f"a server that {ended}") from error
                if time.monotonic() > deadline:
                    words = f"no server after {self.settings.start_timeout:g} s{process.last_words()}"
                    raise ServerTrouble("timeout", words) from error
            await asyncio.sleep(TICK)
        # A server that was just started answers late on a busy machine, though it is there.
        seconds = QUESTION if process is None else max(QUESTION, deadline - time.monotonic())
        card = await self._api.describe(wire, seconds)
        await self._check_tokenizer(wire, seconds)
        return card

    async def _check_tokenizer(self, wire: ServerWire, seconds: float) -> None:
        """Refuse a server whose tokenizer reads tokens in another way than the model's.

        Raises:
            UsageError: it does.
        """
        if self._decode is None:
            return
        probe = range(0, self._vocabulary, max(1, self._vocabulary // 64))
        theirs, ours = await self._api.decode(wire, probe, seconds), self._decode(probe)
        if theirs is not None and theirs != ours:
            place = next((n for n, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), 0)
            raise UsageError(
                f"{self._name} at {wire.url}: got another tokenizer than the model's (tokens that are "
                f"{ours[place : place + 20]!r} here are {theirs[place : place + 20]!r} there); serve the model "
                "that is trained"
            )

    def _revive(self) -> None:
        """Have all servers there."""
        for replica in self._replicas:
            self._open(replica)

    def _open(self, replica: _Replica) -> None:
        """Have a server there, with the weights that were loaded last, paused if the others are.

        Raises:
            EngineFault: it does not start, or was lost several times without an answer.
        """
        if replica.process is not None and replica.process.poll_end():
            self._lose(replica, "crash")
        if replica.wire is not None:
            return
        if replica.num_deaths >= MAX_DEATHS:
            raise EngineFault(
                f"{self._name} at {replica.url}: it was lost {replica.num_deaths} times without an answer; see the "
                "failures before this"
            )
        self._launch(replica)
        self._meet(replica)
        assert replica.wire is not None, "it was met"
        if self._weights is not None:
            self._ask(replica, "pause", self._api.pause(replica.wire, self._patience))
            wrong = self._ask(replica, "load weights", self._load(replica, *self._weights))
            if wrong:
                raise EngineFault(
                    f"{self._name} at {replica.url}: got {wrong} for the weights that it had before"
                )
        if self._is_paused:
            self._ask(replica, "pause", self._api.pause(replica.wire, self._patience))
        elif self._weights is not None:
            self._ask(replica, "resume", self._api.resume(replica.wire, self._patience))

    def _ask(self, replica: _Replica, what: str, question: Coroutine[Any, Any, T]) -> T:
        """Return the answer to `question`; a server that does not give one is given up.

        Raises:
            EngineFault: it does not.
        """
        try:
            return self._run(question)
        except ServerTrouble as error:
            self._fail(self._lose(replica, error.kind, f"got {error.got} when asked to {what}"))
        except BROKEN as error:
            self._fail(self._lose(replica, "malformed", f"got {error!r} when asked to {what}"))

    def _lose(self, replica: _Replica, kind: str, what: str = "") -> Failure:
        """End a server; the requests that it had come back as the failure that is returned.

        Without `what` was seen, it is said how its process ended.
        """
        process = replica.process
        if process is not None and (not what or kind == "unreachable"):
            what = process.poll_end(PATIENCE) or what
        elif process is not None:
            what += process.last_words()
        failure = self._failure(replica, kind, what)
        lost = [job for job in self._running() if job.stream.replica is replica]
        self._drop(lost)
        for job in lost:
            job.result = failure
            if job.task is not None and job.task.done() and not job.task.cancelled():
                job.task.exception()  # it is known
        if process is not None:
            process.end()
        if replica.wire is not None:
            self._run(replica.wire.close())
        replica.process = replica.wire = None
        replica.num_deaths += 1
        return failure

    def _failure(self, replica: _Replica, kind: str, what: str) -> Failure:
        return Failure(owner="engine", kind=kind, message=f"{self._name} at {replica.url} {what}")

    def _fail(self, failure: Failure) -> NoReturn:
        """Raise the error of a lost server."""
        raise EngineFault(f"{failure.message}; it is asked again when it is used next")

    def _note_alive(self, replica: _Replica) -> None:
        replica.heard = time.monotonic() - self._away
        self._num_heard += 1

    def _wire(self, replica: _Replica) -> ServerWire:
        assert replica.wire is not None, "the server is there"
        return replica.wire

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the loop until `work` is done; tasks of requests go on meanwhile."""
        return self._loop.run_until_complete(work)

    def _check_open(self) -> None:
        """Refuse work after `close`."""
        if self._is_closed:
            raise EngineFault(f"{self._name}: it was closed; build another")


async def _together(questions: Iterable[Awaitable[T]]) -> list[T]:
    """Return the answers to `questions`, asked at once; the first error is raised when all have ended."""
    found = await asyncio.gather(*questions, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return [each for each in found if not isinstance(each, BaseException)]


def _free(loop: asyncio.AbstractEventLoop, replicas: Sequence[_Replica], owned: Path | None) -> None:
    """End servers, connections and the loop, and delete `owned`."""
    for replica in replicas:
        if replica.wire is not None and not loop.is_running():
            with suppress(ServerTrouble):
                loop.run_until_complete(replica.wire.close())
        if replica.process is not None:
            replica.process.end()
    loop.close()
    if owned is not None:
        shutil.rmtree(owned, ignore_errors=True)
