"""Rooms in a row, locked doors between them: fetch the key, open the door, reach the flag.

Families it stands for: MiniGrid's DoorKey and other sparse-reward chains of subgoals. Only the room the agent is in
can be seen; the hand holds one thing; a key stays in the lock it opened. With `irreversible` nothing can be put down,
so a wrong take is a dead end. An action without effect says "Nothing happens."
"""

from typing import ClassVar

from quintain.environments.protocol import Environment
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task
from quintain.worlds.keydoor.map import COLORS, MOVES, Item, Map, Place, first_move, generate

ACTIONS = ("north", "south", "east", "west", "take", "drop", "open", "wait")
State = tuple[Map, Place, Item | None, tuple[tuple[Place, Item], ...], int, frozenset[str]]


class KeyDoor(Environment):
    """Reach the flag. A key opens a door of its color.

    Act: north, south, east, west, take, drop, open or wait.
    """

    name = "keydoor"
    tags: ClassVar[frozenset[str]] = frozenset({"planning"})

    def __init__(
        self,
        *,
        rooms: int = 2,
        length: int = 4,
        height: int = 0,
        distractors: int = 1,
        irreversible: bool = False,
        dense: bool = False,
    ) -> None:
        """Lay out `rooms` rooms of `length` by `height` cells (0: square; 1: a corridor).

        `distractors` things that open nothing lie about. With `dense`, half of the reward is paid for
        keys and doors on the way. The turn limit is half as much again as the longest way of the expert.

        Raises:
            UsageError: the options leave no room for the things, or there are more doors than colors.
        """
        height = height or length
        cells = length * height
        if not 1 <= rooms <= len(COLORS) or length < 1 or height < 1 or distractors < 0:
            raise UsageError(
                f"keydoor: got rooms={rooms}, length={length}, height={height}, distractors={distractors}; "
                f"give 1 to {len(COLORS)} rooms, sizes of at least 1 and no fewer than 0 distractors"
            )
        if cells - 2 < rooms - 1 + distractors:
            raise UsageError(
                f"keydoor: got rooms of {cells} cells for {rooms - 1} keys and {distractors} distractors; "
                "make them larger"
            )
        self._shape = (rooms, length, height)
        self._num_distractors = distractors
        self._irreversible = irreversible
        self._dense = dense
        fetches = sum(2 * (door * (length + 1) + height) + 2 for door in range(1, rooms))
        self.max_turns = (fetches + length + height + 1) * 3 // 2
        self._map = Map(1, length, height, (), (0, 0))
        self._place: Place = (0, 0)
        self._held: Item | None = None
        self._items: dict[Place, Item] = {}
        self._num_open = 0
        self._paid: frozenset[str] = frozenset()

    def reset(self, task: Task) -> str:
        """Lay out the world of the task."""
        self._map, self._place, self._items = generate(self._shape, self._num_distractors, task.rng)
        self._held, self._num_open, self._paid = None, 0, frozenset()
        return f"Reach the flag.\n{self._view()}"

    def step(self, action: Action) -> StepResult:
        """Carry out one of the verbs; one without effect leaves the world as it was."""
        word = action.text.strip().lower()
        if action.error is not None or word not in self.legal_actions():
            said = f"Error: {action.error}" if action.error is not None else "Nothing happens."
            return StepResult(observation=f"{said} {self._view()}", is_success=False, is_valid=False)
        if word in MOVES:
            self._place = self._beyond(word)
        elif word == "take":
            self._held, taken = self._items.pop(self._place), self._held
            assert taken is None
        elif word == "drop":
            assert self._held is not None
            self._items[self._place], self._held = self._held, None
        elif word == "open":
            self._held = None
            self._num_open += 1
        is_solved = self._place == self._map.flag
        terms = self._terms(is_solved)
        return StepResult(
            observation="You reach the flag." if is_solved else self._view(),
            reward=sum(terms.values()),
            is_terminated=is_solved,
            is_success=is_solved,
            reward_terms=terms,
        )

    def legal_actions(self) -> tuple[str, ...]:
        """Return the verbs that have an effect here, and `wait`."""
        legal = [word for word in MOVES if self._map.is_floor(self._beyond(word), self._num_open)]
        if self._held is None and self._place in self._items:
            legal.append("take")
        if self._held is not None and self._place not in self._items and not self._irreversible:
            legal.append("drop")
        if self._can_open():
            legal.append("open")
        return (*legal, "wait")

    def expert_action(self) -> Action:
        """Return the next step to the next subgoal, each reached by the shortest way.

        From the start of a world of two rooms no way is shorter; with more doors than one, or after a detour,
        one may be. `wait` where the flag cannot be reached any more.
        """
        return Action(text=self._next_word() or "wait")

    def things(self) -> tuple[str, ...]:
        """Return what is seen here, and what is held; see `FindsWay`."""
        names = [" ".join(item) for place, item in self._items.items() if self._map.sees(self._place, place)]
        names += [f"{self._map.doors[number][1]} door" for number in self._doors_seen()]
        names += ["flag"] if self._map.sees(self._place, self._map.flag) else []
        names += [" ".join(self._held)] if self._held is not None else []
        return tuple(sorted(set(names)))

    def follow(self, thing: str) -> Action | None:
        """Return the next step to `thing`, which is taken or opened there; see `FindsWay`.

        What is held is put down for another thing. An open door is walked into: from there both rooms are seen.
        """
        word = self._word_to(thing)
        return Action(text=word) if word in self.legal_actions() else None

    def expert_thing(self) -> str:
        """Return the key of the next door, that door, or the flag; or the door that leads to where it is."""
        world, num_open = self._map, self._num_open
        if num_open == len(world.doors):
            name, place = "flag", world.flag
        else:
            color = world.doors[num_open][1]
            has_key = self._held == (color, "key")
            name = f"{color} door" if has_key else f"{color} key"
            lying = [place for place, item in self._items.items() if item == (color, "key")]
            place = world.door(num_open) if has_key or not lying else lying[0]
        if name in self.things():
            return name
        room, there = world.room(self._place[0]), world.room(place[0])
        return f"{world.doors[room if there > room else room - 1][1]} door"

    def _doors_seen(self) -> set[int]:
        """Return the doors of the room the agent is in, or of both where it stands between two."""
        x, y = self._place
        beyond = self._map.near_doors((x + 1, y)) if self._map.is_wall_column(x) else ()
        return {*self._map.near_doors(self._place), *beyond}

    def _word_to(self, thing: str) -> str | None:
        """Return the verb that comes next on the way to `thing`; None where there is none."""
        world = self._map
        if thing not in self.things():
            return None
        if thing == "flag":
            return first_move(world, self._num_open, self._place, [world.flag])
        color, _, kind = thing.partition(" ")
        if kind == "door":
            number = next(n for n in self._doors_seen() if world.doors[n][1] == color)
            x, y = world.door(number)
            if number < self._num_open:
                return first_move(world, self._num_open, self._place, [(x, y)])
            return self._open(number)
        return None if self._held == (color, kind) else self._fetch((color, kind))

    def snapshot(self) -> State:
        """Return the world as it is."""
        return (
            self._map,
            self._place,
            self._held,
            tuple(sorted(self._items.items())),
            self._num_open,
            self._paid,
        )

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._map, self._place, self._held, items, self._num_open, self._paid = state
        self._items = dict(items)

    def state_key(self) -> str:
        """Return the state, written out."""
        return repr(
            (self._place, self._held, sorted(self._items.items()), self._num_open, sorted(self._paid))
        )

    def _terms(self, is_solved: bool) -> dict[str, float]:
        """Return the parts of this turn's reward; a subgoal is paid for once."""
        num_doors = len(self._map.doors)
        part = 0.25 / num_doors if self._dense and num_doors else 0.0
        terms: dict[str, float] = {}
        if part:
            reached = {f"door {number}": "door" for number in range(self._num_open)}
            if self._held in [(color, "key") for _, color in self._map.doors]:
                reached[f"key {self._held}"] = "key"
            for subgoal in reached.keys() - self._paid:
                terms[reached[subgoal]] = terms.get(reached[subgoal], 0.0) + part
            self._paid |= reached.keys()
        if is_solved:
            terms["flag"] = 1.0 - 2 * part * num_doors
        return terms

    def _can_open(self) -> bool:
        """Whether the agent is beside the next door with its key in hand."""
        if self._num_open == len(self._map.doors):
            return False
        (x, y), (_, color) = self._map.door(self._num_open), self._map.doors[self._num_open]
        return self._held == (color, "key") and self._place == (x - 1, y)

    def _next_word(self) -> str | None:
        """Return the expert's verb."""
        world, num_open = self._map, self._num_open
        if num_open == len(world.doors) or world.room(self._place[0]) > num_open:
            return first_move(world, num_open, self._place, [world.flag])
        key = (world.doors[num_open][1], "key")
        if self._held == key:
            return self._open(num_open)
        return None if self._held is not None and self._irreversible else self._fetch(key)

    def _open(self, number: int) -> str | None:
        """Return the verb that comes next on the way to door `number`, which is opened from its left."""
        x, y = self._map.door(number)
        return first_move(self._map, self._num_open, self._place, [(x - 1, y)]) or "open"

    def _fetch(self, item: Item) -> str | None:
        """Return the verb that comes next until `item` is held; whatever else is held is put down first."""
        if self._held is not None:
            places, verb = [place for place in self._floor() if place not in self._items], "drop"
        else:
            places, verb = [place for place, lying in self._items.items() if lying == item], "take"
        return first_move(self._map, self._num_open, self._place, places) or verb

    def _floor(self) -> list[Place]:
        """Return the cells the agent can stand on, whether it can get there or not."""
        rooms, length, height = self._shape
        cells = [(x, y) for x in range(rooms * (length + 1) - 1) for y in range(height)]
        return [cell for cell in cells if self._map.is_floor(cell, self._num_open)]

    def _beyond(self, word: str) -> Place:
        """Return the cell that the move `word` leads to."""
        dx, dy = MOVES[word]
        return self._place[0] + dx, self._place[1] + dy

    def _view(self) -> str:
        """Return what is seen, nearest first, and what is held."""
        world = self._map
        things = [(place, f"{color} {kind}") for (place, (color, kind)) in self._items.items()]
        seen = [
            (place, words)
            for place, words in [*things, (world.flag, "flag")]
            if world.sees(self._place, place)
        ]
        for number in world.near_doors(self._place):
            state = "open" if number < self._num_open else "locked"
            seen.append((world.door(number), f"{state} {world.doors[number][1]} door"))
        x, y = self._place
        seen.sort(key=lambda pair: (abs(pair[0][0] - x) + abs(pair[0][1] - y), pair))
        parts = [_describe(words, place[0] - x, place[1] - y) for place, words in seen]
        held = f"holding {' '.join(self._held)}" if self._held else "holding nothing"
        return ", ".join([*parts, held])


def _describe(words: str, east: int, south: int) -> str:
    """Return `words` with how far to the south and east they are: ``red key 2 north 1 east``."""
    if not (east or south):
        return f"{words} here"
    vertical = f" {abs(south)} {'south' if south > 0 else 'north'}" if south else ""
    return f"{words}{vertical}" + (f" {abs(east)} {'east' if east > 0 else 'west'}" if east else "")
