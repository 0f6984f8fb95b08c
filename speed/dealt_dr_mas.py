"""Dr. MAS whose rewards are dealt out anew inside each group: the control of `make proof-multiagent`.

Both seats of an episode get the rewards of one other episode of its group, so that advantages have the sizes that they
had and say nothing of what was done.
"""

from dataclasses import dataclass, replace
from functools import partial

from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.multiagent import dr_mas
from quintain.rewards.dealt import dealt_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(dr_mas.Config):
    """Configuration of the control: that of Dr. MAS."""


def method(config: Config) -> OnPolicy:
    """Return the control of Dr. MAS as `config` describes it."""
    return replace(dr_mas.method(config), reward=partial(dealt_out, seed=config.seed))
