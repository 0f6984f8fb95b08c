"""Ranks as actors: how they meet, what they answer, what is said when one is gone. Ray itself: make test-cluster."""

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.distributed.fake_ray import FakeRay

from quintain.distributed.connection import Connection
from quintain.distributed.placement import LearnerRanks
from quintain.errors import EngineFault, ModelError, UsageError
from quintain.learning.sharding import heartbeats
from quintain.learning.sharding.actors import RankActor, RankActors
from quintain.learning.sharding.heartbeats import Heartbeat
from quintain.learning.sharding.host import Host, Row


class Told:
    """What ranks were asked, and the faults that they have for it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[Any, ...]]] = []
        self.faults: dict[str, list[Row]] = {}

    def answer(self, do: str, arguments: Sequence[Any]) -> Row:
        self.asked.append((do, tuple(arguments)))
        faults = self.faults.get(do, [])
        return faults.pop(0) if faults else {"value": len(self.asked)}


@pytest.fixture(name="fake")
def _fake(monkeypatch: pytest.MonkeyPatch) -> FakeRay:  # pyright: ignore[reportUnusedFunction]
    fake = FakeRay()
    fake.loop.close()
    monkeypatch.setitem(sys.modules, "ray", fake)  # pyright: ignore[reportArgumentType]
    return fake


@pytest.fixture(name="told")
def _told(monkeypatch: pytest.MonkeyPatch) -> Told:  # pyright: ignore[reportUnusedFunction]
    told = Told()
    monkeypatch.setattr(Host, "answer", lambda _, do, arguments: told.answer(do, arguments))  # pyright: ignore
    return told


def ranks_in(folder: Path, count: int = 2) -> RankActors:
    return RankActors(Connection("local", []), count, LearnerRanks(cpus=2, gpus=1), folder, start_timeout=1.0)


def test_they_meet_at_a_port_of_the_first_and_answer_in_order(
    fake: FakeRay, told: Told, tmp_path: Path
) -> None:
    with closing(ranks_in(tmp_path / "ranks")) as ranks:
        (one, first), (other, second) = told.asked
        assert (one, other) == ("join", "join")
        assert first[:2] == (0, 2) and second[:2] == (1, 2) and first[2:] == second[2:]
        assert first[2].startswith("tcp://") and first[3:5] == ("cuda", 2)
        assert ranks.ask("clip", "policy") == [3, 4]
        assert ranks.ask("infer", each=[("a",), ("b",)]) == [5, 6]
        assert told.asked[-2:] == [("infer", ("a",)), ("infer", ("b",))]
        assert [handle.options["num_gpus"] for handle in fake.handles] == [1.0, 1.0]
    assert all(handle.is_dead for handle in fake.handles) and not (tmp_path / "ranks").exists()


def test_a_port_that_is_taken_meanwhile_is_replaced_but_not_for_ever(
    fake: FakeRay, told: Told, tmp_path: Path
) -> None:
    taken = {"fault": "DistNetworkError: EADDRINUSE, address already in use", "class": "EngineFault"}
    told.faults["join"] = [taken]
    ranks_in(tmp_path / "ranks").close()
    assert len(told.asked) == 4
    told.faults["join"] = [taken] * 6
    with pytest.raises(EngineFault, match=r"ports of .* that were taken 3 times; free some"):
        ranks_in(tmp_path / "ranks")


def test_what_a_rank_raised_keeps_its_class_and_one_that_is_gone_is_named(
    fake: FakeRay, told: Told, tmp_path: Path
) -> None:
    ranks = ranks_in(tmp_path / "one")
    told.faults["build"] = [{"value": 1}, {"fault": "no such model", "class": "ModelError"}]
    with pytest.raises(ModelError, match="asked to build: rank 1 of 2 said: no such model; all were ended"):
        ranks.ask("build", "policy", {})
    with pytest.raises(EngineFault, match="asked to clip: they were ended; resume the run"):
        ranks.ask("clip", "policy")
    ranks = ranks_in(tmp_path / "two")
    fake.handles[-1].lose()
    with pytest.raises(EngineFault, match=r"asked to clip: rank 1 of 2 is gone \(ActorDiedError\); all were"):
        ranks.ask("clip", "policy")


def test_a_rank_that_hangs_is_named(
    fake: FakeRay, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "STILL_ON_CARD", 0.2)
    ranks = ranks_in(tmp_path / "one")
    second = fake.handles[-1]
    fake.never_answers = lambda reference: (
        reference.owner is second and not isinstance(reference.value, Heartbeat)
    )
    with pytest.raises(EngineFault, match=r"clip: rank 1 of 2 stands still for .* it hangs; all were"):
        ranks.ask("clip", "policy")
    monkeypatch.setattr(heartbeats, "SILENCE", 0.2)
    ranks = ranks_in(tmp_path / "two")
    third = fake.handles[-2]
    fake.never_answers = lambda reference: reference.owner is third
    with pytest.raises(
        EngineFault, match="asked to load: rank 0 of 2 gave no sign of life for 0 s and hangs"
    ):
        ranks.ask("load", "policy", "here")


def test_another_folder_under_the_same_name_is_refused(tmp_path: Path) -> None:
    from quintain.distributed.version import own_version

    (tmp_path / "mark").write_text("another")
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match="which their machines do not see; put the runs into a folder"):
            RankActor().open(own_version(), str(folder), "this")
    with pytest.raises(EngineFault, match="a rank of the learner: got quintain"):
        RankActor().open("0", str(tmp_path), "another")
    assert RankActor().open(own_version(), str(tmp_path), "another")
    assert RankActor().free_port() > 0
