"""The environment of a run that has none: data alone is learned from, and nothing is ever played."""

from quintain.environments.protocol import Environment
from quintain.types import Action, Observation, StepResult, Task

NO_ENVIRONMENT = f"{__name__}:Nothing"
"""Its spec; on the command line ``none`` stands for it."""
NONE = "none"


class Nothing(Environment):
    """Nothing is asked, and every answer ends the episode."""

    def instructions(self) -> str:
        """Return no instruction."""
        return ""

    def reset(self, task: Task) -> Observation:
        """Ask nothing."""
        return ""

    def step(self, action: Action) -> StepResult:
        """End, without a reward."""
        return StepResult(observation="", is_terminated=True)
