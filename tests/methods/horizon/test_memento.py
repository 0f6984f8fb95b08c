"""Memento keeps a case of every training episode, none of an evaluation, and changes no weight."""

from pathlib import Path

from tests.methods.test_training import rows, train

from quintain.agents.cased import load_cases
from quintain.store.run import Run


def test_cases_are_of_training_episodes_and_weights_stay(tmp_path: Path) -> None:
    folder = train("memento", tmp_path / "run", steps=2, tasks=3, environment="guess", eval_every=1)
    memory = load_cases(folder / "cases", count=4, by="value")
    with Run.open(folder, writable=False) as run:
        played = [t for step in (1, 2) for t in run.trajectories(step=step, phase="train")]
        assert len({*run.weights().values()}) == 1, "no weight changed"
    assert len(memory.bank) == len(played) == 6
    assert {entry.source for entry in memory.bank.entries} == {t.task.id for t in played}
    assert len(memory.labels) == 9, "three cases were known when the second step was played"
    last = rows(folder)[-1]
    assert last["memento/cases"] == 6 and last["memento/labels"] == 9 and "data/pairs" not in last
