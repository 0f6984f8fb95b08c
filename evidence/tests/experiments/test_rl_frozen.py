"""Experiments on starts that rest: controls keep magnitudes, and null worlds are null."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from quintain.errors import DataError
from quintain.learning.train_config import TrainConfig
from quintain.types import Action
from quintain_evidence.experiments.rl import coso
from quintain_evidence.experiments.rl.frozen import frozen

JOB: dict[str, Any] = {"enough": 0.0, "most": 1.0, "imitation_epochs": 3}
MOVES = "sokoban?size=3&walls=0"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch.set_num_threads(1)
    monkeypatch.setattr("quintain.warm_start.corpus.NUM_EPISODES", 2)
    monkeypatch.setattr("quintain.warm_start.probe.NUM_PROBED", 6)
    yield


def test_a_step_is_as_long_as_asked_and_is_taken_back(tmp_path: Path) -> None:
    config = TrainConfig(environment=MOVES, model="micro", demonstrations=16, imitation_epochs=3)
    with frozen(config, 1, enough=0.0, most=1.0, root=tmp_path) as start:
        (groups,) = start.batches(1, tasks=4, size=2)
        before = [p.detach().clone() for p in start.lab.parameters]
        way = torch.randn(start.lab.size, generator=torch.Generator().manual_seed(0))
        with coso.stepped(start.lab, way, groups, 0.01) as moved_by:
            assert moved_by == pytest.approx(0.01, rel=0.05)
        assert all(torch.equal(p, old) for p, old in zip(start.lab.parameters, before, strict=True))
        asked = coso.ask(groups, start, count=3)
        entropy, other = asked.entropy(start.lab)
        assert 0 < entropy <= np.log(len(asked.tails) + 1) and 0 <= other < 1
        unread = [
            replace(
                g,
                trajectories=tuple(
                    replace(t, turns=tuple(replace(u, action=Action(error="no")) for u in t.turns))
                    for t in g.scored
                ),
            )
            for g in groups
        ]
        with pytest.raises(DataError, match="got none that can be read"):
            coso.ask(unread, start, count=3)


@pytest.mark.slow
def test_one_token_has_nowhere_to_give_its_weight(tmp_path: Path) -> None:
    options = {
        **JOB,
        "world": MOVES,
        "root": str(tmp_path),
        "demonstrations": 16,
        "contexts": 4,
        "tasks": 2,
        "known": 6,
    }
    (row,) = coso.arms(options, 2, coso.SHORT, 1)
    assert row["method"] == row["control"]
    assert row["extra.method_divergence"] == pytest.approx(0.01, rel=0.1)
