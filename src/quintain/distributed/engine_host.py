"""The actor that holds one engine: it answers many workers at once, and samples for all of them together."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from quintain.distributed.connection import Files, write_files
from quintain.distributed.version import check_version
from quintain.engines.protocol import Capability, Engine, EngineStats, PauseMode, Reply, Request
from quintain.errors import EngineFault, QuintainError
from quintain.types import Failure

if TYPE_CHECKING:
    from quintain.engines.settings import EngineSettings

T = TypeVar("T")
LOST = "lost"
"""Kind of the failure of a request whose engine is gone, or has begun again and has no weights yet."""
PAUSE = 0.01
"""Seconds between two looks at an engine that has nothing to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What an engine says of itself when it is built."""

    policy: str
    max_length: int
    vocabulary: int | None
    capabilities: frozenset[Capability]


class EngineHost:
    """An engine as an actor. Ray makes a new one where it is lost, which knows nothing until it is opened again."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._is_served = self._is_paused = self._keeps_files = False
        self._thread = ThreadPoolExecutor(1)
        """the one thread in which the engine is used"""
        self._waiting: dict[str, asyncio.Future[Reply]] = {}
        self._work: asyncio.Task[None] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="quintain-engine-"))
        self._weights: Path | None = None

    async def open(self, version: str, files: Files, settings: EngineSettings, policy: str) -> Facts:
        """Build the engine of `settings` with the model in `files`, unless it is there.

        Raises:
            EngineFault: the driver is of another version. ModelError: the model cannot be loaded.
        """
        check_version(version, f"the engine of {policy}")
        if self._engine is None:
            from quintain.engines.build import build_engine  # which takes long to import

            folder = write_files(files, self._folder / "model")
            self._engine = await self._do(lambda: build_engine(settings, folder, policy=policy))
            self._keeps_files = settings.kind != "local"  # an engine in this process has read them
            self._drop(folder)
        engine = self._engine
        return Facts(
            policy=policy,
            max_length=engine.max_length,
            vocabulary=engine.vocabulary,
            capabilities=engine.capabilities - {"shared_weights"},
        )

    async def serve(self) -> None:
        """Answer requests from now on: the weights are there."""
        self._is_served = True

    async def sample(self, request: Request) -> Reply:
        """Return the answer to `request` when it is complete."""
        if self._engine is None or not self._is_served:
            return _failure_reply(request, LOST, "the engine has begun again and has no weights yet")
        answer = self._waiting[request.session] = asyncio.get_running_loop().create_future()
        try:
            await self._do(lambda: self.engine.submit(request))
        except QuintainError as error:
            del self._waiting[request.session]
            return _failure_reply(request, "refused", str(error))
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._advance())
        return await answer

    async def release(self, session: str) -> None:
        """Forget a session; a request of it is not answered."""
        waiting = self._waiting.pop(session, None)
        if waiting is not None and not waiting.done():
            failure = Failure(owner="engine", kind="released", message="its session was released")
            waiting.set_result(Reply(session=session, result=failure))
        if self._engine is not None:
            await self._do(lambda: self.engine.release(session))

    async def load_weights(self, version: int, files: Files) -> None:
        """Serve the weights in `files` as `version`."""
        folder = write_files(files, self._folder / f"weights-{version}")
        await self._do(lambda: self.engine.load_weights(version, folder))
        before, self._weights = self._weights, folder
        self._drop(folder)
        if before is not None and before != folder:
            shutil.rmtree(before, ignore_errors=True)

    async def load_missed(self, version: int, files: Files) -> None:
        """Serve the weights in `files`, unless it does."""
        if self.engine.policy_version != version:
            await self.load_weights(version, files)

    async def score(self, token_ids: Sequence[Sequence[int]], temperature: float) -> list[tuple[float, ...]]:
        """Score streams."""
        return await self._do(lambda: self.engine.score(token_ids, temperature))

    async def pause(self, mode: PauseMode) -> None:
        """Stop sampling."""
        await self._do(lambda: self.engine.pause(mode))
        self._is_paused = True

    async def resume(self) -> None:
        """Sample again."""
        await self._do(lambda: self.engine.resume())
        self._is_paused = False

    async def stats(self) -> EngineStats:
        """Say what was done so far."""
        return await self._do(lambda: self.engine.stats())

    async def fingerprint(self) -> str:
        """Name the weights."""
        return await self._do(lambda: self.engine.fingerprint())

    async def close(self) -> None:
        """End the engine with the servers that it has started, which Ray would leave behind."""
        if self._engine is not None:
            await self._do(lambda: self.engine.close())

    @property
    def engine(self) -> Engine:
        """The engine, which `open` builds."""
        if self._engine is None:
            raise EngineFault("the engine of a cluster: it has begun again and was not opened yet; ask again")
        return self._engine

    async def _do(self, call: Callable[[], T]) -> T:
        """Return the result of `call`, made in the engine's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _drop(self, folder: Path) -> None:
        """Delete files that the engine reads no more."""
        if not self._keeps_files:
            shutil.rmtree(folder, ignore_errors=True)

    async def _advance(self) -> None:
        """Work until nobody waits."""
        while self._waiting:
            try:
                replies = await self._do(lambda: self.engine.advance())
            except QuintainError as error:
                failure = Failure(owner="engine", kind=type(error).__name__, message=str(error))
                replies = [Reply(session=session, result=failure) for session in self._waiting]
            for reply in replies:
                waiting = self._waiting.pop(reply.session, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(reply)
            if self._is_paused and not replies:
                await asyncio.sleep(PAUSE)


def _failure_reply(request: Request, kind: str, message: str) -> Reply:
    return Reply(session=request.session, result=Failure(owner="engine", kind=kind, message=message))
