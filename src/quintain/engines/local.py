"""The engine in this process: continuous batching over a Hugging Face causal model, cache kept across turns.

Each session (one token stream) holds a slot of the decoder's cache; a request prefills only the tokens that
are new. Sessions that open with the same prompt are prefilled once. Weights are shared with whoever trains
them: `sync` takes over the new ones, and a session that was cached under an older version is read again from
its first token, so no stale key or value is ever used.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from quintain.engines.decoder import Decoder, FastDecoder, GenericDecoder
from quintain.engines.fused_decoder import FusedDecoder, can_decode
from quintain.engines.protocol import Guide, Reply, Request
from quintain.engines.sampling import guided, sample, uniforms
from quintain.engines.scoring import Asked, choose
from quintain.errors import EngineFault
from quintain.models.families import unsupported
from quintain.types import Completion, Failure

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class _Session:
    """A live stream: its ids so far, how many of them are cached, and under which weights."""

    slot: int
    ids: list[int] = field(default_factory=list[int])
    num_cached: int = 0
    version: int = 0


@dataclass(slots=True)
class _Job:
    """A request that is being worked on."""

    request: Request
    session: _Session
    guide: Guide | None = None
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])


def decoder_for(model: PreTrainedModel, max_length: int) -> Decoder:
    """Return the fastest decoder that can run `model`."""
    if unsupported(model):
        return GenericDecoder(model)
    fast = FusedDecoder if can_decode(model) else FastDecoder
    return fast(model, max_length=max_length)


class Local:
    """Samples from `model` in this process.

    Args:
        model: any causal language model; the Llama family runs on the fast path, others on the generic one
            (`fallback_reason` then says why).
        max_length: longest stream in tokens; the model's own limit when None.
        max_batch: streams that are advanced together.
    """

    def __init__(
        self, model: PreTrainedModel, *, max_length: int | None = None, max_batch: int = 256
    ) -> None:
        limit = int(getattr(model.config, "max_position_embeddings", 1 << 20))
        self.model = model
        self._max_length = min(limit, max_length or limit)
        self.max_batch = max_batch
        self.fallback_reason = unsupported(model)
        if self.fallback_reason:
            LOG.warning("the model runs on the generic, slower path: %s", self.fallback_reason)
        self.decoder = decoder_for(model, self._max_length)
        self._version = 0
        self._sessions: dict[str, _Session] = {}
        self._free: list[int] = []
        self._queue: list[Request] = []
        self._jobs: list[_Job] = []
        self._has_guides = False
        self.num_prefilled = 0
        """tokens computed while reading prompts, so far"""
        self.num_sampled = 0
        """tokens sampled, so far"""

    @property
    def policy_version(self) -> int:
        """Version of the weights that is served."""
        return self._version

    @property
    def max_length(self) -> int:
        """Longest token stream the engine can hold."""
        return self._max_length

    def sync(self, version: int) -> None:
        """Serve the model's current weights as `version`; every cached key and value is dropped."""
        self._version = version
        self.decoder.refresh()

    def submit(self, request: Request) -> None:
        """Queue `request`.

        Raises:
            EngineFault: the session already has a request, or the prompt is empty or too long.
        """
        session = self._sessions.get(request.session)
        known = len(session.ids) if session else 0
        room = self._max_length - known - len(request.prompt_ids)
        if not request.prompt_ids and not known:
            raise EngineFault(f"session {request.session}: got an empty prompt; send at least one token")
        if room < 1:
            raise EngineFault(
                f"session {request.session}: got {self._max_length - room} tokens; the engine holds {self._max_length}"
            )
        if any(job.request.session == request.session for job in self._jobs) and session:
            raise EngineFault(f"session {request.session}: a request is already running; wait for its reply")
        self._queue.append(request)

    def release(self, session: str) -> None:
        """Forget `session`; its slot is used again. A running request of it is dropped."""
        known = self._sessions.pop(session, None)
        if known is not None:
            self.decoder.clear(known.slot)
            self._free.append(known.slot)
            self._free.sort(reverse=True)
            self._jobs = [job for job in self._jobs if job.session is not known]
        self._queue = [request for request in self._queue if request.session != session]

    @torch.inference_mode()
    def advance(self) -> list[Reply]:
        """Sample one token for every running request; start queued ones. Returns the replies that became ready."""
        chosen_whole = self._choose_among()
        while self._queue and len(self._jobs) < self.max_batch:
            request = self._queue.pop(0)
            constraint = request.sampling.constraint
            guide = None if constraint is None else constraint.begin()
            self._jobs.append(_Job(request, self._open(request), guide))
            self._has_guides = self._has_guides or constraint is not None
        if not self._jobs:
            return chosen_whole
        logits = self._forward(self._jobs)
        chosen, logprobs = self._sample(self._jobs, logits)
        return chosen_whole + self._collect(chosen, logprobs)

    def _choose_among(self) -> list[Reply]:
        """Answer the queued requests that name candidates."""
        asked = [request for request in self._queue if request.sampling.candidates is not None]
        if not asked:
            return []
        self._queue = [request for request in self._queue if request.sampling.candidates is None]
        jobs = [_Job(request, self._open(request)) for request in asked]
        read = [
            Asked(request=job.request, slot=job.session.slot, stream=tuple(job.session.ids), after=after)
            for job, after in zip(jobs, self._forward(jobs), strict=True)
        ]
        results, num_read = choose(self.decoder, read, version=self._version)
        self.num_prefilled += num_read
        for job, result in zip(jobs, results, strict=True):
            if not isinstance(result, Failure):
                job.session.ids.extend(result.token_ids)
                self.num_sampled += len(result.token_ids)
        return [Reply(session=r.session, result=found) for r, found in zip(asked, results, strict=True)]

    def _open(self, request: Request) -> _Session:
        """Return the session of `request` with the prompt appended to its stream."""
        session = self._sessions.get(request.session)
        if session is None:
            slot = self._free.pop() if self._free else len(self._sessions)
            session = self._sessions[request.session] = _Session(slot, version=self._version)
        if session.version != self._version:
            self.decoder.clear(session.slot)
            session.num_cached, session.version = 0, self._version
        session.ids.extend(request.prompt_ids)
        return session

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
        rows = sorted(computed, key=lambda index: jobs[index].session.slot)
        sessions = [jobs[index].session for index in rows]
        new_ids = [session.ids[session.num_cached :] for session in sessions]
        logits = self.decoder.forward([session.slot for session in sessions], new_ids)
        self.num_prefilled += sum(
            len(ids) for index, ids in zip(rows, new_ids, strict=True) if not jobs[index].token_ids
        )
        where = {index: row for row, index in enumerate(rows)}
        for first, members in followers.items():
            self.decoder.copy(jobs[first].session.slot, [jobs[index].session.slot for index in members])
            where |= dict.fromkeys(members, where[first])
        for job in jobs:
            job.session.num_cached = len(job.session.ids)
        return logits[[where[index] for index in range(len(jobs))]]

    def _sample(self, jobs: list[_Job], logits: Tensor) -> tuple[list[int], list[float]]:
        """Return the sampled id and its log-prob for each job."""
        seeds = np.array([job.request.seed for job in jobs], dtype=np.uint64)
        counters = np.array([len(job.token_ids) for job in jobs], dtype=np.uint64)
        numbers = torch.from_numpy(uniforms(seeds, counters)).to(logits.device)
        heats = np.array([job.request.sampling.temperature for job in jobs], dtype=np.float32)
        temperatures = torch.from_numpy(heats).to(logits.device)
        chosen, logprobs = sample(logits, temperatures, numbers)
        if self._has_guides:
            guides = [job.guide for job in jobs]
            self._has_guides = any(guide is not None for guide in guides)
            chosen, logprobs = guided(guides, logits, temperatures, numbers, (chosen, logprobs))
        return chosen.tolist(), logprobs.tolist()

    def _collect(self, chosen: list[int], logprobs: list[float]) -> list[Reply]:
        """Append the sampled tokens to their jobs and return the replies of those that are done."""
        replies: list[Reply] = []
        running: list[_Job] = []
        for job, token, logprob in zip(self._jobs, chosen, logprobs, strict=True):
            name = job.request.session
            if not math.isfinite(logprob):
                message = f"the log-prob of token {len(job.token_ids)} is {logprob}"
                replies.append(
                    Reply(session=name, result=Failure(owner="engine", kind="not_finite", message=message))
                )
                continue
            job.token_ids.append(token)
            job.logprobs.append(logprob)
            job.session.ids.append(token)
            sampling = job.request.sampling
            is_stop = token in sampling.stop_ids
            if (
                is_stop
                or len(job.token_ids) >= sampling.max_tokens
                or len(job.session.ids) >= self._max_length
            ):
                replies.append(Reply(session=name, result=self._completion(job, is_stop)))
            else:
                running.append(job)
        self.num_sampled += len(chosen)
        self._jobs = running
        return replies

    def _completion(self, job: _Job, is_stop: bool) -> Completion:
        """Return the finished completion of `job`."""
        return Completion(
            token_ids=tuple(job.token_ids),
            logprobs=tuple(job.logprobs),
            stop="stop" if is_stop else "length",
            policy_version=self._version,
        )
