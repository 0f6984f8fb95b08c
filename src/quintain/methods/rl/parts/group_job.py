"""What every method that compares episodes of one task is asked for: how many tasks, how many episodes of each."""

from dataclasses import dataclass

from quintain.errors import ConfigError
from quintain.methods.rl.parts.ranges import RangedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupJob(RangedJob):
    """A job whose steps are groups of episodes."""

    tasks: int = 8
    """Tasks of a step."""
    group_size: int = 8
    """Episodes of a task."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have; a group of one has nothing to compare."""
        RangedJob.check(self)
        if self.group_size < 2:
            raise ConfigError(
                f"group_size: got {self.group_size}, and an episode alone has nothing to be compared with; "
                "give 2 or more, or use ppo or reinforce_plus_plus"
            )
