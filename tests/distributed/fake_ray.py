"""Ray as far as quintain uses it, in one process: actors do at once what they are asked, or are lost."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any


class RayError(Exception):
    pass


class RayActorError(RayError):
    pass


class ActorDiedError(RayActorError):
    pass


class ObjectStoreFullError(RayError):
    pass


class OutOfDiskError(RayError):
    pass


class GetTimeoutError(RayError, TimeoutError):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Reference:
    """What a call has come to; `owner` is the actor that did it."""

    def __init__(self, value: object, owner: "Handle | None" = None) -> None:
        self.value, self.owner = value, owner


class Handle:
    """An actor: one that is lost begins again where it may."""

    def __init__(self, kind: type, options: dict[str, Any], loop: asyncio.AbstractEventLoop) -> None:
        self._kind, self.options, self._loop = kind, options, loop
        self.number = 0
        self.is_dead = False
        self.actor = kind()

    def lose(self) -> None:
        self.number += 1
        if self.options.get("max_restarts") == -1:
            self.actor = self._kind()
        else:
            self.is_dead = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        call = SimpleNamespace(remote=lambda *arguments: self._call(name, arguments))
        call.options = lambda **_: call
        return call

    def _call(self, name: str, arguments: Sequence[Any]) -> Reference:
        if self.is_dead:
            return Reference(ActorDiedError("gone"), self)
        given = [each.value if isinstance(each, Reference) else each for each in arguments]
        number = self.number
        try:
            value = getattr(self.actor, name)(*given)
            if inspect.iscoroutine(value):
                value = self._loop.run_until_complete(value)
        except Exception as error:
            value = RayTaskError(error)
        return Reference(value if number == self.number else ActorDiedError("gone"), self)


class FakeRay:
    """The module; `machines` are what each machine has, `most_stored` the bytes that its store holds."""

    exceptions = SimpleNamespace(
        RayError=RayError, RayActorError=RayActorError, ObjectStoreFullError=ObjectStoreFullError,
        OutOfDiskError=OutOfDiskError, GetTimeoutError=GetTimeoutError, RayTaskError=RayTaskError,
    )  # fmt: skip

    def __init__(self, *machines: dict[str, float]) -> None:
        self.machines = list(machines) or [{"CPU": 64.0, "memory": 1e9, "node:here": 1.0}]
        self.is_full = False
        self.address = ""
        self.problem: Exception | None = None
        self.handles: list[Handle] = []
        self.loop = asyncio.new_event_loop()
        self.loses: Callable[[Reference], bool] = lambda _: False
        """whether the actor of a call is lost before its answer is fetched"""
        self.never_answers: Callable[[Reference], bool] = lambda _: False

    def is_initialized(self) -> bool:
        return bool(self.address)

    def init(self, address: str, **options: Any) -> None:
        if self.problem is not None:
            raise self.problem
        self.address, self.options = address, options

    def shutdown(self) -> None:
        self.address = ""

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": each} for each in self.machines]

    def put(self, value: object) -> Reference:
        if self.is_full:
            raise ObjectStoreFullError("no room")
        return Reference(value)

    def wait(
        self, references: Sequence[Reference], num_returns: int, timeout: float
    ) -> tuple[list[Reference], list[Reference]]:
        ready = [each for each in references if not self.never_answers(each)][:num_returns]
        return ready, [each for each in references if each not in ready]

    def get(self, reference: Reference, timeout: float | None = None) -> Any:
        if reference.owner is not None and self.loses(reference):
            reference.owner.lose()
            reference.value = ActorDiedError("gone")
        if isinstance(reference.value, RayError):
            raise reference.value
        return reference.value

    def kill(self, handle: Handle) -> None:
        handle.is_dead = True

    def remote(self, **options: Any) -> Callable[[type], Any]:
        def made(kind: type) -> Any:
            def begin() -> Handle:
                self.handles.append(Handle(kind, options, self.loop))
                return self.handles[-1]

            return SimpleNamespace(remote=begin)

        return made
