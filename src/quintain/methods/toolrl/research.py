"""ReSearch (arXiv 2503.19470): GRPO of answers found by search, with a little for their form.

R = F1(answer) where it is above 0, else .1 for the right form, else 0.

Searching is a part of the chain of thought: there are no supervised chains, and the model learns from the reward when
and what to search. What the search returned is masked. Answers to a question are compared with each other; the KL to
the start is in the loss. An episode that was cut is paid 0 and stays in its group.

Differences to the paper: F1 is the environment's (`grading=f1`; another environment's own score of an answer serves);
the reward is not monotone, an F1 of .05 being paid less than 0, unless `is_monotone` says max(F1, .1); sampling has no
top-p, so that log-probs are of the distribution that was sampled from (the paper samples with .99 and learns with all).
Results come as messages of the chat. Groups have 8 episodes, not 5. Measured on synthetic questions; the paper learns
from MuSiQue.
"""

from dataclasses import dataclass
from functools import partial

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, Share
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.toolrl.searching import SearchConfig, by_group
from quintain.rewards.retrieval import pay_with_floor
from quintain.rewards.terms import apply_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(SearchConfig):
    """Configuration of ReSearch."""

    environment: str = "hopqa?hops=2&closed=0&grading=f1"
    floor: Share = 0.1
    """Reward of a wrong answer in the right form."""
    is_monotone: bool = False
    """Pay max(F1, floor), so that a better answer is never paid less."""
    kl_coef: NonNegativeFloat = 0.001
    """Weight of the KL to the starting policy in the loss."""
    clip: PositiveFloat = 0.2
    """The ratio is clipped to 1 ± this."""


def method(config: Config) -> OnPolicy:
    """Return ReSearch as `config` describes it."""
    terms = (pay_with_floor(floor=config.floor, is_monotone=config.is_monotone),)
    return by_group(config, partial(apply_all, terms=terms), clip=config.clip, kl_coef=config.kl_coef)
