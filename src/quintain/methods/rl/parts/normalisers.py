"""What advantages are whitened over, by name: what ``policy_gradient --normaliser`` chooses from.

The one rule: statistics name their unit, and what has statistics of its own.
"""

from collections.abc import Mapping

from quintain.credit.whiten import Key, Unit, whiten
from quintain.methods.loops.method import Assign
from quintain.types import Trajectory, Turn


def by_environment(trajectory: Trajectory, _: Turn) -> str:
    """Return the environment of a trajectory's task: the kind of task in a mixed run."""
    return trajectory.task.environment


def by_seat(_: Trajectory, turn: Turn) -> str:
    """Return who acted in a turn."""
    return turn.seat


NORMALISERS: Mapping[str, tuple[Unit, Key | None] | None] = {
    "none": None,
    "token": ("token", None),
    "turn": ("turn", None),
    "trajectory": ("trajectory", None),
    "task": ("token", by_environment),
    "seat": ("token", by_seat),
}
"""name → unit of the statistics over the batch, and what has statistics of its own; None leaves credit as it is"""


def normalised(assign: Assign, name: str) -> Assign:
    """Return `assign` with its advantages whitened as the normaliser `name` says."""
    found = NORMALISERS[name]
    if found is None:
        return assign
    unit, by = found
    return lambda work, groups: whiten(assign(work, groups), unit=unit, by=by)
