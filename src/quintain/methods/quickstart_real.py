"""The first run with a real model: SmolLM2-135M-Instruct on questions that take a search, from a few demonstrations.

`rl.grpo`, meant for minutes on two cores: the pretrained model plays as it is, imitates the expert of `hopqa` a little,
and goes on by GRPO. The settings are chosen from what a token costs; what they come to is not measured yet.
"""

from dataclasses import dataclass

from quintain.methods.method import OnPolicy
from quintain.methods.rl import grpo


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(grpo.Config):
    """Configuration of the quickstart with a real model."""

    environment: str = "hopqa?hops=1&closed=0"
    model: str = "smollm2"
    agent: str = "tools?max_tokens=32"
    steps: int = 2
    demonstrations: int | str = 24
    imitation_epochs: int = 2
    imitation_rate: float = 2e-4
    learning_rate: float = 1e-5
    eval_every: int = 2
    eval_episodes: int = 32
    eval_untrained: bool = True
    tasks: int = 4
    group_size: int = 4


def method(config: Config) -> OnPolicy:
    """Return GRPO as `config` describes it."""
    return grpo.method(config)
