"""How a land of `craft` is laid out for a skill: what one starts with, how rare raw things are, how many places.

A configuration is a dictionary: ``{"skill": "furnace", "start": {"wood pickaxe": 1, "wood": 2}, "rarity": {"stone":
"rare"}, "places": 2}`` (the knobs of EnvGen, arXiv 2403.12014, in this world). Dynamics stay what they are.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from quintain.config.spec import split_list
from quintain.environments.schema import complaint
from quintain.errors import UsageError
from quintain.worlds.craft.land import PLACES, RECIPES, STATIONS, TIER, TOOL_FOR, count_needed, steps_to

RARITY: Mapping[str, int] = {"rare": 1, "common": 4, "very common": 9}
"""How many of a raw thing lie about, whatever the goal takes."""
MOST_HELD = 9
"""Of a raw thing at the start; of a tool one."""
EXAMPLE = "start=wood:3,stone+pickaxe:1 or rarity=iron:rare,coal:very+common"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What is not drawn in a land: ``Layout(goal="furnace", start={"wood": 2}, places=2)``."""

    goal: str = ""
    """empty: drawn"""
    start: Mapping[str, int] = field(default_factory=dict[str, int])
    """what is held at the start; what is not named, is not"""
    rarity: Mapping[str, str] = field(default_factory=dict[str, str])
    """of raw things; one that is not named lies about as the goal takes it"""
    places: int = 0
    """0: as many as the options of the world say"""

    @property
    def tools(self) -> frozenset[str]:
        """The tools that are held at the start."""
        return frozenset(self.start) - set(TOOL_FOR)

    @property
    def amounts(self) -> dict[str, int]:
        """How many of the raw things lie about of which that is said."""
        return {name: RARITY[level] for name, level in self.rarity.items()}


def schema_of(depth: int) -> dict[str, Any]:
    """Return the JSON schema of configurations of lands up to tier `depth`."""
    within = [name for name in TIER if TIER[name] <= depth]
    raw = [name for name in within if name in TOOL_FOR]
    held = {
        name: {"type": "integer", "minimum": 0, "maximum": MOST_HELD if name in raw else 1}
        for name in within
        if name not in STATIONS
    }
    known = {name: {"type": "string", "enum": list(RARITY)} for name in raw}
    return {
        "type": "object",
        "properties": {
            "skill": {"type": "string", "enum": [name for name in within if name != "wood"]},
            "start": {"type": "object", "properties": held, "additionalProperties": False},
            "rarity": {"type": "object", "properties": known, "additionalProperties": False},
            "places": {"type": "integer", "minimum": 2, "maximum": len(PLACES)},
        },
        "required": ["skill"],
        "additionalProperties": False,
    }


def read_layout(values: Mapping[str, object], depth: int) -> Layout:
    """Return the layout that the configuration `values` says, repaired (`add_tools`); ``skill`` may be left out.

    Raises:
        UsageError: it does not fit the schema, or hands the skill over.
    """
    schema = schema_of(depth) | {"required": []}
    if wrong := complaint("configuration", schema, values):
        raise UsageError(f"configuration of craft: got {wrong}; give what its schema allows")
    known = cast(Mapping[str, Any], values)
    start = add_tools({name: int(count) for name, count in known.get("start", {}).items()})
    goal = str(known.get("skill", ""))
    if start.get(goal):
        raise UsageError(
            f"configuration of craft: got the skill {goal} and a start with it; take it out, with what only it reaches"
        )
    return Layout(
        goal=goal, start=start, rarity=dict(known.get("rarity", {})), places=int(known.get("places", 0))
    )


def add_tools(start: Mapping[str, int]) -> dict[str, int]:
    """Return `start` with the tool that each raw thing in it takes, by whole names, and without what it has none of.

    Example: 2 stone come with a wood pickaxe; a stone pickaxe comes with none.
    """
    held = {name: count for name, count in start.items() if count}
    return held | {TOOL_FOR[name]: 1 for name in held if TOOL_FOR.get(name)}


def write_layout(layout: Layout) -> dict[str, Any]:
    """Return the configuration that says `layout`."""
    told = {
        "skill": layout.goal,
        "start": dict(layout.start),
        "rarity": dict(layout.rarity),
        "places": layout.places,
    }
    return {name: value for name, value in told.items() if value}


def read_options(start: str, rarity: str, depth: int) -> Layout:
    """Return the layout that the options `start` and `rarity` of a world say.

    Raises:
        UsageError: they cannot be read, or do not fit.
    """
    held: dict[str, object] = {
        name: int(text) if text.isdecimal() else text
        for name, text in split_list(start, "start of craft", EXAMPLE, sign=":", usual="1")
    }
    levels = dict(split_list(rarity, "rarity of craft", EXAMPLE, sign=":"))
    return read_layout({"start": held, "rarity": levels}, depth)


def draw_layout(skill: str, depth: int, rng: random.Random) -> dict[str, Any]:
    """Return a configuration for `skill`, drawn: how much of the way to it is done, and what lies about.

    Whether it can be solved is for an oracle to say.
    """
    steps = steps_to([skill], RECIPES)
    done = steps[: rng.randrange(len(steps))]
    left = [item for item in steps if item not in done]
    needed = count_needed(left, [skill], RECIPES)
    start = {name: 1 for name in done if name not in TOOL_FOR and name not in STATIONS}
    start |= {name: held for name in done if (held := rng.randint(0, needed[name]))}
    rarity = {name: rng.choice(list(RARITY)) for name in _raw_within(left, needed) if rng.random() < 0.5}
    drawn = {"skill": skill, "start": start, "rarity": rarity, "places": rng.randint(2, 4)}
    return write_layout(read_layout(drawn, depth))


def _raw_within(left: Sequence[str], needed: Iterable[str]) -> list[str]:
    """Return the raw things that the steps `left` take, in the order of the tech tree."""
    return [name for name in TOOL_FOR if name in {*left, *needed}]
