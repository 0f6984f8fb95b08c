"""The play of many episodes: what happens to each between one call into its environment and the next.

    begin → show → ask → read → act → settle → … → end, or fail and begin again

The same for every source; sources differ in when they wait for environments (`Calls`): `LockstepCalls` waits for all
calls at a time, in order, `AsyncCalls` for none but those there is nothing else to do without.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from quintain.agents.reflexion import count_repeats
from quintain.engines.protocol import Engine
from quintain.environments.protocol import Environment, Killable, SimultaneousSeats
from quintain.errors import QuintainError
from quintain.rollout.episode import LiveEpisode, Wait
from quintain.rollout.failures import INFRASTRUCTURE
from quintain.rollout.pool import Pool
from quintain.rollout.replay import bring_back
from quintain.rollout.request import Cast, EpisodeRequest, Limits
from quintain.rollout.samplers import Asked, Sampler
from quintain.rollout.staleness import judge_age
from quintain.rollout.stepper import Stepper
from quintain.rollout.views import Answer, EnvironmentReader, Start
from quintain.rollout.watchdog import Patience
from quintain.types import Failure, Outcome, Score, Stop, Trajectory

PATIENCE = 5.0
"""Seconds that calls into environments have to return when everything is given up."""
Call = Callable[[], Any]
Then = Callable[[Any], None]
"""What is done with the result of a call, or with the `Failure` that it ended in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """What calls leave that were given up: environments that were made, and the ids of episodes still in a call."""

    made: tuple[Environment, ...] = ()
    stuck: frozenset[int] = frozenset()


class Calls(Protocol):
    """Calls into environments that are under way."""

    is_barrier: bool
    """whether everybody waits until all calls have returned"""

    def submit(self, call: Call, then: Then, episode: LiveEpisode | None = None) -> None:
        """Begin `call`, which `episode` waits for; `then` is called with its result by a later `settle`."""
        ...

    def settle(self, *, must_wait: bool) -> None:
        """Do what is to be done with the calls that returned; with `must_wait`, wait for one at least."""
        ...

    @property
    def num_open(self) -> int:
        """Number of calls whose results have not been settled."""
        ...

    def cancel(self, seconds: float) -> Leftovers:
        """Give up all calls, after at most `seconds` in which they may return."""
        ...


class LockstepCalls:
    """Runs all calls that came together at once, and waits for every one of them."""

    is_barrier = True

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper
        self._calls: list[tuple[Call, Then]] = []

    def submit(self, call: Call, then: Then, episode: LiveEpisode | None = None) -> None:
        """See `Calls.submit`."""
        self._calls.append((call, then))

    def settle(self, *, must_wait: bool) -> None:
        """See `Calls.settle`: all are waited for, and answered in the order in which they came."""
        calls, self._calls = self._calls, []
        results = self._stepper.run([call for call, _ in calls])
        for (_, then), result in zip(calls, results, strict=True):
            then(result)

    @property
    def num_open(self) -> int:
        """See `Calls.num_open`."""
        return len(self._calls)

    def cancel(self, seconds: float) -> Leftovers:
        """See `Calls.cancel`: none has begun."""
        self._calls = []
        return Leftovers()


class AsyncCalls:
    """Runs each call in a thread of its own; whoever is done goes on."""

    is_barrier = False

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper
        self._open: dict[int, tuple[Then, LiveEpisode | None]] = {}
        self._back: list[tuple[int, Any]] = []
        """calls that returned and were not answered yet, with their results"""

    def submit(self, call: Call, then: Then, episode: LiveEpisode | None = None) -> None:
        """See `Calls.submit`."""
        self._open[self._stepper.submit(call)] = then, episode

    def settle(self, *, must_wait: bool) -> None:
        """See `Calls.settle`."""
        self._back += self._stepper.take_returned(must_wait=must_wait)
        while self._back:  # an answer may raise: what came with it is still there for `cancel`
            number, result = self._back.pop(0)
            then, _ = self._open.pop(number)
            then(result)

    @property
    def num_open(self) -> int:
        """See `Calls.num_open`."""
        return len(self._open)

    def cancel(self, seconds: float) -> Leftovers:
        """See `Calls.cancel`."""
        until = time.monotonic() + seconds
        made: list[Environment] = []
        back, self._back = self._back, []
        while True:
            for number, result in back:
                del self._open[number]
                made += [result] if isinstance(result, Environment) else []
            if not self._open or time.monotonic() >= until:
                break
            back = self._stepper.take_returned(must_wait=True, seconds=0.05)
        stuck = frozenset(id(episode) for _, episode in self._open.values() if episode is not None)
        self._stepper.give_up()
        self._open.clear()
        return Leftovers(made=tuple(made), stuck=stuck)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayContext:
    """What episodes are played with: environments, sampler, engines by policy, players and limits."""

    pool: Pool
    looks: EnvironmentReader
    sampler: Sampler
    engines: dict[str, Engine]
    players: Cast
    limits: Limits
    retries: list[tuple[str, int, Failure]]
    """Group, number and what broke, of episodes that were begun anew; added to."""
    patience: Patience
    """The longest wait that was told of; renewed."""
    max_staleness: int = 0
    """Versions that weights may move on while an episode is played; see `Sampler.staleness`."""

    @property
    def most_live(self) -> int:
        """Episodes that may be alive at once."""
        return min(self.limits.concurrency, self.pool.parallel or self.limits.concurrency)


class Play:
    """The live episodes of one call."""

    def __init__(self, stage: PlayContext, calls: Calls) -> None:
        self.stage, self.calls = stage, calls
        self._suspended: float | None = None
        """since when the caller does something else"""
        self._live: dict[int, LiveEpisode] = {}
        self._again: list[LiveEpisode] = []
        self._ready: list[Asked] = []
        self._broken: list[Callable[[], None]] = []
        self._finished: list[tuple[LiveEpisode, Trajectory]] = []

    @property
    def num_live(self) -> int:
        """Number of episodes that have begun and not ended."""
        return len(self._live)

    def live(self) -> list[LiveEpisode]:
        """Return the episodes that wait for something; may be called from another thread."""
        return [] if self._suspended is not None else list(self._live.values())

    def suspend(self) -> None:
        """Let the caller do something else, such as a step of training, for which nobody counts as waiting."""
        self._suspended = time.monotonic()

    def resume(self) -> None:
        """Go on after `suspend`."""
        assert self._suspended is not None, "it was suspended"
        if time.monotonic() - self._suspended > 1.0:
            for episode in self._live.values():
                episode.wait = Wait(episode.wait.owner)
        self._suspended = None

    def round(self, requests: Iterable[EpisodeRequest]) -> None:
        """Begin what `requests` ask for and what is to be tried again, and let every live episode go on."""
        again, self._again = self._again, []
        new = [self._new(request, 0) for request in requests]
        self._live |= {id(episode): episode for episode in new}
        for episode in (*again, *new):
            self._begin(episode)
        self.calls.settle(must_wait=False)
        ready, self._ready = self._ready, []
        asked = [each for each in ready if self._ask(*each)]
        self._wait_for_replies(asked)
        sampler = self.stage.sampler
        if asked or sampler.is_busy:
            self._act(asked)
        must_wait = not (sampler.is_busy or self._ready or self._again or self._finished)
        self.calls.settle(must_wait=must_wait)
        broken, self._broken = self._broken, []
        if self.calls.is_barrier:
            self.stage.pool.stepper.run(broken)
        else:
            for close in broken:
                self.calls.submit(close, _nothing)

    def take_finished(self) -> Generator[Trajectory]:
        """Yield the episodes that ended; those that are too old by then are failures."""
        while self._finished:
            yield self._judge_age(*self._finished.pop(0))

    def abandon(self) -> None:
        """Free what the live episodes hold, in the engines and in their environments."""
        live, self._live = list(self._live.values()), {}
        for episode in live:
            self._forget(episode)
        stepper = self.stage.pool.stepper
        if not self.calls.is_barrier:
            killable = [e.environment for e in live if isinstance(e.environment, Killable)]
            stepper.run([environment.kill for environment in killable])
        left = self.calls.cancel(PATIENCE)
        held = [e.environment for e in live if e.environment is not None and id(e) not in left.stuck]
        stepper.run([*(environment.close for environment in (*held, *left.made)), *self._broken])

    def _new(self, request: EpisodeRequest, attempt: int) -> LiveEpisode:
        """Return the episode that `request` asks for, before it begins."""
        players = self.stage.players.changed(request.agent, request.seats)
        return LiveEpisode(request=request, players=players, attempt=attempt)

    def _begin(self, episode: LiveEpisode) -> None:
        """Give `episode` an environment, a fresh one after a failure, and start it."""
        pool = self.stage.pool
        environment = None if episode.attempt else pool.idle()
        if environment is None and not self.calls.is_barrier:
            _wait(episode, "its environment to be made")
            self.calls.submit(pool.attempt, partial(self._start_episode, episode, 0), episode)
            return
        self._start(episode, environment or pool.make())

    def _start_episode(
        self, episode: LiveEpisode, number: int, made: Environment | QuintainError | Failure
    ) -> None:
        """Start `episode` in the environment that was `made` for it in attempt `number`."""
        pool = self.stage.pool
        if pool.is_worth_another(made, number):
            self.calls.submit(pool.attempt, partial(self._start_episode, episode, number + 1), episode)
        else:
            self._start(episode, pool.admit(made))

    def _start(self, episode: LiveEpisode, environment: Environment) -> None:
        """Reset `environment` to the task of `episode`."""
        episode.environment = environment
        self.stage.pool.num_attempts += 1
        _wait(episode, "its environment to begin")
        call = partial(start_episode, self.stage.looks, environment, episode.request)
        self.calls.submit(call, partial(self._open, episode), episode)

    def _open(self, episode: LiveEpisode, start: Start | Failure) -> None:
        """Open the conversations of `episode`."""
        if isinstance(start, Failure):
            self._fail(episode, start)
            return
        episode.open(start)
        self._ready += [(episode, seat) for seat in episode.acting]

    def _ask(self, episode: LiveEpisode, seat: str) -> bool:
        """Prepare the next prompt of `seat`; ends the episode and returns False when the stream is full."""
        if id(episode) not in self._live:
            return False
        if self.stage.sampler.staleness(episode.oldest) > self.stage.max_staleness:
            self._end(episode, Stop.FAILURE, episode.score())
            return False
        voice = episode.voices[seat]
        speaker = voice.policy
        ended = voice.ask()
        if ended is not None:
            self.stage.sampler.forget(speaker, ended)
        engine = self.stage.engines.get(voice.policy)
        if engine is not None and voice.length >= engine.max_length:
            self._end(episode, Stop.MAX_TOKENS, episode.score())
            return False
        return True

    def _wait_for_replies(self, asked: Sequence[Asked]) -> None:
        """Note that the episodes that were `asked` wait for their samplers."""
        waits: dict[str, Wait] = {}
        for episode, seat in asked:
            policy = episode.voices[seat].policy
            if policy not in waits:
                waits[policy] = Wait(self.stage.sampler.owner(policy))
            episode.wait = waits[policy]

    def _act(self, asked: Sequence[Asked]) -> None:
        """Let the sampler answer, and begin to carry out what is decided."""
        choices = self.stage.sampler.choose([each for each in asked if id(each[0]) in self._live])
        wait = Wait("its environment to act")
        for episode, seat, completion in choices:
            if id(episode) not in self._live:
                continue
            if isinstance(completion, Failure):
                self._fail(episode, completion)
            elif episode.read(seat, completion):
                self._ready.append((episode, seat))
            elif (moves := episode.moves) is not None:
                episode.wait = wait
                assert episode.environment is not None, "an episode that is played has an environment"
                call = partial(self.stage.looks.act, episode.environment, moves)
                self.calls.submit(call, partial(self._settle, episode), episode)

    def _settle(self, episode: LiveEpisode, answer: Answer | Failure) -> None:
        """Record `answer`, and end `episode` if that or a limit says so."""
        if isinstance(answer, Failure):
            self._fail(episode, answer)
            return
        assert episode.environment is not None, "an episode that is played has an environment"
        episode.record(answer)
        own = episode.environment.max_turns
        limit = episode.request.max_turns or self.stage.limits.max_turns or own
        if answer.result.is_terminated:
            self._end(episode, Stop.TERMINATED, episode.score())
        elif answer.result.is_truncated or episode.num_acted >= limit:
            is_own = answer.result.is_truncated or episode.num_acted >= own
            self._end(episode, Stop.MAX_TURNS if is_own else Stop.CUT, episode.score())
        elif self._is_stuck(episode):
            self._end(episode, Stop.CUT, Score(value=episode.score().value, is_success=False))
        else:
            episode.show(answer.views)
            self._ready += [(episode, seat) for seat in episode.acting]

    def _is_stuck(self, episode: LiveEpisode) -> bool:
        """Whether `episode` took an action with the same reply more often in a row than it may."""
        most = self.stage.limits.max_repeats
        return most is not None and count_repeats(episode.turns, episode.shown) > most

    def _fail(self, episode: LiveEpisode, failure: Failure) -> None:
        """Try `episode` again in a fresh environment, or record its failure."""
        self._forget(episode)
        del self._live[id(episode)]
        if failure.owner in INFRASTRUCTURE:
            self.stage.pool.broken.append(failure)
        environment = episode.environment
        if environment is not None and failure.kind != "timeout":
            self._broken.append(environment.close)
        elif isinstance(environment, Killable):
            self._broken.append(environment.kill)
        if episode.attempt + 1 >= self.stage.limits.attempts:
            self._finished.append((episode, episode.finish(Stop.FAILURE, failure)))
            return
        self.stage.retries.append((episode.request.group, episode.request.index, failure))
        again = self._new(episode.request, episode.attempt + 1)
        self._live[id(again)] = again
        self._again.append(again)

    def _forget(self, episode: LiveEpisode) -> None:
        """Free what is held for the token streams of `episode`."""
        for voice in episode.voices.values():
            if voice.has_begun:
                self.stage.sampler.forget(voice.policy, voice.stream_name)

    def _end(self, episode: LiveEpisode, stop: Stop, outcome: Outcome) -> None:
        """Record the end of `episode` and keep its environment for another."""
        self._forget(episode)
        del self._live[id(episode)]
        if episode.environment is not None:
            self.stage.pool.reuse(episode.environment)
        self._finished.append((episode, episode.finish(stop, outcome)))

    def _judge_age(self, episode: LiveEpisode, trajectory: Trajectory) -> Trajectory:
        """Return `trajectory`, as a failure where the weights have moved on too far since it began."""
        return judge_age(trajectory, self.stage.sampler.staleness(episode.oldest), self.stage.max_staleness)


def _nothing(_result: object) -> None:
    """Do nothing."""


def _wait(episode: LiveEpisode, owner: str) -> None:
    """Note that `episode` waits for `owner` from now on."""
    episode.wait = Wait(owner)


def start_episode(looks: EnvironmentReader, environment: Environment, request: EpisodeRequest) -> Start:
    """Reset `environment` to the task of `request`, and bring it to the end of the prefix."""
    start = looks.start(environment, request.task)
    if request.prefix is None:
        return start
    bring_back(looks, environment, request.prefix, start)
    if isinstance(environment, SimultaneousSeats):
        return replace(start, views=looks.look(environment, ""))
    return replace(start, views=request.prefix.views[-1:])
