"""Rooms and chores for ALFWorld's engine, drawn at random and written in its domain's language (PDDL).

The six chores are those of ALFWorld's paper. Every room that is drawn can be put in order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

CHORES = ("put", "clean", "heat", "cool", "examine", "two")
FURNITURE: Mapping[str, bool] = {
    "fridge": True,
    "microwave": True,
    "sinkbasin": False,
    "countertop": False,
    "cabinet": True,
    "drawer": True,
    "shelf": False,
    "diningtable": False,
    "desk": False,
    "garbagecan": False,
}
"""Kind of furniture → whether it can be opened."""
COPIES = {"countertop": 2, "cabinet": 2, "drawer": 2, "shelf": 2}
FOOD = ("apple", "tomato", "potato", "bread", "egg", "lettuce")
DISHES = ("mug", "cup", "plate", "bowl", "spoon", "fork")
THINGS = ("book", "pen", "pencil", "cellphone", "keychain", "watch")
STORES = ("countertop", "cabinet", "drawer", "shelf", "diningtable", "desk", "garbagecan")
"""Where everything may lie."""
TEXTS: Mapping[str, str] = {
    "put": "put a {thing} in or on a {place}.",
    "clean": "put a clean {thing} in or on a {place}.",
    "heat": "put a hot {thing} in or on a {place}.",
    "cool": "put a cool {thing} in or on a {place}.",
    "examine": "look at a {thing} under the desklamp.",
    "two": "put two {thing}s in or on one {place}.",
}
STATES = {"clean": "isClean", "heat": "isHot", "cool": "isCool"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A room: ``Room(kind="put", thing="mug", place="shelf", lies=(("mug_1", "desk_1"), ...))``."""

    kind: str
    thing: str
    place: str
    lies: tuple[tuple[str, str], ...]
    """thing → the furniture it lies in or on"""

    @property
    def chore(self) -> str:
        """What is to be done, in words; the engine's grammar adds the full stop."""
        return TEXTS[self.kind].format(thing=self.thing, place=self.place).rstrip(".")


def furniture() -> list[str]:
    """Return every piece of furniture: ``cabinet_2``."""
    return [f"{kind}_{number}" for kind in FURNITURE for number in range(1, COPIES.get(kind, 1) + 1)]


def draw_room(kind: str, objects: int, rng: Random) -> Room:
    """Return a room for a chore of `kind` with `objects` things besides those it needs."""
    known = {"clean": DISHES + FOOD, "heat": FOOD, "cool": FOOD + DISHES, "examine": THINGS}
    thing = rng.choice(known.get(kind, FOOD + DISHES + THINGS))
    place = rng.choice(STORES)
    pieces = [piece for piece in furniture() if piece.rpartition("_")[0] in STORES]
    # What is needed does not lie where it belongs.
    elsewhere = [piece for piece in pieces if piece.rpartition("_")[0] != place]
    needed = [f"{thing}_{number}" for number in range(1, 3 if kind == "two" else 2)]
    lies = [(each, rng.choice(elsewhere)) for each in needed]
    counts: dict[str, int] = {}
    others = [name for name in FOOD + DISHES + THINGS if name != thing]
    for _ in range(objects):
        name = rng.choice(others)
        counts[name] = counts.get(name, 0) + 1
        lies.append((f"{name}_{counts[name]}", rng.choice(pieces)))
    return Room(kind=kind, thing=thing, place=place, lies=tuple(lies))


def domain_problem(room: Room) -> str:
    """Return `room` as a problem of ALFWorld's domain."""
    pieces = furniture()
    where = {piece: f"place_{number}" for number, piece in enumerate(pieces)}
    lies = [*room.lies, ("desklamp_1", "desk_1")]
    kinds = sorted({name.rpartition("_")[0] for name, _ in lies})
    facts = ["(atLocation agent_1 middle)", "(= (total-cost) 0)"]
    for piece in pieces:
        kind = piece.rpartition("_")[0]
        facts += [
            f"(receptacleAtLocation {piece} {where[piece]})",
            f"(receptacleType {piece} {_rtype(kind)})",
        ]
        facts += [f"(openable {piece})"] if FURNITURE[kind] else []
    for name, piece in lies:
        kind = name.rpartition("_")[0]
        facts += [
            f"(objectType {name} {_otype(kind)})",
            f"(inReceptacle {name} {piece})",
            f"(objectAtLocation {name} {where[piece]})",
        ]
        if kind == "desklamp":
            facts.append(f"(toggleable {name})")
            continue
        facts.append(f"(pickupable {name})")
        facts += [f"(cleanable {name})"] if kind in DISHES + FOOD else []
        facts += [f"(heatable {name})", f"(coolable {name})"] if kind in FOOD else []
        facts += [f"(coolable {name})"] if kind in DISHES else []
    facts += [
        f"(canContain {_rtype(store)} {_otype(kind)})"
        for store in STORES
        for kind in kinds
        if kind != "desklamp"
    ]
    objects = [
        "agent_1 - agent",
        f"middle {' '.join(where.values())} - location",
        f"{' '.join(pieces)} - receptacle",
        f"{' '.join(name for name, _ in lies)} - object",
        f"{' '.join(map(_rtype, FURNITURE))} - rtype",
        f"{' '.join(map(_otype, kinds))} - otype",
    ]
    return (
        f"(define (problem room) (:domain alfred)\n(:objects {' '.join(objects)})\n"
        f"(:init {' '.join(facts)})\n(:goal {_goal(room)})\n(:metric minimize (total-cost)))"
    )


def _goal(room: Room) -> str:
    """Return what must hold when the chore of `room` is done."""
    kind = f"(objectType ?o {_otype(room.thing)})"
    if room.kind == "examine":
        return (
            f"(exists (?o - object ?r - receptacle ?l - location) (and {kind} (holds agent_1 ?o) "
            "(isToggled desklamp_1) (inReceptacle desklamp_1 ?r) (receptacleAtLocation ?r ?l) (atLocation agent_1 ?l)))"
        )
    place = f"(receptacleType ?r {_rtype(room.place)})"
    if room.kind == "two":
        first, second = (f"(inReceptacle {room.thing}_{number} ?r)" for number in (1, 2))
        return f"(exists (?r - receptacle) (and {place} {first} {second}))"
    state = f" ({STATES[room.kind]} ?o)" if room.kind in STATES else ""
    return f"(exists (?o - object ?r - receptacle) (and {kind} {place} (inReceptacle ?o ?r){state}))"


def _rtype(kind: str) -> str:
    """Return the domain's name of a kind of furniture; it knows some by name."""
    return "SinkBasinType" if kind == "sinkbasin" else f"{kind.capitalize()}Type"


def _otype(kind: str) -> str:
    """Return the domain's name of a kind of thing."""
    return f"{kind.capitalize()}Object"
