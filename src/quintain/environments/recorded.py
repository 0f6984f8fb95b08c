"""A recorded expert: what was done on some tasks is what `expert_action` of their environment says.

``WithRecordedExpert(find("craft"), Recordings({"craft/train/3": actions}))`` builds the environment with all that it
can do, and with an expert who repeats `actions` on the task of that id. Where somebody left the recorded way, the
expert goes on with what was done in that state, where the environment can tell (`StateKey`), else with the first
action that is not done yet, which is no advice: whoever asks there looks at what comes of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, cast

from quintain.environments.protocol import Environment, Factory, Snapshot, StateKey
from quintain.errors import EnvironmentFault
from quintain.types import Action, Message, Observation, StepResult, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAction(Action):
    """An action with the whole answer that it was read from: ``RecordedAction(text="left", message=message)``."""

    message: Message | None = None
    """Of the assistant; None where nothing stood beside the action."""


class Recordings:
    """What was done, by the id of the task: ``Recordings({"craft/train/3": (Action(text="get wood"),)})``."""

    def __init__(self, actions: Mapping[str, Sequence[Action]]) -> None:
        self.actions = {task: tuple(own) for task, own in actions.items()}
        self.states: dict[str, dict[str, int]] = {}
        """task → state key → number of the action that was done in it, the last one where there are several"""

    def change(self, task: str, actions: Sequence[Action]) -> None:
        """Let `actions` be what was done on `task`."""
        self.actions[task] = tuple(actions)
        self.states.pop(task, None)


class RecordedExpert(Environment):
    """An environment whose expert is recorded; it stands before the class of the environment."""

    is_variant: ClassVar[bool] = True
    recordings: Recordings
    _recorded_task: str = ""
    _num_followed: int = 0
    """recorded actions that were done, in their order"""
    _has_left: bool = False
    """whether something else was done"""

    def reset(self, task: Task) -> Observation:
        """Begin `task`, and its recording."""
        self._recorded_task, self._num_followed, self._has_left = task.id, 0, False
        return super().reset(task)

    def step(self, action: Action) -> StepResult:
        """Carry out `action`, and note whether it is the recorded one."""
        place, known = self._place(), self._actions()
        if not self._has_left and isinstance(self, StateKey):
            self.recordings.states.setdefault(self._recorded_task, {})[self.state_key()] = place
        if place < len(known) and is_same(action, known[place]):
            self._num_followed = place + 1
        else:
            self._has_left = True
        return super().step(action)

    def expert_action(self) -> Action:
        """Return the next recorded action.

        Raises:
            EnvironmentFault: there is none.
        """
        actions, place = self._actions(), self._place()
        if place < len(actions):
            return actions[place]
        what = f"ends after {len(actions)} actions" if actions else "is not there"
        raise EnvironmentFault(
            f"the recorded episode of {self._recorded_task}: got a state in which it {what}; record more of it"
        )

    def script(self) -> Sequence[Action]:
        """Return all that the expert will do from here on; see `Scripted`."""
        return self._actions()[self._place() :]

    def _actions(self) -> tuple[Action, ...]:
        return self.recordings.actions.get(self._recorded_task, ())

    def _place(self) -> int:
        """Return the number of the next recorded action."""
        known = self.recordings.states.get(self._recorded_task, {})
        if self._has_left and known and isinstance(self, StateKey):
            return known.get(self.state_key(), self._num_followed)
        return self._num_followed


class RecordedExpertWithSnapshots(RecordedExpert):
    """The same of an environment that can be brought back."""

    is_variant: ClassVar[bool] = True

    def snapshot(self) -> tuple[Any, str, int, bool]:
        """Return the state of the environment, and how far the recording was followed."""
        saved = cast(Any, super()).snapshot()
        return saved, self._recorded_task, self._num_followed, self._has_left

    def restore(self, state: tuple[Any, str, int, bool]) -> None:
        """Continue from a snapshot."""
        saved, self._recorded_task, self._num_followed, self._has_left = state
        cast(Any, super()).restore(saved)


@dataclass(frozen=True, slots=True)
class WithRecordedExpert:
    """Builds environments whose expert is recorded: ``WithRecordedExpert(find("craft"), recordings)``."""

    make: Factory
    recordings: Recordings

    @property
    def spec(self) -> str:
        """The name of the environment."""
        return str(getattr(self.make, "spec", getattr(self.make, "__name__", "environment")))

    def __call__(self) -> Environment:
        """Build the environment, which then is of a class of its own: all else about it is as it was."""
        environment = self.make()
        environment.__class__ = with_recorded_expert(type(environment), isinstance(environment, Snapshot))
        cast(RecordedExpert, environment).recordings = self.recordings
        return environment


@cache
def with_recorded_expert(kind: type[Environment], has_snapshots: bool) -> type[Environment]:
    """Return the class of environments of `kind` whose expert is recorded."""
    mixin = RecordedExpertWithSnapshots if has_snapshots else RecordedExpert
    fields = {"is_variant": True, "__module__": kind.__module__, "__doc__": kind.__doc__}
    return type(kind.__name__, (mixin, kind), fields)


def is_same(one: Action, other: Action) -> bool:
    """Whether two actions do the same: the same calls, or without any the same text."""
    if one.tool_calls or other.tool_calls:
        return one.tool_calls == other.tool_calls
    return one.text.strip() == other.text.strip() and (one.error is None) == (other.error is None)
