"""What a house world is made of: rooms, places, things, the chore to do, and how a house is drawn.

Frozen data and pure functions. A place has one name in the whole house, and a thing is known by its name, so that an
action never needs a number.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Literal, NamedTuple

ROOMS: Mapping[str, tuple[str, ...]] = {
    "kitchen": ("fridge", "microwave", "sink", "counter", "table", "drawer"),
    "bedroom": ("bed", "dresser", "shelf"),
    "office": ("desk", "cabinet", "chair"),
    "bathroom": ("bathtub", "hamper", "stool"),
}
"""Room → places in it; the lamp stands in the last room of a house."""
LAMP = "lamp"
CLOSABLE = frozenset({"fridge", "microwave", "drawer", "dresser", "cabinet", "hamper"})
FOOD = ("apple", "potato", "tomato", "egg", "bread")
DISHES = ("mug", "cup", "plate", "bowl")
CUTLERY = ("knife", "fork", "spoon")
OTHERS = ("book", "pen", "phone")
THINGS = (*FOOD, *DISHES, *CUTLERY, *OTHERS)
TREATMENTS: Mapping[str, tuple[str, frozenset[str]]] = {
    "clean": ("sink", frozenset({"apple", "potato", "tomato", *DISHES, *CUTLERY})),
    "heat": ("microwave", frozenset({*FOOD, "mug", "cup"})),
    "cool": ("fridge", frozenset({*FOOD, *DISHES})),
}
"""Verb → where it can be done, and to which things."""
PREPARATIONS = ("knock", "wipe", "press", "turn", "shake", "wave")
"""Verbs that do nothing by themselves, in a house with rules."""
RULED = ("open", "take", "put", *TREATMENTS, "light")
"""Verbs that may need one of them first."""
MAX_RULES = min(len(PREPARATIONS), len(RULED))
Kind = Literal["put", "clean", "heat", "cool", "two", "look"]
KINDS: tuple[Kind, ...] = ("put", "clean", "heat", "cool", "two", "look")
CONDITIONS: Mapping[str, str] = {"clean": " (clean)", "heat": " (hot)", "cool": " (cold)", "two": " (two)"}


class Thing(NamedTuple):
    """A thing: ``Thing("mug", is_clean=True, temperature="hot")`` is "mug (clean, hot)"."""

    name: str
    is_clean: bool = False
    temperature: str = ""
    is_fixed: bool = False
    """Whether it stays where it was put, in an irreversible house."""

    def words(self) -> str:
        """Return what is seen of it."""
        seen = ", ".join(word for word in ("clean" if self.is_clean else "", self.temperature) if word)
        return f"{self.name} ({seen})" if seen else self.name

    def after(self, verb: str) -> "Thing":
        """Return the thing after it was treated."""
        if verb == "clean":
            return self._replace(is_clean=True)
        return self._replace(temperature="hot" if verb == "heat" else "cold")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore:
    """What is to be done: ``Chore(kind="heat", name="egg", target="table")`` is "Goal: egg (hot), table."."""

    kind: Kind
    name: str
    target: str

    def words(self) -> str:
        """Return the chore in words."""
        return f"Goal: {self.name}{CONDITIONS.get(self.kind, '')}, {self.target}."

    @property
    def count(self) -> int:
        """How many things are to be put there."""
        return 2 if self.kind == "two" else 1

    def is_ready(self, thing: Thing) -> bool:
        """Whether `thing` needs only to be brought to the target."""
        if thing.name != self.name:
            return False
        if self.kind == "clean":
            return thing.is_clean
        wanted = {"heat": "hot", "cool": "cold"}.get(self.kind)
        return wanted is None or thing.temperature == wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class HousePlan:
    """What does not change in an episode.

    Example: ``HousePlan(chore=chore, rooms=("kitchen",), contents=(("table", (Thing("mug"),)),))``.
    """

    chore: Chore
    rooms: tuple[str, ...]
    contents: tuple[tuple[str, tuple[Thing, ...]], ...]
    """What lies where at the start, in the order of `places`."""

    def places(self, room: str) -> tuple[str, ...]:
        """Return the places in `room`, in the order in which they are told."""
        return (*ROOMS[room], LAMP) if room == self.rooms[-1] else ROOMS[room]

    def room_of(self, place: str) -> str:
        """Return the room that `place` is in."""
        return next(room for room in self.rooms if place in self.places(room))


def draw_rules(count: int, number: int) -> dict[str, str]:
    """Return set `number` of `count` rules: which verbs need which other one earlier in the episode."""
    rng = Random(f"rules of a house {number}")
    return dict(zip(rng.sample(RULED, count), rng.sample(PREPARATIONS, count), strict=True))


def draw_house(num_rooms: int, num_others: int, kind: Kind | Literal["any"], rng: Random) -> HousePlan:
    """Return a house with the things of its chore, away from the target, and `num_others` other things."""
    rooms = tuple(ROOMS)[:num_rooms]
    places = [place for room in rooms for place in ROOMS[room]]
    chosen: Kind = rng.choice(KINDS) if kind == "any" else kind
    allowed = sorted(TREATMENTS[chosen][1]) if chosen in TREATMENTS else THINGS
    name = rng.choice(allowed)
    target = LAMP if chosen == "look" else rng.choice(places)
    chore = Chore(kind=chosen, name=name, target=target)
    contents: dict[str, list[Thing]] = {place: [] for place in places}
    for _ in range(chore.count):
        contents[rng.choice([place for place in places if place != target])].append(Thing(name))
    for other in rng.sample([thing for thing in THINGS if thing != name], num_others):
        contents[rng.choice(places)].append(Thing(other))
    return HousePlan(
        chore=chore,
        rooms=rooms,
        contents=tuple((place, tuple(sorted(things))) for place, things in contents.items()),
    )
