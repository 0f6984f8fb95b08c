"""What the environment's expert would have done in the states of recorded episodes.

The episodes are carried out again, so the expert is asked in exactly those states. The one rule: where it gives
up, there is no answer, which is not the same as a wrong one.
"""

from collections.abc import Callable, Sequence
from functools import partial

from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, Expert
from quintain.errors import EnvironmentFault
from quintain.rewards.terms import Measure
from quintain.rollout.replay import replayed
from quintain.rollout.stepper import Stepper
from quintain.rollout.views import Looks
from quintain.types import Action, Failure, ToolCall, Trajectory

TIMEOUT = 60.0
"""Seconds that carrying out an episode may take."""


class Gold:
    """The expert's actions: ``Gold("guess").actions(trajectory)`` has one for each turn, None where it gave up."""

    def __init__(self, environment: str) -> None:
        self.make_environment = find(environment)
        self._stepper = Stepper(timeout=TIMEOUT)
        self._looks = Looks(has_state_keys=False)
        self._environment: Environment | None = None

    def actions(self, trajectory: Trajectory) -> list[Action | None]:
        """Return what the expert would have done before each turn of `trajectory`."""
        if self._environment is None:
            self._environment = self.make_environment()
        (found,) = self._stepper.run([partial(expert_actions, self._looks, self._environment, trajectory)])
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


def expert_actions(looks: Looks, environment: Environment, trajectory: Trajectory) -> list[Action | None]:
    """Return the expert's action before each turn of `trajectory`, which is carried out in `environment`.

    Rewards may be others than the environment's, since methods replace them.

    Raises:
        EnvironmentFault: the environment shows something else than was recorded.
    """
    return [asked(environment) for _ in replayed(looks, environment, trajectory, checks_rewards=False)]


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
