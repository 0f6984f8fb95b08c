"""A small trajectory by name, and an open run in a folder of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quintain.store.run import Run
from quintain.types import Action, Completion, Outcome, Score, Stop, Task, Trajectory, Turn, as_content

Make = Callable[..., Trajectory]


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """Skip the syncs, which are slow; the programs that the crash tests start do sync."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)  # pyright: ignore[reportUnknownLambdaType]


def trajectory(
    index: int = 0,
    *,
    group: str = "g",
    outcome: Outcome | None = None,
    text: str = "left",
    seconds: float = 0.5,
) -> Trajectory:
    turn = Turn(
        observation=as_content("You see a red ball."),
        prompt_ids=(5, 9, 4),
        completion=Completion(token_ids=(17, 2), logprobs=(-0.1, -0.25), stop="stop", policy_version=3),
        action=Action(text=text),
        reward=1.0,
    )
    return Trajectory(
        task=Task(id="guess/train/7", environment="guess", seed=7),
        turns=(turn, turn),
        outcome=outcome or Score(value=1.0, is_success=True),
        stop=Stop.TERMINATED,
        seed=11 + index,
        group=group,
        index=index,
        seconds=seconds,
    )


@pytest.fixture
def make() -> Make:
    return trajectory


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "one"


@pytest.fixture
def run(folder: Path) -> Iterator[Run]:
    with Run.create(folder, recipe="rl/grpo", config={"steps": 3}) as opened:
        yield opened
