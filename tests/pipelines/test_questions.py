"""What people are asked of a run: which of its episodes can be compared."""

from pathlib import Path

from tests.build import make_episode, make_turn

from quintain.pipelines.questions import comparable_episodes
from quintain.store import Run
from quintain.types import Failure, Task


def test_scored_episodes_of_training_tasks_that_count(tmp_path: Path) -> None:
    task = Task(id="e/train/0", environment="e", seed=0)
    held_out = Task(id="e/eval/0", environment="e", seed=0, split="eval")
    turn = make_turn((1,), shows="x")
    broken = Failure(owner="engine", kind="timeout", message="late")
    with Run.create(tmp_path / "run", recipe="grpo", config={}) as run:
        kept = run.append(
            [make_episode(turn, task=task, index=0), make_episode(turn, task=task, index=1)], step=1
        )
        run.append([make_episode(turn, task=task, outcome=broken, index=2)], step=1)
        run.append([make_episode(turn, task=held_out)], step=1, phase="eval")
        run.commit(1, {})
        assert comparable_episodes(run) == {("e", "e/train/0"): [*kept]}
    with Run.open(tmp_path / "run") as run:
        assert comparable_episodes(run) == {}, "a run without a checkpoint begins anew"
