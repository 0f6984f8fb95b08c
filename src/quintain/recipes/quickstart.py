"""The first run of a newcomer: BabyAI as text, a tiny model, 8 demonstrations, then GRPO.

`rl.grpo` with the settings that fit three minutes on two cores; the loop is that of GRPO.
"""

from dataclasses import dataclass

from quintain.recipes.rl import grpo
from quintain.store.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(grpo.Config):
    """Configuration of the quickstart."""

    environment: str = "babyai/GoToRedBallNoDists?max_turns=20"
    steps: int = 64
    demonstrations: int = 8
    learning_rate: float = 2e-4
    eval_every: int = 16
    eval_episodes: int = 256
    tasks: int = 16


def train(config: Config, run: Run) -> None:
    """Train as GRPO does."""
    grpo.train(config, run)
