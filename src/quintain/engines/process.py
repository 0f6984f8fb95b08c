"""An engine in a process of its own, which loads a model from a folder and samples while this one does other things.

Requests and replies go through pipes as frames of JSON, new weights through files. Every wait has a deadline. A process
that dies, hangs or says what it must not is ended: its requests come back as failures of the engine, and the next use
starts a new one with the weights that were loaded last. The streams are kept here, too, so that sessions go on there.
"""

from __future__ import annotations

import shutil
import sys
import time
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NoReturn, cast

from quintain.engines.grammar import check_grammar
from quintain.engines.protocol import (
    Capability,
    EngineStats,
    PauseMode,
    Reply,
    Request,
    check_request,
    check_streams,
    needs_of,
    portions,
    require,
)
from quintain.engines.settings import EngineSettings
from quintain.engines.tally import Tally
from quintain.engines.wire import Row, from_row, to_row
from quintain.errors import EngineFault, find_error_class
from quintain.processes.child import PATIENCE, Child, ending
from quintain.processes.frames import MAX_OUTPUT, Frames, UnreadableFrameError, frame_request
from quintain.types import Completion, Failure

SOURCES = Path(__file__).resolve().parents[2]
"""Where this package is; the other process imports it from there."""
PROGRAM = "import sys; sys.path.insert(0, {!r}); from quintain.engines.process_host import main; main()"
NAME = "the engine process"
SLICE = 0.05
"""Seconds that `ProcessEngine.advance` waits for a reply."""
MAX_SCORED = 50_000
"""Tokens that one frame asks to score."""
MAX_DEATHS = 3
"""Processes that may end one after the other without having answered anything."""
BROKEN = (KeyError, TypeError, ValueError, IndexError, EngineFault)
"""What reading a frame of the wrong shape raises."""


@dataclass(slots=True)
class _Stream:
    """A session: its ids so far, and whether the process knows them."""

    ids: list[int] = field(default_factory=list[int])
    is_known: bool = True


@dataclass(slots=True)
class _Process:
    """A running process, and what it told of itself."""

    child: Child
    frames: Frames
    stats: EngineStats = field(default_factory=EngineStats)
    heard: float = 0.0
    """when the last frame came, on the monotonic clock"""


class ProcessEngine:
    """Samples from the model in `folder` in a process of its own.

    Args:
        folder: a model folder, which must stay as long as the engine.
        settings: what the engine there is like (its `kind` is local there).
        policy: name of the policy that the model is.
        owned: a folder that is deleted when the engine is closed.
    """

    def __init__(
        self,
        folder: Path,
        settings: EngineSettings | None = None,
        *,
        policy: str = "policy",
        owned: Path | None = None,
    ) -> None:
        """Start the process and load the model.

        Raises:
            EngineFault: the process does not start, or not in time.
            ModelError: the model cannot be loaded.
        """
        self.folder, self.policy = folder, policy
        self.settings = settings or EngineSettings(kind="process")
        self._process: _Process | None = None
        self._weights: tuple[int, Path] | None = None
        self._is_paused = self._is_closed = False
        self._streams: dict[str, _Stream] = {}
        self._queue: list[int] = []
        self._asked: dict[int, Request] = {}
        """unanswered requests by number, in order of submission"""
        self._numbers: dict[str, int] = {}
        self._ready: list[Reply] = []
        self._last_number = self._num_deaths = 0
        self._tally = Tally()
        self._past = EngineStats()
        """what processes did that are gone"""
        self._finalizer = weakref.finalize(self, shutil.rmtree, owned, ignore_errors=True) if owned else None
        self._start()

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the engine in the process can do, but for sharing weights."""
        return self._capabilities

    @property
    def policy_version(self) -> int:
        """Version of the weights that is served."""
        return self._weights[0] if self._weights is not None else 0

    @property
    def max_length(self) -> int:
        """Longest token stream the engine can hold."""
        return self._max_length

    @property
    def vocabulary(self) -> int | None:
        """Number of tokens of the model."""
        return self._vocabulary

    @property
    def process_id(self) -> int | None:
        """Number of the process that was started, which keeps the one that works; None while there is none."""
        return self._process.child.process.pid if self._process is not None else None

    def submit(self, request: Request) -> None:
        """See `Engine.submit`; what only the process can see to be wrong comes back as a failure."""
        self._check_open()
        require(NAME, self.capabilities, needs_of(request.sampling), by=f"session {request.session}")
        stream = self._streams.get(request.session)
        check_request(
            request,
            num_known=len(stream.ids) if stream else 0,
            max_length=self.max_length,
            is_busy=request.session in self._numbers,
            vocabulary=self._vocabulary,
        )
        if request.sampling.constraint is not None:
            check_grammar(request.sampling.constraint)
        self._streams.setdefault(request.session, _Stream())
        self._last_number += 1
        self._asked[self._last_number] = request
        self._numbers[request.session] = self._last_number
        self._queue.append(self._last_number)
        self._tally.submit(request.session)

    def advance(self) -> list[Reply]:
        """Send what was submitted, and return the replies that are there, or come within a moment.

        Raises:
            EngineFault: no process starts, or several ended one after the other.
        """
        if self._asked and not self._is_paused:
            self._send_queue()
            if not self._ready:
                self._listen(SLICE)
        replies, self._ready = self._ready, []
        for reply in replies:
            del self._asked[self._numbers.pop(reply.session)]
        return self._tally.answer(replies)

    def release(self, session: str) -> None:
        """See `Engine.release`."""
        if self._streams.pop(session, None) is None:
            return
        number = self._numbers.pop(session, None)
        if number is not None:
            del self._asked[number]
            self._tally.release(session)
        self._ready = [reply for reply in self._ready if reply.session != session]
        if number in self._queue:
            self._queue.remove(number)
        if self._process is not None:
            self._tell("release", session)

    def score(self, token_ids: Sequence[Sequence[int]], temperature: float = 1.0) -> list[tuple[float, ...]]:
        """See `Engine.score`."""
        self._check_open()
        check_streams(token_ids, max_length=self.max_length, vocabulary=self._vocabulary)
        found: list[tuple[float, ...]] = []
        for part in portions(token_ids, most_tokens=MAX_SCORED):
            rows = self._call("score", [list(ids) for ids in part], temperature)
            found += [tuple(map(float, row)) for row in cast("list[list[float]]", rows)]
        return found

    def load_weights(self, version: int, source: Path | None) -> None:
        """See `Engine.load_weights`; the files must stay until the next call, for a process that is started again."""
        self._check_open()
        if source is None:
            require(NAME, self.capabilities, ["shared_weights"], by="load_weights without a folder")
            return
        source = source.resolve()
        self._call("load_weights", version, str(source), seconds=self.settings.start_timeout)
        self._weights = version, source
        self._tally.add(num_weight_loads=1)

    def pause(self, mode: PauseMode = "keep") -> None:
        """See `Engine.pause`."""
        self._check_open()
        self._send_queue()
        self._is_paused = True
        self._call("pause", mode)

    def resume(self) -> None:
        """See `Engine.resume`."""
        self._check_open()
        if self._is_paused:
            self._is_paused = False
            self._call("resume")

    def stats(self) -> EngineStats:
        """See `Engine.stats`: what the process was doing when it was asked, and before."""
        if self._process is not None:
            self._process.stats = from_row(EngineStats, cast(Row, self._call("stats")))
        now = self._process.stats if self._process is not None else EngineStats()
        num_running = now.num_running
        total = _add(self._past, now)
        return self._tally.stats(
            num_running=num_running,
            num_waiting=len(self._asked) - num_running,
            num_sessions=len(self._streams),
            num_prefilled=total.num_prefilled,
            num_sampled=total.num_sampled,
            num_scored=total.num_scored,
            busy_seconds=total.busy_seconds,
            cache_bytes=now.cache_bytes,
        )

    def shares(self, model: object) -> bool:
        """See `Engine.shares`: it never does."""
        return False

    def fingerprint(self) -> str:
        """See `Engine.fingerprint`."""
        self._check_open()
        return str(self._call("fingerprint"))

    def close(self) -> None:
        """End the process and delete what is owned; it must not be used any more."""
        self._is_closed = True
        self._end()
        if self._finalizer is not None:
            self._finalizer()

    def _start(self) -> None:
        """Start a process, load the model, and the weights that were loaded last.

        Raises:
            EngineFault: it does not start, or the ones before it ended without having answered anything.
        """
        if self._num_deaths >= MAX_DEATHS:
            raise EngineFault(
                f"{NAME} for {str(self.folder)!r}: it ended {self._num_deaths} times without an answer; see the "
                "failures before this, or take the engine local"
            )
        try:
            child = Child([sys.executable, "-P", "-X", "utf8", "-c", PROGRAM.format(str(SOURCES))])
        except OSError as error:
            raise EngineFault(f"{NAME}: got {error} from the system; free memory or processes") from error
        weakref.finalize(self, child.end)
        self._process = _Process(child, Frames(child.process), heard=time.monotonic())
        for stream in self._streams.values():
            stream.is_known = False
        settings = to_row(replace(self.settings, kind="local"))
        limit = self.settings.start_timeout
        told = cast(Row, self._call("open", str(self.folder.resolve()), settings, self.policy, seconds=limit))
        try:
            self._max_length, self._vocabulary = int(told["max_length"]), int(told["vocabulary"])
            self._capabilities = frozenset(cast("list[Capability]", told["capabilities"])) - {
                "shared_weights"
            }
        except BROKEN as error:
            self._end()
            raise EngineFault(f"{NAME}: got no answer to open that fits ({error!r}); report this") from error
        if self._weights is not None:
            self._call("load_weights", self._weights[0], str(self._weights[1]), seconds=limit)
        if self._is_paused:
            self._call("pause", "keep")

    def _send_queue(self) -> None:
        """Send the requests that were submitted, with the tokens that the process does not know."""
        if self._queue and self._process is None:
            self._start()
        queue, self._queue = self._queue, []
        for number in queue:
            request = self._asked[number]
            stream = self._streams[request.session]
            unsent = () if stream.is_known else tuple(stream.ids)
            self._tell("submit", number, to_row(replace(request, prompt_ids=unsent + request.prompt_ids)))

    def _tell(self, do: str, *arguments: object, number: int | None = None) -> None:
        """Send a frame; it gets an answer if it has a `number`."""
        assert self._process is not None, "a process was started"
        frame: Row = {"do": do, "with": arguments}
        self._process.frames.write(frame_request(frame if number is None else {"id": number, **frame}))

    def _call(self, do: str, *arguments: object, seconds: float | None = None) -> object:
        """Send a frame and return its answer; replies that come before it are kept.

        Raises:
            EngineFault: the process is lost.
            QuintainError: what the engine raised there.
        """
        if self._process is None:
            self._start()
        self._last_number += 1
        number = self._last_number
        self._tell(do, *arguments, number=number)
        deadline = time.monotonic() + (seconds or self.settings.reply_timeout)
        while True:
            frame = self._read(deadline)
            if frame is None:
                self._fail(
                    self._lose(
                        "timeout", f"{do} took longer than {seconds or self.settings.reply_timeout:g} s"
                    )
                )
            if isinstance(frame, Failure):
                self._fail(frame)
            if frame.get("id") != number:
                continue
            if "fault" in frame:
                if do == "open":
                    self._end()
                raise (find_error_class(frame.get("class")) or EngineFault)(str(frame["fault"]))
            return frame.get("value")

    def _listen(self, seconds: float) -> None:
        """Take in replies, until there are some or so many seconds have passed."""
        deadline = time.monotonic() + seconds
        while not self._ready:
            frame = self._read(deadline)
            if frame is None:
                process = self._process
                assert process is not None, "requests were sent to it"
                silent = time.monotonic() - process.heard
                if silent > self.settings.reply_timeout:
                    self._lose("timeout", f"gave no sign of life for {silent:.0f} s")
                return
            if isinstance(frame, Failure):
                return

    def _read(self, deadline: float) -> Row | Failure | None:
        """Return the next frame, after taking in the replies in it; None if none came, the failure if it is lost."""
        process = self._process
        assert process is not None, "a process was started"
        try:
            frame = process.frames.read(deadline, process.child, MAX_OUTPUT)
            if isinstance(frame, dict):
                process.frames.output(MAX_OUTPUT)
                process.heard = time.monotonic()
                if "replies" in frame:
                    process.stats = from_row(EngineStats, frame["stats"])
                    for number, row in frame["replies"]:
                        self._take(int(number), from_row(Reply, row))
                return frame
        except (UnreadableFrameError, *BROKEN) as error:
            return self._lose("protocol", f"said what is no reply ({error})")
        if frame == "time":
            return None
        if frame == "output":
            return self._lose("output", f"printed more than {MAX_OUTPUT >> 20} MiB")
        return self._lose("crash", "")

    def _take(self, number: int, reply: Reply) -> None:
        """Keep a reply, unless its session was released."""
        request = self._asked.get(number)
        if request is None:
            return
        stream = self._streams[request.session]
        if isinstance(reply.result, Completion):
            stream.ids += (*request.prompt_ids, *reply.result.token_ids)
            stream.is_known = True
            self._num_deaths = 0
        self._ready.append(reply)

    def _lose(self, kind: str, what: str) -> Failure:
        """End the process; every request that it had comes back as the failure that is returned."""
        process = self._process
        assert process is not None, "a process was started"
        last = "" if kind == "output" else process.frames.last_words(MAX_OUTPUT)
        if not what:
            code = process.child.wait(PATIENCE)
            what = "closed its connection" if code is None else f"ended with {ending(code)}"
        failure = Failure(owner="engine", kind=kind, message=f"{NAME} for {self.folder.name} {what}{last}")
        self._end()
        self._num_deaths += 1
        answered = {self._numbers[reply.session] for reply in self._ready}
        waiting = {*answered, *self._queue}
        self._ready += [
            Reply(session=request.session, result=failure)
            for number, request in self._asked.items()
            if number not in waiting
        ]
        return failure

    def _fail(self, failure: Failure) -> NoReturn:
        """Raise the error of a lost process."""
        raise EngineFault(f"{failure.message}; it is started again when it is used next")

    def _end(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            self._past = _add(self._past, process.stats)
            process.child.end()

    def _check_open(self) -> None:
        """Refuse work after `close`."""
        if self._is_closed:
            raise EngineFault(f"{NAME} for {str(self.folder)!r}: it was closed; build another")


def _add(left: EngineStats, right: EngineStats) -> EngineStats:
    """Return the sums of two statistics."""
    names: Iterable[str] = (each.name for each in fields(EngineStats))
    values: dict[str, Any] = {name: getattr(left, name) + getattr(right, name) for name in names}
    return EngineStats(**values)
