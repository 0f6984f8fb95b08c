"""The tech tree of `craft`, the lands drawn for its tasks, and how an expert works in them.

Raw things are gathered, some of them only with a tool; what is made uses raw things up and needs stations that stand
at the same place. A land holds what its goal takes, and `spare` of each raw thing beyond.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from quintain.environments.advice import FACTS, clauses
from quintain.errors import UsageError, suggestion
from quintain.types import NOTHING

PLACES = ("forest", "cave", "hill", "shore", "meadow", "mine")
TOOL_FOR: Mapping[str, str] = {
    "wood": "",
    "stone": "wood pickaxe",
    "coal": "wood pickaxe",
    "iron": "stone pickaxe",
    "diamond": "iron pickaxe",
}
"""What it takes to gather a raw thing; nothing for wood."""
TIER: Mapping[str, int] = {
    "wood": 1,
    "table": 1,
    "wood pickaxe": 2,
    "wood sword": 2,
    "stone": 3,
    "coal": 3,
    "stone pickaxe": 3,
    "stone sword": 3,
    "furnace": 3,
    "iron": 4,
    "iron pickaxe": 4,
    "iron sword": 4,
    "diamond": 5,
}
"""How deep in the tech tree a thing is."""
GOALS = tuple(TIER)[1:]
"""What may be asked for: all but wood, which takes nothing."""
NUM_TIERS = 5
BERRIES = "berries"


class Recipe(NamedTuple):
    """What a thing takes: ``Recipe((("wood", 1), ("stone", 1)), ("table",))``."""

    needs: tuple[tuple[str, int], ...]
    stations: tuple[str, ...] = ()


IRON = (("wood", 1), ("coal", 1), ("iron", 1))
RECIPES: Mapping[str, Recipe] = {
    "table": Recipe((("wood", 2),)),
    "wood pickaxe": Recipe((("wood", 1),), ("table",)),
    "wood sword": Recipe((("wood", 1),), ("table",)),
    "stone pickaxe": Recipe((("wood", 1), ("stone", 1)), ("table",)),
    "stone sword": Recipe((("wood", 1), ("stone", 1)), ("table",)),
    "furnace": Recipe((("stone", 2),), ("table",)),
    "iron pickaxe": Recipe(IRON, ("table", "furnace")),
    "iron sword": Recipe(IRON, ("table", "furnace")),
}
STATIONS = ("table", "furnace")
MAX_NEEDED = 3
"""Raw things of a kind that a drawn recipe takes, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Land:
    """A task: ``Land(goals=("wood pickaxe",), steps=("table", "wood pickaxe"), recipes=..., contents=...)``."""

    goals: tuple[str, ...]
    steps: tuple[str, ...]
    """All that must be made or gathered at least once on the way, in an order that works."""
    recipes: tuple[tuple[str, Recipe], ...]
    contents: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    """place → raw things there; the first place is where the agent starts"""

    @property
    def askable(self) -> tuple[str, ...]:
        """What may be asked for here: what there is a recipe of, or some of lies about."""
        known = {*dict(self.recipes), *(name for _, things in self.contents for name, _ in things)}
        return tuple(item for item in GOALS if item in known)

    def aim_at(self, goal: object, start: Mapping[str, int] = NOTHING) -> Self:
        """Return this land with another goal, for one who begins with `start`.

        Raises:
            UsageError: it is not made in this land, or is held.
        """
        known = [item for item in self.askable if item not in start]
        if goal not in known:
            raise UsageError(f"goal of craft: got {goal!r}; {suggestion(str(goal), known)}")
        return replace(self, goals=(str(goal),), steps=steps_to([str(goal)], dict(self.recipes), start))

    def words(self) -> str:
        """Return the task in words."""
        goal = self.goals[0] if len(self.goals) == 1 else "everything"
        made = [f"{item}: {_needs_words(recipe)}" for item, recipe in self.recipes]
        return f"Goal: {goal}. Recipes: {'; '.join(made)}."


def _needs_words(recipe: Recipe) -> str:
    """Return a recipe in words: ``1 wood 1 stone at table``."""
    at = f" at {' and '.join(recipe.stations)}" if recipe.stations else ""
    return " ".join(f"{count} {name}" for name, count in recipe.needs) + at


NOTHING_SAID = "nothing"
"""What an adviser says who was told nothing of use."""


def read_advice(message: str) -> str:
    """Return what to make next by the `FACTS` first clauses of `message`, and by nothing else, as a clerk reads it.

    It is the goal, or what the message has a recipe of, unless that recipe names a station or a thing that the message
    does not say is done: then that. What things take is known only where it is told.

    Example: "goal: wood sword; done: table" → wood sword; with "wood sword: 2 wood at table" alone → table.
    """
    goal, done, recipes = "", set[str](), dict[str, list[str]]()
    for clause in clauses(message)[:FACTS]:
        name, _, rest = clause.lower().removeprefix("recipes: ").partition(": ")
        if name == "goal" and rest in GOALS:
            goal = rest
        elif name == "done":
            done |= {item.strip() for item in rest.split(",")}
        elif name in RECIPES and rest[:1].isdigit():
            takes, _, stations = rest.partition(" at ")
            raw = [word for word in takes.split() if word in GOALS]
            recipes[name] = [*(part for part in stations.split(" and ") if part), *raw]
    wanted = goal or max(recipes, key=lambda item: TIER[item], default=NOTHING_SAID)
    for _ in range(FACTS):  # each fact leads back at most once, also where they lead round in a circle
        wanted = next((item for item in recipes.get(wanted, ()) if item not in done), wanted)
    return wanted


def steps_to(
    goals: Sequence[str], recipes: Mapping[str, Recipe], start: Mapping[str, int] = NOTHING
) -> tuple[str, ...]:
    """Return what must be made or gathered for `goals` by one who begins with `start`, each after what it takes.

    Tools of `start` are not made, and raw things of which it has enough not gathered.

    Example: ``steps_to(["stone"], RECIPES)`` is ``("wood", "table", "wood pickaxe", "stone")``.
    """
    steps: dict[str, None] = {}

    def visit(item: str) -> None:
        if item in steps or (item in start and item not in TOOL_FOR):
            return
        if item in recipes:
            for needed in (*recipes[item].stations, *(name for name, _ in recipes[item].needs)):
                visit(needed)
        elif TOOL_FOR[item]:
            visit(TOOL_FOR[item])
        steps[item] = None

    for goal in goals:
        visit(goal)
    needed = count_needed(steps, goals, recipes)
    return tuple(item for item in steps if item in goals or not 0 < needed[item] <= start.get(item, 0))


def count_needed(steps: Iterable[str], goals: Iterable[str], recipes: Mapping[str, Recipe]) -> Counter[str]:
    """Return how many of each raw thing it takes to make all of `steps`, and to hold one of each raw goal."""
    total: Counter[str] = Counter()
    for item in steps:
        if item in recipes:
            total.update(dict(recipes[item].needs))
    total.update(goal for goal in goals if goal in TOOL_FOR and not total[goal])
    return total


class LandShape(NamedTuple):
    """The options that a land is drawn by."""

    depth: int
    places: int
    spare: int
    is_drawn: bool
    """Whether the amounts in recipes are drawn."""
    is_everything: bool
    """Whether all things of the tech tree are the goal."""
    has_berries: bool


def draw_land(
    shape: LandShape,
    rng: random.Random,
    *,
    goal: str = "",
    start: Mapping[str, int] = NOTHING,
    amounts: Mapping[str, int] = NOTHING,
) -> Land:
    """Return a land of `shape`; each raw thing lies at one place or at two.

    Args:
        goal: what is asked for in the place of what is drawn; empty: that.
        start: what is held at the start, which need not lie about.
        amounts: raw thing → how many lie about, whatever the goal takes.
    """
    within = [item for item in TIER if TIER[item] <= shape.depth]
    recipes = {item: _draw_recipe(RECIPES[item], shape, rng) for item in within if item in RECIPES}
    askable = [item for item in within if item in GOALS and item not in start]
    goals = tuple(within) if shape.is_everything else (rng.choice(askable),)
    goals = (goal,) if goal else goals
    steps = steps_to(goals, recipes, start)
    total = count_needed(steps, goals, recipes)
    lying = {name: max(total[name] - start.get(name, 0), 0) + shape.spare for name in TOOL_FOR} | dict(
        amounts
    )
    places = rng.sample(PLACES, shape.places)
    contents: dict[str, dict[str, int]] = {place: {} for place in places}
    for name in within:
        for _ in range(lying.get(name, 0)):
            homes = [place for place in places if name in contents[place]]
            place = rng.choice(places if len(homes) < 2 else homes)
            contents[place][name] = contents[place].get(name, 0) + 1
    if shape.has_berries:
        contents[rng.choice(places)][BERRIES] = 1
    return Land(
        goals=goals,
        steps=steps,
        recipes=tuple(recipes.items()),
        contents=tuple((place, tuple(sorted(things.items()))) for place, things in contents.items()),
    )


def _draw_recipe(recipe: Recipe, shape: LandShape, rng: random.Random) -> Recipe:
    """Return `recipe`, with amounts drawn anew where that is asked for."""
    if not shape.is_drawn:
        return recipe
    return recipe._replace(needs=tuple((name, rng.randint(1, MAX_NEEDED)) for name, _ in recipe.needs))


def longest(shape: LandShape) -> int:
    """Return a bound on the expert's turns in the lands of `shape`, without meals."""
    within = [item for item in TIER if TIER[item] <= shape.depth]
    recipes = {item: RECIPES[item] for item in within if item in RECIPES}
    if shape.is_drawn:
        recipes = {
            item: recipe._replace(needs=tuple((name, MAX_NEEDED) for name, _ in recipe.needs))
            for item, recipe in recipes.items()
        }
    goal_sets = [within] if shape.is_everything else [[goal] for goal in within]
    bounds: list[int] = []
    for goals in goal_sets:
        steps = steps_to(goals, recipes)
        raw = sum(count_needed(steps, goals, recipes).values())
        walks = sum(2 * len(recipes[item].needs) + 1 for item in steps if item in recipes)
        bounds.append(raw + walks + len(steps) + shape.places)
    return max(bounds)
