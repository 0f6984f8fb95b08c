"""What the user of `collab` has in mind, and how it talks about it: one detail a turn, when it is asked."""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from quintain.environments.noisy import chatter

STOP = "###STOP###"
"""What the user says when it leaves."""
SLOTS: dict[str, tuple[str, ...]] = {
    "color": ("red", "blue", "green", "white", "black", "pink"),
    "size": ("small", "medium", "large", "huge", "tiny", "giant"),
    "shape": ("round", "square", "oval", "flat", "long", "curved"),
    "material": ("wood", "steel", "glass", "clay", "paper", "wool"),
    "finish": ("matt", "gloss", "satin", "raw", "waxed", "oiled"),
    "style": ("plain", "modern", "rustic", "classic", "playful", "formal"),
}
THINGS = (
    *("lamp", "chair", "table", "box", "shelf", "bowl", "clock", "mirror", "desk", "frame", "tray", "stool"),
    *("vase", "bench", "bed", "door", "cup", "plate", "jar", "basket", "rack", "hook", "knob", "screen"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How much there is to find out: ``Shape(slots=3, values=4, told=0.3, vague=0.0, ...)``."""

    slots: int
    values: int
    """values of each slot"""
    told: float
    """chance that a slot is told at the start"""
    vague: float
    """chance that the user must be asked twice about a slot"""
    indifferent: float
    """chance that any value of a slot will do"""
    changes_of_mind: float
    """chance that the user corrects one slot while it answers about another"""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the slots."""
        return tuple(SLOTS)[: self.slots]

    def options(self, slot: int) -> tuple[str, ...]:
        """Return the values that slot number `slot` may have."""
        return SLOTS[self.names[slot]][: self.values]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """``Wish(thing="lamp", values=("red", "", "oval"), told=(0,), ...)``: a red oval lamp of any size."""

    thing: str
    values: tuple[str, ...]
    """what is wanted of each slot; empty where anything will do"""
    told: tuple[int, ...]
    """slots that are told at the start"""
    vague: tuple[int, ...]
    """slots that must be asked for twice"""
    changed: int = -1
    """the slot that will be corrected, -1 for none"""
    changed_to: str = ""


def draw_wish(rng: Random, shape: Shape) -> Wish:
    """Draw a wish of `shape`; at least one slot is not told."""
    values = tuple(
        "" if rng.random() < shape.indifferent else rng.choice(shape.options(slot))
        for slot in range(shape.slots)
    )
    hidden = rng.randrange(shape.slots)
    told = tuple(slot for slot in range(shape.slots) if slot != hidden and rng.random() < shape.told)
    vague = tuple(slot for slot in range(shape.slots) if slot not in told and rng.random() < shape.vague)
    definite = [slot for slot, value in enumerate(values) if value]
    changed = rng.choice(definite) if definite and rng.random() < shape.changes_of_mind else -1
    others = [value for value in shape.options(changed) if value != values[changed]] if changed >= 0 else [""]
    return Wish(
        thing=rng.choice(THINGS),
        values=values,
        told=told,
        vague=vague,
        changed=changed,
        changed_to=rng.choice(others),
    )


def opening(wish: Wish, shape: Shape, noise: int) -> str:
    """Return what the user says first."""
    parts = [f"I want a {wish.thing}.", *(detail(shape, slot, wish.values[slot]) for slot in wish.told)]
    return " ".join(parts) + chatter(noise, "collab", repr(wish))


def detail(shape: Shape, slot: int, value: str) -> str:
    """Return how the user says what it wants of `slot`."""
    return f"{shape.names[slot]}: {value or 'any'}."


def find_slot(text: str, names: Iterable[str]) -> int | None:
    """Return the first of the slots `names` that `text` speaks of, None when it is about something else."""
    words = [word.strip("?.,!:;") for word in text.lower().split()]
    places = [(words.index(name), slot) for slot, name in enumerate(names) if name in words]
    return min(places)[1] if places else None
