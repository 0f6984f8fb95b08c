"""The tools of `shelf`: what each is said to do, and for which data; and data in numbers.

A tool's line says in words what data it is for ("long rows, some gaps"); data are told in numbers ("rows 12480, gaps
3"). So words that a question and a line share say what is to be done, and nothing of the data: which number is which
word has to be learned.
"""

import random
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from quintain.types import derive_seed

DOES = (
    "estimates", "compares", "tests", "ranks", "groups", "smooths", "predicts", "counts", "bounds", "scales", "splits",
    "matches", "traces", "weighs", "filters", "samples",
)  # fmt: skip
WHAT = (
    "centers", "spreads", "trends", "slopes", "shares", "peaks", "cycles", "orders", "delays", "losses", "rates",
    "sums", "edges", "angles", "depths", "speeds",
)  # fmt: skip
TRAITS: dict[str, tuple[tuple[str, int, int], ...]] = {
    "rows": (("short", 10, 99), ("middling", 320, 9_990), ("long", 32_000, 999_000)),
    "gaps": (("whole", 1, 3), ("leaky", 10, 31), ("broken", 100, 310)),
    "tails": (("light", 1, 3), ("plain", 10, 31), ("heavy", 100, 310)),
}
"""trait of data → its levels: the word of a tool's line, and the numbers that data have"""
SYLLABLES = (
    "zor",
    "mip",
    "tak",
    "luv",
    "bex",
    "nid",
    "gop",
    "fen",
    "ral",
    "dus",
    "kip",
    "vom",
    "sen",
    "jat",
    "hul",
    "wey",
)
GROUP = 4
"""Tools of a group: they do the same to different data."""
MAX_TOOLS = GROUP * len(DOES) * len(WHAT)
Profile = tuple[int, ...]
"""the level of each of `TRAITS`"""


class Tool(NamedTuple):
    """A tool: ``Tool("zormiptak", "estimates centers", (0, 2, 1))``."""

    name: str
    does: str
    profile: Profile

    def line(self) -> str:
        """Return what is said of it: ``estimates centers of short rows, broken gaps, plain tails``."""
        words = (
            f"{levels[level][0]} {trait}"
            for (trait, levels), level in zip(TRAITS.items(), self.profile, strict=True)
        )
        return f"{self.does} of {', '.join(words)}"


def draw_tools(count: int, group: int, seed: int) -> tuple[Tool, ...]:
    """Return `count` tools in groups of `group` that do the same to data of different profiles, in random order."""
    rng = random.Random(derive_seed("shelf", seed))
    kinds = rng.sample(list(product(DOES, WHAT)), -(-count // group))
    names = rng.sample([*map("".join, product(SYLLABLES, repeat=3))], count)
    profiles = list(product(*(range(len(levels)) for levels in TRAITS.values())))
    tools = [
        Tool(names.pop(), " ".join(kind), profile)
        for kind in kinds
        for profile in rng.sample(profiles, group)
    ][:count]
    return tuple(rng.sample(tools, count))


def draw_numbers(profile: Profile, rng: random.Random) -> tuple[int, ...]:
    """Return numbers of data that have `profile`, one for each of `TRAITS`."""
    return tuple(
        rng.randint(*levels[level][1:]) for levels, level in zip(TRAITS.values(), profile, strict=True)
    )


def ask(does: str, numbers: Sequence[int]) -> str:
    """Return a need in words: ``estimates centers: rows 12480, gaps 3, tails 14``."""
    return f"{does}: {', '.join(f'{trait} {number}' for trait, number in zip(TRAITS, numbers, strict=True))}"
