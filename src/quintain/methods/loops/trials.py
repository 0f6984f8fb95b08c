"""Single updates that are made, measured and undone: what training on some pairs alone would change."""

from collections.abc import Sequence
from statistics import fmean

from quintain.data.samples import pair_samples
from quintain.learning.update import Update, learn_from
from quintain.runs.context import TrainingContext
from quintain.types import Pair, Task


class Trials:
    """Tries updates by `update` on the main policy of a run: ``Trials(context, update).influence(blocks, tasks)``."""

    def __init__(self, context: TrainingContext, update: Update) -> None:
        self.context, self.update = context, update

    def influence(self, blocks: Sequence[Sequence[Pair]], tasks: Sequence[Task]) -> list[float]:
        """See `Influence`. All are measured by the same episodes: what differs is the policy.

        The policy that is trained is as before afterwards, and so is what its engine serves.
        """
        learner = self.context.policies.main.learner
        assert learner is not None, "the main policy is trained"
        before = self._success(tasks)
        found: list[float] = []
        for block in blocks:
            with learner.tried():
                learn_from(self.context.policies, pair_samples(block), self.update, rate_scale=1.0)
                found.append(self._success(tasks) - before)
        self.context.serve_weights()
        return found

    def _success(self, tasks: Sequence[Task]) -> float:
        """Return the share of `tasks` that the policy solves as it is."""
        self.context.serve_weights()
        groups = self.context.evaluator.groups(tasks, size=1, seed=self.context.seed("influence"))
        return fmean(float(t.is_success) for group in groups for t in group.trajectories)
