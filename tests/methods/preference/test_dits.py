"""DITS: updates that are tried and undone bit for bit, what is measured by them, and which pairs are trained on."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.methods.preference.test_preference_rounds import WALK
from tests.methods.test_training import interrupting, resume, rows, train, weights

from quintain.errors import ConfigError
from quintain.learning.policies import Policies
from quintain.methods.loops import rounds
from quintain.methods.loops.trials import Trials
from quintain.methods.preference import dits
from quintain.types import Pair, Sample, Task

FIELDS: dict[str, Any] = {
    "environment": WALK, "demonstrations": 16, "imitation_epochs": 6, "max_turn_tokens": 6, "tasks": 4,
    "branches": 3, "episodes": 5, "num_epochs": 1, "num_minibatches": 1, "block": 2, "validation": 6, "margin": 0.1,
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("quick")


def state_of(policies: Policies) -> list[Any]:
    """Weights, optimizer, counts and chance, as plain numbers."""
    learner = policies.main.learner
    assert learner is not None
    kept = [[parameter.tolist() for parameter in learner.parameters]]
    kept.append([[str(key), torch.as_tensor(value).tolist()] for own in learner.optimizer.state.values()
                 for key, value in own.items()])  # fmt: skip
    return [*kept, learner.version, learner.num_skipped, torch.get_rng_state().tolist()]


def test_what_was_tried_is_forgotten_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[list[list[Pair]], list[Task], list[float]]] = []
    influence = Trials.influence

    def watched(trials: Trials, blocks: list[list[Pair]], tasks: list[Task]) -> list[float]:
        policies = trials.context.policies
        before = state_of(policies)
        found = influence(trials, blocks, tasks)
        assert state_of(policies) == before
        seen.append((blocks, tasks, found))
        return found

    trained: list[int] = []
    learn = rounds.learn_in_epochs

    def counted(policies: Any, samples: list[Sample], *rest: Any, **options: Any) -> Any:
        trained.append(len({sample.pair for sample in samples}))
        return learn(policies, samples, *rest, **options)

    monkeypatch.setattr(Trials, "influence", watched)
    monkeypatch.setattr(rounds, "learn_in_epochs", counted)
    folder = train("dits", tmp_path / "run", keep_fraction=0.4, learning_rate=0.03, steps=1, **FIELDS)
    found = rows(folder)[1:]
    assert seen and max(len(own) for _, _, own in seen) > 1
    for row, (blocks, tasks, changes), num in zip(found, seen, trained, strict=True):
        total = sum(map(len, blocks))
        assert row["data/pairs"] == total and row["dits/chosen"] == num == max(1, int(0.4 * total))
        assert len(changes) == len(blocks) and {len(block) for block in blocks[:-1]} <= {2}
        assert row["dits/influence"] == pytest.approx(sum(changes) / len(changes))
        assert row["dits/spread"] == pytest.approx(max(changes) - min(changes))
        assert len(tasks) == 6 and {task.split for task in tasks} == {"train"}
    assert any(change for _, _, changes in seen for change in changes), "some update changes something"


def test_without_influence_nothing_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trials, "influence", lambda *_: pytest.fail("nothing is measured"))
    folder = train("dits", tmp_path / "run", influence=0.0, steps=1, **FIELDS)
    (row,) = rows(folder)[1:]
    assert row["dits/chosen"] == max(1, int(0.5 * row["data/pairs"])) and "dits/spread" not in row


@pytest.mark.slow
def test_a_broken_off_run_resumes_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, stopped = train("dits", tmp_path / "whole", **FIELDS), tmp_path / "stopped"
    with monkeypatch.context() as patch:
        interrupting(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            train("dits", stopped, **FIELDS)
    resume(stopped)
    assert weights(stopped / "model") == weights(whole / "model") and rows(stopped) == rows(whole)


def test_seats_share_the_policy(tmp_path: Path) -> None:
    fields = {
        **FIELDS,
        "environment": "twocards?facts=1&values=2&keys=4",
        "agent": "scored",
        "expert_noise": 0.3,
    }
    folder = train("dits", tmp_path / "run", steps=1, **fields)
    assert rows(folder)[1]["data/pairs"] > 0


def test_value_and_influence_are_added() -> None:
    blocks = dits.blocks_of(5, 2, 0)
    assert [len(block) for block in blocks] == [2, 2, 1] and sorted(
        place for block in blocks for place in block
    ) == [0, 1, 2, 3, 4]
    assert blocks != dits.blocks_of(5, 2, 1) and dits.blocks_of(5, 2, 0) == blocks
    assert dits.mix_values([0.5, 0.4, 0.4], [[0], [2, 1]], [-0.1, 0.3], 1.0) == [0.5, 1.4, 1.4]
    assert dits.mix_values([0.5, 0.4], [[0], [1]], [0.2, 0.2], 1.0) == [0.5, 0.4], "equal influences count 0"
    assert dits.mix_values([0.5, 0.4], [[0], [1]], [0.0, 9.0], 0.0) == [0.5, 0.4], "order of the values"
    assert dits.best_of([0.1, 0.9, 0.9, 0.5], 0.5) == [1, 2] and dits.best_of([0.1, 0.9], 0.01) == [1]


def test_what_cannot_choose_is_refused() -> None:
    with pytest.raises(ConfigError, match="branches: got 1"):
        dits.Config(branches=1).check()
    with pytest.raises(ConfigError, match="keep_fraction: got 0, with which nothing"):
        dits.Config(keep_fraction=0.0).check()
    with pytest.raises(ConfigError, match="learner_ranks: got 2, where an update cannot be undone"):
        dits.Config(learner_ranks=2).check()
