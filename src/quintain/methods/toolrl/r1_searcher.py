"""R1-Searcher (arXiv 2503.05592): first rewards for searching and form, then for right answers.

R = ½ searched + ½ form for some steps, then R = F1 - 2·(form broken); A = R - mean.

The first stage pays for searching at all, right or wrong, and for the form; the second for answers alone. A search
that finds nothing counts in the first: it pays for the habit, not for what comes of it. What was found is masked.

Differences to the paper: which stage a step belongs to is its number (`first_steps`), the tasks of both are the same
world's, where the paper sorts questions by the rollouts that they take; advantages are centred by group and neither
divided nor whitened, as in the released code; there is no KL, as there. With `pays_answers` the first stage pays ±1 for
the answer besides, which the code does and the paper does not say. Of the rules of form those that name words of a chat
template and Chinese letters are left out; broken or doubled tags, calls within calls, more than one answer and answers
over ten words are there. Measured on synthetic questions; the paper learns from HotpotQA and 2WikiMultiHopQA.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quintain.config.ranges import NonNegativeFloat, NonNegativeInt
from quintain.credit.group import group_relative
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import CombinedState, sample_groups
from quintain.methods.toolrl.searching import SearchConfig, measure_searches
from quintain.rewards.retrieval import pay_stages
from quintain.rewards.terms import apply_all
from quintain.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(SearchConfig):
    """Configuration of R1-Searcher."""

    environment: str = "hopqa?hops=2&closed=0&grading=f1"
    first_steps: NonNegativeInt = 10
    """Steps of the first stage."""
    pays_answers: bool = False
    """Pay ±1 for the answer in the first stage, too."""
    penalty: NonNegativeFloat = 2.0
    """What a broken form costs in the second stage."""


class Stages:
    """Which stage the step at hand belongs to: a fold over the steps that were recorded."""

    def __init__(self, first_steps: int) -> None:
        self.first_steps, self.step = first_steps, 0

    def update(self, groups: Sequence[Group]) -> None:
        """Count the step that `groups` are of."""
        self.step += 1

    @property
    def is_first(self) -> bool:
        """Whether searching is paid for."""
        return self.step <= self.first_steps


def method(config: Config) -> OnPolicy:
    """Return R1-Searcher as `config` describes it."""
    stages = Stages(config.first_steps)

    def reward(groups: Sequence[Group]) -> Sequence[Group]:
        term = pay_stages(is_first=stages.is_first, pays_answers=config.pays_answers, penalty=config.penalty)
        return apply_all(groups, (term,))

    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        reward=reward,
        credit=lambda groups, _: group_relative(groups, std="none"),
        update=Update(loss=clip_ratio(0.2, 0.2), aggregation="sequence_mean"),
        state=CombinedState(stages),
        measure=lambda groups, decode: {
            **measure_searches(groups, decode),
            "r1_searcher/is_first": float(stages.is_first),
        },
    )
