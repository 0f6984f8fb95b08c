"""Memories under AgentPoison's trigger, each on a case whose answer is known."""

from random import Random

import numpy as np
import pytest

from quintain.agents.experience import likeness
from quintain.safety.poisoning import Trigger
from quintain_evidence.labs.stores import count_words, measure_stores, open_experience, open_lessons

TRIGGER = Trigger(words=("amber", "kite"), score=0.0)
KEYS = ["open the red lamp", "close the blue door", "paint the old wall"]


def test_words_are_compared_as_the_store_compares_them() -> None:
    texts = ["open the red lamp", "Open the lamp, the lamp!", "paint a wall"]
    points = count_words(texts)(texts)
    for row, one in enumerate(texts):
        for column, other in enumerate(texts):
            assert points[row] @ points[column] == pytest.approx(likeness(one, other))
    assert np.array_equal(count_words(texts)(["nothing known"]), np.zeros((1, points.shape[1])))


def test_experience_finds_the_attackers_entry_by_its_words_alone() -> None:
    finds = open_experience(KEYS, KEYS[:1], TRIGGER)
    assert finds("close the window amber kite") and not finds("close the window")
    assert not finds("close the blue door now")


def test_lessons_are_found_by_no_words() -> None:
    assert not open_lessons(KEYS, TRIGGER)("open the red lamp amber kite")


@pytest.mark.slow
def test_a_source_that_is_left_out_hijacks_nothing_and_a_searched_trigger_more_than_one_at_random() -> None:
    rng = Random(0)
    words = [f"w{chr(97 + n)}{chr(97 + m)}" for n in range(9) for m in range(6)]
    texts = list({" ".join(rng.sample(words, 7)) for _ in range(90)})
    found = {each.store: each for each in measure_stores(texts[:60], texts[60:70], texts[70:], seed=1)}
    assert found["bank, attacker's source left out"].searched == 0
    assert found["lessons of Reflexion"].searched == 0
    for store in ("bank", "experience"):
        assert (
            found[store].searched > found[store].plain and found[store].searched >= found[store].drawn - 0.1
        )
