"""What a run would start from, learn from and take, judged by the few episodes that `quintain check METHOD` samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quintain.eval.statistics import wilson
from quintain.learning.sections import DataSection
from quintain.learning.train_config import TrainConfig
from quintain.types import Group, Score

SOLVED, HARDLY = 0.95, 0.25
"""Success from which nothing is left to learn; share of differing groups below which there is little to learn."""
BACKWARD = 2.0
"""What a backward pass takes, in forward passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What is to be expected: ``Forecast(num_episodes=32, num_solved=3, differing=0.5, step_seconds=2.1, …)``."""

    num_episodes: int
    num_solved: int
    differing: float
    """share of tasks whose episodes do not all score the same: those that teach something"""
    step_seconds: float | None
    """of a step of training, without evaluations; None where a step has no fixed number of episodes"""
    total_seconds: float | None
    suggestion: str

    def metrics(self) -> dict[str, float]:
        """Return its numbers."""
        numbers = {
            "forecast/success": self.num_solved / max(self.num_episodes, 1),
            "forecast/differing": self.differing,
        }
        return numbers | ({} if self.step_seconds is None else {"forecast/step_seconds": self.step_seconds})

    def __str__(self) -> str:
        """Return it as lines for people."""
        low, high = wilson(self.num_solved, self.num_episodes)
        share = self.num_solved / max(self.num_episodes, 1)
        lines = [
            f"success at the start  {share:.0%} [{100 * low:.0f}, {100 * high:.0f}] of {self.num_episodes} episodes",
            f"groups that differ    {self.differing:.0%}",
        ]
        if self.step_seconds is not None and self.total_seconds is not None:
            lines.append(
                f"a step takes about    {self.step_seconds:.1f} s here, all of them {self.total_seconds / 60:.0f} min, "
                "without evaluations"
            )
        return "\n".join([*lines, f"suggestion            {self.suggestion}"])


def forecast(
    config: TrainConfig,
    groups: Sequence[Group],
    *,
    rollout_seconds: float,
    forward_seconds: float,
    has_expert: bool,
    imitated: int,
) -> Forecast:
    """Return what `groups`, which took `rollout_seconds` to play and `forward_seconds` to score, say of `config`.

    Learning is reckoned as a forward and a backward pass over each epoch's tokens. `imitated` demonstrations taught
    the policy before; there may have been fewer than the configuration asks for.
    """
    scores = [[t.outcome for t in group.scored if isinstance(t.outcome, Score)] for group in groups]
    episodes = [score for group in scores for score in group]
    differing = sum(len({score.value for score in group}) > 1 for group in scores) / max(len(scores), 1)
    num_solved = sum(score.is_success for score in episodes)
    per_step, seconds = config.episodes_of_step, None
    if per_step and episodes:
        learning = config.passes * (1 + BACKWARD) * forward_seconds
        seconds = (rollout_seconds + learning) * per_step / len(episodes)
    return Forecast(
        num_episodes=len(episodes),
        num_solved=num_solved,
        differing=differing,
        step_seconds=seconds,
        total_seconds=None if seconds is None else seconds * config.steps,
        suggestion=suggestion(config, num_solved / max(len(episodes), 1), differing, has_expert, imitated),
    )


def suggestion(config: DataSection, success: float, differing: float, has_expert: bool, imitated: int) -> str:
    """Return what to change before the run, or that nothing need be."""
    asked = config.demonstrations
    if success >= SOLVED:
        return "hardly anything is left to learn: take harder options of the environment"
    if differing == 0 and asked is None:
        return (
            f"nothing to compare yet, but only {imitated} demonstrations were imitated here, and the run goes on until "
            "enough of its tasks are solved: begin it, and look at its evaluation of step 0"
        )
    if differing == 0 and isinstance(asked, int) and imitated < asked:
        return (
            f"nothing to compare yet, but only {imitated} of {asked} demonstrations were imitated here: begin the run, "
            "and look at its evaluation of step 0; where that is 0 %, raise --demonstrations"
        )
    if differing == 0 and has_expert:
        return (
            f"no group differs, so that nothing would be learned: imitate more of the expert (--demonstrations "
            f"{4 * imitated or 64}), or take easier options of the environment"
        )
    if differing == 0:
        return (
            "no group differs, so that nothing would be learned: write expert_action(), give --demonstrations FILE, "
            "pay for steps on the way (self.reward), or take easier options of the environment"
        )
    if differing < HARDLY:
        return "few groups differ: raise --group-size, imitate more, or let tasks that teach nothing be left out (dapo)"
    return "go on: there is something to learn from"
