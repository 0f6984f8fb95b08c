"""AndroidGen: where failures are cut, and that what is kept can be carried out again to the same state."""

from quintain.testing.episodes import episode_of, turn_of
from quintain_evidence.experiments.selftraining import androidgen as experiment


def test_controls_keep_as_many_turns() -> None:
    turns = [turn_of() for _ in range(5)]
    failed = [episode_of(turns, index=index, seed=index) for index in range(4)]
    kept = [1, 2, 3, 5]
    windows, elsewhere = experiment.windows(0)(failed, kept), experiment.elsewhere(0)(failed, kept)
    assert [sum(own) for own in windows] == kept and windows[0].index(1.0) + windows[1].index(1.0) > 0
    assert sorted(sum(own) for own in elsewhere) == kept and [sum(own) for own in elsewhere] != kept
    assert all(own == sorted(own, reverse=True) for own in elsewhere), "a beginning"
