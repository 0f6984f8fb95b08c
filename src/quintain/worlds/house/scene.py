"""The state of a house world as a frozen value, how far its chore has come, and the expert's next action.

The expert knows what it has seen: it looks through places in the order in which they are told. All functions here are
pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from quintain.worlds.house.plan import CLOSABLE, LAMP, TREATMENTS, Chore, HousePlan, Thing


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Where everything is: ``Scene(room="kitchen", place="table", held=Thing("mug"), contents={...})``.

    `contents` is never changed in place.
    """

    room: str
    contents: Mapping[str, tuple[Thing, ...]]
    place: str = ""
    """Empty when the agent stands in the room but at no place."""
    held: Thing | None = None
    opened: frozenset[str] = frozenset()
    seen: frozenset[str] = frozenset()
    """Places whose contents were seen in this episode."""
    minutes: int = 0
    turn: int = 0
    is_lit: bool = False
    """Whether the chore's thing was looked at under the lamp."""
    prepared: frozenset[str] = frozenset()
    """Preparations that were made, in a house with rules."""

    def is_closed(self, place: str) -> bool:
        """Whether `place` is closed now."""
        return place in CLOSABLE and place not in self.opened

    @property
    def within_reach(self) -> tuple[Thing, ...]:
        """Return what lies at the agent's place, nothing if that is closed."""
        if self.place in ("", LAMP) or self.is_closed(self.place):
            return ()
        return self.contents[self.place]

    def view(self, house: HousePlan) -> str:
        """Return what is seen: the place or the room, and what is held."""
        if not self.place:
            here = f"{self.room}: {', '.join(house.places(self.room))}"
        elif self.place == LAMP:
            here = LAMP
        elif self.is_closed(self.place):
            here = f"{self.place}: closed"
        else:
            here = f"{self.place}: {', '.join(thing.words() for thing in self.within_reach) or 'empty'}"
        return f"{here}; holding: {self.held.words() if self.held else 'nothing'}"


def num_placed(chore: Chore, scene: Scene) -> int:
    """Return how many things lie in the target as they should."""
    if chore.kind == "look":
        return int(scene.is_lit)
    return min(chore.count, sum(chore.is_ready(thing) for thing in scene.contents[chore.target]))


def progress(chore: Chore, scene: Scene) -> float:
    """Return the share of subgoals that hold now: thing taken, treated if that is asked, and brought.

    It is a potential: 0 at the start, 1 exactly when the chore is done, and it falls when a step is undone.
    """
    placed = num_placed(chore, scene)
    is_held = scene.held is not None and scene.held.name == chore.name
    done = placed + min(chore.count, placed + is_held)
    if chore.kind not in TREATMENTS:
        return done / (2 * chore.count)
    things = [thing for lying in scene.contents.values() for thing in lying]
    if scene.held:
        things.append(scene.held)
    return (done + any(chore.is_ready(thing) for thing in things)) / 3


def expert_words(house: HousePlan, scene: Scene, *, is_irreversible: bool) -> str:
    """Return the expert's next action; ``look`` when the chore can no longer be done."""
    chore, held = house.chore, scene.held
    if held is None:
        return _fetch(house, scene)
    if held.name != chore.name:
        return _put_down(house, scene)
    if chore.kind == "look":
        return at_place(house, scene, LAMP) or "light"
    if not chore.is_ready(held):
        if is_irreversible and held.temperature and chore.kind != "clean":
            return "look"
        return at_place(house, scene, TREATMENTS[chore.kind][0]) or chore.kind
    return at_place(house, scene, chore.target) or to_open(scene) or "put"


def _fetch(house: HousePlan, scene: Scene) -> str:
    """Return the next step to a thing that is needed: where one was seen, else where nobody has looked."""
    chore = house.chore
    for place in scene.contents:
        is_there = any(_is_wanted(chore, thing, place) for thing in scene.contents[place])
        if place in scene.seen and is_there:
            return at_place(house, scene, place) or to_open(scene) or f"take {chore.name}"
    rooms = sorted(house.rooms, key=lambda room: room != scene.room)
    for place in (place for room in rooms for place in house.places(room)):
        if place not in scene.seen and place != LAMP:
            return at_place(house, scene, place) or to_open(scene) or "look"
    return "look"


def _is_wanted(chore: Chore, thing: Thing, place: str) -> bool:
    """Whether `thing`, which lies at `place`, is to be fetched from there."""
    if thing.name != chore.name or thing.is_fixed:
        return False
    return place != chore.target or not chore.is_ready(thing)


def _put_down(house: HousePlan, scene: Scene) -> str:
    """Return the next step to getting rid of what is held, here if that is possible."""
    assert scene.held is not None
    if scene.place in ("", LAMP):
        return f"go to {house.places(scene.room)[0]}"
    return to_open(scene) or "put"


def at_place(house: HousePlan, scene: Scene, place: str) -> str:
    """Return the next step to `place`, empty when the agent is there."""
    room = house.room_of(place)
    if room != scene.room:
        return f"walk to {room}"
    return "" if place == scene.place else f"go to {place}"


def to_open(scene: Scene) -> str:
    """Return the step that opens the agent's place, empty when it is open."""
    return "open" if scene.is_closed(scene.place) else ""


def wrong_with(words: str, house: HousePlan, scene: Scene) -> str:
    """Return why the action `words` has no effect: Closed, Not here, Hands full, Nothing in hand, No such place, …"""
    verb, _, rest = words.partition(" ")
    name = rest.removeprefix("to ")
    is_closed = scene.is_closed(scene.place)
    if verb in ("go", "walk"):
        places = house.places(scene.room) if verb == "go" else house.rooms
        return "No use" if name in places else "No such place"
    if verb == "take":
        return "Hands full" if scene.held is not None else "Closed" if is_closed else "Not here"
    if verb == "put" or verb in TREATMENTS:
        if scene.held is None:
            return "Nothing in hand"
        if verb == "put":
            return "Closed" if is_closed else "No use"
        return "Not here" if scene.place != TREATMENTS[verb][0] else "No use"
    if verb == "light":
        return "Not here"
    return "No use" if verb in ("open", "close") else "No such action"
