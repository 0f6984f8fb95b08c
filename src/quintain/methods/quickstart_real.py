"""The first run with a real model: SmolLM2-135M-Instruct on questions that take a search, from a few demonstrations.

`rl.grpo`, for minutes on two cores: the pretrained model plays as it is, imitates the expert of `hopqa` a little, and
goes on by GRPO. Settings were chosen on training tasks from number 5000 on; what they come to on others is in
docs/real-model.md.
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
    steps: int = 3
    demonstrations: int | str | None = 48
    imitation_epochs: int = 2
    imitation_rate: float | None = 1e-4
    learning_rate: float = 2e-5
    eval_every: int = 3
    eval_episodes: int = 64
    eval_untrained: bool = True
    tasks: int = 4
    group_size: int = 8


def method(config: Config) -> OnPolicy:
    """Return GRPO as `config` describes it."""
    return grpo.method(config)
