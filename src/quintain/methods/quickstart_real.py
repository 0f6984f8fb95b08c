"""The first run with a real model: SmolLM2-135M-Instruct learns to search and answer by reinforcement.

`rl.grpo`, for minutes on two cores: the pretrained model imitates eight episodes of the expert of `hopqa`, after which
it solves some of the tasks, and goes on by GRPO. Its control, ``--dealt-out true``, is the same run from the same
start, with the rewards of each group dealt out anew among its episodes: what it learns is not learned from rewards.
Calls are tags, which take a third of the tokens of JSON. Settings were chosen on training tasks from number 5000 on;
what they come to on others is in docs/real-model.md.
"""

from dataclasses import dataclass, replace
from functools import partial

from quintain.config.ranges import PositiveInt
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.rl import grpo
from quintain.rewards.dealt import dealt_out

WARMUP = 4
"""Steps over which the learning rate rises; GRPO's ten would be most of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(grpo.Config):
    """Configuration of the quickstart with a real model."""

    environment: str = "hopqa?hops=1&closed=0"
    model: str = "smollm2"
    agent: str = "tags?max_tokens=24"
    steps: int = 16
    demonstrations: int | str | None = 8
    imitation_epochs: int = 4
    imitation_lr: float | None = 8.5e-5
    learning_rate: float = 3e-5
    eval_every: int = 8
    eval_episodes: int = 64
    tasks: int = 2
    group_size: int = 8
    tokens_per_microbatch: PositiveInt | None = 8192
    dealt_out: bool = False
    """The control: deal the rewards of each group out anew among its episodes."""


def method(config: Config) -> OnPolicy:
    """Return GRPO as `config` describes it, or its control."""
    found = grpo.method(config)
    found = replace(found, update=replace(found.update, lr_warmup=WARMUP))
    return replace(found, reward=partial(dealt_out, seed=config.seed)) if config.dealt_out else found
