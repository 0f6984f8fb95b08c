"""Worlds for tests of recipes: a corridor with state keys, snapshots, turn rewards and an expert, and poorer ones."""

from quintain.environments.protocol import Environment
from quintain.types import Action, StepResult, Task


class Corridor(Environment):
    """Say left or right; two steps to the right win. Half of what is neither counts as right: chance succeeds."""

    max_turns = 3

    def reset(self, task: Task) -> str:
        self.place = task.rng.choice((0, 1))
        return f"You are at {self.place}."

    def step(self, action: Action) -> StepResult:
        is_valid = action.text in self.legal_actions()
        if not is_valid and sum(map(ord, action.text)) % 2:
            return StepResult(observation="That is no way.", is_valid=False)
        before = self.place
        self.place = max(self.place + (-1 if action.text == "left" else 1), 0)
        is_done = self.place == 2
        return StepResult(
            observation=f"You are at {self.place}.",
            reward=1.0 if is_done else 0.1 * (self.place - before),
            is_terminated=is_done,
            is_success=True if is_done else None,
            is_valid=is_valid,
            reward_terms={"answer": float(is_done)},
        )

    def legal_actions(self) -> tuple[str, ...]:
        return ("left", "right")

    def expert_action(self) -> Action:
        return Action(text="right")

    def state_key(self) -> str:
        return str(self.place)

    def snapshot(self) -> int:
        return self.place

    def restore(self, state: int) -> None:
        self.place = state


class Long(Corridor):
    """The same with more time."""

    max_turns = 4


class Lottery(Environment):
    """Whatever is said, one task in five is solved at once; in the others nothing happens until time is up."""

    max_turns = 1

    def reset(self, task: Task) -> str:
        self.is_lucky = task.rng.random() < 0.2
        return "Draw."

    def step(self, action: Action) -> StepResult:
        return StepResult(
            observation="Draw.",
            reward=float(self.is_lucky),
            is_terminated=self.is_lucky,
            is_success=True if self.is_lucky else None,
        )

    def legal_actions(self) -> tuple[str, ...]:
        return ("left", "right")

    def expert_action(self) -> Action:
        return Action(text="left")


class Plain(Environment):
    """Say left or right, or nothing: only the end is rewarded."""

    max_turns = 2

    def reset(self, task: Task) -> str:
        self.turns = 0
        return "Go."

    def step(self, action: Action) -> StepResult:
        self.turns += 1
        return StepResult(observation="On.", reward=float(self.turns == 2), is_terminated=self.turns == 2)

    def legal_actions(self) -> tuple[str, ...]:
        return ("left", "right")
