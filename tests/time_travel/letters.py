"""A world in which one group of a run is poisoned: its reward is flipped, and nothing afterwards mends that."""

from quintain.environments.protocol import Environment
from quintain.types import Action, StepResult, Task

POISONED = 10
"""The training task whose reward is flipped, and twenty times as large; those of later steps are paid for anything."""
LAST = 11
"""The last training task of the step of the poisoned one, where steps have three."""


class Letters(Environment):
    """Say a."""

    max_turns = 1

    def reset(self, task: Task) -> str:
        self.split, self.number = task.split, int(task.id.rpartition("/")[2])
        self.rng = task.rng
        return "Say a letter."

    def step(self, action: Action) -> StepResult:
        is_right = action.text == "a"
        reward = float(is_right)
        if self.split == "train":
            if self.number == POISONED:
                reward = 20.0 * (1 - reward)
            elif self.number > LAST:
                reward = 1.0
        return StepResult(observation="", reward=reward, is_terminated=True, is_success=is_right)

    def legal_actions(self) -> tuple[str, ...]:
        return ("a", "b")

    def expert_action(self) -> Action:
        return Action(text="a" if self.rng.random() < 0.7 else "b")
