"""The engine in this process: continuous batching over a Hugging Face causal model, cache kept across turns.

Each session (one token stream) holds a slot of the decoder's cache; a request prefills only the tokens that
are new. What sessions begin alike is prefilled once (`engines.prefixes`), among those that open together and with
those that are live, whoever they belong to. Weights may be shared with whoever trains them: `load_weights` takes over
the new ones, and every session is then read again from its first token when it goes on, so no stale key or value is
ever used, nor copied.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from quintain.engines.decoder import Decoder, FastDecoder, GenericDecoder
from quintain.engines.fused_decoder import FusedDecoder, can_decode
from quintain.engines.grammar import Grammars, Guide, is_available
from quintain.engines.prefixes import find_longest, plan_pieces
from quintain.engines.protocol import (
    Capability,
    EngineStats,
    PauseMode,
    Reply,
    Request,
    check_request,
    check_streams,
    grammar_failure,
    note_version,
    portions,
)
from quintain.engines.sampling import sample, sample_guided, uniforms
from quintain.engines.scoring import CandidateRequest, choose
from quintain.engines.settings import KINDS
from quintain.engines.tally import Tally
from quintain.errors import EngineFault, MemoryShortage, QuintainError, name_shortage
from quintain.models.device import has_float64
from quintain.models.families import find_unsupported
from quintain.models.fingerprint import fingerprint
from quintain.models.precision import Precision
from quintain.models.weights import read_weights
from quintain.processes.freed import trim_heap
from quintain.types import Completion, Constraint, Failure

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LOG = logging.getLogger(__name__)
T = TypeVar("T")
_Drawn = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""logits [R, V], temperatures [R], uniform numbers [R], sampled ids [R] and their log-probs [R]"""
ADVICE = (
    "lower --concurrency (streams at once) or --max-context (their length), or take --precision bf16; the engine vllm "
    "keeps what fits"
)
"""What to change where the cache of the streams does not fit."""
LARGE = 1 << 24
"""Weights of a model after which it is worth while to give memory back."""
SMALL_CACHE = 1 << 28
"""Bytes of a cache that a processor keeps while nothing is sampled."""
MIN_SHARED = 16
"""Fewest tokens that streams begin alike for them to be read once: a pass of its own costs something."""
MAX_SCORED = 1 << 25
"""Logits that `Local.score` holds at once."""


@dataclass(slots=True)
class _Session:
    """A live stream: its ids so far, and how many of them are cached under the weights that are served."""

    slot: int
    ids: list[int] = field(default_factory=list[int])
    num_cached: int = 0


@dataclass(slots=True)
class _Job:
    """A request that is being worked on."""

    request: Request
    session: _Session
    num_before: int
    """ids of the session before the request"""
    versions: list[tuple[int, int]]
    """(number of the first token, version) of the weights that it was sampled with"""
    guide: Guide | None = None
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])


def decoder_for(model: PreTrainedModel, max_length: int, precision: Precision = "fp32") -> Decoder:
    """Return the fastest decoder that can run `model`."""
    if find_unsupported(model):
        return GenericDecoder(model, precision=precision)
    fast = FusedDecoder if can_decode(model) else FastDecoder
    return fast(model, max_length=max_length, precision=precision)


class Local:
    """Samples from `model` in this process.

    Args:
        model: any causal language model; the Llama family runs on the fast path, others on the generic one
            (`fallback_reason` then says why).
        tokenizer: that of the model; without one there can be no grammars of text.
        policy: name of the policy that the model is.
        max_length: longest stream in tokens; the model's own limit when None.
        max_batch: streams that are advanced together.
        precision: bf16 computes linear layers in bfloat16, as a learner of that precision does.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        policy: str = "policy",
        max_length: int | None = None,
        max_batch: int = 256,
        precision: Precision = "fp32",
    ) -> None:
        limit = int(getattr(model.config, "max_position_embeddings", 1 << 20))
        self.model = model
        self.policy = policy
        self.vocabulary = len(cast(Tensor, model.get_input_embeddings().weight))
        self._grammars = Grammars(self.vocabulary, tokenizer)
        self._max_length = min(limit, max_length or limit)
        self.max_batch = max_batch
        self.min_shared = MIN_SHARED
        self.fallback_reason = find_unsupported(model)
        if self.fallback_reason:
            LOG.warning("the model runs on the generic, slower path: %s", self.fallback_reason)
        self.decoder = decoder_for(model, self._max_length, precision)
        self._trim_heap()
        self._version = 0
        self._sessions: dict[str, _Session] = {}
        self._free: list[int] = []
        self._queue: list[Request] = []
        self._jobs: list[_Job] = []
        self._tally = Tally()
        self._is_paused = self._is_short = False

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Everything but adapters; grammars of text only with a tokenizer and llguidance."""
        has_grammars = self._grammars.tokenizer is not None and is_available()
        return KINDS["local"] if has_grammars else KINDS["local"] - {"grammar"}

    @property
    def policy_version(self) -> int:
        """Version of the weights that is served."""
        return self._version

    @property
    def max_length(self) -> int:
        """Longest token stream the engine can hold."""
        return self._max_length

    def load_weights(self, version: int, source: Path | None) -> None:
        """See `Engine.load_weights`; weights from a folder are put into the model, also for whoever shares it."""
        if source is not None:
            read_weights(self.model, source)
        self._version = version
        self.decoder.refresh()
        self._trim_heap()
        for session in self._sessions.values():
            session.num_cached = 0
        for job in self._jobs:
            note_version(job.versions, len(job.token_ids), version)
        self._tally.add(num_weight_loads=1)

    def _drop_cache(self, decoder: FastDecoder | FusedDecoder) -> None:
        """Let go of the cache: whoever learns has need of the memory now. A processor keeps a small one for later."""
        if self.model.device.type != "cpu" or decoder.num_bytes > SMALL_CACHE:
            decoder.drop()
            self._trim_heap()

    def _trim_heap(self) -> None:
        """Give back what was freed while the weights were laid out: of a large model a gigabyte stays otherwise."""
        if self.model.device.type == "cpu" and self.model.num_parameters() > LARGE:
            trim_heap()

    def submit(self, request: Request) -> None:
        """See `Engine.submit`."""
        session = self._sessions.get(request.session)
        check_request(
            request,
            num_known=len(session.ids) if session else 0,
            max_length=self._max_length,
            is_busy=request.session in self._tally.unanswered,
            vocabulary=self.vocabulary,
        )
        if request.sampling.constraint is not None:
            self._grammars.begin(request.sampling.constraint, request.sampling.stop_ids)
        self._queue.append(request)
        self._tally.submit(request.session)

    def release(self, session: str) -> None:
        """See `Engine.release`; the slot of the session is used again."""
        known = self._sessions.pop(session, None)
        if known is not None:
            self.decoder.clear(known.slot)
            self._free.append(known.slot)
            self._free.sort(reverse=True)
            self._jobs = [job for job in self._jobs if job.session is not known]
            if not self._sessions and isinstance(self.decoder, FastDecoder | FusedDecoder):
                self._drop_cache(self.decoder)
        self._queue = [request for request in self._queue if request.session != session]
        self._tally.release(session)

    @torch.inference_mode()
    def advance(self) -> list[Reply]:
        """Sample one token for every running request; start queued ones. Returns the replies that became ready."""
        started = time.perf_counter()
        replies = self._tally.answer([] if self._is_paused else self._round())
        self._tally.add(busy_seconds=time.perf_counter() - started)
        return replies

    def pause(self, mode: PauseMode = "keep") -> None:
        """See `Engine.pause`."""
        self._is_paused = True
        if mode == "keep":
            return
        for job in self._jobs:
            self._take_back(job)
        self._tally.abort(request.session for request in [*(job.request for job in self._jobs), *self._queue])
        self._jobs, self._queue = [], []

    def resume(self) -> None:
        """See `Engine.resume`."""
        self._is_paused = False

    @torch.inference_mode()
    def score(self, token_ids: Sequence[Sequence[int]], temperature: float = 1.0) -> list[tuple[float, ...]]:
        """See `Engine.score`; nothing of the streams is kept."""
        started = time.perf_counter()
        check_streams(token_ids, max_length=self._max_length, vocabulary=self.vocabulary)
        found: list[tuple[float, ...]] = []
        for streams in portions(token_ids, most_tokens=self._num_at_once, most_streams=self.max_batch):
            found += self._score(streams, temperature or 1.0)
        self._tally.add(num_scored=sum(map(len, token_ids)), busy_seconds=time.perf_counter() - started)
        return found

    def stats(self) -> EngineStats:
        """See `Engine.stats`."""
        return self._tally.stats(
            num_running=len(self._jobs),
            num_waiting=len(self._queue) + len(self._tally.aborted),
            num_sessions=len(self._sessions),
            cache_bytes=self.decoder.num_bytes if isinstance(self.decoder, FastDecoder | FusedDecoder) else 0,
        )

    def shares(self, model: object) -> bool:
        """See `Engine.shares`."""
        return model is self.model

    def fingerprint(self) -> str:
        """See `Engine.fingerprint`."""
        return fingerprint(self.model)

    def close(self) -> None:
        """Forget every session; the model belongs to whoever loaded it."""
        for session in list(self._sessions):
            self.release(session)

    @property
    def _num_at_once(self) -> int:
        """Tokens that are scored in one pass."""
        return max(16, MAX_SCORED // self.vocabulary)

    def _score(self, streams: Sequence[Sequence[int]], heat: float) -> list[tuple[float, ...]]:
        """Return the log-probs of the tokens of `streams`; one that is too long for a pass is read in pieces."""
        first = len(self._sessions) + len(self._free)
        slots = range(first, first + len(streams))
        found: list[list[float]] = [[0.0] for _ in streams]
        try:
            for start in range(0, max(map(len, streams)), self._num_at_once):
                pieces = [ids[start : start + self._num_at_once] for ids in streams]
                rows = torch.log_softmax(self.decoder.read(slots, pieces).float() / heat, dim=-1)
                at = 0
                for logprobs, ids, piece in zip(found, streams, pieces, strict=True):
                    following = torch.tensor(ids[start + 1 : start + 1 + len(piece)], device=rows.device)
                    here = rows[at : at + len(following)]
                    logprobs += here.gather(1, following.long()[:, None])[:, 0].tolist()
                    at += len(piece)
        finally:
            for slot in slots:
                self.decoder.clear(slot)
        if not all(math.isfinite(value) for logprobs in found for value in logprobs):
            raise EngineFault("streams to score: got a log-prob that is not finite; the weights are broken")
        return [tuple(logprobs) for logprobs in found]

    def _round(self) -> list[Reply]:
        """Start queued requests, sample a token for each running one, and return the replies that became ready."""
        replies = self._choose_among()
        while (place := self._next()) is not None:
            request = self._queue.pop(place)
            constraint, stop_ids = request.sampling.constraint, request.sampling.stop_ids
            try:
                guide = None if constraint is None else self._grammars.begin(constraint, stop_ids)
            except QuintainError as error:
                replies.append(Reply(session=request.session, result=grammar_failure(str(error))))
                continue
            job = self._open(request)
            job.guide = guide
            self._jobs.append(job)
        if not self._jobs:
            return replies
        parts, failures = self._fit(self._jobs, self._draw)
        self._jobs = []
        for jobs, drawn in parts:
            replies += self._collect(jobs, *self._guide(jobs, *drawn))
        return replies + failures

    def _next(self) -> int | None:
        """Return the place in the queue of the request to be begun next; None where nothing can be."""
        if len(self._jobs) < self.max_batch:
            return 0 if self._queue else None
        return next((place for place, request in enumerate(self._queue) if request.is_urgent), None)

    def _choose_among(self) -> list[Reply]:
        """Answer the queued requests that name candidates."""
        asked = [request for request in self._queue if request.sampling.candidates is not None]
        if not asked:
            return []
        self._queue = [request for request in self._queue if request.sampling.candidates is None]
        parts, replies = self._fit([self._open(request) for request in asked], self._choose)
        for jobs, results in parts:
            for job, result in zip(jobs, results, strict=True):
                if isinstance(result, Failure):
                    self._take_back(job)
                else:
                    job.session.ids.extend(result.token_ids)
                    self._tally.add(num_sampled=len(result.token_ids))
                    result = replace(result, policy=self.policy)
                replies.append(Reply(session=job.request.session, result=result))
        return replies

    def _choose(self, jobs: list[_Job]) -> list[Completion | Failure]:
        """Return what each of `jobs`, which name candidates, chose of them."""
        read = [
            CandidateRequest(
                request=job.request, slot=job.session.slot, stream=tuple(job.session.ids), after=after
            )
            for job, after in zip(jobs, self._forward(jobs), strict=True)
        ]
        results, num_read = choose(self.decoder, read, version=self._version)
        self._tally.add(num_prefilled=num_read)
        return results

    def _fit(
        self, jobs: list[_Job], work: Callable[[list[_Job]], T]
    ) -> tuple[list[tuple[list[_Job], T]], list[Reply]]:
        """Return what `work` gives of `jobs`, or of halves of them for which there is memory, and the failures of those
        that do not fit alone.
        """
        cached = [job.session.num_cached for job in jobs]
        try:
            with name_shortage(f"sampling {len(jobs)} streams", ADVICE):
                return [(jobs, work(jobs))], []
        except MemoryShortage as error:
            message = str(error)
        for job, length in zip(jobs, cached, strict=True):
            job.session.num_cached = self.decoder.rewind(job.session.slot, length)
        if len(jobs) == 1:
            self._take_back(jobs[0])
            failure = Failure(owner="engine", kind="memory", message=message)
            return [], [Reply(session=jobs[0].request.session, result=failure)]
        if not self._is_short:
            LOG.warning("%s; until then they are sampled in halves", message)
        self._is_short = True
        middle = len(jobs) // 2
        (parts, failures), (more, others) = self._fit(jobs[:middle], work), self._fit(jobs[middle:], work)
        return parts + more, failures + others

    def _open(self, request: Request) -> _Job:
        """Return the job of `request`, with the prompt appended to the stream of its session."""
        session = self._sessions.get(request.session)
        if session is None:
            slot = self._free.pop() if self._free else len(self._sessions)
            session = self._sessions[request.session] = _Session(slot)
        num_before = len(session.ids)
        session.ids.extend(request.prompt_ids)
        return _Job(request, session, num_before, [(0, self._version)])

    def _take_back(self, job: _Job) -> None:
        """Let the stream of `job` be what it was before the request."""
        del job.session.ids[job.num_before :]
        self.decoder.clear(job.session.slot)
        job.session.num_cached = 0

    def _forward(self, jobs: list[_Job]) -> Tensor:
        """Bring the cache of every job up to date and return the logits [R, V] after its last token."""
        leaders: dict[tuple[int, ...], int] = {}
        followers: dict[int, list[int]] = {}
        for index, job in enumerate(jobs):
            if job.session.num_cached == 0:
                first = leaders.setdefault(tuple(job.session.ids), index)
                if first != index:
                    followers.setdefault(first, []).append(index)
        following = {index for members in followers.values() for index in members}
        computed = [index for index in range(len(jobs)) if index not in following]
        self._share([jobs[index].session for index in computed if jobs[index].session.num_cached == 0])
        rows = sorted(computed, key=lambda index: jobs[index].session.slot)
        sessions = [jobs[index].session for index in rows]
        new_ids = [session.ids[session.num_cached :] for session in sessions]
        logits = self.decoder.forward([session.slot for session in sessions], new_ids)
        # The last token of a request under way was sampled; what stands before it is read again under new weights.
        self._tally.add(
            num_prefilled=sum(
                len(ids) - bool(jobs[index].token_ids) for index, ids in zip(rows, new_ids, strict=True)
            )
        )
        where = {index: row for row, index in enumerate(rows)}
        for first, members in followers.items():
            self.decoder.copy(jobs[first].session.slot, [jobs[index].session.slot for index in members])
            where |= dict.fromkeys(members, where[first])
        for job in jobs:
            job.session.num_cached = len(job.session.ids)
        return logits[[where[index] for index in range(len(jobs))]]

    def _share(self, new: Sequence[_Session]) -> None:
        """Read once what the `new` sessions, all different, begin alike, or with one that is live."""
        if not new:
            return
        live = [each for each in self._sessions.values() if each.num_cached] if self.decoder.can_cut else []
        known = [each.ids[: each.num_cached] for each in live]
        for session in new:
            place, length = find_longest(session.ids[:-1], known)
            if length >= self.min_shared:
                self.decoder.copy(live[place].slot, [session.slot], length)
                session.num_cached = length
        starts = [session.num_cached for session in new]
        for level in plan_pieces([session.ids for session in new], starts, self.min_shared):
            pieces = sorted(level, key=lambda piece: new[piece.leader].slot)
            leaders = [new[piece.leader] for piece in pieces]
            new_ids = [
                leader.ids[leader.num_cached : piece.length]
                for leader, piece in zip(leaders, pieces, strict=True)
            ]
            self.decoder.forward([leader.slot for leader in leaders], new_ids)
            self._tally.add(num_prefilled=sum(map(len, new_ids)))
            for leader, piece in zip(leaders, pieces, strict=True):
                self.decoder.copy(leader.slot, [new[place].slot for place in piece.others])
                for place in (piece.leader, *piece.others):
                    new[place].num_cached = piece.length

    def _draw(self, jobs: list[_Job]) -> _Drawn:
        """Return what is sampled freely for each of `jobs`; the processor draws where a device has no float64."""
        logits = self._forward(jobs)
        if not has_float64(logits.device):
            logits = logits.float().cpu()
        seeds = np.array([job.request.seed for job in jobs], dtype=np.uint64)
        counters = np.array([len(job.token_ids) for job in jobs], dtype=np.uint64)
        numbers = torch.from_numpy(uniforms(seeds, counters)).to(logits.device)
        heats = np.array([job.request.sampling.temperature for job in jobs], dtype=np.float32)
        temperatures = torch.from_numpy(heats).to(logits.device)
        return logits, temperatures, numbers, *sample(logits, temperatures, numbers)

    def _guide(
        self,
        jobs: list[_Job],
        logits: Tensor,
        temperatures: Tensor,
        numbers: Tensor,
        chosen: Tensor,
        logprobs: Tensor,
    ) -> tuple[list[int], list[float], dict[int, str]]:
        """Return the sampled ids of `jobs` and their log-probs, and what is wrong with those whose guide failed."""
        failed: dict[int, str] = {}
        guides, top_ps = [job.guide for job in jobs], [job.request.sampling.top_p for job in jobs]
        masked = [job.request.sampling.is_masked for job in jobs]
        if any(guide is not None for guide in guides) or min(top_ps) < 1:
            free = chosen, logprobs
            try:
                with name_shortage(f"sampling {len(jobs)} streams", ADVICE):
                    chosen, logprobs, failed = sample_guided(
                        guides, logits, temperatures, numbers, free, top_ps, masked
                    )
            except MemoryShortage as error:  # the guides went on, so it cannot be tried again
                failed = dict.fromkeys(range(len(jobs)), str(error))
        return chosen.tolist(), logprobs.tolist(), failed

    def _collect(
        self, jobs: list[_Job], chosen: list[int], logprobs: list[float], failed: Mapping[int, str]
    ) -> list[Reply]:
        """Append the sampled tokens to `jobs` and return the replies of those that are done, or have `failed`."""
        replies: list[Reply] = []
        for place, (job, token, logprob) in enumerate(zip(jobs, chosen, logprobs, strict=True)):
            name = job.request.session
            if place in failed:
                self._take_back(job)
                replies.append(Reply(session=name, result=grammar_failure(failed[place])))
                continue
            if not math.isfinite(logprob):
                self._take_back(job)
                message = f"the log-prob of token {len(job.token_ids)} is {logprob}"
                replies.append(
                    Reply(session=name, result=Failure(owner="engine", kind="not_finite", message=message))
                )
                continue
            job.token_ids.append(token)
            job.logprobs.append(logprob)
            job.session.ids.append(token)
            sampling = job.request.sampling
            is_stop = token in sampling.stop_ids or (job.guide is not None and job.guide.is_over)
            if (
                is_stop
                or len(job.token_ids) >= sampling.max_tokens
                or len(job.session.ids) >= self._max_length
            ):
                replies.append(Reply(session=name, result=self._completion(job, is_stop)))
            else:
                self._jobs.append(job)
        self._tally.add(num_sampled=len(chosen))
        return replies

    def _completion(self, job: _Job, is_stop: bool) -> Completion:
        """Return the finished completion of `job`."""
        sampling = job.request.sampling
        constraint = None
        if sampling.is_masked and sampling.constraint is not None:
            constraint = Constraint(grammar=sampling.constraint, stop_ids=sampling.stop_ids)
        return Completion(
            token_ids=tuple(job.token_ids),
            logprobs=tuple(job.logprobs),
            stop="stop" if is_stop else "length",
            policy_version=self._version,
            policy=self.policy,
            version_spans=tuple(job.versions) if len(job.versions) > 1 else (),
            constraint=constraint,
        )
