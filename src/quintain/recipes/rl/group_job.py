"""What every method that compares episodes of one task is asked for: how many tasks, how many episodes of each."""

from dataclasses import dataclass

from quintain.errors import ConfigError
from quintain.recipes.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupJob(Job):
    """A job whose steps are groups of episodes."""

    tasks: int = 8
    """Tasks of a step."""
    group_size: int = 8
    """Episodes of a task."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have; a group of one has nothing to compare."""
        Job.check(self)
        if self.tasks < 1:
            raise ConfigError(f"tasks: got {self.tasks}; give 1 or more")
        if self.group_size < 2:
            raise ConfigError(
                f"group_size: got {self.group_size}, and an episode alone has nothing to be compared with; "
                "give 2 or more, or use ppo or reinforce_plus_plus"
            )
