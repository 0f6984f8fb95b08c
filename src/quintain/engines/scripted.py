"""An engine that replies from a script, for tests and for measuring what everything but sampling costs."""

from collections.abc import Callable

from quintain.engines.protocol import Reply, Request
from quintain.types import Completion, Failure

Script = Callable[[Request, tuple[int, ...]], tuple[int, ...] | Failure]


class Scripted:
    """Replies with what `script(request, stream)` returns; `stream` is the whole token stream so far.

    Log-probs are -1 for every token. The completion ends with `stop` when its last id is a stop token.
    """

    def __init__(self, script: Script, *, max_length: int = 1 << 20) -> None:
        self.script = script
        self._max_length = max_length
        self._streams: dict[str, tuple[int, ...]] = {}
        self._queue: list[Request] = []
        self.requests: list[Request] = []
        """Every request so far, in order of submission."""

    @property
    def policy_version(self) -> int:
        """Always 0."""
        return 0

    @property
    def max_length(self) -> int:
        """Longest token stream the engine can hold."""
        return self._max_length

    def submit(self, request: Request) -> None:
        """Queue `request`."""
        self._queue.append(request)
        self.requests.append(request)

    def advance(self) -> list[Reply]:
        """Answer every queued request."""
        queue, self._queue = self._queue, []
        return [Reply(session=request.session, result=self._answer(request)) for request in queue]

    def release(self, session: str) -> None:
        """Forget `session`."""
        self._streams.pop(session, None)

    def _answer(self, request: Request) -> Completion | Failure:
        """Return the scripted result of `request` and extend its stream."""
        stream = self._streams.get(request.session, ()) + request.prompt_ids
        ids = self.script(request, stream)
        if isinstance(ids, Failure):
            return ids
        self._streams[request.session] = stream + ids
        is_stop = bool(ids) and ids[-1] in request.sampling.stop_ids
        return Completion(token_ids=ids, logprobs=(-1.0,) * len(ids), stop="stop" if is_stop else "length")
