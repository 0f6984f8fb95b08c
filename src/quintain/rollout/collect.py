"""Collects trajectories: many episodes at once, every one of them accounted for.

The loop is lockstep and deterministic: ready prompts go to the policy, its completions to the environments,
their answers make the next prompts. An episode whose environment fails is tried again in a fresh instance and
then recorded as a `Failure`; none is lost, and none is scored for what it did not do.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from quintain.agents.protocol import Agent, equip
from quintain.engines.protocol import Engine
from quintain.environments.boundary import spec_of
from quintain.environments.protocol import Environment, Factory, Killable
from quintain.environments.tools import OwnedFault
from quintain.errors import EnvironmentFault, InvariantError, QuintainError
from quintain.rollout.collector import spared
from quintain.rollout.episode import Answer, Episode, Looks, Prefix, Start, Wait
from quintain.rollout.failures import INFRASTRUCTURE, check_broken, check_failures, one_line
from quintain.rollout.leaks import Leaks
from quintain.rollout.policies import Demonstrator, DemonstratorPolicy, EnginePolicy, Policy
from quintain.rollout.replay import Walk, bring_back, walk
from quintain.rollout.stepper import Stepper
from quintain.rollout.watchdog import Watchdog
from quintain.types import Action, Completion, Failure, Group, Outcome, Stop, Task, Trajectory, derive_seed

OnEpisode = Callable[[Trajectory], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a rollout: ``Limits(max_turns=16, step_timeout=10.0)``."""

    max_turns: int | None = None
    """Turns of an episode; the environment's own `max_turns` when None."""
    step_timeout: float = 30.0
    """Seconds that one call into an environment may take."""
    reply_timeout: float = 600.0
    """Seconds without any reply of the engine after which its requests count as lost."""
    attempts: int = 2
    """Times an episode is tried before its failure is recorded."""
    max_failure_share: float = 0.05
    """Share of failed episodes above which `FailureRateError` stops the run."""
    max_broken_share: float = 1.0
    """Share of all attempts so far, retried ones included, that environment, tools or judge may break."""
    silence: float = 60.0
    """Seconds that an episode may wait on one thing before a warning says on what; see `watchdog`."""
    concurrency: int = 256
    """Episodes alive at once; no more than an environment's own `parallel`, where it has one."""
    num_workers: int = 1
    """Threads that step environments; an environment's own `parallel`, where that is more."""
    has_state_keys: bool = False
    """Record the identity of every state, for credit that compares actions in equal states."""


class Rollout:
    """Runs episodes of `agent` in environments made by `make_environment`, sampling from `engine`."""

    def __init__(
        self, agent: Agent, make_environment: Factory, engine: Engine | None, *, limits: Limits | None = None
    ) -> None:
        self.agent = agent
        self.make_environment = make_environment
        self.engine = engine
        self.limits = limits or Limits()
        self.stepper = Stepper(timeout=self.limits.step_timeout, num_workers=self.limits.num_workers)
        self.looks = Looks(has_state_keys=self.limits.has_state_keys)
        self.leaks = Leaks(make_environment, self.stepper)
        self.num_attempts = 0
        """Attempts at an episode so far."""
        self.broken: list[Failure] = []
        """What environments, tools and judges broke in them."""
        self.retries: list[tuple[str, int, Failure]] = []  # group, number and what broke, of those begun anew
        self._idle: list[Environment] = []
        self._parallel = 0

    def groups(
        self,
        tasks: Sequence[Task],
        *,
        size: int,
        seed: int,
        on_episode: OnEpisode | None = None,
        limits: Limits | None = None,
        agent: Agent | None = None,
    ) -> list[Group]:
        """Sample `size` episodes of each of `tasks`.

        `seed` names the occasion (run and step); episode `index` of the task at `place` samples from
        ``derive_seed(seed, task.id, place, index)`` whatever else runs beside it.

        Raises:
            FailureRateError: more than the allowed share of episodes failed.
            EnvironmentFault: an environment could not be made.
            EngineFault: the engine does not answer, or answers what was not asked.
        """
        assert self.engine is not None, "a rollout without an engine only makes demonstrations"
        policy = EnginePolicy(self.engine, patience=self.limits.reply_timeout)
        with self._meanwhile(limits, agent):
            return self._run(tasks, size, seed, policy, on_episode)

    def demonstrations(
        self,
        tasks: Sequence[Task],
        demonstrator: Demonstrator,
        *,
        seed: int,
        on_episode: OnEpisode | None = None,
    ) -> list[Group]:
        """Run each of `tasks` once with the actions of `demonstrator`, written as the policy's tokens."""
        return self._run(tasks, 1, seed, DemonstratorPolicy(demonstrator, self.stepper), on_episode)

    def walks(self, trajectories: Sequence[Trajectory]) -> list[Walk]:
        """Carry out recorded episodes again, to continue them at any of their turns.

        Raises:
            EnvironmentFault: one of them does not repeat exactly, or its environment fails.
        """
        environments = [self._take() for _ in trajectories]
        calls = [partial(walk, self.looks, e, t) for e, t in zip(environments, trajectories, strict=True)]
        results = self.stepper.run(calls)
        self._idle += environments
        for result in results:
            if isinstance(result, Failure):
                raise EnvironmentFault(result.message)
        return [result for result in results if isinstance(result, Walk)]

    def continuations(
        self, prefixes: Sequence[Prefix], *, size: int, seed: int, limits: Limits | None = None
    ) -> list[Group]:
        """Sample `size` ways on from each of `prefixes`; the turns of the prefix are the first of each episode.

        Seeds as in `groups`. The outcome is that of the whole episode.
        """
        assert self.engine is not None, "a rollout without an engine only makes demonstrations"
        tasks = [prefix.task for prefix in prefixes]
        policy = EnginePolicy(self.engine, patience=self.limits.reply_timeout)
        with self._meanwhile(limits, None):
            return self._run(tasks, size, seed, policy, None, prefixes)

    @contextmanager
    def _meanwhile(self, limits: Limits | None, agent: Agent | None) -> Generator[None]:
        """Use other limits or another agent within."""
        usual = self.limits, self.agent
        self.limits, self.agent = limits or self.limits, agent or self.agent
        try:
            yield
        finally:
            self.limits, self.agent = usual

    def reuse(self, environment: Environment) -> None:
        """Keep `environment` for a later episode."""
        self._idle.append(environment)

    def make(self) -> Environment:
        """Return a new environment, as the agent needs it; one whose process broke while it began is tried again.

        Raises:
            EnvironmentFault: its constructor raised, or did not return in time.
            SandboxError: the agent runs code, and isolation is missing.
        """
        (made,) = self.stepper.run([partial(attempted, self.make_environment)])
        for _ in range(self.limits.attempts - 1):
            if not isinstance(made, OwnedFault) or made.owner not in INFRASTRUCTURE:
                break
            self.num_attempts += 1
            self.broken.append(Failure(owner=made.owner, kind=made.kind, message=str(made)))
            (made,) = self.stepper.run([partial(attempted, self.make_environment)])
        if isinstance(made, QuintainError):
            raise made
        if isinstance(made, Failure):
            reason = made.message if made.kind == "timeout" else f"{made.kind}: {one_line(made.message)}"
            raise EnvironmentFault(
                f"making environment {spec_of(self.make_environment)}: got {reason}; mend __init__"
            )
        if made.parallel:
            self._parallel = made.parallel
            self.stepper.num_workers = max(self.limits.num_workers, made.parallel)
        return equip(self.agent, made)

    def close(self) -> None:
        """Close the idle environments and say what they leave behind."""
        idle, self._idle = self._idle, []
        self.stepper.run([environment.close for environment in idle])
        self.leaks.report()

    def _run(
        self,
        tasks: Sequence[Task],
        size: int,
        seed: int,
        policy: Policy,
        on_episode: OnEpisode | None,
        prefixes: Sequence[Prefix] = (),
    ) -> list[Group]:
        """Run all episodes and return them by task, in the order of `tasks`."""
        wanted = [(place, task, index) for place, task in enumerate(tasks) for index in range(size)]
        seeds = [derive_seed(seed, task.id, place, index) for place, task, index in wanted]
        if len(set(seeds)) != len(seeds):
            raise InvariantError(
                f"seeds of {len(seeds)} episodes: got {len(set(seeds))} distinct; report this"
            )
        queue = [
            partial(
                self._episode,
                task,
                f"{place}:{task.id}",
                index,
                episode_seed,
                prefixes[place] if prefixes else None,
            )
            for (place, task, index), episode_seed in zip(wanted, seeds, strict=True)
        ][::-1]
        done: dict[tuple[str, int], Trajectory] = {}
        round_ = _Round(self, policy)
        failures: list[Failure] = []
        if queue and not self._idle:
            self.reuse(self.make())
        most_live = min(self.limits.concurrency, self._parallel or self.limits.concurrency)
        try:
            with spared(), Watchdog(round_.live, seconds=self.limits.silence):
                while queue or round_.num_live:
                    room = most_live - round_.num_live
                    for trajectory in round_.play([queue.pop()() for _ in range(min(len(queue), room))]):
                        done[trajectory.group, trajectory.index] = trajectory
                        failures += [trajectory.outcome] if isinstance(trajectory.outcome, Failure) else []
                        if on_episode is not None:
                            on_episode(trajectory)
                    most, broken = self.limits.max_failure_share, self.limits.max_broken_share
                    check_failures(failures, finished=len(done), total=len(wanted), most=most)
                    check_broken(spec_of(self.make_environment), self.broken, self.num_attempts, most=broken)
        except BaseException:
            round_.abandon()
            raise
        trajectories = [done[f"{place}:{task.id}", index] for place, task, index in wanted]
        return [
            Group(task=task, trajectories=tuple(trajectories[place * size : (place + 1) * size]))
            for place, task in enumerate(tasks)
        ]

    def _episode(self, task: Task, group: str, index: int, seed: int, prefix: Prefix | None) -> Episode:
        """Return a new episode in an idle or new environment."""
        return Episode(
            task=task, group=group, index=index, seed=seed, environment=self._take(), prefix=prefix
        )

    def _take(self) -> Environment:
        """Return an idle environment, or a new one."""
        return self._idle.pop() if self._idle else self.make()


class _Round:
    """The live episodes of one `Rollout._run`."""

    def __init__(self, rollout: Rollout, policy: Policy) -> None:
        self.rollout = rollout
        self.policy = policy
        self._live: dict[int, Episode] = {}
        self._ready: list[Episode] = []
        self._again: list[Episode] = []
        self._broken: list[Callable[[], None]] = []
        self._finished: list[Trajectory] = []

    def play(self, new: list[Episode]) -> list[Trajectory]:
        """Start `new` episodes and those to be tried again, advance all live ones, and return those that ended."""
        again, self._again = self._again, []
        self._live |= {id(episode): episode for episode in new}
        self._start([*again, *new])
        ready, self._ready = self._ready, []
        asked = [episode for episode in ready if self._ask(episode)]
        waits(asked, self.policy.owner)
        if self.num_live:
            self._act(self.policy.choose(asked))
        broken, self._broken = self._broken, []
        self.rollout.stepper.run(broken)
        finished, self._finished = self._finished, []
        return finished

    def live(self) -> list[Episode]:
        """Return the episodes that have begun and not ended; may be called from another thread."""
        return list(self._live.values())

    @property
    def num_live(self) -> int:
        """Number of episodes that have begun and not ended."""
        return len(self._live)

    def abandon(self) -> None:
        """Free what the live episodes hold, in the engine and in their environments."""
        live, self._live = list(self._live.values()), {}
        for episode in live:
            self._forget(episode)
        self.rollout.stepper.run([*(episode.environment.close for episode in live), *self._broken])

    def _start(self, episodes: list[Episode]) -> None:
        """Reset the environments of `episodes` and open their conversations."""
        self.rollout.num_attempts += len(episodes)
        waits(episodes, "its environment to begin")
        starts = self.rollout.stepper.run([partial(started, self.rollout.looks, e) for e in episodes])
        for episode, start in zip(episodes, starts, strict=True):
            if isinstance(start, Failure):
                self._fail(episode, start)
            else:
                self._open(episode, start)

    def _open(self, episode: Episode, start: Start) -> None:
        """Open the conversation of `episode`."""
        episode.open(self.rollout.agent, start)
        self._ready.append(episode)

    def _ask(self, episode: Episode) -> bool:
        """Prepare the next prompt of `episode`; ends it and returns False when the stream is full."""
        episode.ask()
        if episode.ended is not None:
            self.policy.forget(episode.ended)
        engine = self.rollout.engine
        if engine is not None and episode.voice.length >= engine.max_length:
            self._end(episode, Stop.MAX_TOKENS, episode.score())
            return False
        return True

    def _act(self, choices: Sequence[tuple[Episode, Completion | Failure]]) -> None:
        """Carry out the actions in the completions."""
        playing: list[tuple[Episode, Completion]] = []
        for episode, completion in choices:
            if isinstance(completion, Failure):
                self._fail(episode, completion)
            else:
                playing.append((episode, completion))
        acting: list[tuple[Episode, Completion, Action]] = []
        for episode, completion in playing:
            action = episode.read(completion)
            if episode.follow_up is None:
                acting.append((episode, completion, action))
            else:
                episode.ponder(completion, action)
                self._ready.append(episode)
        waits([episode for episode, _, _ in acting], "its environment to act")
        act = self.rollout.looks.act
        answers = self.rollout.stepper.run([partial(act, e.environment, action) for e, _, action in acting])
        for (episode, completion, action), answer in zip(acting, answers, strict=True):
            if isinstance(answer, Failure):
                self._fail(episode, answer)
            else:
                episode.record(completion, action, answer)
                self._settle(episode, answer)

    def _settle(self, episode: Episode, answer: Answer) -> None:
        """End `episode` if `answer` or a limit says so."""
        limit = self.rollout.limits.max_turns or episode.environment.max_turns
        if answer.result.is_terminated:
            self._end(episode, Stop.TERMINATED, episode.score())
        elif answer.result.is_truncated or episode.num_acted >= limit:
            self._end(episode, Stop.MAX_TURNS, episode.score())
        else:
            self._ready.append(episode)

    def _fail(self, episode: Episode, failure: Failure) -> None:
        """Try `episode` again in a fresh environment, or record its failure."""
        self._forget(episode)
        del self._live[id(episode)]
        if failure.owner in INFRASTRUCTURE:
            self.rollout.broken.append(failure)
        if failure.kind != "timeout":
            self._broken.append(episode.environment.close)
        elif isinstance(episode.environment, Killable):
            self._broken.append(episode.environment.kill)
        if episode.attempt + 1 >= self.rollout.limits.attempts:
            self._finished.append(episode.finish(Stop.FAILURE, failure))
            return
        self.rollout.retries.append((episode.group, episode.index, failure))
        again = Episode(
            task=episode.task,
            group=episode.group,
            index=episode.index,
            seed=episode.seed,
            environment=self.rollout.make(),
            attempt=episode.attempt + 1,
            prefix=episode.prefix,
        )
        self._live[id(again)] = again
        self._again.append(again)

    def _forget(self, episode: Episode) -> None:
        """Free what is held for the token streams of `episode`."""
        for name in episode.stream_names:
            self.policy.forget(name)

    def _end(self, episode: Episode, stop: Stop, outcome: Outcome) -> None:
        """Record the end of `episode` and keep its environment for another."""
        self._forget(episode)
        del self._live[id(episode)]
        self.rollout.reuse(episode.environment)
        self._finished.append(episode.finish(stop, outcome))


def waits(episodes: Sequence[Episode], owner: str) -> None:
    """Note that `episodes` wait for `owner` from now on."""
    wait = Wait(owner)
    for episode in episodes:
        episode.wait = wait


def started(looks: Looks, episode: Episode) -> Start:
    """Reset the environment of `episode`, and bring it to the end of its prefix."""
    start = looks.start(episode.environment, episode.task)
    if episode.prefix is not None:
        bring_back(episode.environment, episode.prefix)
    return start


def attempted(make: Factory) -> Environment | QuintainError:
    """Return a new environment, or the error of ours that making it raised."""
    try:
        return make()
    except QuintainError as error:
        return error
