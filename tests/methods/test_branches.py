"""Methods that go on from turns of recorded episodes leave out and count what does not repeat: a page with a clock."""

from pathlib import Path
from typing import Any

import pytest
from tests.methods.test_training import rows, train

from quintain.environments.protocol import Environment
from quintain.types import Action, StepResult, Task

CLOCK, KEYED = f"{__file__}:Clock", f"{__file__}:Keyed"


class Clock(Environment):
    """Say up twice; anything else goes down, from where nothing leads back."""

    max_turns = 3
    now = 0

    def reset(self, task: Task) -> str:
        self.height, self.is_lost = 0, False
        return self._dated("Floor 0.")

    def step(self, action: Action) -> StepResult:
        self.is_lost |= action.text == "down"
        self.height += action.text == "up" and not self.is_lost
        done = self.height == 2
        return StepResult(
            observation=self._dated("Lost." if self.is_lost else "Well."),
            reward=float(done),
            is_terminated=done,
            is_success=done,
            is_valid=action.text in self.legal_actions(),
        )

    def _dated(self, text: str) -> str:
        Clock.now += 1
        return f"{text} {Clock.now}"

    def legal_actions(self) -> tuple[str, ...]:
        return ("up", "down")

    def expert_action(self) -> Action:
        return Action(text="up")

    def snapshot(self) -> tuple[int, bool]:
        return self.height, self.is_lost

    def restore(self, saved: tuple[int, bool]) -> None:
        self.height, self.is_lost = saved


class Keyed(Clock):
    """The same, and it says where one is."""

    def state_key(self) -> str:
        return f"{self.height} {self.is_lost}"


pytestmark = pytest.mark.usefixtures("quick")


FIELDS: dict[str, dict[str, Any]] = {
    "agent_q": {"tasks": 3},
    "agent_r": {"tasks": 3, "branches": 2, "expansions": 2, "undo_turns": 0},
    "dits": {"tasks": 3},
    "e2cl": {"demonstrations": 8, "tasks": 4, "updates": 2, "batch_size": 4},
    "ipr": {"tasks": 4, "rollouts": 2},
    "pgpo": {"tasks": 4, "rollouts": 2},
    "rest_mcts": {"tasks": 3, "expansions": 2},
    "rest_react": {"tasks": 3, "samples": 2, "ranker": "perplexity"},
    "rro": {"tasks": 4, "rollouts": 2},
    "steca": {"demonstrations": 8, "episodes": 4, "samples": 2, "updates": 2, "batch_size": 4},
    "step_agent": {"demonstrations": 8, "tasks": 6},
    "swirl": {"demonstrations": 8, "tasks": 6},
    "vine": {"tasks": 2, "group_size": 2, "rollouts": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("recipe", FIELDS)
def test_a_page_with_a_clock_does_not_end_a_run(recipe: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"imitation_epochs": 4, "max_turn_tokens": 6, "steps": 1, **FIELDS[recipe]}
    found = {}
    for environment in (CLOCK, KEYED):
        try:
            folder = train(recipe, tmp_path / environment[-5:], environment=environment, **given)
        except Exception as error:
            assert environment == CLOCK and recipe in ("step_agent", "swirl"), error
            assert "got 8 that do not repeat" in str(error)
            continue
        found[environment] = rows(folder)[-1]
    if recipe not in ("step_agent", "swirl"):
        assert found[CLOCK]["branch/lost"] == 1.0 and found[CLOCK]["alarm/lost_branches"] == 1.0
        assert found[KEYED]["branch/lost"] == 0.0 and "alarm/lost_branches" not in found[KEYED]
