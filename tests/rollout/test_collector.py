"""What is older than a rollout is set aside for its length, and only then."""

import gc

import pytest

from quintain.rollout.collector import spared


def test_what_is_there_is_set_aside_until_the_end() -> None:
    assert gc.get_freeze_count() == 0
    with pytest.raises(ValueError), spared():
        assert gc.get_freeze_count() > 1000
        raise ValueError
    assert gc.get_freeze_count() == 0


def test_what_somebody_else_set_aside_stays_there() -> None:
    gc.freeze()
    try:
        with spared():
            pass
        assert gc.get_freeze_count() > 1000
    finally:
        gc.unfreeze()
