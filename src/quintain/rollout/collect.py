"""Collects trajectories: many episodes at once, every one of them accounted for.

A `Rollout` knows policies and environments; a source (`quintain.rollout.source`) plays the episodes that it is asked
for. An episode whose environment fails is tried again in a fresh instance and then recorded as a `Failure`; none is
lost, and none is scored for what it did not do.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

from quintain.agents.protocol import Agent
from quintain.engines.protocol import Engine
from quintain.environments.protocol import Environment, Factory
from quintain.errors import EnvironmentFault, InvariantError, UsageError, suggestion
from quintain.rollout.play import PlayContext
from quintain.rollout.pool import Pool
from quintain.rollout.replay import ReplayedEpisode, lose_episode, walk
from quintain.rollout.request import POLICY, USUAL, Cast, EpisodeRequest, Limits, Options, by_policy
from quintain.rollout.samplers import (
    Demonstrator,
    DemonstratorSampler,
    DialogueTeacher,
    EngineSampler,
    Sampler,
)
from quintain.rollout.source import SOURCES, Kind, MakeSource, Recorded
from quintain.rollout.views import EnvironmentReader, Prefix, seats_of
from quintain.rollout.watchdog import Patience
from quintain.types import NOTHING, Failure, Group, Task, Trajectory, derive_seed

OnEpisode = Callable[[Trajectory], None]


class Rollout:
    """Runs episodes of policies in environments made by `make_environment`.

    Args:
        agent: the harness of the one policy, or harnesses by the name of their policies.
        make_environment: returns a new environment.
        engine: what the one policy samples from, or engines by policy; None where only demonstrations are made.
        seats: which policy plays which seat; where it is left out, ``policy`` plays every seat.
        limits: bounds of every call; a call may have others (`Options`).
        source: ``lockstep`` or ``async``, or what makes a source; see `quintain.rollout.source`.
        max_staleness: versions that weights may move on while an episode is played, where they change under way;
            an episode beyond that is a `Failure` of kind ``stale``.
        recall: returns an episode that is not to be played, as where steps of a run are made again; None for others.
        draw_seats: seed of a group → which policy plays which seat in it, as where past selves play; demonstrations
            have the usual `seats`.

    Raises:
        UsageError: a policy has a harness and no engine or the other way round, or a seat has no such policy.
    """

    def __init__(
        self,
        agent: Agent | Mapping[str, Agent],
        make_environment: Factory,
        engine: Engine | Mapping[str, Engine] | None,
        *,
        seats: Mapping[str, str] = NOTHING,
        limits: Limits | None = None,
        source: Kind | MakeSource = "lockstep",
        max_staleness: int = 0,
        recall: Callable[[EpisodeRequest], Trajectory | None] | None = None,
        draw_seats: Callable[[int], Mapping[str, str]] | None = None,
    ) -> None:
        if isinstance(source, str) and source not in SOURCES:
            raise UsageError(f"source of episodes: got {source!r}; {suggestion(source, SOURCES)}")
        if max_staleness < 0:
            raise UsageError(f"max_staleness: got {max_staleness}; give 0 (on-policy) or more versions")
        self._players = Cast(agents=by_policy(agent), seats=seats)
        self._engines = (
            dict(engine) if isinstance(engine, Mapping) else {} if engine is None else {POLICY: engine}
        )
        check_policies(self._players, self._engines)
        self._limits = limits or Limits()
        self._source: Kind | MakeSource = source
        self._max_staleness, self._recall, self._draw_seats = max_staleness, recall, draw_seats
        self._pool = Pool(make_environment, list(self._players.agents.values()), self._limits)
        self._looks = EnvironmentReader(
            has_state_keys=self._limits.has_state_keys, has_same_tools=self._limits.has_same_tools
        )
        self.retries: list[tuple[str, int, Failure]] = []  # group, number and what broke, of those begun anew
        self._patience = Patience()

    @property
    def agent(self) -> Agent:
        """The harness of the policy ``policy``, or of the only one."""
        agents = self._players.agents
        return agents[POLICY] if POLICY in agents else next(iter(agents.values()))

    @property
    def engine(self) -> Engine | None:
        """The engine of the policy ``policy``, or of the only one; None where only demonstrations are made."""
        return self._engines.get(POLICY, next(iter(self._engines.values()), None))

    @property
    def engines(self) -> Mapping[str, Engine]:
        """Engines by policy."""
        return self._engines

    @property
    def make_environment(self) -> Factory:
        """What makes a new environment."""
        return self._pool.make_environment

    @property
    def limits(self) -> Limits:
        """Bounds of every call that names no others."""
        return self._limits

    @property
    def pool(self) -> Pool:
        """The environments, and what broke of them."""
        return self._pool

    def groups(
        self,
        tasks: Sequence[Task],
        *,
        size: int,
        seed: int,
        on_episode: OnEpisode | None = None,
        options: Options = USUAL,
        known: Iterable[Trajectory] = (),
    ) -> list[Group]:
        """Sample `size` episodes of each of `tasks`.

        `seed` names the occasion (run and step); episode `index` of the task at `place` samples from
        ``derive_seed(seed, task.id, place, index)`` whatever else runs beside it. `on_episode` is called with each
        episode as soon as it ends, so that it can be recorded at once. What is `known` already, from a collection with
        the same seed that was broken off, is not played again.

        Raises:
            FailureRateError: more than the allowed share of episodes failed.
            EnvironmentFault: an environment could not be made.
            EngineFault: an engine does not answer, or answers what was not asked.
            UsageError: no policy plays a seat.
            DataError: a known episode is not of this seed.
        """
        requests = self.requests(tasks, size, seed, options)
        return self._collect_tasks(
            tasks, requests, self._sampler(options), options, on_episode, Recorded(known)
        )

    def demonstrations(
        self,
        tasks: Sequence[Task],
        demonstrator: Demonstrator | DialogueTeacher,
        *,
        seed: int,
        on_episode: OnEpisode | None = None,
        options: Options = USUAL,
        known: Iterable[Trajectory] = (),
    ) -> list[Group]:
        """Run each of `tasks` once with the actions of `demonstrator`, written as the policy's tokens.

        What is `known` already is not played again; see `groups`.
        """
        sampler = DemonstratorSampler(demonstrator, self._pool.stepper)
        options = replace(options, seats=options.seats or self._players.seats or None)
        requests = self.requests(tasks, 1, seed, options)
        return self._collect_tasks(tasks, requests, sampler, options, on_episode, Recorded(known))

    def replay_episodes(
        self, trajectories: Sequence[Trajectory], *, checks_rewards: bool = True, may_differ: bool = False
    ) -> list[ReplayedEpisode]:
        """Carry out recorded episodes again, to continue them at any of their turns.

        Without `checks_rewards` rewards may differ, as where a method has replaced them. With `may_differ` an episode
        that does not repeat is a `ReplayedEpisode` that says so, from which nothing goes on.

        Raises:
            EnvironmentFault: one of them does not repeat, or its environment fails.
        """
        environments = [self._pool.take() for _ in trajectories]
        calls = [
            partial(walk, self._looks, e, t, checks_rewards=checks_rewards)
            for e, t in zip(environments, trajectories, strict=True)
        ]
        results = self._pool.stepper.run(calls)
        for environment in environments:
            self._pool.reuse(environment)
        found: list[ReplayedEpisode] = []
        for trajectory, result in zip(trajectories, results, strict=True):
            if isinstance(result, Failure) and not may_differ:
                raise EnvironmentFault(result.message)
            found.append(lose_episode(trajectory) if isinstance(result, Failure) else result)
        return found

    def continuations(
        self,
        prefixes: Sequence[Prefix],
        *,
        size: int,
        seed: int,
        options: Options = USUAL,
        demonstrator: Demonstrator | DialogueTeacher | None = None,
    ) -> list[Group]:
        """Sample `size` ways on from each of `prefixes`; the turns of the prefix are the first of each episode.

        Where there is a `demonstrator`, it goes on in the place of the policies. Seeds as in `groups`. The outcome is
        that of the whole episode. A prefix that does not repeat has none: its group is empty.
        """
        if not all(prefix.is_repeated for prefix in prefixes):
            kept = [prefix for prefix in prefixes if prefix.is_repeated]
            found = iter(
                self.continuations(kept, size=size, seed=seed, options=options, demonstrator=demonstrator)
            )
            return [
                next(found) if prefix.is_repeated else Group(task=prefix.task, trajectories=())
                for prefix in prefixes
            ]
        if self._draw_seats is not None and options.seats is None:
            raise UsageError(
                "continuing episodes: got past selves, of which others would go on; take a method without branches"
            )
        tasks = [prefix.task for prefix in prefixes]
        requests = self.requests(tasks, size, seed, options, prefixes)
        sampler = (
            self._sampler(options)
            if demonstrator is None
            else DemonstratorSampler(demonstrator, self._pool.stepper)
        )
        return self._collect_tasks(tasks, requests, sampler, options, None, Recorded(()))

    def play(
        self, requests: Iterable[EpisodeRequest], *, limits: Limits | None = None
    ) -> Generator[Trajectory]:
        """Yield the episodes that `requests` ask for, each as soon as it ends; see `Source.episodes`.

        Requests are drawn when there is room for them, so they may be endless. Close the generator (or use
        `contextlib.closing`) to give up what is still played.
        """
        options = Options(limits=limits)
        return self._play_requests(requests, self._sampler(options), options)

    def close(self) -> None:
        """Close the idle environments and say what they leave behind."""
        if not isinstance(self._source, str):
            self._source.close()
        self._pool.close()

    def requests(
        self,
        tasks: Sequence[Task],
        size: int,
        seed: int,
        options: Options,
        prefixes: Sequence[Prefix] = (),
    ) -> list[EpisodeRequest]:
        """Return what is asked for by `size` episodes of each of `tasks`.

        Raises:
            InvariantError: two of them would sample from the same seed.
        """
        drawn: list[Mapping[str, str] | None] = [options.seats] * len(tasks)
        if self._draw_seats is not None and options.seats is None:
            drawn = [
                self._draw_seats(derive_seed(seed, task.id, place, "seats"))
                for place, task in enumerate(tasks)
            ]
        requests = [
            EpisodeRequest(
                task=task,
                group=f"{place}:{task.id}",
                index=index,
                seed=derive_seed(seed, task.id, place, index),
                agent=options.agent,
                seats=drawn[place],
                prefix=prefixes[place] if prefixes else None,
            )
            for place, task in enumerate(tasks)
            for index in range(size)
        ]
        seeds = {request.seed for request in requests}
        if len(seeds) != len(requests):
            raise InvariantError(f"seeds of {len(requests)} episodes: got {len(seeds)} distinct; report this")
        return requests

    def _sampler(self, options: Options) -> Sampler:
        """Return what samples from the engines.

        Raises:
            UsageError: there is no engine.
        """
        if not self._engines:
            raise UsageError("sampling episodes: got no engine; give Rollout one, or ask for demonstrations")
        return EngineSampler(self._engines, patience=(options.limits or self._limits).reply_timeout)

    def _collect_tasks(
        self,
        tasks: Sequence[Task],
        requests: Sequence[EpisodeRequest],
        sampler: Sampler,
        options: Options,
        on_episode: OnEpisode | None,
        recorded: Recorded,
    ) -> list[Group]:
        """Return the episodes that `requests` ask for by task, as `tasks` are ordered; what is `recorded` as it is."""
        done = {
            (found.group, found.index): found
            for request in requests
            if (found := recorded.find(request)) is not None
        }
        missing = [request for request in requests if (request.group, request.index) not in done]
        with closing(self._play_requests(missing, sampler, options)) as episodes:
            for trajectory in episodes:
                done[trajectory.group, trajectory.index] = trajectory
                if on_episode is not None:
                    on_episode(trajectory)
        trajectories = [done[request.group, request.index] for request in requests]
        size = len(requests) // len(tasks) if tasks else 0
        return [
            Group(task=task, trajectories=tuple(trajectories[place * size : (place + 1) * size]))
            for place, task in enumerate(tasks)
        ]

    def _play_requests(
        self, requests: Iterable[EpisodeRequest], sampler: Sampler, options: Options
    ) -> Generator[Trajectory]:
        """Yield the episodes that `requests` ask for."""
        if self._recall is not None:
            missing: list[EpisodeRequest] = []
            for request in requests:
                if (found := self._recall(request)) is None:
                    missing.append(request)
                else:
                    yield found
            requests = missing
        stage = PlayContext(
            pool=self._pool,
            looks=self._looks,
            sampler=sampler,
            engines=self._engines,
            players=self._players,
            limits=options.limits or self._limits,
            max_staleness=self._max_staleness,
            retries=self.retries,
            patience=self._patience,
        )
        players = self._players.changed(options.agent, options.seats)
        if requests != []:
            environment = self._pool.take()
            self._pool.reuse(environment)
            if players.seats:
                check_seats(players, environment, self._pool)
        if isinstance(self._source, str):
            source = SOURCES[self._source](stage)
        elif isinstance(sampler, DemonstratorSampler):
            source = SOURCES["lockstep"](stage)  # what is shown is played here, whoever acts otherwise
        else:
            source = self._source(stage)
        yield from source.episodes(requests)


def check_policies(players: Cast, engines: Mapping[str, Engine]) -> None:
    """Refuse policies that have a harness or an engine only, and seats of policies that there are not.

    Raises:
        UsageError: there are some.
    """
    half = set(players.agents) ^ set(engines) if engines else set[str]()
    if half or not players.agents:
        raise UsageError(
            f"policies of a rollout: got harnesses for {', '.join(sorted(players.agents)) or 'none'} and engines for "
            f"{', '.join(sorted(engines)) or 'none'}; give every policy both"
        )
    if not players.seats and POLICY not in players.agents:
        first = min(players.agents)
        raise UsageError(
            f"seats of a rollout: got none, with the policies {', '.join(sorted(players.agents))}; say which plays "
            f'each seat, as seats={{"agent": "{first}"}}, or call one {POLICY}, which then plays all'
        )
    players.check(players.seats)


def check_seats(players: Cast, environment: Environment, pool: Pool) -> None:
    """Refuse seats of `environment`, which has not begun, that no policy plays; `LiveEpisode.open` looks again.

    Raises:
        UsageError: there are some.
    """
    (seats,) = pool.stepper.run([partial(seats_of, environment)])
    if not isinstance(seats, Failure):  # some know their seats only when they have a task
        players.check(seats)
