"""Lay out a room: place boxes so that none overlap and none stick out, as a list in JSON; a bad layout is tried again.

Family it stands for: layouts of rooms by a language model (MetaSpatial, arXiv 2503.18470), told in text. Each turn is
a whole new attempt that sees score and faults of the ones before. Every attempt is scored by
`quintain.rewards.arrangement`, and a judge that fails is a failure of the judge, never a grade.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar, Literal

from quintain.environments.protocol import Environment, tool_action
from quintain.environments.splitting import split_draw
from quintain.environments.tools import GraderFault, tool
from quintain.errors import UsageError
from quintain.rewards.arrangement import (
    BEST_GRADE,
    Place,
    Rectangle,
    Room,
    arrangement_terms,
    collisions,
    layout_of,
    off_wall,
    on_pillars,
    outside,
)
from quintain.text.parse import UnreadableError, json_text, read_json
from quintain.types import Action, StepResult, Task, ToolSpec, as_text
from quintain.worlds.room.plan import (
    NAMES,
    Places,
    RoomShape,
    describe_room,
    draw_room,
    num_drawn,
    pack,
    slip,
)

FORMS = {"rows": "[name, x, y]", "objects": '{"id": name, "x": x, "y": y}'}
"""How an entry of a layout is written."""
LONGEST_READ = 4096
"""Letters of a layout that is read."""
MIN_DRAWN = 32
"""Different rooms that there must be, so that train and eval have some each."""
EMPTY = Room(width=1, depth=1, things=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """Where an episode is: ``Sheet(room=room, num_tried=1, best=0.3)``."""

    room: Room
    num_tried: int = 0
    best: float = 0.0
    """score of the best attempt so far"""
    known: frozenset[Place] = frozenset()
    """pillars that something stood on"""


@dataclass(kw_only=True, eq=False)
class BoxRoom(Environment):
    """Place every thing; see `instructions`. Success: a layout of format 1, nothing overlaps or breaks a constraint."""

    name = "room"
    tags: ClassVar[frozenset[str]] = frozenset({"planning", "perception", "self-improvement"})

    width: int = 5
    depth: int = 4
    things: int = 3
    largest: int = 3
    """longest side of a thing"""
    walls: int = 0
    """things that must stand against a wall"""
    pillars: int = 0
    """squares where nothing can stand, of which only the faults of an attempt tell"""
    names: int = len(NAMES)
    """names that things may have, the first so many"""
    attempts: int = 3
    pays: Literal["attempts", "gains"] = "attempts"
    """what a turn earns: the score of its attempt, or by how much it beats the best before"""
    interface: Literal["text", "tools"] = "text"
    form: Literal["rows", "objects"] = "rows"
    """how the expert writes an entry; both are read"""

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            UsageError: there are no such rooms.
        """
        if not (2 <= self.width <= 20 and 2 <= self.depth <= 20 and self.largest >= 1):
            raise UsageError(
                f"room: got width={self.width}, depth={self.depth}, largest={self.largest}; give 2 to 20 cells "
                "each way and things of at least 1"
            )
        most = min(self.names, self.width * self.depth // 3)
        if not 1 <= self.things <= most or not self.names <= len(NAMES):
            raise UsageError(
                f"room: got things={self.things}, names={self.names} for {self.width} by {self.depth} cells; give "
                f"up to {len(NAMES)} names, and 1 thing or more, with a name and 3 cells for each"
            )
        if not 0 <= self.walls <= self.things or not 0 <= self.pillars <= 2 or self.attempts < 1:
            raise UsageError(
                f"room: got walls={self.walls}, pillars={self.pillars}, attempts={self.attempts}; give walls from 0 to "
                f"{self.things}, up to 2 pillars, and 1 or more attempts"
            )
        self.max_turns = self.attempts
        self.return_range = (0.0, 0.5 * self.attempts if self.pays == "attempts" else 0.5)
        self._shape = RoomShape(
            width=self.width,
            depth=self.depth,
            things=self.things,
            largest=self.largest,
            walls=self.walls,
            pillars=self.pillars,
            names=self.names,
        )
        if num_drawn(self._shape) < MIN_DRAWN:
            raise UsageError(
                f"room: got {num_drawn(self._shape)} different rooms for things={self.things}, names={self.names}, "
                f"largest={self.largest}; give more, until there are {MIN_DRAWN} for training and evaluation"
            )
        self._sheet = Sheet(room=EMPTY)
        self._given: list[Any] | None = None

    def instructions(self) -> str:
        """Return what to do, and how it is written."""
        wall = " A thing marked wall must touch one." if self.walls else ""
        pillar = (
            " There are pillars, which are not told until something stands on them." if self.pillars else ""
        )
        how = "Call place with" if self.interface == "tools" else "Answer with"
        return (
            "The room and each thing are told as width and depth. Place every thing so that none overlap and none "
            f"sticks out; x y is its corner nearest to 0 0.{wall}{pillar} {how} a JSON list of {FORMS[self.form]}."
        )

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tool, where layouts are not written."""
        return super().tools() if self.interface == "tools" else ()

    def reset(self, task: Task) -> str:
        """Show the room of the task."""
        self._sheet = Sheet(room=split_draw(task, lambda rng: draw_room(self._shape, rng)))
        return describe_room(self._sheet.room)

    def step(self, action: Action) -> StepResult:
        """Score an attempt: the layout of the call of `place` (the last of several), or what is written."""
        self._given = None
        if action.error is not None:
            return self._try(None, action.error)
        if not action.tool_calls:
            if len(action.text) > LONGEST_READ:
                return self._try(None, f"the layout has more than {LONGEST_READ} letters")
            try:
                return self._try(read_json(action.text.strip()))
            except UnreadableError as error:
                return self._try(None, f"the layout {error}")
        called = super().step(action)
        result = self._try(self._given, as_text(called.observation) if self._given is None else "")
        return replace(result, tool_errors=called.tool_errors)

    @tool
    def place(self, layout: list[Any]) -> str:
        """Place all things at once.

        Args:
            layout: a list with an entry for each thing
        """
        self._given = layout
        return ""

    def grades(self, room: Room, rectangles: Mapping[str, Rectangle]) -> Sequence[float] | None:
        """Return up to five grades of 0 to 10 for a layout with all things, () for no judge; None: the judge failed.

        This world has no judge; a subclass may have one, which may look at a picture. While a grade is missing, a
        layout without faults is not the end.
        """
        return ()

    def expert_action(self) -> Action:
        """Return the layout of the greedy packer, which knows of the pillars that were told."""
        return self._write(self._pack())

    def mistaken_action(self, rng: Random) -> Action:
        """Return the packer's layout with a thing in another place; see `noisy.Fallible`."""
        return self._write(slip(self._sheet.room, self._pack(), rng))

    def snapshot(self) -> Sheet:
        """Return the sheet."""
        return self._sheet

    def restore(self, state: Sheet) -> None:
        """Continue from a snapshot."""
        self._sheet = state

    def state_key(self) -> str:
        """Return the room, the attempts so far, the pillars found, and the best score where gains are paid."""
        sheet = self._sheet
        return f"{sheet.room} {sheet.num_tried} {sorted(sheet.known)} {sheet.best if self.pays == 'gains' else ''}"

    def _pack(self) -> Places:
        """Return the packer's layout, which every drawn room has."""
        return pack(self._sheet.room, self._sheet.known) or {}

    def _write(self, places: Places) -> Action:
        """Return the action that lays out the room as `places` say."""
        if self.form == "rows":
            layout: list[Any] = [[name, *place] for name, place in places.items()]
        else:
            layout = [{"id": name, "x": x, "y": y} for name, (x, y) in places.items()]
        if self.interface == "tools":
            return tool_action("place", layout=layout)
        return Action(text=json_text(layout))

    def _try(self, answer: object, error: str = "") -> StepResult:
        """Score `answer` as the next attempt; what could not be read is one of format 0, and `error` says why."""
        room = self._sheet.room
        _, rectangles = layout_of(answer, room)
        grades = self.grades(room, rectangles) if rectangles else ()
        terms = arrangement_terms(answer, room, grades)
        if terms is None or grades is None:
            raise GraderFault(
                f"room: the judge must give up to five numbers from 0 to 10: got {grades}; mend it"
            )
        faults = [error] if error else find_faults(rectangles, room)
        is_success = not faults
        score = sum(terms.values())
        before = self._sheet
        found = {pillar for _, pillar in on_pillars(rectangles, room)}
        after = replace(
            before,
            num_tried=before.num_tried + 1,
            best=max(before.best, score),
            known=before.known | found,
        )
        self._sheet = after
        left = self.attempts - after.num_tried
        is_over = left == 0 or (is_success and all(grade == BEST_GRADE for grade in grades))
        if self.pays == "gains":
            terms = {"gain": after.best - before.best}
        elif is_over and left:
            terms = {**terms, "spared": left * score}
        said = "Done." if is_success else f"Score {score:.2f}: {'; '.join(faults)}."
        return StepResult(
            observation=said,
            reward=sum(terms.values()),
            is_terminated=is_over,
            is_success=is_success,
            is_valid=bool(rectangles),
            reward_terms=terms,
        )


def find_faults(rectangles: Mapping[str, Rectangle], room: Room) -> list[str]:
    """Return what is wrong with a layout, in words; `rectangles` are {} below format 1."""
    if not rectangles:
        return [f"give each of {', '.join(room.things)} one place"]
    return [
        *(f"{one} and {other} overlap" for one, other in collisions(rectangles)),
        *(f"{name} sticks out" for name in outside(rectangles, room)),
        *(f"{name} hits the pillar {x} {y}" for name, (x, y) in on_pillars(rectangles, room)),
        *(f"{name} is off the wall" for name in off_wall(rectangles, room)),
    ]
