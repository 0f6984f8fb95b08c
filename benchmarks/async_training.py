"""What staleness buys where tools are slow now and then: python benchmarks/async_training.py [--seeds 3] [--json FILE]

A world of two to four turns in each of which a tool takes a heavy-tailed time (a Pareto distribution, cut off) and the
right answers pay. The same recipe, start, seeds and number of steps for each `max_staleness`; 0 is synchronous: no
episode waits for another's tool, but a step waits for its last. Told for each: seconds of a step (evaluations are not
in it), and the success of the last evaluation.

The recipe is policy_gradient with clipped ratios to the policy as the step began, weighed by its truncated ratio to
the sampler (`decoupled`). On the processor the learner and the engine take turns; where a step of these takes longer
than the tools, there is nothing to gain.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from random import Random

import quintain
from quintain.environments.protocol import Environment
from quintain.store.run import Run
from quintain.types import Action, StepResult, Task

SHORTEST, LONGEST, SHAPE = 0.02, 4.0, 1.1
"""Seconds of a tool."""
RIGHT = {"red": "left", "blue": "right"}


class Lamps(Environment):
    """A lamp in each turn: red is left, blue is right; the answer is looked up by a tool that is slow now and then."""

    max_turns = 4

    def reset(self, task: Task) -> str:
        """Begin."""
        self.chance = Random(task.seed)
        self.turn, self.last, self.right = 0, self.chance.randint(2, 4), 0
        return self._show()

    def step(self, action: Action) -> StepResult:
        """Say whether the answer was right, in the end."""
        self.turn += 1
        self.right += action.text.strip() == RIGHT[self.lamp]
        is_over = self.turn == self.last
        reward = float(is_over and self.right == self.last)
        return StepResult(observation=self._show(), reward=reward, is_terminated=is_over)

    def legal_actions(self) -> tuple[str, ...]:
        """Return the two answers."""
        return tuple(RIGHT.values())

    def _show(self) -> str:
        self.lamp = self.chance.choice(list(RIGHT))
        return f"The lamp is {self.lamp}."


class SlowLamps(Lamps):
    """The same, with a tool that takes its time in training."""

    def reset(self, task: Task) -> str:
        """Begin."""
        self.is_slow = task.split == "train"
        return super().reset(task)

    def step(self, action: Action) -> StepResult:
        """Take the time of the tool first."""
        seconds = min(SHORTEST * self.chance.paretovariate(SHAPE), LONGEST)
        time.sleep(seconds if self.is_slow else 0.0)
        return super().step(action)


def prepare(folder: Path) -> Path:
    """Return the folder of a model that knows how answers are written, and which of them it likes by chance."""
    quintain.train(
        "policy_gradient", run=folder.name, root=folder.parent, environment=f"{Path(__file__)}:Lamps", model="micro",
        demonstrations=32, imitation_epochs=2, steps=1, tasks=1, group_size=2, eval_start=False, eval_episodes=1,
    )  # fmt: skip
    return folder / "start"


def train(folder: Path, start: Path, *, staleness: int, seed: int, steps: int) -> tuple[list[float], float]:
    """Return the seconds of each step, and the success of the last evaluation."""
    quintain.train(
        "policy_gradient", run=folder.name, root=folder.parent, environment=f"{Path(__file__)}:SlowLamps",
        model=str(start), demonstrations=0, seed=seed, steps=steps, eval_every=steps,
        eval_episodes=64, tasks=8, group_size=8, rollout="async", max_staleness=staleness, loss="clipped",
        decoupled=True, learning_rate=3e-3, eval_start=False, max_turn_tokens=8,
    )  # fmt: skip
    with Run.open(folder, writable=False) as run:
        rows = [row for row in run.metrics() if row["step"]]
    return [row["time/step"] for row in rows[:-1]], rows[-1]["eval/success"]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--staleness", type=int, nargs="*", default=[0, 1, 2, 4, 8])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as place:
        start = prepare(Path(place, "start"))
        for seed in range(arguments.seeds):
            for staleness in arguments.staleness:
                began = time.monotonic()
                seconds, success = train(
                    Path(place, f"{seed}-{staleness}"),
                    start,
                    staleness=staleness,
                    seed=seed,
                    steps=arguments.steps,
                )
                row = {
                    "seed": seed, "staleness": staleness, "median": round(statistics.median(seconds), 3),
                    "mean": round(statistics.mean(seconds), 3), "success": round(success, 4),
                    "wall": round(time.monotonic() - began, 1),
                }  # fmt: skip
                rows.append(row)
                print(json.dumps(row), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
