"""DMPO (arXiv 2406.14868): direct preference of whole episodes, discounted by turn and by length.

L = -log σ(β [Σ_t φ(t, T_w) log π/π_ref (a_t won) - Σ_t φ(t, T_l) log π/π_ref (a_t lost)]).

φ(t, T) = γ^t (1 - γ^(T-t)) / (1 - γ^T): early turns weigh most, and the weights do not depend on how much longer the
other side is. T is the number of turns of each side by itself. Pairs are the expert's episodes against the starting
policy's own, as in ETO's first round, made once.

Differences to the paper: the end of a turn weighs as its turn does, where the code leaves separators at 1; new tasks,
where the paper explores those that it imitated; the better side is imitated as well, unless `imitation_weight` is 0 as
published. φ sums to less than T, so at equal β the pull of DMPO is weaker than DPO's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, Share
from quintain.data.pairs import Pairs
from quintain.errors import DataError
from quintain.learning.train_config import SignalsConfig
from quintain.learning.update import Update
from quintain.losses.compose import combine
from quintain.losses.preference import dmpo, nll_of_chosen
from quintain.methods.loops.offline import Offline
from quintain.methods.method import Collector, Needs
from quintain.methods.preference.exploring import Experts, contrast_episodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(SignalsConfig):
    """Configuration of DMPO."""

    renamed: ClassVar[Mapping[str, str]] = {"tries": "group_size"}
    """earlier names of options"""

    steps: int = 60
    learning_rate: float = 1e-4
    eval_every: int = 20
    beta: PositiveFloat = 0.1
    """Strength of the pull towards the starting policy."""
    discount: Share = 0.7
    """γ: the weight of a turn against the one before it."""
    imitation_weight: NonNegativeFloat = 1.0
    """Weight of imitating the better side as well; 0 is as published."""
    tasks: PositiveInt = 256
    """Tasks that pairs are made from."""
    group_size: PositiveInt = 1
    """Episodes that the starting policy makes of each task."""
    batch_size: PositiveInt = 32
    """Pairs of a step."""


def method(config: Config) -> Offline:
    """Return DMPO as `config` describes it."""
    weights = (dmpo(config.beta, discount=config.discount), 1.0)
    likelihood = ((nll_of_chosen(), config.imitation_weight),) if config.imitation_weight else ()

    def pairs(collector: Collector) -> Pairs:
        groups = collector.starting_groups(tasks=config.tasks, size=config.group_size, are_shown=True)
        shown = collector.expert_episodes([group.task for group in groups])
        found = contrast_episodes(groups, Experts({each.task.id: each for each in shown}))
        if not found:
            raise DataError(
                f"the expert against the starting policy on {len(groups)} tasks: got {found}; raise tasks, or lower "
                "demonstrations so that it fails now and then"
            )
        return found

    return Offline(
        data=pairs,
        update=Update(loss=combine(weights, *likelihood), has_reference=True, is_on_policy=False),
        batch_size=config.batch_size,
        draws_anew=True,
        needs=Needs(environment=True, expert=True, reference=True),
    )
