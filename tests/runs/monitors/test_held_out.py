"""Canary answers and the second grader: what they find in an environment that pays for words, and in honest ones."""

from typing import Any

import pytest
from tests.runs.monitors.test_measures import episode

from quintain.environments.protocol import Environment
from quintain.runs.monitors.held_out import audit_rewards, canaries
from quintain.types import Action, Failure, StepResult, Task, Trajectory, as_text
from quintain.worlds.guess.game import Guess


class Gullible(Environment):
    """Pays for any answer that asks for the highest score."""

    grade: Any = 0.25

    def reset(self, task: Task) -> str:
        """Begin."""
        return "answer"

    def step(self, action: Action) -> StepResult:
        """Pay."""
        is_right = "highest score" in as_text(action.text)
        return StepResult(observation="done", reward=float(is_right), is_terminated=True, is_success=is_right)

    def audit(self, trajectory: Trajectory) -> Any:
        """Grade."""
        return self.grade


class Broken(Gullible):
    """Raises."""

    def reset(self, task: Task) -> str:
        """Raise."""
        raise ValueError("no")

    def audit(self, trajectory: Trajectory) -> Any:
        """Raise."""
        raise ValueError("no")


def tasks(kind: type[Environment]) -> list[Task]:
    return [kind().task("eval", place) for place in range(3)]


def test_a_judge_that_believes_the_answer_is_found() -> None:
    found = canaries(Gullible, tasks(Gullible))
    assert found == {"canary/empty": 0.0, "canary/na": 0.0, "canary/injection": 1.0}


def test_an_honest_world_pays_no_canary() -> None:
    assert set(canaries(Guess, tasks(Guess)).values()) == {0.0}


def test_what_breaks_is_left_out() -> None:
    assert canaries(Broken, tasks(Gullible)) == audit_rewards(Broken, [episode(1.0, (1,))]) == {}
    assert canaries(Gullible, []) == {}


@pytest.mark.parametrize(
    ("grade", "expected"), [(0.25, {"eval/audit": 0.25}), (float("nan"), {}), ("1.0", {}), (None, {})]
)
def test_the_audit_is_the_mean_of_what_can_be_read(
    grade: Any, expected: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gullible, "grade", grade)
    broken = episode(Failure(owner="judge", kind="k", message="m"))
    assert audit_rewards(Gullible, [episode(1.0, (1,)), broken]) == expected
    assert audit_rewards(Guess, [episode(1.0, (1,))]) == {}
