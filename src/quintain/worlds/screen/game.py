"""A screen of labelled boxes: click at coordinates, open the menu, type into fields.

Families it stands for: GUI grounding and computer use (ScreenSpot, MiniWoB by coordinates, AndroidControl), with the
boxes described in text. Tools may be written as short commands, ``click 12 40`` and ``type oslo``, or with names of
boxes in the place of coordinates. Clicks can be paid by how near they come; one without effect says "Nothing happens."
and counts as a miss.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from quintain.environments.noisy import chatter
from quintain.environments.protocol import Environment, tool_action
from quintain.environments.splitting import split_draw
from quintain.environments.tools import tool
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task, ToolCall, ToolSpec
from quintain.worlds.screen.layout import (
    BUTTONS,
    CELL,
    FIELDS,
    MAX_SCALE,
    MENU,
    MIN_SCALE,
    OK,
    Box,
    Goal,
    Layout,
    LayoutShape,
    draw_layout,
    scale_layout,
)

COMMANDS_INSTRUCTION = "\n\nAct: click X Y, or type TEXT."
NAMES_INSTRUCTION = "\n\nAct: click NAME, or type TEXT."
CLICK = re.compile(r"\s*click\s+(-?\d{1,9})[\s,]+(-?\d{1,9})\s*", re.IGNORECASE)
TYPE = re.compile(r"\s*type\s+(\S.*?)\s*", re.IGNORECASE)
NAMED = re.compile(r"\s*click\s+([a-z]+)\s*", re.IGNORECASE)
NEAR = 0.5
"""What a click that just misses is worth of a click that hits."""
LONGEST_SHOWN = 40
"""Letters of a typed text that are shown."""
MIN_SIZE = (2 * CELL[0], 2 * CELL[1])
State = tuple[Layout, tuple[tuple[str, str], ...], str, bool, tuple[tuple[str, float], ...], tuple[int, ...]]


class Screen(Environment):
    """Do the task on the screen.

    A box is told by its label and its place. Click a field before you type into it.
    """

    name = "screen"
    tags: ClassVar[frozenset[str]] = frozenset({"perception", "tools"})

    def __init__(
        self,
        *,
        width: int = 100,
        height: int = 60,
        buttons: int = 3,
        fields: int = 2,
        items: int = 3,
        goal: Literal["any", "click", "menu", "type", "form"] = "any",
        scale: float = 1.0,
        places: Literal["center", "corners"] = "center",
        misses: int = 0,
        reward: Literal["sparse", "parts", "distance"] = "sparse",
        noise: int = 0,
        interface: Literal["tools", "text", "labels"] = "tools",
    ) -> None:
        """Show screens of `width` by `height` points with buttons, fields and a menu of `items` items.

        Screens are drawn so and then made `scale` times as large, boxes and all: the same tasks in another size.
        `places` tells of each box its center, or its corners with the edges in. The episode ends after `misses`
        clicks or texts in vain (0: never). `reward=parts` pays an equal share for each subgoal when it is first
        reached; `reward=distance` also pays a click that misses the next box to click, the more the nearer it
        comes. `noise` sentences that mean nothing follow every observation. `interface=text` takes the same actions
        as words instead of tools, ``click 12 40``, and `interface=labels` with the name of a box for its point,
        ``click save``.

        Raises:
            UsageError: there are no such screens.
        """
        if misses < 0 or noise < 0 or width < MIN_SIZE[0] or height < MIN_SIZE[1]:
            raise UsageError(
                f"screen: got misses={misses}, noise={noise}, width={width}, height={height}; give no negative "
                f"number and at least {MIN_SIZE[0]} by {MIN_SIZE[1]} points"
            )
        if not MIN_SCALE <= scale <= MAX_SCALE:
            raise UsageError(f"screen: got scale={scale}; give a number from {MIN_SCALE} to {MAX_SCALE:g}")
        self._shape = LayoutShape(width, height, buttons, fields, items, goal)
        self._shape.check()
        self._has_corners, self._misses, self._noise = places == "corners", misses, noise
        self._reward, self._scale, self._interface = reward, scale, interface
        self.max_turns = 3 * (2 * fields + 2)
        self._layout = Layout(goal=Goal(kind="click", target=""), width=1, height=1, boxes=(), items=())
        self._seed, self._turn, self._num_missed = 0, 0, 0
        self._start()

    def _start(self) -> None:
        """Begin with empty fields and a closed menu."""
        self._texts: Mapping[str, str] = {}
        self._focus, self._is_open = "", False
        self._best: Mapping[str, float] = {}
        self._turn, self._num_missed, self._was_vain = 0, 0, False

    def instructions(self) -> str:
        """Return what to do, and how it is written where there are no tools."""
        told = {"text": COMMANDS_INSTRUCTION, "labels": NAMES_INSTRUCTION}
        return super().instructions() + told.get(self._interface, "")

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools; none where actions are words."""
        return super().tools() if self._interface == "tools" else ()

    def reset(self, task: Task) -> str:
        """Show the screen of the task."""
        self._layout = scale_layout(split_draw(task, lambda rng: draw_layout(self._shape, rng)), self._scale)
        self._seed = task.seed
        self._start()
        size = f"{self._layout.width}x{self._layout.height}"
        return f"{self._layout.goal.words()} Screen {size}. {self._view()}"

    def step(self, action: Action) -> StepResult:
        """Take a click or a text as a tool call, or written out when no tool was called."""
        self._turn += 1
        self._was_vain = False
        result = super().step(read_command(self._place_pointer(action)))
        is_valid = result.is_valid and not self._was_vain
        if not result.is_terminated and 0 < self._misses <= self._num_missed:
            return replace(
                result, observation="Missed.", is_terminated=True, is_success=False, is_valid=is_valid
            )
        return replace(result, is_valid=is_valid, is_success=bool(result.is_success))

    @tool
    def click(self, x: int, y: int) -> str:
        """Click at a point.

        Args:
            x: points from the left
            y: points from the top
        """
        target = self._next_target()
        self._pay_nearness(target, x, y)
        box = next((box for box in self._visible() if box.contains(x, y)), None)
        label = box.label if box else ""
        if label not in self._find_needed():
            self._num_missed += 1
        if label == self._focus or (label in (*BUTTONS, OK) and label != self._layout.goal.target):
            box = None
        is_item = self._is_open and label in {item.label for item in self._layout.items}
        if box is None and not self._is_open:
            self._was_vain = True
            return f"Nothing happens. {self._view()}"
        self._is_open = label == MENU and not self._is_open
        self._focus = label if label in FIELDS else ""
        self._reach(label)
        return self._after_click(label, is_item=is_item)

    @tool
    def type(self, text: str) -> str:
        """Type a text into the field that was clicked; it replaces what was there.

        Args:
            text: the text
        """
        goal = self._layout.goal
        if not self._focus:
            self._num_missed += 1
            self._was_vain = True
            return f"Nothing happens. {self._view()}"
        self._texts = {**self._texts, self._focus: text}
        if dict(goal.texts).get(self._focus) != text:
            self._num_missed += 1
        self._reach(f"{self._focus}={text}")
        if goal.kind == "type" and self._is_filled():
            return self._finish("Done.", is_success=True)
        return self._view()

    def expert_action(self) -> Action:
        """Return a click into the middle of the next box, or the text for the field that has the focus."""
        wanted = self._find_wanted_text()
        if wanted is None and self._interface == "labels":
            return Action(text=f"click {self._next_target().label}")
        if wanted is not None:
            action = tool_action("type", text=wanted)
        else:
            x, y = self._next_target().center
            action = tool_action("click", x=x, y=y)
        return action if self._interface == "tools" else write_command(action)

    def expert_box(self) -> tuple[float, float, float, float] | None:
        """Return the box that the expert clicks next, with its edges; None where it types."""
        return None if self._find_wanted_text() is not None else self._next_target()[1:]

    def screen(self) -> str:
        """Return the boxes that are visible, without the task; see `Described`."""
        return self._view()

    def elements(self) -> Mapping[str, str]:
        """Return of each visible box by its label what a click on it is followed by: its middle, or the label."""
        is_named = self._interface == "labels"
        return {box.label: box.label if is_named else "{} {}".format(*box.center) for box in self._visible()}

    def snapshot(self) -> State:
        """Return the screen as it is."""
        counters = (self._seed, self._turn, self._num_missed)
        texts, best = tuple(self._texts.items()), tuple(self._best.items())
        return self._layout, texts, self._focus, self._is_open, best, counters

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._layout, texts, self._focus, self._is_open, best, counters = state
        self._texts, self._best = dict(texts), dict(best)
        self._seed, self._turn, self._num_missed = counters

    def state_key(self) -> str:
        """Return what is on the screen, what was paid for, and the misses where they count."""
        missed = self._num_missed if self._misses else 0
        paid = sorted(self._best.items()) if self._reward != "sparse" else []
        return repr((sorted(self._texts.items()), self._focus, self._is_open, paid, missed))

    def _place_pointer(self, action: Action) -> Action:
        """Return `action` with the middle of the visible box that it names, where boxes are clicked by name."""
        named = NAMED.fullmatch(action.text) if self._interface == "labels" else None
        box = next((b for b in self._visible() if named and b.label == named[1].lower()), None)
        return replace(action, text="click {} {}".format(*box.center)) if box else action

    def _after_click(self, label: str, *, is_item: bool) -> str:
        """Return what comes of a click on the box `label`."""
        goal = self._layout.goal
        if label == goal.target and (goal.kind == "click" or (goal.kind == "menu" and is_item)):
            return self._finish("Done.", is_success=True)
        if label == OK and goal.kind == "form":
            is_right = self._is_filled()
            return self._finish("Done." if is_right else "Wrong.", is_success=is_right)
        return self._view()

    def _finish(self, said: str, *, is_success: bool) -> str:
        """End the episode; a sparse reward is paid here."""
        if is_success and self._reward == "sparse":
            self.reward(1.0, goal=1.0)
        return self.finish(said, reward=0.0, success=is_success)

    def _visible(self) -> tuple[Box, ...]:
        """Return the boxes on the screen, those of the open menu included."""
        return (*self._layout.boxes, *(self._layout.items if self._is_open else ()))

    def _box(self, label: str) -> Box:
        """Return the box `label`, whether it is visible or not."""
        return next(box for box in (*self._layout.boxes, *self._layout.items) if box.label == label)

    def _find_wanted_text(self) -> str | None:
        """Return the text that the field with the focus still wants."""
        wanted = dict(self._layout.goal.texts).get(self._focus)
        return wanted if self._texts.get(self._focus) != wanted else None

    def _is_filled(self) -> bool:
        """Whether all texts are typed."""
        return all(self._texts.get(field) == text for field, text in self._layout.goal.texts)

    def _next_target(self) -> Box:
        """Return the box that the expert clicks next; while its text is to be typed, the field."""
        goal = self._layout.goal
        for field, text in goal.texts:
            if self._texts.get(field) != text:
                return self._box(field)
        return self._box(MENU if goal.kind == "menu" and not self._is_open else goal.target)

    def _find_needed(self) -> set[str]:
        """Return the boxes that it makes sense to click now."""
        goal = self._layout.goal
        open_fields = {field for field, text in goal.texts if self._texts.get(field) != text}
        return open_fields or {self._next_target().label}

    def _reach(self, part: str) -> None:
        """Pay what is left of the share of subgoal `part`, if it is one whose time has come."""
        goal = self._layout.goal
        is_early = part == OK and not self._is_filled()
        if part in goal.parts() and not is_early and self._reward != "sparse":
            self._pay(part, 1.0)

    def _pay_nearness(self, target: Box, x: int, y: int) -> None:
        """Pay a click that misses `target`, the more the nearer it came."""
        if (
            self._reward == "distance"
            and not target.contains(x, y)
            and target.label in self._layout.goal.parts()
        ):
            share = max(0.0, 1 - target.distance(x, y) / self._layout.diagonal)
            self._pay(target.label, NEAR * share)

    def _pay(self, part: str, worth: float) -> None:
        """Pay by how much `worth` exceeds what was paid for subgoal `part` before."""
        gain = worth - self._best.get(part, 0.0)
        if gain > 0:
            self._best = {**self._best, part: worth}
            value = gain / len(self._layout.goal.parts())
            self.reward(value, **{"text" if "=" in part else "click": value})

    def _view(self) -> str:
        """Return the boxes, what is typed and what has the focus, and noise."""
        parts = [self._describe(box) for box in self._visible()]
        focus = f"; focus {self._focus}" if self._focus else ""
        return f"{', '.join(parts)}{focus}{chatter(self._noise, self._seed, self._turn)}"

    def _describe(self, box: Box) -> str:
        """Return a box in words: ``city 12 40 = oslo``."""
        places = box[1:] if self._has_corners else box.center
        text = f" = {self._texts[box.label][:LONGEST_SHOWN]}" if self._texts.get(box.label) else ""
        return f"{box.label} {' '.join(map(str, places))}{text}"


def read_command(action: Action) -> Action:
    """Return `action` with the call that its words are, where it has none."""
    if action.error is not None or action.tool_calls:
        return action
    clicked, typed = CLICK.fullmatch(action.text), TYPE.fullmatch(action.text)
    calls = ()
    if clicked:
        calls = (ToolCall(name="click", arguments={"x": int(clicked[1]), "y": int(clicked[2])}),)
    elif typed:
        calls = (ToolCall(name="type", arguments={"text": typed[1]}),)
    return replace(action, tool_calls=calls)


def write_command(action: Action) -> Action:
    """Return the call of `action` in words."""
    (call,) = action.tool_calls
    return Action(text=" ".join((call.name, *map(str, call.arguments.values()))))
