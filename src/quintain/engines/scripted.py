"""An engine that replies from a script, for tests and for measuring what everything but sampling costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quintain.engines.grammar import Grammars, tokens_of
from quintain.engines.protocol import (
    CAPABILITIES,
    Capability,
    EngineStats,
    PauseMode,
    Reply,
    Request,
    Sampling,
    check_request,
    check_streams,
    grammar_failure,
    needs_of,
    note_version,
    require,
)
from quintain.engines.tally import Tally
from quintain.errors import QuintainError
from quintain.types import Completion, Failure

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Script = Callable[[Request, tuple[int, ...]], tuple[int, ...] | Failure]
NAME = "the engine Scripted"


@dataclass(slots=True)
class _Job:
    """A request that is being answered, a few tokens in each round."""

    request: Request
    stream: tuple[int, ...]
    """the stream up to the answer"""
    answer: tuple[int, ...] | Failure
    versions: list[tuple[int, int]]
    """(number of the first token, version) that it was said under"""
    num_said: int = 0


class Scripted:
    """Replies with what `script(request, stream)` returns; `stream` is the whole token stream so far.

    Log-probs are -1 for every token. The completion ends with `stop` when its last id is a stop token; a script keeps
    to `max_tokens` by itself. A request with fixed tokens says these; of candidates, the one that the script returns
    is taken, or else one by the seed.

    Args:
        script: what to reply.
        tokenizer: what grammars of text need; an answer that does not keep to its grammar is a failure of the engine.
        policy: name of the policy that it stands for.
        max_length: longest stream in tokens.
        tokens_per_round: tokens of a request that one `advance` says; None says all of them at once.
    """

    def __init__(
        self,
        script: Script,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        policy: str = "policy",
        max_length: int = 1 << 20,
        tokens_per_round: int | None = None,
    ) -> None:
        self.script = script
        self._grammars = None if tokenizer is None else Grammars(len(tokenizer), tokenizer)
        self.policy = policy
        self.tokens_per_round = tokens_per_round
        self._max_length = max_length
        self._version = 0
        self._is_paused = False
        self._streams: dict[str, tuple[int, ...]] = {}
        self._queue: list[Request] = []
        self._jobs: list[_Job] = []
        self._tally = Tally()
        self.requests: list[Request] = []
        """Every request so far, in order of submission."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """See `Engine.capabilities`: all but what needs weights, and grammars of text where there is no tokenizer."""
        without = {"fingerprint", "masked"}
        return CAPABILITIES - (without if self._grammars else {*without, "grammar"})

    @property
    def policy_version(self) -> int:
        """The version that was loaded last; 0 before."""
        return self._version

    @property
    def max_length(self) -> int:
        """Longest token stream the engine can hold."""
        return self._max_length

    @property
    def vocabulary(self) -> int | None:
        """None: a script takes any id."""
        return None

    def submit(self, request: Request) -> None:
        """See `Engine.submit`."""
        require(NAME, self.capabilities, needs_of(request.sampling), by=f"session {request.session}")
        check_request(
            request,
            num_known=len(self._streams.get(request.session, ())),
            max_length=self._max_length,
            is_busy=request.session in self._tally.unanswered,
        )
        constraint = request.sampling.constraint
        if constraint is not None and constraint.kind == "tokens":
            tokens_of(constraint, None)
        elif constraint is not None and self._grammars is not None:
            self._grammars.begin(constraint, request.sampling.stop_ids)
        self._queue.append(request)
        self._tally.submit(request.session)
        self.requests.append(request)

    def advance(self) -> list[Reply]:
        """Say the next tokens of every request, and return those that are answered."""
        replies = list[Reply]()
        if not self._is_paused:
            queue, self._queue = self._queue, []
            jobs, self._jobs = [*self._jobs, *map(self._begin, queue)], []
            for job in jobs:
                result = self._say(job)
                if result is None:
                    self._jobs.append(job)
                else:
                    replies.append(Reply(session=job.request.session, result=result))
        return self._tally.answer(replies)

    def release(self, session: str) -> None:
        """See `Engine.release`."""
        self._tally.release(session)
        self._streams.pop(session, None)
        self._queue = [request for request in self._queue if request.session != session]
        self._jobs = [job for job in self._jobs if job.request.session != session]

    def score(self, token_ids: Sequence[Sequence[int]], temperature: float = 1.0) -> list[tuple[float, ...]]:
        """See `Engine.score`: -1 for every token but the first."""
        check_streams(token_ids, max_length=self._max_length)
        self._tally.add(num_scored=sum(map(len, token_ids)))
        return [(0.0, *[-1.0] * (len(ids) - 1)) for ids in token_ids]

    def load_weights(self, version: int, source: Path | None) -> None:
        """Be `version` from now on; a script has no weights, and `source` is not read."""
        self._version = version
        self._tally.add(num_weight_loads=1)
        for job in self._jobs:
            note_version(job.versions, job.num_said, version)

    def pause(self, mode: PauseMode = "keep") -> None:
        """See `Engine.pause`."""
        self._is_paused = True
        if mode == "abort":
            requests = [*(job.request for job in self._jobs), *self._queue]
            self._tally.abort(request.session for request in requests)
            self._jobs, self._queue = [], []

    def resume(self) -> None:
        """See `Engine.resume`."""
        self._is_paused = False

    def stats(self) -> EngineStats:
        """See `Engine.stats`."""
        return self._tally.stats(
            num_running=len(self._jobs),
            num_waiting=len(self._queue) + len(self._tally.aborted),
            num_sessions=len(self._streams),
        )

    def shares(self, model: object) -> bool:
        """A script has no model."""
        return False

    def fingerprint(self) -> str:
        """Refuse: a script has no weights."""
        require(NAME, self.capabilities, ["fingerprint"], by="a fingerprint")
        raise AssertionError("it is refused")

    def close(self) -> None:
        """Forget every session."""
        for session in {*self._streams, *self._tally.unanswered}:
            self.release(session)

    def _begin(self, request: Request) -> _Job:
        """Return the job of `request`, with what the script says to it."""
        stream = self._streams.get(request.session, ()) + request.prompt_ids
        self._tally.add(num_prefilled=len(request.prompt_ids))
        sampling = request.sampling
        if sampling.constraint is not None and sampling.constraint.kind == "tokens":
            answer: tuple[int, ...] | Failure = tokens_of(sampling.constraint, None)[: sampling.max_tokens]
        else:
            answer = self._ask(request, stream)
        if sampling.candidates is not None and not isinstance(answer, Failure):
            options = sampling.candidates.token_ids
            answer = answer if answer in options else options[request.seed % len(options)]
            answer = answer[: sampling.max_tokens]
        try:
            if not isinstance(answer, Failure) and not self._is_allowed(answer, sampling):
                answer = Failure(
                    owner="engine", kind="script", message="the script does not keep to the grammar"
                )
        except QuintainError as error:
            answer = grammar_failure(str(error))
        return _Job(request, stream, answer, [(0, self._version)])

    def _ask(self, request: Request, stream: tuple[int, ...]) -> tuple[int, ...] | Failure:
        """Return what the script says to `request`; where it raises, that is this request's failure."""
        try:
            return self.script(request, stream)
        except Exception as error:
            message = f"the script raised {type(error).__name__}: {error}"
            return Failure(owner="engine", kind="script", message=message)

    def _is_allowed(self, answer: tuple[int, ...], sampling: Sampling) -> bool:
        """Whether `answer` keeps to the grammar of text of `sampling`, if it has one."""
        if sampling.constraint is None or sampling.constraint.kind == "tokens" or self._grammars is None:
            return True
        guide = self._grammars.begin(sampling.constraint, sampling.stop_ids)
        for token in answer:
            allowed = guide.allow_tokens()
            if not 0 <= token < len(allowed) or not allowed[token]:
                return False
            guide.take(token)
        return True

    def _say(self, job: _Job) -> Completion | Failure | None:
        """Say the next tokens of `job`, and return the result when all are said."""
        if isinstance(job.answer, Failure):
            return job.answer
        num_new = min(len(job.answer) - job.num_said, self.tokens_per_round or len(job.answer))
        job.num_said += num_new
        self._tally.add(num_sampled=num_new)
        if job.num_said < len(job.answer):
            return None
        self._streams[job.request.session] = job.stream + job.answer
        sampling = job.request.sampling
        whole = () if sampling.candidates is None else sampling.candidates.token_ids
        if sampling.constraint is not None and sampling.constraint.kind == "tokens":
            whole = (tokens_of(sampling.constraint, None),)
        is_stop = job.answer in whole or (bool(job.answer) and job.answer[-1] in sampling.stop_ids)
        return Completion(
            token_ids=job.answer,
            logprobs=(-1.0,) * len(job.answer),
            stop="stop" if is_stop else "length",
            policy_version=self._version,
            policy=self.policy,
            version_spans=tuple(job.versions) if len(job.versions) > 1 else (),
        )
