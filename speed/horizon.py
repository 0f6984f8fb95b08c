"""The arms of `make proof-horizon`: MemAgent, its control, and texts that are cut to what a model reads at once.

`quintain train speed/horizon.py --dealt-out true` is MemAgent whose rewards are dealt out anew inside each group, and
`speed/horizon.py:CutText?pages=100&kept=12` a book of `stream` of which the last pages alone are there to be read, as
where a text is truncated: the question, its answer and the pages themselves are those of the whole book.
"""

from dataclasses import dataclass, replace
from functools import partial

from quintain.methods.horizon import mem_agent
from quintain.methods.loops.on_policy import OnPolicy
from quintain.rewards.dealt import dealt_out
from quintain.types import Task
from quintain.worlds.stream.game import Stream

WARMUP = 2
"""Steps over which the learning rate rises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(mem_agent.Config):
    """Configuration of MemAgent or its control."""

    dealt_out: bool = False
    """The control: deal the rewards of each group out anew among its episodes."""


def method(config: Config) -> OnPolicy:
    """Return MemAgent as `config` describes it, or its control."""
    found = mem_agent.method(config)
    found = replace(found, update=replace(found.update, lr_warmup=WARMUP))
    return replace(found, reward=partial(dealt_out, seed=config.seed)) if config.dealt_out else found


# What stands below is what the model is told, and the same as of the whole book.
@dataclass(kw_only=True, eq=False)
class CutText(Stream):
    """Read until you know the answer.

    Act: read, or answer and a number.
    """

    kept: int = 12
    """pages that are left, the last ones"""

    def reset(self, task: Task) -> str:
        """Open the book of the task where its last pages begin."""
        asked = super().reset(task)
        self.restore(replace(self.snapshot(), page=max(0, self.pages - self.kept)))
        return asked
