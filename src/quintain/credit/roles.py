"""Credit to the turns of one role alone, by loss weight: the planner learns while who acts rests.

An advantage of 0 is not enough: tokens of the other role would stand in the divisor of the mean, and a KL or an entropy
term would train them. Here they have no loss weight, as `quintain.data.stages.role` has it for recorded data; they stay
as context where both roles share a stream. Unit: turn. Singleton rule: none needed, credit is as it was.
"""

from collections.abc import Sequence
from dataclasses import replace

from quintain.errors import DataError
from quintain.types import Credit


def train_role(credit: Credit, *roles: str) -> Credit:
    """Return `credit` with the turns of `roles` trained and no others: ``train_role(credit, "plan")``.

    ``act`` are the turns in which something is done. What was not trained before is not trained now.

    Raises:
        DataError: there are episodes, and none of them has a turn of `roles`.
    """
    before = credit.is_trained or [[True] * len(t.turns) for t in credit.trajectories]
    trained: Sequence[Sequence[bool]] = [
        [was and any(turn.has_role(role) for role in roles) for turn, was in zip(t.turns, own, strict=True)]
        for t, own in zip(credit.trajectories, before, strict=True)
    ]
    _refuse_none(credit, trained, roles)
    return replace(credit, is_trained=tuple(map(tuple, trained)))


def _refuse_none(credit: Credit, trained: Sequence[Sequence[bool]], roles: Sequence[str]) -> None:
    if trained and not any(map(any, trained)):
        there = sorted({turn.seat for t in credit.trajectories for turn in t.turns})
        raise DataError(
            f"turns of {' and '.join(roles)} to be trained: got none among those of {', '.join(there)}; take a harness "
            "that has the role"
        )
