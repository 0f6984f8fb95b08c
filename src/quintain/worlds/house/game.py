"""Chores in a house: find a thing, clean, heat or cool it, bring it where it belongs, or look at it under a lamp.

Families it stands for: ALFWorld and other household tasks in text. Verbs take minutes of different length, so that
actions are macro-actions. An action without effect says "Nothing happens." and takes no time.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal

from quintain.environments.noisy import chatter
from quintain.environments.protocol import Environment
from quintain.environments.splitting import split_draw
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task
from quintain.worlds.house.plan import (
    CLOSABLE,
    LAMP,
    MAX_RULES,
    PREPARATIONS,
    ROOMS,
    THINGS,
    TREATMENTS,
    Chore,
    HousePlan,
    Kind,
    draw_house,
    draw_rules,
)
from quintain.worlds.house.scene import Scene, expert_words, num_placed, progress, wrong_with

MINUTES = {"walk": 4, "go": 2, "clean": 3, "heat": 5, "cool": 5}
"""Minutes that a verb takes; the others take 1."""
State = tuple[HousePlan, Scene, int]


def minutes(action: Action) -> int:
    """Return how many minutes `action` takes in a house: the duration of a macro-action."""
    return MINUTES.get(action.text.strip().partition(" ")[0].lower(), 1)


LEADING = ("go to ", "walk to ", "take ", "")
"""How actions begin that lead to a thing; what is left are those without one."""


class House(Environment):
    """Bring the thing, in its condition, to the place.

    Act: go to PLACE, walk to ROOM, take THING, open, close, put, clean, heat, cool, light or look.
    """

    name = "house"
    tags: ClassVar[frozenset[str]] = frozenset({"planning", "memory"})

    def __init__(
        self,
        *,
        rooms: int = 1,
        things: int = 5,
        kind: Literal["any", "put", "clean", "heat", "cool", "two", "look"] = "any",
        irreversible: bool = False,
        errors: Literal["silent", "typed"] = "silent",
        reward: Literal["sparse", "dense"] = "sparse",
        deadline: int = 0,
        noise: int = 0,
        rules: int = 0,
        rule_set: int = 0,
    ) -> None:
        """Furnish `rooms` rooms with `things` things beside those of the chore, which is of `kind`.

        With `irreversible`, what was put down stays there and a temperature is for good, so that a wrong step is
        a dead end. With `errors=typed` an action without effect says why. `reward=dense` pays the change of
        `progress`. A `deadline` of so many minutes ends the
        episode (0: none). `noise` sentences that mean nothing follow every observation.

        `rules` verbs have no effect before another one, a preparation, was done in the episode, and nothing says which:
        the interface does not fit. The same `rule_set` has the same ones in all tasks.

        Raises:
            UsageError: there is no such house.
        """
        is_outside = min(deadline, noise, rules, rule_set) < 0 or rules > MAX_RULES
        if not 1 <= rooms <= len(ROOMS) or not 0 <= things < len(THINGS) or is_outside:
            raise UsageError(
                f"house: got rooms={rooms}, things={things}, deadline={deadline}, noise={noise}, rules={rules}, "
                f"rule_set={rule_set}; give 1 to {len(ROOMS)} rooms, 0 to {len(THINGS) - 1} things, {MAX_RULES} rules "
                "at most and no negative number"
            )
        self._rules = draw_rules(rules, rule_set)
        self._shape: tuple[int, int, Kind | Literal["any"]] = (rooms, things, kind)
        self._is_irreversible, self._says_why = irreversible, errors == "typed"
        self._is_dense = reward == "dense"
        self._deadline, self._noise = deadline, noise
        num_places = sum(len(places) for places in list(ROOMS.values())[:rooms])
        self.max_turns = (2 * num_places + 2 * rooms + 12 + rules) * 3 // 2
        self._house = HousePlan(
            chore=Chore(kind="put", name="mug", target="table"), rooms=("kitchen",), contents=()
        )
        self._scene = Scene(room="kitchen", contents={})
        self._seed = 0

    def instructions(self) -> str:
        """Return the verbs; in a house with rules the preparations are among them."""
        more = f" Besides: {', '.join(PREPARATIONS)}." if self._rules else ""
        return f"{super().instructions()}{more}"

    def reset(self, task: Task) -> str:
        """Furnish the house of the task."""
        self._house = split_draw(task, lambda rng: draw_house(*self._shape, rng))
        self._seed = task.seed
        rooms = self._house.rooms
        self._scene = Scene(room=rooms[0], contents=dict(self._house.contents))
        told = f" Rooms: {', '.join(rooms)}." if len(rooms) > 1 else ""
        return f"{self._house.chore.words()}{told} {self._view()}"

    def step(self, action: Action) -> StepResult:
        """Carry out one action; one without effect leaves the house as it was."""
        words = " ".join(action.text.lower().split())
        scene = replace(self._scene, turn=self._scene.turn + 1)
        after = None if action.error is not None else self._result_of(words)
        if after is None:
            self._scene = scene
            lacked = self._find_lacked(words)
            why = f"First {lacked}" if lacked else wrong_with(words, self._house, scene)
            said = f"{why}." if self._says_why else "Nothing happens."
            said = said if action.error is None else f"Error: {action.error}"
            return StepResult(observation=f"{said} {self._view()}", is_success=False, is_valid=False)
        before, self._scene = (
            self._scene,
            replace(after, turn=scene.turn, minutes=scene.minutes + minutes(action)),
        )
        is_done = self.is_done
        is_late = not is_done and 0 < self._deadline <= self._scene.minutes
        chore = self._house.chore
        gain = progress(chore, self._scene) - progress(chore, before) if self._is_dense else float(is_done)
        return StepResult(
            observation="Done." if is_done else "Too late." if is_late else self._view(),
            reward=gain,
            is_terminated=is_done or is_late,
            is_success=is_done,
        )

    @property
    def is_done(self) -> bool:
        """Whether the chore is done."""
        return num_placed(self._house.chore, self._scene) == self._house.chore.count

    def progress(self) -> float:
        """Return the share of subgoals that hold now, from 0 to 1."""
        return progress(self._house.chore, self._scene)

    def legal_actions(self) -> tuple[str, ...]:
        """Return the actions that have an effect here, and `look`."""
        scene, house = self._scene, self._house
        legal = [f"go to {place}" for place in house.places(scene.room) if place != scene.place]
        legal += [f"walk to {room}" for room in house.rooms if room != scene.room]
        place, held = scene.place, scene.held
        if place in CLOSABLE:
            legal.append("close" if place in scene.opened else "open")
        if held is None:
            names = {thing.name for thing in scene.within_reach if not thing.is_fixed}
            legal += [f"take {name}" for name in sorted(names)]
        else:
            if place not in ("", LAMP) and not scene.is_closed(place):
                legal.append("put")
            legal += [verb for verb in TREATMENTS if self._can_treat(verb)]
        if place == LAMP:
            legal.append("light")
        if self._rules:
            legal = [words for words in legal if not self._find_lacked(words)]
            legal += [verb for verb in PREPARATIONS if verb not in scene.prepared]
        return (*legal, "look")

    def expert_action(self) -> Action:
        """Return the next action of one who searches place after place; `look` in a dead end."""
        words = expert_words(self._house, self._scene, is_irreversible=self._is_irreversible)
        return Action(text=self._find_lacked(words) or words)

    def idle_action(self) -> Action:
        """Return the action that only looks; see `noisy.Idle`."""
        return Action(text="look")

    def things(self) -> tuple[str, ...]:
        """Return the rooms, the places and things here, and what can be done with what is held; see `FindsWay`."""
        names = {words.removeprefix(verb) for words in self.legal_actions() for verb in LEADING}
        here = (self._scene.place,) if self._scene.place else ()
        return tuple(sorted((names | set(here)) - {"open", "close", "look"}))

    def follow(self, thing: str) -> Action | None:
        """Return the next action that goes to, opens or takes `thing`, or does what it says; see `FindsWay`."""
        wanted = [f"{verb}{thing}" for verb in LEADING]
        wanted += ["open"] if thing == self._scene.place else []
        legal = self.legal_actions()
        return next((Action(text=words) for words in wanted if words in legal and words != "close"), None)

    def expert_thing(self) -> str:
        """Return what the expert goes to, opens, takes or does next; see `FindsWay`."""
        words = self.expert_action().text
        if words == "open":
            return self._scene.place
        return next((words.removeprefix(verb) for verb in LEADING if verb and words.startswith(verb)), words)

    def snapshot(self) -> State:
        """Return the house as it is."""
        return self._house, self._scene, self._seed

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._house, self._scene, self._seed = state

    def state_key(self) -> str:
        """Return where everything is; what the agent has seen, and when, is no part of it."""
        scene = self._scene
        lying = [
            (place, [tuple(thing) for thing in things]) for place, things in scene.contents.items() if things
        ]
        clock = scene.minutes if self._deadline else 0
        prepared = [sorted(scene.prepared)] if self._rules else []
        return repr((scene.room, scene.place, scene.held, lying, sorted(scene.opened), clock, *prepared))

    def _view(self) -> str:
        """Return what is seen, the time that is left, and noise."""
        scene = self._scene
        left = f"; {self._deadline - scene.minutes} minutes left" if self._deadline else ""
        return f"{scene.view(self._house)}{left}{chatter(self._noise, self._seed, scene.turn)}"

    def _find_lacked(self, words: str) -> str:
        """Return the preparation that the action `words` still needs; empty where it needs none."""
        needed = self._rules.get(words.partition(" ")[0], "")
        return "" if needed in self._scene.prepared else needed

    def _can_treat(self, verb: str) -> bool:
        """Whether what is held can be cleaned, heated or cooled here, to some effect."""
        scene, held = self._scene, self._scene.held
        place, names = TREATMENTS[verb]
        if held is None or scene.place != place or held.name not in names or held.after(verb) == held:
            return False
        return verb == "clean" or not (self._is_irreversible and held.temperature)

    def _result_of(self, words: str) -> Scene | None:
        """Return the scene after the action `words`, None if it is not legal."""
        if words not in self.legal_actions():
            return None
        scene = self._scene
        verb, _, rest = words.partition(" ")
        name = rest.removeprefix("to ")
        change: dict[str, Any] = {}
        if verb == "go":
            change = {"place": name}
        elif verb == "walk":
            change = {"room": name, "place": ""}
        elif verb in ("open", "close"):
            change = {"opened": scene.opened ^ {scene.place}}
        elif verb in ("take", "put"):
            change = self._move(verb, name)
        elif verb in TREATMENTS and scene.held is not None:
            change = {"held": scene.held.after(verb)}
        elif verb in PREPARATIONS:
            change = {"prepared": scene.prepared | {verb}}
        elif verb == "light":
            is_right = scene.held is not None and scene.held.name == self._house.chore.name
            change = {"is_lit": is_right and self._house.chore.kind == "look"}
        after = replace(scene, **change)
        if after.place in after.contents and not after.is_closed(after.place):
            after = replace(after, seen=after.seen | {after.place})
        return after

    def _move(self, verb: str, name: str) -> dict[str, Any]:
        """Return what changes when the thing `name` is taken from the place, or put there."""
        scene = self._scene
        lying = list(scene.contents[scene.place])
        if verb == "take":
            held = next(thing for thing in lying if thing.name == name and not thing.is_fixed)
            lying.remove(held)
        else:
            assert scene.held is not None
            lying.append(scene.held._replace(is_fixed=self._is_irreversible))
            held = None
        return {"held": held, "contents": {**scene.contents, scene.place: tuple(sorted(lying))}}
