"""A torn journal, two writers on one folder, and numbers that are not finite."""

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.learning.test_learner import nll, qwen, streams
from tests.store.conftest import trajectory

from quintain.data.pack import pack
from quintain.errors import InvariantError, StoreError
from quintain.learning.learner import Learner, Optimization
from quintain.store.run import Run
from quintain.types import Batch, Loss, LossReport, Outputs

NUM_TEARS, NUM_RACES = 60, 20


def test_a_torn_tail_loses_nothing_but_the_tail(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", recipe="r", config={}) as run:
        for step in range(6):
            run.append([trajectory(0), trajectory(1)], step=step)
            run.commit(step, {"a": float(step)})
        shutil.copytree(tmp_path / "run", tmp_path / "killed")
    tail = (tmp_path / "killed" / "run.db-wal").read_bytes()
    assert len(tail) > 10_000
    rng = random.Random(0)
    seen: set[int] = set()
    for number in range(NUM_TEARS):
        folder = tmp_path / f"torn{number}"
        shutil.copytree(tmp_path / "killed", folder)
        (folder / "run.db-shm").unlink(missing_ok=True)
        cut = rng.randrange(len(tail))
        noise = rng.randbytes(rng.randrange(3) * 100)
        (folder / "run.db-wal").write_bytes(tail[:cut] + noise)
        with Run.open(folder, writable=False) as run:
            steps = [row["step"] for row in run.metrics()]
            assert steps == list(range(len(steps)))
            for step in steps:
                assert list(run.trajectories(step)) == [trajectory(0), trajectory(1)]
            assert run.num_quarantined == 0
        seen.add(len(steps))
    assert len(seen) >= 5


def test_of_two_trainers_on_one_folder_one_is_refused(tmp_path: Path) -> None:
    Run.create(tmp_path / "run", recipe="r", config={}).close()
    for _ in range(NUM_RACES):
        release, hold = os.pipe()
        children = [contender(tmp_path / "run", release, hold) for _ in range(2)]
        os.close(release)
        statuses: list[int] = []
        first, status = os.waitpid(-1, 0)  # the loser; the winner holds the lock until it is told
        statuses.append(os.waitstatus_to_exitcode(status))
        assert first in children
        os.close(hold)
        _, status = os.waitpid(next(child for child in children if child != first), 0)
        statuses.append(os.waitstatus_to_exitcode(status))
        assert sorted(statuses) == [0, 6]
    Run.open(tmp_path / "run").close()


def contender(folder: Path, release: int, hold: int) -> int:
    """Fork a process that opens the run, and holds it until the pipe is closed; it ends with 6 if it was refused."""
    child = os.fork()
    if child:
        return child
    os.close(hold)
    try:
        with Run.open(folder):
            os.read(release, 1)
    except StoreError:
        os._exit(6)
    os._exit(0)


NAN = float("nan")


def spoiled_loss(outputs: Outputs, batch: Batch) -> LossReport:
    return LossReport(loss=outputs.logprobs.sum() * NAN)


def infinite_gradient(outputs: Outputs, batch: Batch) -> LossReport:
    return LossReport(loss=(outputs.logprobs.sum() * 0).sqrt())


def by_weight(outputs: Outputs, batch: Batch) -> LossReport:
    return LossReport(loss=-(batch.loss_weight * batch.advantages * outputs.logprobs).sum())


def with_nan(name: str) -> Callable[[Batch], Batch]:
    return lambda batch: replace(batch, **{name: getattr(batch, name) * NAN})


PLACES: dict[str, tuple[Callable[[Batch], Batch], Loss]] = {
    "advantages": (with_nan("advantages"), by_weight),
    "weights of tokens": (with_nan("loss_weight"), by_weight),
    "log-probs at sampling": (
        with_nan("logprobs"),
        lambda outputs, batch: LossReport(loss=(outputs.logprobs - batch.logprobs).exp().sum()),
    ),
    "returns": (
        with_nan("returns"),
        lambda outputs, batch: LossReport(loss=((outputs.logprobs - batch.returns) ** 2).sum()),
    ),
    "loss": (lambda batch: batch, spoiled_loss),
    "gradient": (lambda batch: batch, infinite_gradient),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_number_that_is_not_finite_never_reaches_the_weights(place: str) -> None:
    spoil, loss = PLACES[place]
    learner = Learner(qwen(), Optimization(learning_rate=1e-2))
    batch = pack(streams(1))
    learner.step([batch], nll)
    for _ in range(2):
        assert learner.step([spoil(batch)], loss).is_skipped
    learner.step([batch], nll)
    for _ in range(2):
        learner.step([spoil(batch)], loss)
    with pytest.raises(InvariantError, match="those of the last good step"):
        learner.step([spoil(batch)], loss)
    assert learner.version == 2
    assert all(bool(torch.isfinite(parameter).all()) for parameter in learner.parameters)
