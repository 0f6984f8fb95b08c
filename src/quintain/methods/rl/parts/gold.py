"""What the environment's expert would have done in the states of recorded episodes.

The episodes are carried out again, so the expert is asked in exactly those states. The one rule: where it gives
up, there is no answer, which is not the same as a wrong one.
"""

from collections.abc import Callable, Sequence
from functools import partial

from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, Expert, advance, begin
from quintain.errors import EnvironmentFault
from quintain.rewards.terms import Measure
from quintain.rollout.stepper import Stepper
from quintain.types import Action, Failure, ToolCall, Trajectory

TIMEOUT = 60.0
"""Seconds that carrying out an episode may take."""


class Gold:
    """The expert's actions: ``Gold("guess").actions(trajectory)`` has one for each turn, None where it gave up."""

    def __init__(self, environment: str) -> None:
        self.make_environment = find(environment)
        self._stepper = Stepper(timeout=TIMEOUT)
        self._environment: Environment | None = None

    def actions(self, trajectory: Trajectory) -> list[Action | None]:
        """Return what the expert would have done before each turn of `trajectory`."""
        if self._environment is None:
            self._environment = self.make_environment()
        (found,) = self._stepper.run([partial(replayed, self._environment, trajectory)])
        if isinstance(found, Failure):
            self._environment = None
            return [None] * len(trajectory.turns)
        return found

    def measure(self, score: Callable[[Action, Action], float]) -> Measure:
        """Return the measure of the mean `score`(action, the expert's) over the turns, each at its turn.

        A turn without an answer of the expert is a failure of the judge.
        """

        def measured(trajectory: Trajectory) -> Sequence[float]:
            num = max(len(trajectory.turns), 1)
            return [
                score(turn.action, gold) / num if gold is not None else float("nan")
                for turn, gold in zip(trajectory.turns, self.actions(trajectory), strict=True)
            ]

        return measured


def replayed(environment: Environment, trajectory: Trajectory) -> list[Action | None]:
    """Return the expert's action before each turn of `trajectory`, which is carried out in `environment`."""
    begin(environment, trajectory.task)
    found: list[Action | None] = []
    for turn in trajectory.turns:
        found.append(asked(environment))
        advance(environment, turn.action)
    return found


def asked(environment: Environment) -> Action | None:
    """Return the expert's action, None where it gives up."""
    assert isinstance(environment, Expert), "refused at start where there is no expert"
    try:
        return environment.expert_action()
    except EnvironmentFault:
        return None


def calls_of(action: Action) -> tuple[ToolCall, ...]:
    """Return the tool calls of `action`; its text as a call without arguments where there are none."""
    return action.tool_calls or ((ToolCall(name=action.text),) if action.text else ())
