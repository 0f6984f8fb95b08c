"""Asynchronous training: tokens say by which weights they were sampled, and what has ended is never played twice."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.learning.test_update import played_by

from quintain.data.samples import token_versions
from quintain.environments.protocol import Environment
from quintain.errors import ConfigError
from quintain.learning.learner import Learner
from quintain.methods.rl import policy_gradient
from quintain.rollout.request import EpisodeRequest
from quintain.rollout.staleness import oldest_versions
from quintain.runs.collector import Collector, read_groups
from quintain.runs.prefetch import RolloutPrefetcher
from quintain.store.run import Run
from quintain.types import Action, Completion, Failure, Score, StepResult, Stop, Task, Trajectory

STEPS, TASKS, SIZE = 4, 2, 4


class Count(Environment):
    """Say anything, two to five times; by chance it is right."""

    max_turns = 5

    def reset(self, task: Task) -> str:
        self.chance = Random(task.seed)
        self.last, self.turn = self.chance.randint(2, 5), 0
        return "Go on."

    def step(self, action: Action) -> StepResult:
        self.turn += 1
        is_over = self.turn == self.last
        reward = float(is_over and sum(map(ord, action.text)) % 2)
        return StepResult(observation="Go on.", reward=reward, is_terminated=is_over)

    def legal_actions(self) -> tuple[str, ...]:
        return ("on", "off")

    def expert_action(self) -> Action:
        return Action(text="on")


CONFIG = policy_gradient.Config(
    environment=f"{Path(__file__)}:Count",
    model="micro",
    demonstrations=0,
    steps=STEPS,
    eval_every=2,
    eval_episodes=2,
    tasks=TASKS,
    group_size=SIZE,
    learning_rate=1e-2,
    agent="text",
    max_turn_tokens=16,
    rollout="async",
    concurrency=6,
    max_staleness=1,
)


def train(folder: Path, config: policy_gradient.Config) -> None:
    """Start the run in `folder`, or continue it."""
    method = policy_gradient.method(config)
    if (folder / "run.db").exists():
        with Run.open(folder) as run:
            method.train(run, config)
    else:
        with Run.create(folder, recipe="policy_gradient", config=asdict(config)) as run:
            method.train(run, config)


def by_step(run: Run) -> dict[int, list[Trajectory]]:
    return {step: list(run.trajectories(step, "train")) for step in range(1, STEPS + 1)}


@pytest.mark.slow
def test_weights_that_change_under_an_episode_are_named_by_token(tmp_path: Path) -> None:
    """What must always hold holds in every run; whether an update falls amid a completion is a matter of time."""
    assert any(weights_change_under_an_episode(tmp_path / str(number)) for number in range(8)), (
        "no update fell amid a completion in any run"
    )


def weights_change_under_an_episode(folder: Path) -> bool:
    """Train, check the versions of all tokens, and return whether some updates fell amid completions."""
    seen: list[float] = []
    train(folder, replace(CONFIG, loss="truncated"))
    with Run.open(folder, writable=False) as run:
        found, rows = by_step(run), {row["step"]: row for row in run.metrics("train")}
        groups = read_groups(run, 3)
    assert {step: len(each) for step, each in found.items()} == dict.fromkeys(
        range(1, STEPS + 1), TASKS * SIZE
    )
    assert [[t.index for t in group.trajectories] for group in groups] == [list(range(SIZE))] * TASKS
    assert [t.group.partition(":")[0] for group in groups for t in group.trajectories[:1]] == ["0", "1"]
    if not all("gap/stale_fraction" in rows[step] for step in found):
        return False  # whose episodes were all worth the same: such a step takes no version
    num_mixed = 0
    for step, trajectories in found.items():
        now = step - 1  # a step takes one version
        for trajectory in trajectories:
            assert not isinstance(trajectory.outcome, Failure)
            assert now - min(oldest_versions(trajectory).values()) <= 1
            for turn in trajectory.turns:
                versions = token_versions(turn.completion)
                assert versions == sorted(versions) and set(versions) <= {now - 1, now}
                num_mixed += len(set(versions)) == 2
        seen.append(rows[step]["gap/stale_fraction"])
        assert rows[step]["gap/mean"] < 0.01, "log-probs of the tokens of the newest weights agree"
    assert seen[0] == 0 and all(0 <= share <= 1 for share in seen)
    assert abs(rows[1]["importance/weight"] - 1) < 1e-4
    is_told = num_mixed > 0 and all(0 < share < 1 for share in seen[2:])
    return is_told and abs(rows[3]["importance/weight"] - 1) > 1e-4


def test_on_policy_nothing_is_played_ahead(tmp_path: Path) -> None:
    train(tmp_path / "run", replace(CONFIG, max_staleness=0, steps=2, eval_every=1))
    with Run.open(tmp_path / "run", writable=False) as run:
        for step, trajectories in by_step(run).items():
            turns = [turn for trajectory in trajectories for turn in trajectory.turns]
            assert {v for turn in turns for v in token_versions(turn.completion)} <= {step - 1}
    with pytest.raises(ConfigError, match="max_staleness: got 1 in lockstep"):
        replace(CONFIG, rollout="lockstep").check()
    with pytest.raises(ConfigError, match="max_staleness: got 1 with loss reinforce"):
        replace(CONFIG, loss="reinforce").check()


class Shuffled:
    """A rollout that begins all it may and ends the newest first, but for one of each group, which comes last."""

    def __init__(self) -> None:
        self.version, self.drawn, self.under_way = 0, [], 0
        self.retries: list[Any] = []

    @property
    def engines(self) -> dict[str, Any]:
        return {"policy": SimpleNamespace(policy_version=self.version)}

    def play(self, requests: Iterator[EpisodeRequest]) -> Generator[Trajectory]:
        waiting: list[EpisodeRequest] = []
        while True:
            waiting += (new := list(requests))
            self.drawn += [int(request.group.partition("@")[0]) for request in new]
            if not waiting:
                return
            self.under_way = len(waiting)
            quick = [place for place, request in enumerate(waiting) if request.index]
            yield played(waiting.pop(quick[-1] if quick else 0), self.version)

    def close(self) -> None:
        """Nothing is held."""


def played(request: EpisodeRequest, version: int) -> Trajectory:
    """An episode of one turn, sampled with the weights of `version`."""
    turn = replace(
        played_by("policy", 1.0).turns[0],
        completion=Completion(token_ids=(1,), logprobs=(-1.0,), stop="stop", policy_version=version),
    )
    return Trajectory(
        task=request.task, turns=(turn,), outcome=Score(value=1.0, is_success=True), stop=Stop.TERMINATED,
        seed=request.seed, group=request.group, index=request.index,
    )  # fmt: skip


@pytest.mark.parametrize(("most", "pace"), [(1, 1), (4, 1), (4, 2), (3, 2), (1, 2)])
def test_no_more_is_begun_than_may_become_old_and_groups_are_whole(most: int, pace: int) -> None:
    rollout, last = Shuffled(), 9
    ahead = RolloutPrefetcher(cast(Any, rollout), max_staleness=most, last_step=last)
    task = played_by("policy", 1.0).task

    def requests(step: int) -> list[EpisodeRequest]:
        return [
            EpisodeRequest(task=task, group=f"{group}:t", index=index, seed=100 * step + 10 * group + index)
            for group in range(2)
            for index in range(3)
        ]

    kept: list[tuple[int, int]] = []

    def keep(step: int, trajectory: Trajectory) -> Trajectory:
        kept.append((step, trajectory.seed))
        return trajectory

    for step in range(1, last + 1):
        found = ahead.collect(step, requests, known=lambda _: [], on_episode=keep)
        assert {(key, t.seed) for key, t in found.items()} == {
            ((r.group, r.index), r.seed) for r in requests(step)
        }
        assert all(isinstance(t.outcome, Score) for t in found.values()), "nothing had become too old"
        num_ahead = most // pace if step > 1 else 0  # how many versions a step takes is seen at the second
        assert max(rollout.drawn) == min(step + num_ahead, last)
        assert rollout.under_way <= 6 * (num_ahead + 1)
        rollout.version += pace
    assert sorted(kept) == sorted((step, r.seed) for step in range(1, last + 1) for r in requests(step))


@pytest.mark.slow
def test_stragglers_are_left_out_and_recorded_as_that_once(tmp_path: Path) -> None:
    train(tmp_path / "run", replace(CONFIG, max_stragglers=0.25, loss="clipped", decoupled=True))
    with Run.open(tmp_path / "run", writable=False) as run:
        for trajectories in by_step(run).values():
            assert len({(t.group, t.index) for t in trajectories}) == len(trajectories) == TASKS * SIZE
            cut = [t for t in trajectories if isinstance(t.outcome, Failure)]
            assert len(cut) <= TASKS * SIZE // 4
            assert all(isinstance(t.outcome, Failure) and t.outcome.kind == "straggler" for t in cut)
        assert any(isinstance(t.outcome, Failure) for each in by_step(run).values() for t in each)
    with Run.open(tmp_path / "run", writable=False) as run:
        used = {use.episode for _, use in run.uses()}
        cut = {
            (step, t.group)
            for step, each in by_step(run).items()
            for t in each
            if isinstance(t.outcome, Failure)
        }
        kept = {(step, t.group) for step, each in by_step(run).items() for t in each if t.id in used}
    assert kept & cut, "the rest of a group that was cut was learned from"
    train(tmp_path / "whole", replace(CONFIG, max_stragglers=0.25, loss="truncated", whole_groups=True))
    with Run.open(tmp_path / "whole", writable=False) as run:
        used = {use.episode for _, use in run.uses()}
        members = [(step, t) for step, each in by_step(run).items() for t in each]
    cut = {(step, t.group) for step, t in members if isinstance(t.outcome, Failure)}
    assert cut and not cut & {(step, t.group) for step, t in members if t.id in used}
    with pytest.raises(ConfigError, match=r"max_stragglers: got 0\.25 without max_staleness"):
        replace(CONFIG, max_stragglers=0.25, max_staleness=0).check()


KILLED = """
import os, signal, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from dataclasses import replace
from tests.runs.test_prefetch import CONFIG, train
from quintain.store.journal import Journal
append, left = Journal.append, [0]
def dying(self, trajectories, *, step, phase):
    if phase == "train":
        if not left[0]:
            os.kill(os.getpid(), 9)
        left[0] -= 1
    return append(self, trajectories, step=step, phase=phase)
Journal.append = dying
for most, count in {kills!r}:  # a process for each, which has imported all that it needs when it begins
    left[0] = count
    child = os.fork()
    if not child:
        train(Path({folder!r}, str(most)), replace(CONFIG, max_staleness=most))
        os._exit(0)
    print(most, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
KILLS = [(0, 11), (1, 19)]
"""`max_staleness` of a run → episodes after which it is killed"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs by `max_staleness`, each of a process that was killed while it recorded an episode."""
    folder = tmp_path_factory.mktemp("killed")
    program = KILLED.format(root=str(Path(__file__).parents[2]), kills=KILLS, folder=str(folder))
    parent = subprocess.run(
        [sys.executable, "-c", program],
        timeout=300,
        check=True,
        env=dict(os.environ),  # noqa: TID251 - a child like this
        capture_output=True,
        text=True,
    )
    assert parent.stdout == "".join(f"{most} {-signal.SIGKILL}\n" for most, _ in KILLS), parent.stderr
    return folder


@pytest.mark.parametrize(("most", "count"), KILLS)
@pytest.mark.slow
def test_a_kill_between_two_episodes_loses_none_of_those_that_ended(
    killed: Path, monkeypatch: pytest.MonkeyPatch, most: int, count: int
) -> None:
    folder = killed / str(most)
    with Run.open(folder, writable=False) as run:
        before = by_step(run)
        num_ended = sum(map(len, before.values()))
    assert num_ended == count, "every episode was in the journal before the next one ended"
    played: Counter[int] = Counter()
    keep = Collector._keep  # pyright: ignore[reportPrivateUsage]

    def counted(self: Any, step: int, trajectory: Trajectory) -> Trajectory:
        played[step] += 1
        return keep(self, step, trajectory)

    monkeypatch.setattr(Collector, "_keep", counted)
    train(folder, replace(CONFIG, max_staleness=most))
    with Run.open(folder, writable=False) as run:
        after = by_step(run)
        said = [event for event in run.events() if event["kind"] == "taken back"]
        used = Counter(step for step, _ in run.uses())
    # The checkpoint is that of step 0 or 2: what was sampled with its weights or older ones is there and was used.
    first = 1 if most == 0 else 3
    kept = [t for t in before[first] if max(oldest_versions(t).values()) <= first - 1]
    assert kept and len(before[first]) == len(kept)
    assert all(t in after[first] for t in kept)
    assert {step: len(each) for step, each in after.items()} == dict.fromkeys(after, TASKS * SIZE)
    assert played[first] == TASKS * SIZE - len(kept)
    assert said and said[0]["data"]["count"] >= len(kept)
    assert used[first] <= TASKS * SIZE


def test_weights_that_were_lost_take_their_episodes_along(tmp_path: Path) -> None:
    """Episodes of a step whose weights no checkpoint has are played again."""
    folder = tmp_path / "run"
    config = replace(CONFIG, max_staleness=0, eval_every=4, steps=4)
    step = Learner.step

    def broken(self: Learner, *args: Any, **fields: Any) -> Any:
        if self.version == 1:
            raise RuntimeError("enough")
        return step(self, *args, **fields)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "step", broken)
        with pytest.raises(RuntimeError, match="enough"):
            train(folder, config)
    with Run.open(folder) as run:
        assert run.next_step == 1
        assert run.take_back(lambda t: max(oldest_versions(t).values()) < 1) == TASKS * SIZE
        assert [len(each) for each in by_step(run).values()] == [TASKS * SIZE, 0, 0, 0]
        assert run.take_back(lambda _: True) == 0, "it was decided"
