"""The numbers that the methods' settings may be: a count below 1 or a negative weight leaves nothing to learn from.

The one rule: a setting of one name means the same in every method, so its range is written once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from quintain.errors import ConfigError
from quintain.training.job import Job

Range = tuple[Callable[[float], bool], str]
"""Whether a number is admitted, and what to give instead."""
ONE: Range = (lambda number: number >= 1, "1 or more")
NOT_NEGATIVE: Range = (lambda number: number >= 0, "0 or more")
POSITIVE: Range = (lambda number: number > 0, "a number above 0")
SHARE: Range = (lambda number: 0 <= number <= 1, "a share from 0 to 1")
NAMES: Mapping[str, Range] = {
    **dict.fromkeys(
        (
            "tasks", "episodes", "updates", "attempts", "rollouts", "pool", "chosen", "window", "turns", "stage_steps",
            "turn_tokens", "actions",
        ),
        ONE,
    ),
    "overlong_tokens": (lambda number: number >= 4, "4 or more"),
    "constant": (lambda number: number > 0, "the tokens of a usual episode"),
    **dict.fromkeys(
        (
            "kl", "entropy", "overlong_weight", "step_weight", "turn_weight", "value_weight", "format_weight",
            "invalid_penalty", "format_penalty", "penalty", "bonus", "executed", "information", "long_turn", "progress",
            "grounding", "relabel", "critic_steps", "tolerance", "least",
        ),
        NOT_NEGATIVE,
    ),
    **dict.fromkeys(("clip", "clip_low", "clip_high", "most_kl", "smoothing", "adaptive", "reward_scale"), POSITIVE),
    **dict.fromkeys(("discount", "turn_discount", "decay", "outcome_share", "lowest", "highest", "epsilon"), SHARE),
    "keep": (lambda number: 0 < number <= 1, "a share above 0, up to 1"),
}  # fmt: skip
"""name of a setting → what it may be, where it is a number"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangedJob(Job):
    """A job of the family: its settings are within `NAMES`."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        Job.check(self)
        for field in fields(self):
            value, known = getattr(self, field.name), NAMES.get(field.name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if known is not None and is_number and not known[0](value):
                raise ConfigError(f"{field.name}: got {value}; give {known[1]}")
