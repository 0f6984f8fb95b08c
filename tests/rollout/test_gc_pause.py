"""What is older than a rollout is set aside for its length, and only then."""

import gc

import pytest

from quintain.rollout.gc_pause import AT_START, RARELY, gc_frozen


def test_what_is_there_is_set_aside_until_the_end() -> None:
    assert gc.get_freeze_count() <= AT_START
    with pytest.raises(ValueError), gc_frozen():
        assert gc.get_freeze_count() > AT_START + 1000
        raise ValueError
    assert gc.get_freeze_count() == 0


def test_what_somebody_else_set_aside_stays_there() -> None:
    gc.freeze()
    try:
        with gc_frozen():
            pass
        assert gc.get_freeze_count() > 1000
    finally:
        gc.unfreeze()


@pytest.mark.parametrize(("often", "meanwhile"), [(700, RARELY), (RARELY * 2, RARELY * 2), (0, 0)])
def test_the_collector_comes_less_often_until_the_end(often: int, meanwhile: int) -> None:
    before = gc.get_threshold()
    gc.set_threshold(often, *before[1:])
    try:
        with gc_frozen():
            assert gc.get_threshold()[0] == meanwhile
        assert gc.get_threshold() == (often, *before[1:])
    finally:
        gc.set_threshold(*before)
