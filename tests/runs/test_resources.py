"""A run on a cluster is that of one process; here with a stand-in for Ray, in make test-cluster with the real one."""

import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from tests.distributed.fake_ray import FakeRay

import quintain
from quintain.distributed.engine_host import EngineHost
from quintain.distributed.worker import Worker
from quintain.errors import ConfigError, MissingExtra, UsageError
from quintain.learning.train_config import TrainConfig

JOB: dict[str, Any] = {
    "environment": "guess?high=4&max_turns=2", "model": "micro", "steps": 2, "eval_every": 2, "eval_episodes": 4,
    "eval_environment": "guess?high=6&max_turns=2", "demonstrations": 8, "imitation_epochs": 1, "tasks": 2,
    "group_size": 3,
}  # fmt: skip


@pytest.fixture(name="fake")
def _fake(monkeypatch: pytest.MonkeyPatch) -> Generator[FakeRay]:  # pyright: ignore[reportUnusedFunction]
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)  # pyright: ignore[reportArgumentType]
    yield fake
    fake.loop.close()


def curve(folder: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        {name: row[name] for name in ("train/loss", "train/grad_norm", "eval/return") if name in row}
        for row in rows
    ]


@pytest.mark.slow
def test_a_run_on_a_cluster_is_that_of_one_process(fake: FakeRay, tmp_path: Path) -> None:
    file = tmp_path / "placement.toml"
    file.write_text("[workers]\nepisodes = 2\n[engines]\nreplicas = 2\n")
    there = quintain.train("grpo", run="there", root=tmp_path, cluster="local", placement=str(file), **JOB)
    kinds = [type(handle.actor) for handle in fake.handles]
    assert kinds.count(EngineHost) == 2 and kinds.count(Worker) >= 2
    assert all(handle.is_dead for handle in fake.handles)
    alone = quintain.train("grpo", run="alone", root=tmp_path, **JOB)
    assert curve(there) == curve(alone)


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        ({"cluster": "there"}, UsageError, "cluster: got 'there'; give local"),
        ({"placement": "p.toml"}, ConfigError, "placement: got 'p.toml' without a cluster"),
        ({"cluster": "local", "placement": "none.toml"}, UsageError, "none.toml"),
        (
            {"cluster": "local", "agent": "mine.py:run_agent"},
            ConfigError,
            "cluster: got 'local' with the agent mine.py:run_agent, which talks to an endpoint here",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    fields: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        TrainConfig(**fields).check()


def test_ray_that_is_missing_is_told_before_a_run_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(MissingExtra, match="a cluster needs the package ray"):
        quintain.train("grpo", run="none", root=tmp_path, cluster="local", **JOB)
    file = tmp_path / "placement.toml"
    file.write_text("[policies.refrence]\ncpus = 1\n")
    with pytest.raises(
        ConfigError, match=r"policies of a placement: got 'refrence'; the policies .* are none"
    ):
        quintain.train("grpo", run="none", root=tmp_path, cluster="local", placement=str(file), **JOB)
    assert not (tmp_path / "none").exists()
