"""What there is and what it is like, and riddles about it: some things, one of which is meant.

No two things of a riddle are alike in all properties, so that questions alone tell them apart.
"""

from dataclasses import dataclass
from functools import cache
from random import Random

PROPERTIES = ("alive", "big", "loud", "fast", "soft", "round")
KNOWN = {
    "lion": "alive big loud fast",
    "cow": "alive big loud",
    "horse": "alive big fast",
    "tree": "alive big",
    "bear": "alive big loud fast soft",
    "sheep": "alive loud soft",
    "dog": "alive loud fast soft",
    "parrot": "alive loud fast",
    "cricket": "alive loud",
    "rabbit": "alive fast soft",
    "trout": "alive fast",
    "worm": "alive soft",
    "turtle": "alive round",
    "rose": "alive",
    "train": "big loud fast",
    "tractor": "big loud",
    "yacht": "big fast",
    "house": "big",
    "sofa": "big soft",
    "moon": "big round",
    "drone": "loud fast",
    "radio": "loud",
    "drum": "loud round",
    "bike": "fast",
    "wheel": "fast round",
    "ball": "fast soft round",
    "pillow": "soft",
    "balloon": "soft round",
    "coin": "round",
    "lamp": "",
}
"""thing → all that is true of it"""
THINGS = tuple(KNOWN)


Row = tuple[str, tuple[str, ...]]
"""a thing and what is true of it: ``("cow", ("alive", "big", "loud"))``"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Riddle:
    """Things and the one that is meant: ``Riddle(table=(("cow", ("big",)), ("coin", ("round",))), hidden="coin")``."""

    table: tuple[Row, ...]
    hidden: str

    @property
    def things(self) -> tuple[str, ...]:
        """The names of the things, as they are told."""
        return tuple(thing for thing, _ in self.table)

    def answer(self, word: str) -> bool:
        """Whether the hidden thing is called `word`, or has this property."""
        return fits((self.hidden, dict(self.table)[self.hidden]), word)

    def left(self, said: tuple[str, ...]) -> tuple[Row, ...]:
        """Return the things that agree with the answers to what was `said`."""
        answers = [(word, self.answer(word)) for word in said]
        return tuple(row for row in self.table if all(fits(row, word) == is_so for word, is_so in answers))


def fits(row: Row, word: str) -> bool:
    """Whether the thing of `row` is called `word`, or has this property."""
    thing, words = row
    return word == thing or word in words


@cache
def describe_things(num_properties: int) -> tuple[Row, ...]:
    """Return things that differ in the first `num_properties` properties, and what is true of them of these."""
    asked = PROPERTIES[:num_properties]
    found: dict[tuple[str, ...], str] = {}
    for thing, words in KNOWN.items():
        found.setdefault(tuple(word for word in words.split() if word in asked), thing)
    return tuple((thing, words) for words, thing in found.items())


def draw_riddle(num_things: int, num_properties: int, rng: Random, *, is_told: bool) -> Riddle:
    """Return a riddle about things as they are; where `is_told`, about things that are something else in each riddle.

    Things stand in the order of the alphabet, so that riddles that differ are not the same things in another order.
    """
    if is_told:
        asked = PROPERTIES[:num_properties]
        codes = rng.sample(range(2**num_properties), num_things)
        drawn = [tuple(word for place, word in enumerate(asked) if code >> place & 1) for code in codes]
        table = sorted(zip(rng.sample(THINGS, num_things), drawn, strict=True))
    else:
        table = sorted(rng.sample(describe_things(num_properties), num_things))
    return Riddle(table=tuple(table), hidden=rng.choice(table)[0])
