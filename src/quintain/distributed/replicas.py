"""The engine of a policy whose copies are actors: workers and driver use it like any other (`engines.protocol`).

A session stays with one copy, by its name, so that what that has computed of the stream is used again. A copy that is
gone is begun again by Ray, and opened again, with the weights that were loaded last, by the driver's `mend`; until then
it fails what it is asked, and the episodes are played again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from quintain.distributed.connection import Connection, fetch, ray_package, read_files
from quintain.distributed.engine_host import LOST, Facts
from quintain.distributed.version import own_version
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
from quintain.errors import EngineFault, ModelError
from quintain.rollout.staleness import versions_of
from quintain.types import Completion, Failure

if TYPE_CHECKING:
    from quintain.engines.settings import EngineSettings

SLICE = 0.05
"""Seconds that `Replicas.advance` waits for a reply."""
MAX_SCORED = 50_000
"""Tokens that a copy is asked to score at once."""
ANSWER = 600.0
"""Seconds that a copy may take for anything but a completion."""
MAX_RELEASING = 256
"""Releases after which it is looked which are done."""
RETRY = 0.2
"""Seconds between two tries to reach a copy that is begun again."""
NAME = "the engine on the cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What a worker needs to use an engine: the handles of its copies, and what they are."""

    handles: tuple[Any, ...]
    facts: Facts


class Replicas:
    """Samples from the copies behind `link`; `user` is its name among those who use them."""

    def __init__(self, link: Link, *, user: str) -> None:
        self.link, self.user = link, user
        self._ray = ray_package()
        self._facts = link.facts
        self._version = 0
        self._asked: dict[str, tuple[Any, Request]] = {}
        """session → its request and, once it is sent, the reference of the answer, in order of submission"""
        self._lengths: dict[str, int] = {}
        self._names: dict[str, str] = {}
        """session → what the copies call it, which is never used again: calls may overtake each other"""
        self._last_name = self._num_unsent = 0
        self._releasing: list[Any] = []
        self._turns = cycle(link.handles)

    @property
    def policy(self) -> str:
        """Name of the policy."""
        return self._facts.policy

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What each copy can do."""
        return self._facts.capabilities

    @property
    def policy_version(self) -> int:
        """Version that was loaded last; to a worker, the newest that it has seen."""
        return self._version

    @property
    def max_length(self) -> int:
        """Longest token stream."""
        return self._facts.max_length

    @property
    def vocabulary(self) -> int | None:
        """Number of tokens of the model."""
        return self._facts.vocabulary

    def submit(self, request: Request) -> None:
        """See `Engine.submit`; what only a copy can see to be wrong comes back as a failure."""
        require(NAME, self.capabilities, needs_of(request.sampling), by=f"session {request.session}")
        check_request(
            request,
            num_known=self._lengths.get(request.session, 0),
            max_length=self.max_length,
            is_busy=request.session in self._asked,
            vocabulary=self.vocabulary,
        )
        if request.session not in self._names:
            self._lengths[request.session] = 0
            self._last_name += 1
            self._names[request.session] = f"{self.user}/{self._last_name}"
        self._asked[request.session] = None, request

    def advance(self) -> list[Reply]:
        """Send what was submitted, and return the replies that are there, or come within a moment."""
        self._send()
        references = [reference for reference, _ in self._asked.values()]
        if not references:
            return []
        ready, _ = self._ray.wait(references, num_returns=1, timeout=SLICE)
        if ready and len(references) > 1:
            ready, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
        done = set(ready)
        replies: list[Reply] = []
        for session, (reference, request) in list(self._asked.items()):
            if reference in done:
                del self._asked[session]
                replies.append(Reply(session=session, result=self._result(request, reference)))
        return replies

    def release(self, session: str) -> None:
        """See `Engine.release`."""
        if self._lengths.pop(session, None) is None:
            return
        reference, _ = self._asked.pop(session, (self, None))
        self._num_unsent += reference is None
        name = self._names.pop(session)
        self._releasing.append(self._home(name).release.remote(name))
        if len(self._releasing) > MAX_RELEASING:
            _, self._releasing = self._ray.wait(self._releasing, num_returns=len(self._releasing), timeout=0)

    def score(self, token_ids: Sequence[Sequence[int]], temperature: float = 1.0) -> list[tuple[float, ...]]:
        """See `Engine.score`; the copies share the work."""
        check_streams(token_ids, max_length=self.max_length, vocabulary=self.vocabulary)
        asked = [
            next(self._turns).score.remote([list(ids) for ids in part], temperature)
            for part in portions(token_ids, most_tokens=MAX_SCORED)
        ]
        return [row for reference in asked for row in self._get(reference, "score")]

    def load_weights(self, version: int, source: Path | None) -> None:
        """See `Engine.load_weights`; what serves them on the cluster is `ServedReplicas`."""
        raise EngineFault(f"{NAME}: got weights {version} from a worker; the driver loads them")

    def pause(self, mode: PauseMode = "keep") -> None:
        """See `Engine.pause`."""
        self._send()
        self._all("pause", mode)

    def resume(self) -> None:
        """See `Engine.resume`."""
        self._all("resume")

    def stats(self) -> EngineStats:
        """See `Engine.stats`: the sums over all copies, and over all users."""
        self._send()
        if self._releasing:
            self._ray.wait(self._releasing, num_returns=len(self._releasing), timeout=ANSWER)
            self._releasing = []
        rows: list[EngineStats] = self._all("stats")
        sums = {each.name: sum(getattr(row, each.name) for row in rows) for each in fields(EngineStats)}
        for name in ("num_submitted", "num_released"):
            sums[name] += self._num_unsent
        return EngineStats(**sums)

    def shares(self, model: object) -> bool:
        """See `Engine.shares`: it never does."""
        return False

    def fingerprint(self) -> str:
        """See `Engine.fingerprint`.

        Raises:
            EngineFault: copies serve different weights.
        """
        found: list[str] = self._all("fingerprint")
        if len(set(found)) > 1:
            names = ", ".join(each[:12] for each in found)
            raise EngineFault(
                f"{NAME}: got copies of {self.policy} with different weights ({names}); report this"
            )
        return found[0]

    def close(self) -> None:
        """Release every session."""
        for session in list(self._lengths):
            self.release(session)

    def _send(self) -> None:
        """Send what was submitted."""
        for session, (reference, request) in self._asked.items():
            if reference is None:
                name = self._names[session]
                named = replace(request, session=name)
                self._asked[session] = self._home(name).sample.remote(named), request

    def _home(self, name: str) -> Any:
        """Return the copy that a session stays with."""
        return self.link.handles[crc32(name.encode()) % len(self.link.handles)]

    def _result(self, request: Request, reference: Any) -> Completion | Failure:
        """Return what became of a request."""
        try:
            result: Completion | Failure = self._ray.get(reference).result
        except self._ray.exceptions.RayError as error:
            message = f"a copy of {self.policy} is gone ({type(error).__name__})"
            return Failure(owner="engine", kind=LOST, message=message)
        if isinstance(result, Completion):
            self._version = max(self._version, *versions_of(result))
            self._lengths[request.session] += len(request.prompt_ids) + len(result.token_ids)
        return result

    def _all(self, do: str, *arguments: object) -> list[Any]:
        """Have every copy `do` something and return the answers."""
        asked = [getattr(handle, do).remote(*arguments) for handle in self.link.handles]
        return [self._get(reference, do) for reference in asked]

    def _get(self, reference: Any, do: str) -> Any:
        return fetch(self._ray, reference, ANSWER, f"{NAME}, asked to {do}")


CLOSING = 20.0
"""Seconds that a copy may take to end what it has started."""


class ServedReplicas(Replicas):
    """The driver's side: opens the copies, gives them weights, and brings back those that were lost.

    Args:
        handles: the actors (`engine_host.EngineHost`).
        folder: of the model.
    """

    def __init__(
        self,
        connection: Connection,
        handles: Sequence[Any],
        folder: Path,
        settings: EngineSettings,
        *,
        policy: str,
        start_timeout: float,
    ) -> None:
        """Open the copies.

        Raises:
            EngineFault: they do not start in time, or the object store is full. ModelError: the model is broken.
        """
        self._connection, self._start_timeout = connection, start_timeout
        self._opening = (own_version(), connection.put(read_files(folder)), settings, policy)
        self._weights: tuple[int, Any] | None = None
        opened = [handle.open.remote(*self._opening) for handle in handles]
        facts = [connection.get(each, start_timeout, f"an engine of {policy}") for each in opened]
        super().__init__(Link(handles=tuple(handles), facts=facts[0]), user="driver")
        self._all("serve")

    def load_weights(self, version: int, source: Path | None) -> None:
        """See `Engine.load_weights`: through the object store, to all copies at once."""
        if source is None:
            require(NAME, self.capabilities, ["shared_weights"], by="load_weights without a folder")
            return
        if not source.is_dir():
            raise ModelError(f"weights of {self.policy}: got {str(source)!r}, which is no folder; give one")
        before, self._weights = self._weights, (version, self._connection.put(read_files(source)))
        asked = [handle.load_weights.remote(*self._weights) for handle in self.link.handles]
        try:
            for reference in asked:
                try:
                    self._get(reference, "load weights")
                except EngineFault:
                    self.mend()  # it is begun again, and gets them there
        except ModelError:
            self._weights = before
            raise
        self._version = version

    def mend(self) -> None:
        """Bring back every copy that was lost, with the weights that were loaded last.

        Raises:
            EngineFault: one does not come back in time.
        """
        for handle in self.link.handles:
            deadline = time.monotonic() + self._start_timeout
            while not self._is_back(handle):
                if time.monotonic() > deadline:
                    raise EngineFault(
                        f"{NAME} for {self.policy}: a copy did not come back within {self._start_timeout:g} s; see ray "
                        "status for a machine that can hold it, then resume the run"
                    )
                time.sleep(RETRY)

    def close(self) -> None:
        """End all copies."""
        closing = [handle.close.remote() for handle in self.link.handles]
        self._ray.wait(closing, num_returns=len(closing), timeout=CLOSING)
        for handle in self.link.handles:
            self._ray.kill(handle)

    def _is_back(self, handle: Any) -> bool:
        """Open a copy, which does nothing where it is open, and have it serve the last weights if it has others."""
        what = f"a copy of {self.policy} that was begun again"
        try:
            self._connection.get(handle.open.remote(*self._opening), self._start_timeout, what)
            if self._weights is not None:
                missed = handle.load_missed.remote(*self._weights)
                self._connection.get(missed, self._start_timeout, what)
            self._connection.get(handle.serve.remote(), self._start_timeout, what)
        except EngineFault as error:
            if not isinstance(error.__cause__, self._ray.exceptions.RayActorError):
                raise
            return False
        return True
