"""What every engine must do, tried on one: ``for finding in check_engine(engine): print(finding)``.

Each check asks the engine as a rollout does and compares what comes with what `engines.protocol` promises. An engine of
another package is tried in the same way. Checks whose capability the engine does not declare are skipped, except
that it must then refuse. The engine should be fresh; it is used up when `spoil` is given.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from quintain.engines.protocol import (
    Candidates,
    Capability,
    Engine,
    EngineStats,
    Grammar,
    Reply,
    Request,
    Sampling,
)
from quintain.errors import EngineFault, QuintainError, UsageError
from quintain.types import Completion, Failure
from quintain.types.findings import Finding

BROKEN = (
    QuintainError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    OSError,
)
"""What a broken engine may raise."""
LENGTHS = (64, 256, 1024, 4096)
"""Tokens of a request that must still be under way when the engine is paused; the next where it was not."""
NUM_SEEDS = 16
QUIET_ROUNDS = 5
LONGEST_STREAM = 8192
"""Tokens up to which the limit of a stream is tried."""
SCHEMA = {
    "type": "object",
    "properties": {"n": {"enum": [1, 2]}},
    "required": ["n"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}


class CheckFailed(Exception):
    """The engine does not do what it promises; says how."""


class CheckSkipped(Exception):
    """A check cannot be tried; says why."""


@dataclass(slots=True, kw_only=True)
class Trial:
    """An engine under check, and what the checks need to know about it; see `check_engine`."""

    engine: Engine
    ids: tuple[int, ...]
    stop_id: int | None = None
    decode: Callable[[Sequence[int]], str] | None = None
    update: Callable[[], Path | None] | None = None
    spoil: Callable[[], None] | None = None
    tolerance: float = 1e-3
    seconds: float = 120.0
    opened: list[str] = field(default_factory=list[str])

    def request(
        self,
        *prompt: int,
        seed: int = 1,
        session: str = "",
        stop_ids: Collection[int] = (),
        **sampling: object,
    ) -> Request:
        """Return a request of a new session (or of `session`) for 12 tokens, unless `sampling` says otherwise."""
        name = session or f"check/{len(self.opened)}"
        self.opened.append(name)
        settings = replace(Sampling(max_tokens=12, stop_ids=frozenset(stop_ids)), **sampling)  # type: ignore[arg-type] # pyright: ignore
        return Request(session=name, prompt_ids=prompt or self.ids[:3], seed=seed, sampling=settings)

    def replies(self, *requests: Request) -> list[Completion | Failure]:
        """Submit `requests` and return what became of them."""
        for request in requests:
            self.engine.submit(request)
        return self.wait(*requests)

    def wait(self, *requests: Request) -> list[Completion | Failure]:
        """Return what became of `requests`, which were submitted."""
        found: dict[str, Completion | Failure] = {}
        names = [request.session for request in requests]
        deadline = time.monotonic() + self.seconds
        while len(found) < len(names):
            for reply in self.engine.advance():
                if reply.session not in names or reply.session in found:
                    raise CheckFailed(f"got a reply for {reply.session}, which waits for none")
                found[reply.session] = reply.result
            if time.monotonic() > deadline:
                raise CheckFailed(f"got {len(found)} of {len(names)} replies in {self.seconds:g} s")
        return [found[name] for name in names]

    def complete(self, *requests: Request) -> list[Completion]:
        """Return the completions of `requests`, which must not fail."""
        return [expect_completion(result) for result in self.replies(*requests)]

    def one(self, request: Request) -> Completion:
        """Return the completion of `request`, which must not fail."""
        return self.complete(request)[0]

    def free(self) -> None:
        """Release every session that was opened."""
        self.engine.resume() if "pause" in self.engine.capabilities else None
        for name in dict.fromkeys(self.opened):
            self.engine.release(name)

    def expect_score(self, stream: Sequence[int], completion: Completion, temperature: float) -> None:
        """Fail unless `completion` of `stream` has the log-probs that the engine's own `score` gives."""
        if "score" not in self.engine.capabilities:
            return
        (scored,) = self.engine.score([[*stream, *completion.token_ids]], temperature)
        if len(scored) != len(stream) + len(completion.token_ids) or scored[0] != 0:
            raise CheckFailed(f"score gave {len(scored)} log-probs for {len(stream)} tokens and a completion")
        self.expect_near(completion.logprobs, scored[len(stream) :], "the completion's and those of score")

    def expect_near(self, left: Sequence[float], right: Sequence[float], what: str) -> None:
        """Fail unless two sequences of log-probs are the same."""
        apart = max((abs(a - b) for a, b in zip(left, right, strict=False)), default=0.0)
        if len(left) != len(right) or not apart <= self.tolerance:
            raise CheckFailed(
                f"log-probs ({what}): got {len(left)} and {len(right)}, up to {apart:.2g} apart"
            )

    def expect_same(self, left: Completion, right: Completion, what: str) -> None:
        """Fail unless two completions have the same tokens and log-probs."""
        if left.token_ids != right.token_ids:
            raise CheckFailed(f"{what}: got tokens {_some(left.token_ids)} and {_some(right.token_ids)}")
        self.expect_near(left.logprobs, right.logprobs, what)

    def start(self) -> tuple[Request, int]:
        """Pause the engine while a request is under way; return it and how many of its tokens were sampled.

        Raises:
            CheckSkipped: the engine answers whatever is asked in one round.
        """
        room = self.engine.max_length - 8
        for length in dict.fromkeys(min(length, room) for length in LENGTHS):
            before = self.engine.stats().num_sampled
            request = self.request(max_tokens=length)
            self.engine.submit(request)
            replies: list[Reply] = []
            deadline = time.monotonic() + self.seconds
            while not replies and self.engine.stats().num_sampled == before:
                replies = self.engine.advance()
                if time.monotonic() > deadline:
                    raise CheckFailed(f"a request: nothing was sampled in {self.seconds:g} s")
            self.engine.pause("keep")
            num_said = self.engine.stats().num_sampled - before
            if not replies and num_said < length:
                return request, num_said
            self.engine.resume()
            if not replies:
                self.wait(request)
            self.engine.release(request.session)
        raise CheckSkipped("every request is answered at once")

    def load(self, *, must: bool) -> int:
        """Let the engine serve the next version and return its number; where it `must`, of other weights."""
        version = self.engine.policy_version + 1
        if self.update is None and (must or "shared_weights" not in self.engine.capabilities):
            raise CheckSkipped("no update was given")
        self.engine.load_weights(version, None if self.update is None else self.update())
        return version


def check_engine(
    engine: Engine,
    *,
    ids: Sequence[int] = range(8, 40),
    stop_id: int | None = None,
    decode: Callable[[Sequence[int]], str] | None = None,
    update: Callable[[], Path | None] | None = None,
    spoil: Callable[[], None] | None = None,
    tolerance: float = 1e-3,
    seconds: float = 120.0,
    only: Collection[str] = (),
) -> Iterator[Finding]:
    """Yield what each check says of `engine`.

    Args:
        engine: a fresh engine; its model should not be sure of anything (an untrained one is best).
        ids: at least 16 different token ids that may stand in prompts.
        stop_id: the token that ends a turn; grammars of text need it.
        decode: token ids → text without special tokens; grammars of text need it.
        update: changes the weights and returns the source of `Engine.load_weights`; without it they stay as they are.
        spoil: breaks the engine, so that the next request must fail.
        tolerance: how far log-probs may be apart (nats).
        seconds: how long a reply may take.
        only: names of the checks to try (see `CHECKS`); all of them when empty.
    """
    trial = Trial(
        engine=engine,
        ids=tuple(ids),
        stop_id=stop_id,
        decode=decode,
        update=update,
        spoil=spoil,
        tolerance=tolerance,
        seconds=seconds,
    )
    for name, (needed, check) in CHECKS.items():
        if only and name not in only:
            continue
        missing = sorted({*needed} - engine.capabilities)
        if missing:
            yield Finding(name=name, state="skip", detail=f"the engine has not {', '.join(missing)}")
            continue
        trial.opened.clear()
        try:
            check(trial)
            trial.free()
            yield Finding(name=name, state="pass")
        except CheckSkipped as reason:
            trial.free()
            yield Finding(name=name, state="skip", detail=str(reason))
        except (CheckFailed, *BROKEN) as problem:
            kind = "" if isinstance(problem, CheckFailed) else f"{type(problem).__name__}: "
            yield Finding(name=name, state="fail", detail=f"{kind}{problem}")
            _recover(trial)


def expect_completion(result: Completion | Failure) -> Completion:
    """Return `result` if it is a well-formed completion."""
    if isinstance(result, Failure):
        raise CheckFailed(f"got a failure: {result.kind}, {result.message}")
    if len(result.token_ids) != len(result.logprobs) or not result.token_ids:
        raise CheckFailed(f"got {len(result.token_ids)} tokens with {len(result.logprobs)} log-probs")
    return result


def check_greedy(trial: Trial) -> None:
    """At temperature 0 the seed does not matter."""
    first, second = trial.complete(*(trial.request(seed=seed, temperature=0.0) for seed in (1, 2)))
    trial.expect_same(first, second, "two greedy completions of one prompt")
    trial.expect_same(first, trial.one(trial.request(temperature=0.0)), "a greedy completion, again")


def check_seeds(trial: Trial) -> None:
    """A seed gives the same tokens again; seeds give different ones."""
    asked = [trial.request(seed=seed, temperature=2.0) for seed in range(NUM_SEEDS)]
    found = trial.complete(*asked)
    again = trial.complete(*(trial.request(seed=seed, temperature=2.0) for seed in range(NUM_SEEDS)))
    for seed, (left, right) in enumerate(zip(found, again, strict=True)):
        trial.expect_same(left, right, f"seed {seed}, twice")
    if len({completion.token_ids for completion in found}) == 1:
        raise CheckFailed(f"got the same tokens for {NUM_SEEDS} seeds at temperature 2")


def check_batch(trial: Trial) -> None:
    """What is sampled beside a request changes nothing in it."""
    (alone,) = trial.complete(trial.request(seed=7))
    mates = [trial.request(*trial.ids[: 2 + place], seed=place) for place in range(5)]
    crowded = trial.complete(*mates, trial.request(seed=7))[-1]
    trial.expect_same(alone, crowded, "a request alone, and with five others")


def check_turns(trial: Trial) -> None:
    """Turns of a session continue its stream, so that they equal one long prompt."""
    stream: list[int] = []
    session = ""
    last: Completion | None = None
    for turn in range(3):
        prompt = trial.ids[4 * turn : 4 * turn + 3]
        request = trial.request(*prompt, seed=turn, session=session)
        session = request.session
        (last,) = trial.complete(request)
        whole = trial.request(*stream, *prompt, seed=turn)
        trial.expect_same(last, trial.one(whole), f"turn {turn} of a session, and one long prompt")
        stream += [*prompt, *last.token_ids]


def check_logprobs(trial: Trial) -> None:
    """Log-probs of completions are those of `score`, at every temperature."""
    for temperature in (0.0, 0.6, 1.0, 1.5):
        request = trial.request(temperature=temperature)
        trial.expect_score(request.prompt_ids, trial.one(request), temperature)
    long = [list(trial.ids[:n]) for n in (1, 2, 16)]
    together, alone = trial.engine.score(long), [trial.engine.score([ids])[0] for ids in long]
    for left, right in zip(together, alone, strict=True):
        trial.expect_near(left, right, "a stream scored alone and with others")


def check_stops(trial: Trial) -> None:
    """A completion ends with the first stop id that is sampled, and says so."""
    (free,) = trial.complete(trial.request())
    if free.stop != "length":
        raise CheckFailed(
            f"got {free.stop!r} without stop ids; a limit ended the completion, which is 'length'"
        )
    token = free.token_ids[len(free.token_ids) // 2]
    (stopped,) = trial.complete(trial.request(stop_ids={token}))
    expected = free.token_ids[: free.token_ids.index(token) + 1]
    if (stopped.token_ids, stopped.stop) != (expected, "stop"):
        raise CheckFailed(
            f"stop id {token}: got {_some(stopped.token_ids)} ({stopped.stop}), not {_some(expected)}"
        )


def check_limits(trial: Trial) -> None:
    """A completion has at most `max_tokens`, and a stream at most `Engine.max_length`."""
    for most in (1, 5):
        (found,) = trial.complete(trial.request(max_tokens=most))
        if len(found.token_ids) != most or found.stop != "length":
            raise CheckFailed(f"max_tokens={most}: got {len(found.token_ids)} tokens ({found.stop})")
    length = trial.engine.max_length
    if length <= LONGEST_STREAM:
        prompt = (trial.ids * (length // len(trial.ids) + 1))[: length - 3]
        (found,) = trial.complete(trial.request(*prompt))
        if len(found.token_ids) != 3 or found.stop != "length":
            raise CheckFailed(f"3 tokens left in a stream: got {len(found.token_ids)} ({found.stop})")


def check_candidates(trial: Trial) -> None:
    """One of the candidates is chosen, the best when greedy, with the log-probs of its tokens."""
    options = (trial.ids[3:5], trial.ids[6:7], trial.ids[3:4] + trial.ids[8:10])
    named = Candidates(token_ids=options, lengths=tuple(float(len(option)) for option in options))
    asked = [trial.request(seed=seed, candidates=named) for seed in range(NUM_SEEDS)]
    for request, found in zip(asked, trial.complete(*asked), strict=True):
        if found.token_ids not in options:
            raise CheckFailed(f"got {_some(found.token_ids)}, which is no candidate")
        trial.expect_score(request.prompt_ids, found, 1.0)
    greedy = trial.request(candidates=named, temperature=0.0)
    (best,) = trial.complete(greedy)
    if "score" in trial.engine.capabilities:
        rows = trial.engine.score([[*greedy.prompt_ids, *option] for option in options])
        means = [sum(row[3:]) / len(option) for row, option in zip(rows, options, strict=True)]
        if means[options.index(best.token_ids)] < max(means) - trial.tolerance:
            raise CheckFailed(f"greedy: got candidate {options.index(best.token_ids)} of scores {means}")


def check_tokens(trial: Trial) -> None:
    """A grammar of tokens is said as it is, with the log-probs of the free model."""
    said = trial.ids[5:9]
    request = trial.request(constraint=Grammar.of_tokens(said))
    (found,) = trial.complete(request)
    if found.token_ids != said or found.stop != "stop":
        raise CheckFailed(f"tokens {_some(said)}: got {_some(found.token_ids)} ({found.stop})")
    trial.expect_score(request.prompt_ids, found, 1.0)
    if "masked" in trial.engine.capabilities:
        asked = trial.request(constraint=Grammar.of_tokens(said), is_masked=True)
        (found,) = trial.complete(asked)
        if max(map(abs, found.logprobs)) > trial.tolerance or found.constraint is None:
            raise CheckFailed(
                f"tokens {_some(said)}, masked: got log-probs {found.logprobs} of the only ones allowed"
            )


def check_grammars(trial: Trial) -> None:
    """Each kind of grammar of text is kept to, beside a free request; one that makes no sense is refused."""
    if trial.decode is None or trial.stop_id is None:
        raise CheckSkipped("no decode and stop_id were given")
    tests: dict[str, tuple[Grammar, Callable[[str], bool]]] = {
        "lark": (Grammar(text='start: "a" ("b" | "c") "d"'), lambda text: text in ("abd", "acd")),
        "regex": (Grammar(kind="regex", text="(yes|no)!"), lambda text: text in ("yes!", "no!")),
        "choice": (Grammar.of_choices(["red", "blue"]), lambda text: text in ("red", "blue")),
        "json_schema": (
            Grammar(kind="json_schema", text=json.dumps(SCHEMA)),
            lambda text: json.loads(text) in ({"n": 1}, {"n": 2}),
        ),
    }
    (free,) = trial.complete(trial.request())
    for kind, (grammar, is_right) in tests.items():
        asked = trial.request(constraint=grammar, stop_ids={trial.stop_id}, max_tokens=40)
        found, beside = trial.complete(asked, trial.request())
        trial.expect_same(free, beside, f"a free request beside one under {kind}")
        text = trial.decode([token for token in found.token_ids if token != trial.stop_id])
        if found.stop != "stop" or not is_right(text):
            raise CheckFailed(f"{kind} {grammar.text[:40]!r}: got {text!r} ({found.stop})")
        trial.expect_score(asked.prompt_ids, found, 1.0)
        wrong = replace(grammar, text="start: (" if kind == "lark" else "(")
        _expect_refused(
            trial,
            trial.request(constraint=wrong, stop_ids={trial.stop_id}),
            f"{kind} {wrong.text!r}",
            UsageError,
        )


def check_release(trial: Trial) -> None:
    """A released session holds nothing, gives no reply, and its name begins anew."""
    before = trial.engine.stats().num_sessions
    request = trial.request()
    (first,) = trial.complete(request)
    if trial.engine.stats().num_sessions != before + 1:
        raise CheckFailed(f"one session more: got {trial.engine.stats().num_sessions - before} more in stats")
    trial.engine.release(request.session)
    if trial.engine.stats().num_sessions != before:
        raise CheckFailed("a released session is still counted in stats")
    trial.expect_same(first, trial.one(request), "a name before and after its release")
    trial.engine.release(request.session)
    trial.engine.submit(replace(request, sampling=replace(request.sampling, max_tokens=64)))
    trial.engine.release(request.session)
    (other,) = trial.complete(trial.request())
    trial.expect_same(first, other, "a request after one that was released under way")
    _expect_quiet(trial, "a request whose session was released")


def check_unknown_release(trial: Trial) -> None:
    """To release what is not known does nothing, twice."""
    for _ in range(2):
        trial.engine.release("check/never opened")
    _expect_quiet(trial, "an idle engine")


def check_refusals(trial: Trial) -> None:
    """What cannot be answered is an `EngineFault`, and leaves nothing behind."""
    engine = trial.engine
    before = engine.stats()
    length = engine.max_length
    _expect_refused(
        trial, Request(session="check/empty", prompt_ids=(), seed=1, sampling=Sampling()), "no prompt"
    )
    if length <= LONGEST_STREAM:
        long = (trial.ids * (length // len(trial.ids) + 1))[:length]
        _expect_refused(trial, trial.request(*long), f"{length} tokens")
    if engine.vocabulary is not None:
        _expect_refused(trial, trial.request(engine.vocabulary), f"token {engine.vocabulary}")
        _expect_refused(trial, trial.request(-1), "token -1")
    if engine.stats().num_submitted != before.num_submitted:
        raise CheckFailed("a refused request is counted as submitted")
    _expect_quiet(trial, "a refused request")
    request = trial.request()
    engine.submit(request)
    _expect_refused(trial, request, "a second request of a session")
    trial.wait(request)


def check_unable(trial: Trial) -> None:
    """What the engine does not declare, it refuses."""
    engine = trial.engine
    named = Candidates(token_ids=(trial.ids[:2],), lengths=(1.0,))
    requests: dict[Capability, Request] = {
        "candidates": trial.request(candidates=named),
        "tokens": trial.request(constraint=Grammar.of_tokens(trial.ids[:2])),
        "grammar": trial.request(constraint=Grammar(text='start: "a"'), stop_ids={trial.ids[0]}),
        "masked": trial.request(constraint=Grammar.of_tokens(trial.ids[:2]), is_masked=True),
    }
    for capability, request in requests.items():
        if capability not in engine.capabilities:
            _expect_refused(trial, request, f"{capability}, which is not declared", UsageError)
    calls: dict[Capability, Callable[[], object]] = {
        "score": lambda: engine.score([trial.ids[:2]]),
        "fingerprint": engine.fingerprint,
        "pause": engine.pause,
        "shared_weights": lambda: engine.load_weights(engine.policy_version, None),
    }
    for capability, call in calls.items():
        if capability not in engine.capabilities:
            try:
                call()
            except UsageError:
                continue
            raise CheckFailed(f"{capability}, which is not declared: it was not refused with a UsageError")


def check_weights(trial: Trial) -> None:
    """A new version is named and served, and nothing computed with the old weights is used again."""
    request = trial.request()
    (old,) = trial.complete(request)
    version = trial.load(must=False)
    after = trial.request(*trial.ids[4:7], session=request.session)
    (new,) = trial.complete(after)
    if trial.engine.policy_version != version or new.policy_version != version or new.version_spans:
        raise CheckFailed(
            f"version {version}: the engine says {trial.engine.policy_version}, a completion {new.policy_version} "
            f"with spans {new.version_spans}"
        )
    trial.expect_score([*request.prompt_ids, *old.token_ids, *after.prompt_ids], new, 1.0)


def check_update(trial: Trial) -> None:
    """Weights that changed are those that are served; a folder without weights changes nothing."""
    engine = trial.engine
    before = engine.score([trial.ids])
    version = trial.load(must=True)
    served = engine.score([trial.ids])
    apart = max(abs(a - b) for a, b in zip(before[0], served[0], strict=True))
    if apart <= trial.tolerance:
        raise CheckFailed(f"log-probs after an update: got the old ones, at most {apart:.2g} apart")
    try:
        engine.load_weights(version + 1, Path("/nowhere/at all"))
    except QuintainError:
        trial.expect_near(
            served[0], engine.score([trial.ids])[0], "before and after a folder that is not there"
        )
        if engine.policy_version != version:
            raise CheckFailed("a folder that is not there: the version changed") from None
        return
    raise CheckFailed("weights from a folder that is not there: they were not refused")


def check_keep(trial: Trial) -> None:
    """A paused engine samples nothing; what was under way goes on as if nothing had been."""
    request, num_said = trial.start()
    waiting = trial.request(seed=5)
    trial.engine.submit(waiting)
    sampled = trial.engine.stats().num_sampled
    _expect_quiet(trial, "a paused engine")
    if trial.engine.stats().num_sampled != sampled:
        raise CheckFailed("a paused engine sampled tokens")
    trial.engine.resume()
    kept, waited = (expect_completion(result) for result in trial.wait(request, waiting))
    fresh, other = trial.complete(
        trial.request(max_tokens=request.sampling.max_tokens), trial.request(seed=5)
    )
    if "seeds" in trial.engine.capabilities:
        trial.expect_same(kept, fresh, f"a request paused after {num_said} tokens, and one that was not")
        trial.expect_same(waited, other, "a request submitted while paused, and one that was not")
    if kept.version_spans:
        raise CheckFailed(f"paused without new weights: got version spans {kept.version_spans}")


def check_abort(trial: Trial) -> None:
    """What is aborted comes back as a failure of the engine, and its stream is as it was before."""
    first = trial.request()
    (opening,) = trial.complete(first)
    running = trial.request(*trial.ids[4:6], session=first.session, max_tokens=32)
    trial.engine.submit(running)
    trial.engine.pause("abort")
    (result,) = trial.wait(running)
    _expect_aborted(result)
    trial.engine.resume()
    (again,) = trial.complete(running)
    whole = (*first.prompt_ids, *opening.token_ids, *running.prompt_ids)
    (fresh,) = trial.complete(trial.request(*whole, max_tokens=32))
    trial.expect_same(again, fresh, "a session after an abort, and one long prompt")


def check_abort_under_way(trial: Trial) -> None:
    """A request that was aborted between two of its tokens leaves nothing of them in the stream."""
    request, _ = trial.start()
    trial.engine.pause("abort")
    (result,) = trial.wait(request)
    _expect_aborted(result)
    trial.engine.resume()
    short = replace(request, sampling=replace(request.sampling, max_tokens=12))
    (again,) = trial.complete(short)
    trial.expect_same(again, trial.one(trial.request()), "a session after an abort, and a new one")


def check_spans(trial: Trial) -> None:
    """A completion that weights changed under says from which token on."""
    request, num_said = trial.start()
    old = trial.engine.policy_version
    new = trial.load(must=False)
    trial.engine.resume()
    (found,) = (expect_completion(result) for result in trial.wait(request))
    if found.version_spans != ((0, old), (num_said, new)) or found.policy_version != new:
        raise CheckFailed(
            f"version {old} for {num_said} tokens, then {new}: got spans {found.version_spans} and version "
            f"{found.policy_version}"
        )
    if "score" in trial.engine.capabilities:
        (scored,) = trial.engine.score([[*request.prompt_ids, *found.token_ids]])
        late = scored[len(request.prompt_ids) + num_said :]
        trial.expect_near(found.logprobs[num_said:], late, f"of version {new}, after an update under way")


def check_policy(trial: Trial) -> None:
    """Completions name the policy that is served."""
    (found,) = trial.complete(trial.request())
    if found.policy != trial.engine.policy:
        raise CheckFailed(f"a completion of {trial.engine.policy!r}: got {found.policy!r}")


def check_stats(trial: Trial) -> None:
    """The numbers of `EngineStats` add up."""
    before = trial.engine.stats()
    _expect_sum(before)
    requests = [trial.request(*trial.ids[: 3 + place], seed=place) for place in range(4)]
    released = trial.request()
    for request in (*requests, released):
        trial.engine.submit(request)
    trial.engine.release(released.session)
    _expect_sum(trial.engine.stats())
    found = [expect_completion(result) for result in trial.wait(*requests)]
    after = trial.engine.stats()
    _expect_sum(after)
    expected = {
        "num_submitted": 5,
        "num_finished": 4,
        "num_failed": 0,
        "num_released": 1,
        "num_running": 0,
        "num_waiting": 0,
        "num_sampled": sum(len(completion.token_ids) for completion in found),
    }
    for name, value in expected.items():
        if getattr(after, name) - getattr(before, name) != value:
            got = getattr(after, name) - getattr(before, name)
            raise CheckFailed(f"{name} after 4 completions and a release: got {got} more, expected {value}")
    if after.num_prefilled <= before.num_prefilled or after.busy_seconds < before.busy_seconds:
        raise CheckFailed(f"num_prefilled and busy_seconds must grow: got {before} and then {after}")


def check_failures(trial: Trial) -> None:
    """An engine that breaks answers with failures of its own."""
    if trial.spoil is None:
        raise CheckSkipped("no spoil was given")
    request = trial.request(max_tokens=min(LENGTHS[-1], trial.engine.max_length - 8))
    trial.engine.submit(request)
    is_over = bool(trial.engine.advance())
    trial.spoil()
    if is_over:
        request = trial.request()
        trial.engine.submit(request)
    (result,) = trial.wait(request)
    if not isinstance(result, Failure) or result.owner != "engine" or not result.message:
        raise CheckFailed(
            f"a broken engine: got {result!s:.80}; it must be a failure of the engine, with a message"
        )
    _expect_sum(trial.engine.stats())


Check = Callable[[Trial], None]
CHECKS: dict[str, tuple[tuple[Capability, ...], Check]] = {
    "greedy repeats": ((), check_greedy),
    "seeds repeat": (("seeds",), check_seeds),
    "batch mates change nothing": (("seeds",), check_batch),
    "turns equal one long prompt": (("seeds",), check_turns),
    "log-probs equal score": (("score",), check_logprobs),
    "stop ids end completions": (("seeds",), check_stops),
    "limits hold": ((), check_limits),
    "candidates": (("candidates",), check_candidates),
    "fixed tokens": (("tokens",), check_tokens),
    "grammars of text": (("grammar", "seeds"), check_grammars),
    "release frees": (("seeds",), check_release),
    "unknown release is ignored": ((), check_unknown_release),
    "bad requests are refused": ((), check_refusals),
    "what it cannot do is refused": ((), check_unable),
    "completions name the policy": ((), check_policy),
    "stats add up": ((), check_stats),
    "a pause keeps requests": (("pause",), check_keep),
    "a pause aborts requests": (("pause", "seeds"), check_abort),
    "an abort leaves nothing": (("pause", "seeds"), check_abort_under_way),
    "new weights drop caches": (("load_weights",), check_weights),
    "new weights are served": (("load_weights", "score"), check_update),
    "an update under way is told": (("load_weights", "pause"), check_spans),
    "failures are data": ((), check_failures),
}
"""Name → what the engine must be able to do for it, and the check."""


def _expect_refused(
    trial: Trial, request: Request, what: str, kind: type[EngineFault | UsageError] = EngineFault
) -> None:
    """Fail unless `request` is refused with an error of `kind`."""
    try:
        trial.engine.submit(request)
    except kind:
        return
    raise CheckFailed(
        f"{what}: it was not refused with {'an' if kind is EngineFault else 'a'} {kind.__name__}"
    )


def _expect_aborted(result: Completion | Failure) -> None:
    """Fail unless `result` says that its request was aborted."""
    if not isinstance(result, Failure) or (result.owner, result.kind) != ("engine", "aborted"):
        raise CheckFailed(
            f"an aborted request: got {result!s:.80}; it must be a failure of the engine, 'aborted'"
        )


def _expect_quiet(trial: Trial, what: str) -> None:
    """Fail if the engine replies."""
    for _ in range(QUIET_ROUNDS):
        replies = trial.engine.advance()
        if replies:
            raise CheckFailed(f"{what}: got a reply for {replies[0].session}")


def _expect_sum(stats: EngineStats) -> None:
    """Fail unless every submitted request is somewhere."""
    places = stats.num_finished, stats.num_failed, stats.num_released, stats.num_running, stats.num_waiting
    if sum(places) != stats.num_submitted:
        raise CheckFailed(
            f"{stats.num_submitted} submitted: got finished, failed, released, running and waiting {places}"
        )


def _recover(trial: Trial) -> None:
    """Free what a failed check left, as far as the engine lets us."""
    try:
        trial.free()
    except BROKEN:
        trial.opened.clear()


def _some(ids: Sequence[int]) -> str:
    """Return the first of `ids`."""
    return f"{list(ids[:8])}{'...' if len(ids) > 8 else ''}"
