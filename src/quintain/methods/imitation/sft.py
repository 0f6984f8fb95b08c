"""Supervised fine-tuning: imitation of whole episodes, over the agent's own tokens (behaviour cloning).

L = -Σ log π(a_t | h_t).

Prompts, observations and tool results are context and carry no loss (the mask is 1 on sampled tokens only).
This is the supervised step of FireAct (arXiv 2310.05915) and AgentTuning (2310.12823).

Differences to these papers: the teacher is the environment's expert unless conversations of others are given
(``demonstrations=chats.jsonl``); failed episodes are left out unless they are asked for; loss is the mean over the
tokens of a step; the learning rate falls linearly to 0.
"""

from dataclasses import dataclass

from quintain.methods.imitation.supervised import DemonstrationsConfig, imitate_demonstrations
from quintain.methods.loops.offline import Offline


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(DemonstrationsConfig):
    """Configuration of supervised fine-tuning."""


def method(config: Config) -> Offline:
    """Return supervised fine-tuning as `config` describes it."""
    return imitate_demonstrations(config)
