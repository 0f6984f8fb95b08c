"""Gather, make tools, gather what only the tools reach: a tech tree over a few places.

Families it stands for: Crafter, and Minecraft's tech tree as text. Raw things are few and making uses them up, so
that a thing made in vain can put the goal out of reach for good. An action without effect says "Nothing happens." and
takes no time.
"""

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from quintain.environments.noisy import chatter
from quintain.environments.protocol import Environment
from quintain.environments.splitting import is_eval, split_draw
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task
from quintain.worlds.craft.land import (
    BERRIES,
    GOALS,
    NUM_TIERS,
    PLACES,
    RECIPES,
    STATIONS,
    TIER,
    TOOL_FOR,
    Land,
    LandShape,
    Recipe,
    count_needed,
    draw_land,
    longest,
    read_advice,
)
from quintain.worlds.craft.layout import (
    Layout,
    draw_layout,
    read_layout,
    read_options,
    schema_of,
    write_layout,
)

HUNGRY = 3
"""Food at which the expert goes to eat."""
CONFIGURATION = "configuration"
"""In the data of a task: how its land is laid out, a configuration of `quintain.worlds.craft.layout`."""
LONGEST_RECIPE = 9
"""The least capacity with which every recipe can be made, also the drawn ones."""
State = tuple[
    Land,
    str,
    tuple[tuple[str, tuple[tuple[str, int], ...]], ...],
    tuple[tuple[str, int], ...],
    frozenset[tuple[str, str]],
    frozenset[str],
    frozenset[str],
    tuple[int, int, int],
    Layout,
]


class Craft(Environment):
    """Make or gather the goal.

    Act: go PLACE, gather THING, make THING, drop THING, eat or wait.
    """

    name = "craft"
    tags: ClassVar[frozenset[str]] = frozenset({"planning", "memory"})

    def __init__(
        self,
        *,
        depth: int = 3,
        places: int = 3,
        spare: int = 1,
        capacity: int = 0,
        hunger: int = 0,
        goal: Literal["one", "everything"] = "one",
        recipes: Literal["fixed", "drawn"] = "fixed",
        has_map: bool = True,
        reward: Literal["sparse", "dense"] = "sparse",
        noise: int = 0,
        start: str = "",
        rarity: str = "",
    ) -> None:
        """Draw goals up to tier `depth` of the tech tree in a land of `places` places.

        `spare` is how many of each raw thing lie about beyond those the goal takes; `capacity` bounds the raw
        things that can be carried (0: no bound); one who does not eat for `hunger` turns starves (0: never).
        Without `has_map` only the place the agent is at is shown. `reward=dense` pays an equal share for each
        first achievement on the way to the goal. `noise` sentences that mean nothing follow every observation.
        `start` is held at the start, ``wood:3,stone pickaxe``; of a raw thing in `rarity`, ``iron:rare,coal:common``,
        1, 4 or 9 (very common) lie about, whatever the goal takes, so that it may be out of reach.

        Raises:
            UsageError: there is no such land.
        """
        if not 1 <= depth <= NUM_TIERS or not 2 <= places <= len(PLACES) or min(spare, noise) < 0:
            raise UsageError(
                f"craft: got depth={depth}, places={places}, spare={spare}, noise={noise}; give 1 to "
                f"{NUM_TIERS} tiers, 2 to {len(PLACES)} places and no negative number"
            )
        if 0 != capacity < LONGEST_RECIPE or 0 != hunger < 2 * HUNGRY:
            raise UsageError(
                f"craft: got capacity={capacity}, hunger={hunger}; give 0 or a capacity of at least "
                f"{LONGEST_RECIPE}, 0 or a hunger of at least {2 * HUNGRY} turns"
            )
        self._shape = LandShape(depth, places, spare, recipes == "drawn", goal == "everything", hunger > 0)
        self._usual = self._layout = read_options(start, rarity, depth)
        self._capacity, self._hunger, self._noise = capacity, hunger, noise
        self._has_map, self._is_dense = has_map, reward == "dense"
        self.max_turns = longest(self._shape)
        if hunger:
            self.max_turns += 3 * self.max_turns // (hunger - HUNGRY - 1)
        self._land = Land(goals=(), steps=(), recipes=(), contents=((PLACES[0], ()),))
        self._seed = 0
        self._start()

    def _start(self) -> None:
        """Begin at the first place of the land, with nothing."""
        land = self._land
        self._recipes: Mapping[str, Recipe] = dict(land.recipes)
        self._place = land.contents[0][0]
        self._lying = {place: Counter(dict(things)) for place, things in land.contents}
        self._held = Counter({name: n for name, n in self._layout.start.items() if name in TOOL_FOR})
        self._standing: frozenset[tuple[str, str]] = frozenset()
        self._reached = self._layout.tools
        self._seen = frozenset(self._lying) if self._has_map else frozenset({self._place})
        self._food, self._turn = self._hunger, 0

    def reset(self, task: Task) -> str:
        """Draw the land of the task; its data may name another ``goal`` than the one that is drawn with it, and a
        ``configuration`` by which the land is laid out, in the place of the options `start` and `rarity`.

        Raises:
            UsageError: that goal is not made in this land, or there is no such configuration.
        """
        layout = self._layout = (
            self._read(task.data[CONFIGURATION]) if CONFIGURATION in task.data else self._usual
        )
        shape = self._shape._replace(places=layout.places or self._shape.places)
        self._land = split_draw(
            task,
            lambda rng: draw_land(shape, rng, goal=layout.goal, start=layout.start, amounts=layout.amounts),
        )
        if "goal" in task.data:
            self._land = self._land.aim_at(task.data["goal"], layout.start)
        self._seed = task.seed
        self._start()
        shown = self._lying if self._has_map else ()
        told = "; ".join(f"{place}: {_list_things(self._lying[place])}" for place in shown)
        told = told or f"Places: {', '.join(self._lying)}"
        return f"{self._land.words()} {told}. {self._view()}"

    def step(self, action: Action) -> StepResult:
        """Carry out one action; one without effect leaves the world as it was."""
        words = " ".join(action.text.lower().split())
        self._turn += 1
        if action.error is not None or words not in self.legal_actions():
            said = f"Error: {action.error}" if action.error is not None else "Nothing happens."
            return StepResult(observation=f"{said} {self._view()}", is_success=False, is_valid=False)
        before = self._reached
        self._carry_out(words)
        self._food -= self._hunger > 0
        steps, goals = self._land.steps, self._land.goals
        is_done = self._reached.issuperset(goals)
        is_starved = not is_done and self._hunger > 0 and self._food == 0
        gained = len((self._reached - before) & set(steps)) / len(steps)
        return StepResult(
            observation="Done." if is_done else "You starve." if is_starved else self._view(),
            reward=gained if self._is_dense else float(is_done),
            is_terminated=is_done or is_starved,
            is_success=is_done,
        )

    def _carry_out(self, words: str) -> None:
        """Change the world as the legal action `words` says."""
        verb, _, name = words.partition(" ")
        here = self._lying[self._place]
        if verb == "go":
            self._place = name
            self._seen |= {name}
        elif verb == "gather":
            here[name] -= 1
            self._held[name] += 1
            self._reached |= {name}
        elif verb == "drop":
            here[name] += 1
            self._held[name] -= 1
        elif verb == "make":
            self._held.subtract(dict(self._recipes[name].needs))
            self._reached |= {name}
            if name in STATIONS:
                self._standing |= {(self._place, name)}
        elif verb == "eat":
            self._food = self._hunger + 1

    def achievements(self) -> tuple[str, ...]:
        """Return what was made or gathered in this episode, in the order of the tech tree."""
        gained = self._reached - self._layout.tools
        return tuple(item for item in (*TOOL_FOR, *RECIPES) if item in gained)

    def achieved(self) -> Mapping[str, Any] | None:
        """Return the deepest thing in the tech tree that was made or gathered, as the goal; wood is never one."""
        reached = [item for item in self.achievements() if item in GOALS]
        return {"goal": max(reached, key=lambda item: TIER[item])} if reached else None

    def proposal(self, rng: random.Random) -> Mapping[str, Any]:
        """Return a goal of one who read the recipes and saw the land, whether or not its raw things are enough for it.

        A land with a goal that is held out is not proposed; where no other is left it is the task as it was drawn.
        """
        goals = [goal for goal in self._land.askable if self._is_open(goal)]
        return {"goal": rng.choice(goals)} if goals else {}

    def read_proposal(self, text: str) -> Mapping[str, Any] | None:
        """Return the goal that `text` names, as ``Goal: furnace.``; None where it is not made here, or is held out."""
        goal = text.lower().removeprefix("goal:").strip(" .")
        return {"goal": goal} if goal in self._land.askable and self._is_open(goal) else None

    def _is_open(self, goal: str) -> bool:
        """Whether `goal`, made here, is not held at the start, and the land with it not held out."""
        start = self._layout.start
        return goal not in start and not is_eval(self._land.aim_at(goal, start))

    def skills(self) -> tuple[str, ...]:
        """Return the goals up to the depth of the world; see `Configurable`."""
        return tuple(self.configuration_schema()["properties"]["skill"]["enum"])

    def skill(self) -> str:
        """Return the goal of the task."""
        return self._land.goals[0]

    def configuration_schema(self) -> Mapping[str, Any]:
        """Return what a configuration may say, as a JSON schema."""
        return schema_of(self._shape.depth)

    def draw_configuration(self, skill: str, rng: random.Random) -> Mapping[str, Any]:
        """Return a configuration for `skill`, drawn; it may be impossible."""
        return draw_layout(skill, self._shape.depth, rng)

    def configure(self, configuration: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the data of tasks laid out by `configuration`, repaired.

        Raises:
            UsageError: it does not fit the schema, or hands its skill over; everything is the goal here, or more is
                held at the start than can be carried.
        """
        if self._shape.is_everything:
            raise UsageError("configuration of craft: got goal=everything, which is no skill; leave goal out")
        return {CONFIGURATION: write_layout(self._read(configuration, is_whole=True))}

    def _read(self, configuration: object, *, is_whole: bool = False) -> Layout:
        """Return the layout that `configuration` says; one that `is_whole` names its skill."""
        if not isinstance(configuration, Mapping):
            raise UsageError(f"configuration of craft: got {configuration!r}; give a dictionary")
        found = read_layout(configuration, self._shape.depth)
        if is_whole and not found.goal:
            raise UsageError("configuration of craft: got no skill; name what it is laid out for")
        if 0 < self._capacity < sum(n for name, n in found.start.items() if name in TOOL_FOR):
            raise UsageError(
                f"configuration of craft: got a start of more than {self._capacity} raw things, which is the capacity; "
                "start with fewer"
            )
        return found

    @property
    def is_lost(self) -> bool:
        """Whether raw things were wasted, so that the goal is out of reach."""
        everywhere = sum(self._lying.values(), Counter[str]())
        wanted = self._count_wanted()
        return any(wanted[name] > everywhere[name] for name in wanted)

    def legal_actions(self) -> tuple[str, ...]:
        """Return the actions that have an effect here, and `wait`."""
        here, held = self._lying[self._place], self._held
        legal = [f"go {place}" for place in self._lying if place != self._place]
        if not self._capacity or held.total() < self._capacity:
            legal += [f"gather {name}" for name in TOOL_FOR if here[name] and self._can_gather(name)]
        legal += [f"make {item}" for item in self._recipes if self._can_make(item)]
        if self._capacity:
            legal += [f"drop {name}" for name in TOOL_FOR if held[name]]
        if here[BERRIES]:
            legal.append("eat")
        return (*legal, "wait")

    def expert_action(self) -> Action:
        """Return the next action of one who makes one thing after another; `wait` when the goal is lost."""
        return Action(text=self._expert_words())

    def mistaken_action(self, rng: random.Random) -> Action:
        """Return a legal action; where something can be made that the goal does not take, that."""
        legal = self.legal_actions()
        left = {f"make {item}" for item in self._land.steps if item not in self._reached}
        wasteful = [words for words in legal if words.startswith("make") and words not in left]
        return Action(text=rng.choice(wasteful or legal))

    def idle_action(self) -> Action:
        """Return the action that only passes time; see `noisy.Idle`."""
        return Action(text="wait")

    def things(self) -> tuple[str, ...]:
        """Return what is made or gathered in this land; see `FindsWay`."""
        return (*self._recipes, *dict.fromkeys(name for things in self._lying.values() for name in things))

    def follow(self, thing: str) -> Action | None:
        """Return the next action towards having `thing` for the first time; see `FindsWay`.

        Raw things that it takes are gathered on the way; what else it takes, a station or a tool, is not seen to, nor
        is food.
        """
        if thing in self._reached or thing not in self.things():
            return None
        recipe = self._recipes.get(thing, Recipe(((thing, 1),)))
        missing = Counter(dict(recipe.needs)) - self._held
        if not all(self._can_gather(name) for name in missing):
            return None
        here = self._lying[self._place]
        if near := next((name for name in missing if here[name]), None):
            words = self._with_room(f"gather {near}", recipe)
        elif missing:
            words = self._way_to(missing)
        else:
            words = f"make {thing}" if self._can_make(thing) else self._to_stations(thing, recipe)
        return None if words == "wait" else Action(text=words)

    def expert_thing(self) -> str:
        """Return what the expert makes or gathers next, raw things that take no tool apart; see `FindsWay`."""
        left = [item for item in self._land.steps if item not in self._reached and item in GOALS]
        return left[0] if left else self._land.goals[0]

    def advise(self, message: str) -> str:
        """Return what one who knows nothing but `message` would make next; see `Advises`."""
        return read_advice(message)

    def snapshot(self) -> State:
        """Return the world as it is."""
        return (
            self._land,
            self._place,
            tuple((place, tuple(things.items())) for place, things in self._lying.items()),
            tuple(self._held.items()),
            self._standing,
            self._reached,
            self._seen,
            (self._food, self._turn, self._seed),
            self._layout,
        )

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._land, self._place, lying, held, self._standing, self._reached, self._seen, counters = state[:8]
        self._layout = state[8]
        self._recipes = dict(self._land.recipes)
        self._lying = {place: Counter(dict(things)) for place, things in lying}
        self._held = Counter(dict(held))
        self._food, self._turn, self._seed = counters

    def state_key(self) -> str:
        """Return the state, written out; what the agent has seen, and when, is no part of it."""
        lying = [(place, sorted((+things).items())) for place, things in self._lying.items()]
        held = sorted((+self._held).items())
        return repr((self._place, lying, held, sorted(self._standing), sorted(self._reached), self._food))

    def _can_gather(self, name: str) -> bool:
        """Whether the tool for the raw thing is there."""
        return not TOOL_FOR[name] or TOOL_FOR[name] in self._reached

    def _can_make(self, item: str) -> bool:
        """Whether the raw things are held and the stations stand here; no station is made twice at a place."""
        recipe = self._recipes[item]
        if (self._place, item) in self._standing:
            return False
        stations = all((self._place, station) in self._standing for station in recipe.stations)
        return stations and all(self._held[name] >= count for name, count in recipe.needs)

    def _count_wanted(self) -> Counter[str]:
        """Return the raw things that the rest of the way takes and that are not held."""
        left = [item for item in self._land.steps if item not in self._reached]
        goals = [goal for goal in self._land.goals if goal not in self._reached]
        return count_needed(left, goals, self._recipes) - self._held

    def _expert_words(self) -> str:
        """Return the expert's action."""
        if self._hunger and self._food <= HUNGRY:
            return "eat" if self._lying[self._place][BERRIES] else self._way_to([BERRIES])
        left = [item for item in self._land.steps if item not in self._reached]
        if not left or self.is_lost:
            return "wait"
        item = next((item for item in left if item in self._recipes), left[0])
        recipe = self._recipes.get(item, Recipe(((item, 1),)))
        # A raw thing before the next recipe is one that the recipe takes, or the goal itself.
        if left[0] != item and left[0] not in dict(recipe.needs):
            recipe = Recipe(((left[0], 1),))
        missing = Counter(dict(recipe.needs)) - self._held
        here = self._lying[self._place]
        useful = missing if self._capacity else self._count_wanted()
        for name in useful:
            if here[name] and self._can_gather(name):
                return self._with_room(f"gather {name}", recipe)
        if missing:
            return self._way_to(missing)
        return f"make {item}" if self._can_make(item) else self._to_stations(item, recipe)

    def _with_room(self, words: str, recipe: Recipe) -> str:
        """Return `words`, or what to drop first when nothing more can be carried."""
        if not self._capacity or self._held.total() < self._capacity:
            return words
        excess = self._held - Counter(dict(recipe.needs))
        return f"drop {next(name for name in TOOL_FOR if excess[name])}"

    def _way_to(self, names: Mapping[str, int] | list[str]) -> str:
        """Return the way to a place where one of `names` is known to lie, else to one not seen yet."""
        for place, things in self._lying.items():
            if place in self._seen and place != self._place and any(things[name] for name in names):
                return f"go {place}"
        return next((f"go {place}" for place in self._lying if place not in self._seen), "wait")

    def _to_stations(self, item: str, recipe: Recipe) -> str:
        """Return the way to where the stations of `recipe` stand."""
        for place in self._lying:
            stands = all((place, station) in self._standing for station in recipe.stations)
            if stands and (place, item) not in self._standing:
                return f"go {place}"
        return "wait"

    def _view(self) -> str:
        """Return what is here, what is held, and noise."""
        stations = "".join(f", {name}" for name in STATIONS if (self._place, name) in self._standing)
        made = [item for item in RECIPES if item in self._reached and item not in STATIONS]
        held = ", ".join([*([_list_things(self._held)] if +self._held else []), *made]) or "nothing"
        food = f"; food {self._food}" if self._hunger else ""
        noise = chatter(self._noise, self._seed, self._turn)
        return f"{self._place}: {_list_things(self._lying[self._place])}{stations}; have {held}{food}{noise}"


def _list_things(things: Mapping[str, int]) -> str:
    """Return raw things in words: ``2 wood, 1 stone``."""
    names = [
        name if name == BERRIES else f"{things[name]} {name}"
        for name in (*TOOL_FOR, BERRIES)
        if things.get(name)
    ]
    return ", ".join(names) or "empty"
