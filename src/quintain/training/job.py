"""What every method is asked for: the environment, the model, and how often to look at it.

A method's `Config` adds its own fields. The defaults are what the method's page was measured with.
"""

from dataclasses import dataclass

from quintain.agents.catalog import check as check_agent
from quintain.config import check_ranges
from quintain.config.ranges import NonNegativeInt, PositiveFloat, PositiveInt, Share
from quintain.errors import ConfigError
from quintain.training.monitors.thresholds import thresholds


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The part of a configuration that all methods share."""

    environment: str = "babyai/GoToRedBallNoDists"
    """Name in the catalogue (with options: keydoor?rooms=3), or file.py:Class, or package.module:Class."""
    model: str = "tiny"
    """A new one (micro, mini, tiny, small; mini?tokens=words), or a folder or hub id of a causal language model."""
    agent: str = "auto"
    """Harness the model acts through: tools, choice, react, text..., with wrappers in front: window+react."""
    seed: int = 0
    """Seed of the run; everything random is derived from it."""
    steps: PositiveInt = 100
    """Steps of training; the evaluation before the first is step 0."""
    demonstrations: NonNegativeInt = 48
    """Episodes imitated before training (of the expert, or of random valid actions); 0 for none."""
    mistakes: Share = 0.0
    """Share of the expert's turns in demonstrations in which it does something else; it errs as the world's do."""
    imitation_rate: PositiveFloat = 2e-3
    """Learning rate at which demonstrations are imitated before training; it falls to 0."""
    imitation_epochs: PositiveInt = 12
    """Times that demonstrations are gone through before training; fewer leave a policy that still explores."""
    learning_rate: PositiveFloat = 3e-4
    """Learning rate of AdamW in training."""
    temperature: PositiveFloat = 1.0
    """Sampling temperature of training rollouts; log-probs are of the same distribution."""
    eval_every: PositiveInt = 25
    """Steps between evaluations; each also saves a checkpoint."""
    eval_episodes: PositiveInt = 128
    """Held-out tasks of an evaluation, one episode each."""
    eval_environment: str = ""
    """Environment of the evaluations where it is another than that of training; empty for the same."""
    most_turns: PositiveInt | None = None
    """Environment steps of training episodes after which the run ends; none for no limit."""
    most_tokens: PositiveInt | None = None
    """Sampled tokens of training episodes after which the run ends; none for no limit."""
    most_broken: Share = 0.01
    """Share of attempts at an episode that environment, tools or judge may break; above it the run is refused."""
    monitors: str = ""
    """Thresholds of alarms that differ from the defaults: entropy=0.5,window=10 (docs/reliability.md)."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        check_ranges(self)
        if self.mistakes and not self.demonstrations:
            raise ConfigError(
                f"mistakes: got {self.mistakes} without demonstrations, where nobody could err; raise demonstrations"
            )
        check_agent(self.agent)
        thresholds(self.monitors)
