"""xLAM (arXiv 2409.03215): imitates those turns alone whose calls are all right.

L = -Σ m_t log π(a_t | h_t), m_t = 1 where every call of turn t is right.

The pipeline: demonstrations → solved → calls that are right → loss. A turn goes whose calls cannot be read, name a tool
that is not on the list, do not fit the tool's schema, or have a value that nobody said before (`quintain.data.calls`);
the rest of its episode stays, and the turn stays as context.

Differences to the paper: a step is a turn of its episode's stream, which is the same as a prompt and an answer of its
own, because nothing that comes later is in its context; the judge of reasoning and planning is left out, and so are
rephrased instructions and the preference stage; tools and parameters in another order are copies that `quintain data
--stage shuffled_tools` puts beside conversations, which training itself does not do; the data are demonstrations of one
environment, or conversations, written for it or with tools of their own.
"""

from dataclasses import dataclass
from pathlib import Path

from quintain.data.calls import right_calls
from quintain.data.pipeline import Stage
from quintain.environments.nothing import NO_ENVIRONMENT
from quintain.errors import ConfigError
from quintain.methods.imitation.supervised import DemonstrationsConfig, imitate_demonstrations
from quintain.methods.loops.offline import Offline
from quintain.methods.method import Collector
from quintain.warm_start.demonstrations import tell_records, teller


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(DemonstrationsConfig):
    """Configuration of imitation of checked calls."""

    semantic: bool = True
    """Whether every value of a call must have been said before it; false for an agent that computes in its head."""


def method(config: Config) -> Offline:
    """Return imitation of checked calls as `config` describes it."""

    def checks(collector: Collector) -> Stage:
        if collector.environment == NO_ENVIRONMENT and not isinstance(config.demonstrations, str):
            raise ConfigError(
                "xlam: got no environment, whose tools the calls are checked against; name one with --environment, or "
                "give conversations with tools of their own (--demonstrations FILE)"
            )
        told = (
            tell_records(Path(str(config.demonstrations)))
            if collector.environment == NO_ENVIRONMENT
            else teller(collector.environment)
        )
        return right_calls(told, semantic=config.semantic)

    return imitate_demonstrations(config, checks)
