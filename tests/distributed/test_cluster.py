"""Episodes and engines on a cluster, with a stand-in for Ray whose actors are lost when a test says."""

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.distributed.fake_ray import FakeRay, Handle

from quintain.agents.catalog import build
from quintain.distributed.cluster import Cluster
from quintain.distributed.connection import Connection, check_address
from quintain.distributed.engine_host import EngineHost, Facts
from quintain.distributed.placement import Engines, Placement, Workers, bundles
from quintain.distributed.version import check_version
from quintain.distributed.worker import Harness, Worker
from quintain.engines.protocol import Engine, Request
from quintain.engines.scripted import Scripted
from quintain.engines.settings import EngineSettings
from quintain.environments.catalog import find
from quintain.errors import EngineFault, FailureRateError, MissingExtra, ModelError, UsageError
from quintain.models.tiny import build_tiny
from quintain.models.weights import write_weights
from quintain.rollout.collect import Rollout
from quintain.rollout.request import EpisodeRequest, Limits
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Failure, Score, Trajectory, derive_seed

WORLD = "guess?high=8&max_turns=4"
SPEC = Harness(spec="tools", temperature=1.0, max_tokens=24)
LIMITS = Limits(concurrency=16)
TOKENIZER = train_tokenizer(["<|system|>Guess.<|user|>go<|assistant|>higher<|end|>", "<|tool|>1 2 3"], 300)
CHAT = Chat(TOKENIZER)
PLACEMENT = Placement(
    workers=Workers(min=2, max=4, episodes=2, losses=2, idle=0.0), engines=Engines(replicas=2)
)


def say(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
    chance = Random(derive_seed(request.seed, len(stream), sum(stream)))
    return (*(chance.randrange(5, 200) for _ in range(3)), *sorted(request.sampling.stop_ids)[:1])


class ScriptedHost(EngineHost):
    async def open(
        self, version: str, files: dict[str, bytes], settings: EngineSettings, policy: str
    ) -> Facts:
        check_version(version, "the engine")
        self._engine = self._engine or Scripted(say, policy=policy, max_length=4096)
        return Facts(policy=policy, max_length=4096, vocabulary=None, capabilities=self._engine.capabilities)


def asked(count: int) -> list[EpisodeRequest]:
    task = find(WORLD)().task
    return [
        EpisodeRequest(task=task("train", place), group=f"{place}:g", index=0, seed=derive_seed(place))
        for place in range(count)
    ]


def rollout_of(engine: Engine, source: Any = "lockstep", limits: Limits = LIMITS) -> Rollout:
    make = find(WORLD)
    agent = build(SPEC.spec, CHAT, make(), temperature=1.0, max_tokens=SPEC.max_tokens)
    return Rollout(agent, make, engine, limits=limits, source=source)


def told(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    return {
        t.group: (t.seed, [turn.completion.token_ids for turn in t.turns], t.outcome) for t in trajectories
    }


class Played:
    """A cluster with scripted engines, and what it has played."""

    def __init__(self, fake: FakeRay, placement: Placement = PLACEMENT, limits: Limits = LIMITS) -> None:
        self.cluster = Cluster("local", placement)
        model = build_tiny(TOKENIZER, size="micro", seed=0)
        self.engine = self.cluster.engine(
            EngineSettings(), model, TOKENIZER, policy="policy", host=ScriptedHost
        )
        home = self.cluster.home(WORLD, {"policy": SPEC}, seats={}, limits=limits, max_staleness=0)
        self.rollout = rollout_of(self.engine, home, limits)

    def close(self) -> None:
        self.rollout.close()
        self.cluster.close()


def of(fake: FakeRay, kind: type) -> list[Handle]:
    return [each for each in fake.handles if isinstance(each.actor, kind)]


def test_episodes_are_those_of_one_process(fake: FakeRay) -> None:
    with closing(Played(fake)) as there:
        found = list(there.rollout.play(asked(24)))
        stats = there.engine.stats()
        assert stats.num_finished == sum(len(t.turns) for t in found)
        assert all(engine.actor.engine.stats().num_finished > 0 for engine in of(fake, EngineHost)), (
            "both answer"
        )
        assert stats.num_sessions == 0
    assert told(found) == told(list(rollout_of(Scripted(say, max_length=4096)).play(asked(24))))
    assert all(each.is_dead for each in fake.handles)
    assert fake.address == ""


@pytest.mark.parametrize("kind", [Worker, EngineHost])
def test_what_is_lost_is_played_again_and_nothing_is_there_twice(fake: FakeRay, kind: type) -> None:
    chance = Random(1)
    with closing(Played(fake, replace(PLACEMENT, workers=replace(PLACEMENT.workers, losses=50)))) as there:
        fake.loses = lambda each: (
            each.owner is not None
            and isinstance(each.owner.actor, kind)
            and type(each.value).__name__ in ("Played", "Reply")
            and chance.random() < 0.1
        )
        found = list(there.rollout.play(asked(40)))
        assert there.cluster.fleet.num_lost > 2
    assert max(Counter(t.group for t in found).values()) == 1
    assert told(found) == told(list(rollout_of(Scripted(say, max_length=4096)).play(asked(40))))


def test_an_episode_that_costs_its_worker_too_often_is_a_failure_of_its_environment(fake: FakeRay) -> None:
    limits = replace(LIMITS, max_failure_share=0.5)
    with closing(Played(fake, limits=limits)) as there:
        fake.loses = lambda each: (
            getattr(each.value, "trajectory", None) is not None
            and (
                each.value.trajectory.group == "3:g"  # pyright: ignore[reportAttributeAccessIssue]
            )
        )
        found = {t.group: t.outcome for t in there.rollout.play(asked(8))}
    lost = found.pop("3:g")
    assert isinstance(lost, Failure)
    assert (lost.owner, lost.kind) == ("environment", "crash")
    assert "it was played 3 times, and its worker was lost (ActorDiedError)" in lost.message
    assert all(isinstance(each, Score) for each in found.values())


def test_too_many_failures_end_the_call(fake: FakeRay) -> None:
    with closing(Played(fake)) as there:
        fake.loses = lambda each: type(each.value).__name__ == "Played"
        with pytest.raises(FailureRateError, match="the first, by the environment"):
            list(there.rollout.play(asked(8)))


def test_workers_come_with_episodes_and_go_without(fake: FakeRay) -> None:
    with closing(Played(fake)) as there:
        list(there.rollout.play(asked(2)))
        assert there.cluster.fleet.num_started == 2
        list(there.rollout.play(asked(30)))
        assert there.cluster.fleet.num_started == 4
        list(there.rollout.play(asked(2)))
        assert sum(not each.is_dead for each in of(fake, Worker)) == 2


def test_what_is_given_up_is_not_played(fake: FakeRay) -> None:
    with closing(Played(fake)) as there:
        episodes = there.rollout.play(iter(asked(200)))
        next(episodes)
        episodes.close()
        again = list(there.rollout.play(asked(6)))
    assert sorted(t.group for t in again) == [f"{place}:g" for place in range(6)]


def test_an_environment_that_a_worker_cannot_build_ends_the_run_with_its_reason(fake: FakeRay) -> None:
    with closing(Played(fake)) as there:
        home = there.cluster.home("guess?hihg=8", {"policy": SPEC}, seats={}, limits=LIMITS, max_staleness=0)
        with pytest.raises(UsageError, match="hihg"):
            list(rollout_of(there.engine, home).play(asked(1)))


def test_an_engine_that_was_lost_comes_back_with_the_last_weights(fake: FakeRay, tmp_path: Path) -> None:
    model = build_tiny(TOKENIZER, size="micro", seed=0)
    other = write_weights(build_tiny(TOKENIZER, size="micro", seed=1), tmp_path / "other")
    with closing(Cluster("local", PLACEMENT)) as cluster:
        engine = cluster.engine(EngineSettings(max_length=256), model, TOKENIZER, policy="policy")
        engine.load_weights(1, other)
        first, second = of(fake, EngineHost)
        first.lose()
        cluster.engines["policy"].mend()
        assert first.actor.engine.policy_version == second.actor.engine.policy_version == 1
        assert engine.fingerprint() == second.actor.engine.fingerprint()
        second.actor.engine.load_weights(2, write_weights(model, tmp_path / "own"))
        with pytest.raises(EngineFault, match="copies of policy with different weights"):
            engine.fingerprint()
        engine.load_weights(3, other)
        (tmp_path / "broken").mkdir()
        for folder in ("none", "broken"):
            with pytest.raises(ModelError):
                engine.load_weights(4, tmp_path / folder)
        assert engine.policy_version == first.actor.engine.policy_version == 3
        assert len(engine.score([(5, 6, 7), (8, 9)])) == 2
        engine.pause()
        engine.resume()


def test_a_full_store_is_one_line(fake: FakeRay) -> None:
    fake.is_full = True
    with pytest.raises(
        EngineFault, match="the object store of the cluster: got ObjectStoreFullError; give its"
    ):
        Played(fake)


def test_ray_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(MissingExtra, match=r'a cluster needs the package ray: .* pip install -e "\.\[ray\]"'):
        Cluster("local", PLACEMENT)


@pytest.mark.parametrize("address", ["here", "ray://head", "head:port", ":6379"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match=f"cluster: got '{address}'; give local"):
        check_address(address)


@pytest.mark.parametrize("address", ["local", "auto", "ray://head:10001", "10.0.0.1:6379"])
def test_addresses(address: str) -> None:
    check_address(address)


def test_a_cluster_that_cannot_be_reached_is_one_line(fake: FakeRay) -> None:
    fake.problem = ConnectionError("nobody\nthere")
    with pytest.raises(
        EngineFault, match=r"the cluster head:6379: got ConnectionError \(nobody there\); see that it"
    ):
        Connection("head:6379", [])


def test_a_placement_that_does_not_fit_is_refused_and_the_cluster_left(fake: FakeRay) -> None:
    fake.machines = [{"CPU": 2.0}]
    with pytest.raises(UsageError, match="no room for one worker"):
        Connection("head:6379", bundles(PLACEMENT))
    assert fake.address == ""


def test_machines_may_join_while_it_waits(fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.machines = []
    wanted: list[Any] = []

    def request(bundles: list[dict[str, float]]) -> None:
        wanted.append(bundles)
        fake.machines.append({"CPU": 4.0})

    sdk = type(sys)("ray.autoscaler.sdk")
    sdk.request_resources = request  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "ray.autoscaler", type(sys)("ray.autoscaler"))
    monkeypatch.setitem(sys.modules, "ray.autoscaler.sdk", sdk)
    Connection("head:6379", bundles(PLACEMENT), wait=60.0)
    assert wanted == [[{"CPU": 1.0}] * 4]


def test_another_version_is_refused() -> None:
    with pytest.raises(
        EngineFault, match=r"the worker w1: got quintain .* for a driver with 0\.0\.1; install one"
    ):
        check_version("0.0.1", "the worker w1")
