"""Sources of episodes: the same episodes from each; asynchronous ones wait for nobody else, and lose nothing."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from random import Random
from typing import Any, cast

import pytest
from tests.rollout.test_collect import all_of, content

from quintain.agents.harness import PlainText
from quintain.engines.protocol import Reply
from quintain.engines.scripted import Scripted
from quintain.environments.protocol import Environment
from quintain.errors import DataError, EnvironmentFault, UsageError
from quintain.rollout import play as play_module
from quintain.rollout.collect import Limits, Rollout
from quintain.rollout.request import EpisodeRequest
from quintain.rollout.source import Kind, Recorded
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Failure, Score, StepResult, Task, Trajectory

DEADLINE = 30.0
"""Seconds after which a test that waits has failed."""


class Walk(Environment):
    """Go left or right."""

    max_turns = 4

    def __init__(self) -> None:
        self.closed = 0

    def reset(self, task: Task) -> str:
        self.name, self.rng, self.turn = task.id, Random(task.seed), 0
        return "A wall."

    def step(self, action: Action) -> StepResult:
        self.turn += 1
        is_over = self.rng.random() < 0.3
        return StepResult(observation=f"Wall {self.turn}.", reward=float(is_over), is_terminated=is_over)

    def close(self) -> None:
        self.closed += 1


def tasks(number: int) -> list[Task]:
    return [Task(id=f"walk/train/{index}", environment="walk", seed=index) for index in range(number)]


def speaking(chat: Chat) -> Scripted:
    """What is said depends on the seed of the request alone."""
    said = [chat.write("left"), chat.write("right"), chat.write("go on")]
    return Scripted(lambda request, stream: said[request.seed % 3])


def requests(numbers: Iterator[int] | range) -> Iterator[EpisodeRequest]:
    for number in numbers:
        (task,) = tasks(number + 1)[-1:]
        yield EpisodeRequest(task=task, group=f"g{number}", index=0, seed=number)


class Slow(Walk):
    """Its first task takes until everybody else is done."""

    others_done = threading.Event()

    def step(self, action: Action) -> StepResult:
        if self.name.endswith("/0") and self.turn == 0:
            assert self.others_done.wait(DEADLINE)
        return super().step(action)


def test_a_slow_tool_holds_up_its_own_episode_only(chat: Chat) -> None:
    Slow.others_done = threading.Event()
    order: list[str] = []

    def ended(trajectory: Trajectory) -> None:
        order.append(trajectory.task.id)
        if len(order) == 19:
            Slow.others_done.set()

    rollout = Rollout(PlainText(chat), Slow, speaking(chat), source="async", limits=Limits(concurrency=4))
    groups = rollout.groups(tasks(20), size=1, seed=1, on_episode=ended)
    rollout.close()
    assert order[-1] == "walk/train/0" and len(set(order)) == 20
    assert [group.task.id for group in groups] == [task.id for task in tasks(20)]


class Jittery(Walk):
    """Its steps take up to two milliseconds, by chance."""

    is_variant = True
    chance = Random(5)

    def step(self, action: Action) -> StepResult:
        threading.Event().wait(self.chance.random() * 0.002)
        return super().step(action)


def test_every_source_has_the_same_episodes(chat: Chat) -> None:
    found: list[list[Any]] = []
    kinds: tuple[Kind, ...] = ("lockstep", "async", "async")
    for kind, make, concurrency in zip(kinds, (Walk, Jittery, Jittery), (64, 3, 64), strict=True):
        limits = Limits(concurrency=concurrency)
        rollout = Rollout(PlainText(chat), make, speaking(chat), source=kind, limits=limits)
        with closing(rollout):
            found.append([content(t) for t in all_of(rollout.groups(tasks(10), size=3, seed=2))])
    assert found[0] == found[1] == found[2]
    assert len({str(episode) for episode in found[0]}) == 30


class Late(Walk):
    """The first to be made is there at once, the second when all others have played; it says how many there are."""

    num_made = 0
    release = threading.Event()

    def __init__(self) -> None:
        super().__init__()
        Late.num_made += 1
        if Late.num_made == 2:
            assert Late.release.wait(DEADLINE)


def test_an_environment_that_is_slow_to_make_holds_up_its_own_episode_only(chat: Chat) -> None:
    Late.num_made, Late.release = 0, threading.Event()
    ended: list[Trajectory] = []

    def end(trajectory: Trajectory) -> None:
        ended.append(trajectory)
        if len(ended) == 5:
            Late.release.set()

    rollout = Rollout(PlainText(chat), Late, speaking(chat), source="async", limits=Limits(concurrency=2))
    with closing(rollout):
        rollout.groups(tasks(6), size=1, seed=1, on_episode=end)
    assert len(ended) == 6 and Late.num_made == 2


@pytest.mark.parametrize("kind", ["lockstep", "async"])
def test_a_collection_that_was_broken_off_goes_on_with_what_is_missing(chat: Chat, kind: Kind) -> None:
    whole = Rollout(PlainText(chat), Walk, speaking(chat), source=kind).groups(tasks(4), size=3, seed=3)
    journal: list[Trajectory] = []

    def record(trajectory: Trajectory) -> None:
        journal.append(trajectory)
        if len(journal) == 5:
            raise KeyboardInterrupt

    limits = Limits(concurrency=3)
    broken_off = Rollout(PlainText(chat), Walk, speaking(chat), source=kind, limits=limits)
    with pytest.raises(KeyboardInterrupt):
        broken_off.groups(tasks(4), size=3, seed=3, on_episode=record)
    assert len(journal) == 5
    engine, new = speaking(chat), list[Trajectory]()
    again = Rollout(PlainText(chat), Walk, engine, source=kind)
    groups = again.groups(tasks(4), size=3, seed=3, known=journal, on_episode=new.append)
    assert [content(t) for t in all_of(groups)] == [content(t) for t in all_of(whole)]
    assert len(new) == 7 and not {(t.group, t.index) for t in new} & {(t.group, t.index) for t in journal}
    played = {"/".join(request.session.split("/")[:4]) for request in engine.requests}
    assert played == {f"{t.group}/{t.index}" for t in new}
    assert again.groups(tasks(4), size=3, seed=3, known=[*journal, *new]) == groups
    with pytest.raises(DataError, match=r"episode . of .:walk/train/.: got a record with seed \d+ of"):
        again.groups(tasks(4), size=3, seed=4, known=journal)


@pytest.mark.parametrize("kind", ["lockstep", "async"])
def test_requests_may_be_endless_and_are_drawn_when_there_is_room(chat: Chat, kind: Kind) -> None:
    made: list[Walk] = []

    def make() -> Walk:
        made.append(Walk())
        return made[-1]

    drawn: list[EpisodeRequest] = []

    def endless() -> Iterator[EpisodeRequest]:
        for request in requests(count()):
            drawn.append(request)
            yield request

    engine = speaking(chat)
    rollout = Rollout(PlainText(chat), make, engine, source=kind, limits=Limits(concurrency=3))
    with closing(rollout.play(endless())) as episodes:
        found = [next(episodes) for _ in range(10)]
    assert len({t.group for t in found}) == 10 and len(drawn) <= 10 + 3
    assert len(made) == 3
    assert engine._streams == {}  # pyright: ignore[reportPrivateUsage]
    rollout.close()
    assert [world.closed for world in made] == [1, 1, 1]


class Versions(Scripted):
    """Says `script` with weights whose version a test changes."""

    version = 0

    @property
    def policy_version(self) -> int:
        return self.version

    def advance(self) -> list[Reply]:
        return [
            Reply(session=reply.session, result=self._stamped(cast(Completion, reply.result)))
            for reply in super().advance()
        ]

    def _stamped(self, result: Completion) -> Completion:
        spans = ((0, self.version - 1), (1, self.version)) if self.version == 4 else ()
        return Completion(
            token_ids=result.token_ids,
            logprobs=result.logprobs,
            stop=result.stop,
            policy_version=self.version,
            version_spans=spans,
        )


class Long(Walk):
    """Takes as many turns as the number of its task."""

    max_turns = 99

    def step(self, action: Action) -> StepResult:
        self.turn += 1
        is_over = self.turn > int(self.name.rpartition("/")[2])
        return StepResult(observation="A wall.", reward=float(is_over), is_terminated=is_over)


@pytest.mark.parametrize("kind", ["lockstep", "async"])
@pytest.mark.parametrize("most", [0, 1, 3])
def test_an_episode_that_weights_have_left_behind_is_a_failure_that_is_counted(
    chat: Chat, kind: Kind, most: int
) -> None:
    engine = Versions(speaking(chat).script)
    limits = Limits(concurrency=4, max_failure_share=0.0, attempts=1)
    rollout = Rollout(PlainText(chat), Long, engine, source=kind, limits=limits, max_staleness=most)
    found: dict[int, Trajectory] = {}
    for trajectory in rollout.play(list(requests(range(4)))):
        found[int(trajectory.group[1:])] = trajectory
        age = engine.version - min(turn.completion.policy_version for turn in trajectory.turns)
        outcome = trajectory.outcome
        if age <= most:
            assert outcome == Score(value=1.0, is_success=True)
        else:
            assert isinstance(outcome, Failure) and (outcome.owner, outcome.kind) == ("engine", "stale")
            assert f"weights {age} versions old, {most} are allowed; raise max_staleness" in outcome.message
        engine.version += 1
    rollout.close()
    stale = {number for number, t in found.items() if isinstance(t.outcome, Failure)}
    assert set(found) == {0, 1, 2, 3} and (kind == "async" or stale == set(range(most + 1, 4)))


def test_versions_of_tokens_are_kept_and_the_oldest_counts(chat: Chat) -> None:
    engine = Versions(speaking(chat).script)
    engine.version = 4
    rollout = Rollout(PlainText(chat), Long, engine, source="async", max_staleness=0)
    (trajectory,) = rollout.play(list(requests(range(1))))
    assert [turn.completion.version_spans for turn in trajectory.turns] == [((0, 3), (1, 4))]
    assert (
        isinstance(trajectory.outcome, Failure)
        and "1 versions old, 0 are allowed" in trajectory.outcome.message
    )
    rollout = Rollout(PlainText(chat), Long, engine, source="async", max_staleness=1)
    (trajectory,) = rollout.play(list(requests(range(1))))
    assert isinstance(trajectory.outcome, Score)


class Held(Walk):
    """Its second task hangs in its first step until the test is over; others do not."""

    release = threading.Event()
    begun = threading.Event()

    def step(self, action: Action) -> StepResult:
        if self.name.endswith("/1"):
            self.begun.set()
            self.release.wait(DEADLINE)
        return super().step(action)


class Waiting(Held):
    """Go left or right."""

    def step(self, action: Action) -> StepResult:
        if self.name.endswith("/0"):
            assert self.begun.wait(DEADLINE)
        return super().step(action)


class Killed(Waiting):
    """One that can be killed."""

    def kill(self) -> None:
        self.release.set()


@pytest.mark.parametrize("kind", [Waiting, Killed])
def test_what_is_in_a_call_when_a_run_ends_is_left_alone_or_killed(
    chat: Chat, kind: type[Held], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind.release, kind.begun = threading.Event(), threading.Event()
    monkeypatch.setattr(play_module, "PATIENCE", 0.05 if kind is Waiting else DEADLINE)
    made: list[Held] = []

    def make() -> Held:
        made.append(kind())
        return made[-1]

    def end(_: Trajectory) -> None:
        raise KeyboardInterrupt

    rollout = Rollout(PlainText(chat), make, speaking(chat), source="async", limits=Limits(concurrency=2))
    with pytest.raises(KeyboardInterrupt):
        rollout.groups(tasks(2), size=1, seed=0, on_episode=end)
    (held,) = [world for world in made if world.name.endswith("/1")]
    assert held.closed == (kind is Killed)
    assert rollout.pool.stepper.num_abandoned == (kind is Waiting)
    kind.release.set()
    rollout.close()


def test_a_call_that_hangs_fails_after_its_own_time_and_others_go_on(chat: Chat) -> None:
    Held.release, Held.begun = threading.Event(), threading.Event()
    limits = Limits(concurrency=3, step_timeout=0.4, attempts=1, max_failure_share=0.5)
    rollout = Rollout(PlainText(chat), Held, speaking(chat), source="async", limits=limits)
    groups = rollout.groups(tasks(6), size=1, seed=0)
    failed = [t for t in all_of(groups) if isinstance(t.outcome, Failure)]
    assert [t.task.id for t in failed] == ["walk/train/1"]
    assert cast(Failure, failed[0].outcome).kind == "timeout"
    Held.release.set()
    rollout.close()


def test_a_constructor_that_raises_later_on_ends_the_run(chat: Chat) -> None:
    numbers, made = itertools.count(), list[Walk]()

    def make() -> Walk:
        if next(numbers):
            raise OSError("no more")
        made.append(Walk())
        return made[-1]

    rollout = Rollout(PlainText(chat), make, speaking(chat), source="async")
    with pytest.raises(
        EnvironmentFault,
        match=r"making environment make: got OSError: no more \(test_source.py, line \d+\); mend",
    ):
        rollout.groups(tasks(4), size=1, seed=0)
    rollout.close()  # its episode may have ended before, and left it to the next
    assert [walk.closed for walk in made] == [1]


def test_recorded_episodes_come_as_they_were(chat: Chat) -> None:
    asked = list(requests(range(5)))
    played = list(Rollout(PlainText(chat), Walk, speaking(chat)).play(asked))
    recorded = Recorded(played)
    assert [t.group for t in recorded.episodes(asked[3:1:-1])] == ["g3", "g2"]
    (extra,) = list(requests(range(6)))[-1:]
    with pytest.raises(DataError, match="episode 0 of g5: got no record of it; play it"):
        list(recorded.episodes([extra]))
    assert recorded.find(extra) is None


def test_a_source_that_there_is_not_is_refused(chat: Chat) -> None:
    with pytest.raises(UsageError, match=r"source of episodes: got 'asinc'; did you mean 'async'\?"):
        Rollout(PlainText(chat), Walk, None, source=cast(Kind, "asinc"))
    with pytest.raises(UsageError, match="max_staleness: got -1; give 0"):
        Rollout(PlainText(chat), Walk, None, max_staleness=-1)
    with pytest.raises(UsageError, match="sampling episodes: got no engine"):
        Rollout(PlainText(chat), Walk, None).groups(tasks(1), size=1, seed=0)


def test_leaks_of_asynchronous_calls_are_named(chat: Chat, caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()

    class Leaky(Walk):
        """Go."""

        def step(self, action: Action) -> StepResult:
            threading.Thread(target=release.wait, args=(DEADLINE,), name="reader", daemon=True).start()
            return StepResult(observation="", is_terminated=True)

    rollout = Rollout(PlainText(chat), Leaky, speaking(chat), source="async")
    rollout.groups(tasks(2), size=1, seed=0)
    rollout.close()
    release.set()
    assert "environment Leaky left 2 threads (reader, reader)" in caplog.text


def test_a_request_has_limits_of_its_own(chat: Chat) -> None:
    engine = Scripted(lambda request, stream: chat.write("left"))
    (task,) = tasks(1)
    asked = [
        EpisodeRequest(task=task, group="g", index=index, seed=index, max_turns=index + 1)
        for index in range(2)
    ]
    found = {t.index: len(t.turns) for t in Rollout(PlainText(chat), Walk, engine).play(asked)}
    assert found == {0: 1, 1: 2}
