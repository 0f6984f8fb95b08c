"""What an engine is: requests of token ids in, completions of token ids out, batched over live sessions.

A session is one token stream (one segment of one episode). A request carries only the tokens appended since
the session's last completion, so an engine can keep the key/value cache of the stream; an engine without one
keeps the ids. Sampling reads one uniform number per token from (seed, index of the token in the completion).

Requests and replies are plain data: frozen values without live objects, which can be compared, hashed and sent to
another process or across a network. What an engine can do beyond sampling is data, too: its `capabilities`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol, get_args

from quintain.errors import EngineFault, UsageError
from quintain.types import Completion, Failure, Grammar

Capability = Literal[
    "adapters",
    "candidates",
    "fingerprint",
    "grammar",
    "load_weights",
    "masked",
    "nucleus",
    "pause",
    "score",
    "seeds",
    "shared_weights",
    "tokens",
]
"""What an engine may be able to do:

- ``adapters``: take LoRA layers as files of their own, on weights that stay as they are;
- ``candidates``: choose one of several given completions (`Sampling.candidates`);
- ``fingerprint``: name the weights that it serves by their bytes;
- ``grammar``: keep to a grammar, a JSON schema, a regular expression or a choice of texts (needs a tokenizer);
- ``load_weights``: take new weights from a folder of safetensors files;
- ``masked``: give log-probs among the tokens that a grammar allows (`Sampling.is_masked`);
- ``nucleus``: sample from the likeliest tokens only (`Sampling.top_p`);
- ``pause``: stop sampling between two tokens and go on later;
- ``score``: give the log-prob of every token of given streams;
- ``seeds``: sample the same tokens from the same seed, whatever else it works on;
- ``shared_weights``: serve the weights of a model in this process, and take over what a learner made of them;
- ``tokens``: say one given sequence of tokens (a `Grammar` of kind ``tokens``).
"""
CAPABILITIES: frozenset[Capability] = frozenset(get_args(Capability))
PauseMode = Literal["keep", "abort"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Completions to choose among: ``Candidates(token_ids=((5,), (5, 9)), lengths=(1.0, 2.0))``.

    One is drawn with probability softmax(score), score = sum of its tokens' log-probs / its length.
    """

    token_ids: tuple[tuple[int, ...], ...]
    lengths: tuple[float, ...]
    """1 for the sum of log-probs (GLAM), the number of tokens or of words for their mean (TWOSOME)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to sample one completion: ``Sampling(temperature=1.0, max_tokens=32, stop_ids=frozenset({2}))``."""

    temperature: float = 1.0
    """0 is greedy. Log-probs are those of the distribution sampled from (of temperature 1 when greedy)."""
    top_p: float = 1.0
    """Sample from the likeliest tokens that have this much of the odds together; log-probs are still those of all."""
    max_tokens: int = 64
    stop_ids: frozenset[int] = frozenset()
    """A completion ends with the first of these that is sampled."""
    candidates: Candidates | None = None
    """Choose one of these instead of sampling token by token; log-probs are still those of its tokens."""
    constraint: Grammar | None = None
    """Sample allowed tokens only, by their odds among each other; log-probs are still those of all tokens."""
    is_masked: bool = False
    """Give the log-probs among the tokens that `constraint` allows, log p - log Z, and say so in the completion."""

    def under(self, grammar: Grammar, *, is_masked: bool) -> Sampling:
        """Return this under `grammar`."""
        return replace(self, constraint=grammar, is_masked=is_masked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Ask for one completion: ``Request(session="s0", prompt_ids=(5, 9), seed=7, sampling=Sampling())``.

    The first request of a session opens it. `prompt_ids` continue the stream after the last completion.
    """

    session: str
    prompt_ids: tuple[int, ...]
    seed: int
    sampling: Sampling
    is_urgent: bool = False
    """Whether it is worked on at once, however many others are: a question about the engine itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What became of a request: ``Reply(session="s0", result=Completion(...))``.

    After a `Failure` the stream of the session is what it was before the request.
    """

    session: str
    result: Completion | Failure


ABORTED = Failure(owner="engine", kind="aborted", message="the engine was paused; ask again")
"""What becomes of a request that a pause aborts."""


def grammar_failure(message: str) -> Failure:
    """Return what becomes of a request whose grammar cannot be followed, or not to its end."""
    return Failure(owner="engine", kind="grammar", message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """What an engine has done so far and is doing: ``EngineStats(num_sampled=64, num_running=2)``.

    `num_submitted` is the sum of `num_finished`, `num_failed`, `num_released`, `num_running` and `num_waiting`.
    """

    num_submitted: int = 0
    """Requests taken on."""
    num_finished: int = 0
    """Requests answered with a completion."""
    num_failed: int = 0
    """Requests answered with a failure."""
    num_released: int = 0
    """Requests whose session was released before their answer."""
    num_running: int = 0
    """Requests that tokens are being sampled for."""
    num_waiting: int = 0
    """Requests that were not begun, or whose answer was not yet asked for."""
    num_sessions: int = 0
    """Streams that are held."""
    num_prefilled: int = 0
    """Tokens computed while reading prompts and candidates."""
    num_sampled: int = 0
    """Tokens sampled, those of failed requests included."""
    num_scored: int = 0
    """Tokens read by `Engine.score`."""
    num_weight_loads: int = 0
    busy_seconds: float = 0.0
    """Time spent sampling and scoring."""
    cache_bytes: int = 0
    """Memory for keys and values, where the engine knows it."""


class Engine(Protocol):
    """Samples completions for many sessions at once. `testing.engines.check_engine` tries all that is said here.

    A method that needs a capability which the engine does not have raises a `UsageError`.
    """

    @property
    def policy(self) -> str:
        """Name of the policy that is served; it stands in every completion."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do beyond sampling."""
        ...

    @property
    def policy_version(self) -> int:
        """Version of the weights that is served."""
        ...

    @property
    def max_length(self) -> int:
        """Longest token stream the engine can hold."""
        ...

    @property
    def vocabulary(self) -> int | None:
        """Number of tokens of the model; None where any id may be sent."""
        ...

    def submit(self, request: Request) -> None:
        """Queue `request`.

        Raises:
            EngineFault: the session has a request already, or the prompt is empty, too long or not of the vocabulary.
            UsageError: the engine cannot do what it asks for, or its grammar cannot be compiled.
        """
        ...

    def advance(self) -> list[Reply]:
        """Do one round of work and return the requests it finished, in order of submission; [] when idle.

        What is wrong with one request, such as a grammar that cannot be followed to its end, is that request's
        `Failure`, and the others go on.

        Raises:
            EngineFault: the engine fails as a whole.
        """
        ...

    def release(self, session: str) -> None:
        """Forget `session` and free what it holds; a running request of it is dropped, unknown sessions are ignored."""
        ...

    def score(self, token_ids: Sequence[Sequence[int]], temperature: float = 1.0) -> list[tuple[float, ...]]:
        """Return for every stream the log-prob (nats) of each token given those before it; 0 for the first.

        Log-probs are those of softmax(logits / temperature), of temperature 1 where it is 0.

        Raises:
            EngineFault: a stream is empty, too long or not of the vocabulary, or a log-prob is not finite.
        """
        ...

    def load_weights(self, version: int, source: Path | None) -> None:
        """Serve new weights as `version`; nothing that was computed with the old ones is used again.

        `source` is a folder of safetensors files (of LoRA layers, where the engine can do ``adapters``); None takes
        the weights that are shared with a learner in this process as they are now. Requests under way go on with the
        new weights, and their completions say so.

        Raises:
            ModelError: the files are missing or broken or hold other tensors; the old weights are still served.
        """
        ...

    def pause(self, mode: PauseMode = "keep") -> None:
        """Stop sampling at a token boundary; what is submitted from now on waits.

        ``keep``: requests under way go on after `resume`, under the weights that are then served. ``abort``: the next
        `advance` returns all unanswered requests as ``Failure(owner="engine", kind="aborted")``.
        """
        ...

    def resume(self) -> None:
        """Sample again; does nothing if the engine is not paused."""
        ...

    def stats(self) -> EngineStats:
        """Return what it has done so far and is doing."""
        ...

    def shares(self, model: object) -> bool:
        """Whether it samples from `model` itself, whose changed weights need not be copied to it."""
        ...

    def fingerprint(self) -> str:
        """Return the digest of the weights that are served, as `models.fingerprint` computes it."""
        ...

    def close(self) -> None:
        """Free everything; may be repeated."""
        ...


def require(
    engine: str,
    capabilities: Collection[Capability],
    needed: Iterable[Capability],
    *,
    by: str,
    instead: str = "take an engine that can",
) -> None:
    """Refuse what `by` needs where `engine`, which has `capabilities`, cannot do it; `instead` says what to do.

    Example: ``require("scripted", {"score"}, ["grammar"], by="agent 'constrained'")``.

    Raises:
        UsageError: a needed capability is missing.
    """
    missing = sorted(set(needed) - set(capabilities))
    if missing:
        able = ", ".join(sorted(capabilities)) or "nothing beyond sampling"
        raise UsageError(
            f"{by} needs an engine that can do {', '.join(missing)}: got {engine}, which can do {able}; {instead}"
        )


def needs_of(sampling: Sampling) -> frozenset[Capability]:
    """Return what an engine must be able to do for `sampling`."""
    needed: set[Capability] = {"candidates"} if sampling.candidates is not None else set()
    if sampling.top_p < 1:
        needed.add("nucleus")
    if sampling.constraint is not None:
        needed.add("tokens" if sampling.constraint.kind == "tokens" else "grammar")
    if sampling.is_masked:
        needed.add("masked")
    return frozenset(needed)


def check_request(
    request: Request, *, num_known: int, max_length: int, is_busy: bool, vocabulary: int | None = None
) -> None:
    """Refuse a request that cannot be answered; the stream of its session has `num_known` tokens so far.

    Raises:
        EngineFault: the session `is_busy`, or the prompt is empty, too long or not of the `vocabulary` (tokens).
        UsageError: a grammar of text without a stop id to end with.
    """
    length = num_known + len(request.prompt_ids)
    name, sampling = f"session {request.session}", request.sampling
    if not length:
        raise EngineFault(f"{name}: got an empty prompt; send at least one token")
    if length >= max_length:
        raise EngineFault(f"{name}: got {length} tokens; the engine holds {max_length}")
    if is_busy:
        raise EngineFault(f"{name}: a request is already running; wait for its reply")
    check_ids(name, request.prompt_ids, vocabulary)
    check_sampling(name, request, room=max_length - length)
    for candidate in sampling.candidates.token_ids if sampling.candidates is not None else ():
        check_ids(name, candidate, vocabulary)
    if sampling.constraint is not None and sampling.constraint.kind != "tokens" and not sampling.stop_ids:
        raise UsageError(f"{name}: got a grammar without stop_ids; name the tokens that end a completion")


def check_sampling(name: str, request: Request, *, room: int) -> None:
    """Refuse numbers of a request by which nothing can be sampled; its stream has `room` for so many tokens more.

    Raises:
        EngineFault: a seed, a temperature, a limit or candidates are none.
    """
    sampling, choice = request.sampling, request.sampling.candidates
    wrong: dict[str, object] = {}
    if not 0 <= request.seed < 1 << 64:
        wrong["seed"] = request.seed
    if not 0 <= sampling.temperature < float("inf"):
        wrong["temperature"] = sampling.temperature
    if not 0 < sampling.top_p <= 1:
        wrong["top_p"] = sampling.top_p
    if sampling.max_tokens < 1:
        wrong["max_tokens"] = sampling.max_tokens
    if choice is not None and not (
        len(choice.token_ids) == len(choice.lengths) > 0
        and all(0 < length < float("inf") for length in choice.lengths)
        and min(max(map(len, choice.token_ids)), sampling.max_tokens) <= room
    ):
        wrong["candidates"] = (
            f"{len(choice.token_ids)} with {len(choice.lengths)} lengths and room for {room}"
        )
    if wrong:
        found = ", ".join(f"{what} {value!r:.80}" for what, value in wrong.items())
        raise EngineFault(f"{name}: got {found}; give numbers that can be sampled by")


def check_ids(name: str, token_ids: Sequence[int], vocabulary: int | None) -> None:
    """Refuse `token_ids` of `name` that are not in a vocabulary of so many tokens.

    Raises:
        EngineFault: one is not.
    """
    if vocabulary is not None and token_ids and not (min(token_ids) >= 0 and max(token_ids) < vocabulary):
        wrong = next(token for token in token_ids if not 0 <= token < vocabulary)
        raise EngineFault(
            f"{name}: got token {wrong}; the model has {vocabulary}, use the tokenizer that belongs to it"
        )


def check_streams(
    token_ids: Sequence[Sequence[int]], *, max_length: int, vocabulary: int | None = None
) -> None:
    """Refuse streams that cannot be scored.

    Raises:
        EngineFault: one is empty, longer than `max_length` or not of the `vocabulary`.
    """
    for place, ids in enumerate(token_ids):
        if not 0 < len(ids) <= max_length:
            raise EngineFault(f"stream {place} to score: got {len(ids)} tokens; send 1 to {max_length}")
        check_ids(f"stream {place} to score", ids, vocabulary)


def portions(
    token_ids: Sequence[Sequence[int]], *, most_tokens: int, most_streams: int | None = None
) -> Iterator[list[Sequence[int]]]:
    """Yield streams in order, as many at once as both limits admit, at least one."""
    part: list[Sequence[int]] = []
    size = 0
    for ids in token_ids:
        if part and (size + len(ids) > most_tokens or len(part) == most_streams):
            yield part
            part, size = [], 0
        part.append(ids)
        size += len(ids)
    if part:
        yield part


def note_version(versions: list[tuple[int, int]], num_sampled: int, version: int) -> None:
    """Add to the spans `versions` of a completion that `version` samples it from token `num_sampled` on."""
    if versions[-1][0] == num_sampled:
        versions.pop()
    versions.append((num_sampled, version))
