"""The first run of a newcomer: BabyAI as text, a tiny model, 32 demonstrations, then GRPO.

`rl.grpo` with the settings that fit 90 seconds on two cores; the loop is that of GRPO.
"""

from dataclasses import dataclass

from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.rl import grpo


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(grpo.Config):
    """Configuration of the quickstart."""

    environment: str = "babyai/GoToRedBallNoDists?max_turns=20"
    steps: int = 40
    demonstrations: int | str | None = 32
    imitation_epochs: int = 4
    imitation_lr: float | None = 1e-3
    learning_rate: float = 2e-4
    eval_every: int = 10
    eval_episodes: int = 256
    tasks: int = 16


def method(config: Config) -> OnPolicy:
    """Return GRPO as `config` describes it."""
    return grpo.method(config)
