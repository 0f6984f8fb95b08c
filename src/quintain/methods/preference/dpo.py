"""L = -log σ(β [(log π/π_ref)(won) - (log π/π_ref)(lost)]): direct preference optimization (arXiv 2305.18290).

Pairs are read from a file (``preferences=pairs.jsonl``), or made from rollouts: of the episodes that the starting
policy makes of one task, the best against the worst, where they differ. Log-ratios are summed over all tokens the
policy sampled in an episode, as in the paper; prompts and observations are masked on both sides.

Differences to the paper: the preference is the environment's outcome, not a person's; episodes have many turns
(the trajectory-level pairs of ETO, 2403.02502); AdamW instead of RMSprop. The better side is imitated as well (RPO,
2404.19733): failed episodes are the long ones, and the loss alone is content to make both sides unlikely.
"""

from dataclasses import dataclass

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, Share
from quintain.data.pairs import Pairs, best_and_worst, checked
from quintain.errors import DataError
from quintain.methods.method import Collector, Needs, Offline, Update
from quintain.methods.preference.updating import dpo_or_rpo
from quintain.training.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Job):
    """Configuration of direct preference optimization."""

    environment: str = ""
    """Where it acts: a name, as for all methods; none, or empty with preferences of a file, for the loss alone."""
    preferences: str = ""
    """File, folder or data set of preferences (chosen and rejected); empty: they are made from rollouts."""
    held_out: Share = 0.1
    """Share of a file's preferences that is not learned from; their loss is measured at every evaluation."""
    steps: int = 60
    learning_rate: float = 1e-4
    eval_every: int = 20
    beta: PositiveFloat = 0.1
    """Strength of the pull towards the starting policy."""
    imitation_weight: NonNegativeFloat = 1.0
    """Weight of imitating the better side as well (RPO, 2404.19733); 0 is DPO as published."""
    tasks: PositiveInt = 256
    """Tasks that pairs are made from."""
    group_size: PositiveInt = 8
    """Episodes of a task."""
    batch_size: PositiveInt = 32
    """Pairs of a step."""


def method(config: Config) -> Offline:
    """Return direct preference optimization as `config` describes it."""
    loss = dpo_or_rpo(config.beta, config.imitation_weight)

    def preferences(collector: Collector) -> Pairs:
        if config.preferences:
            given = checked(collector.preferences(), margin=None)
            if not given:
                raise DataError(f"preferences of {config.preferences}: got {given}; give others")
            return given
        groups = collector.starting_groups(tasks=config.tasks, size=config.group_size)
        pairs = best_and_worst(groups)
        if not pairs:
            raise DataError(
                f"pairs from {config.tasks} tasks: got none whose episodes differ in outcome; raise tasks or "
                "group_size, or change demonstrations so that the starting policy solves some and not all"
            )
        return pairs

    return Offline(
        data=preferences,
        update=Update(loss=loss, has_reference=True, is_on_policy=False),
        batch_size=config.batch_size,
        draws_anew=True,
        needs=Needs(reference=True),
        held_out=config.held_out if config.preferences else 0.0,
        metrics=lambda pairs: {"dpo/pairs": float(len(pairs))},
    )
