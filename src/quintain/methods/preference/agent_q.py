"""Agent Q (arXiv 2408.07199): prefers the better of two actions at one node of a search tree.

L = -log σ(β [log π/π_logged (better) - log π/π_logged (worse)]).

For each task of a round a tree is grown by guided MCTS (`quintain.search.tree.GuidedTree`). At a new state the policy
says `branches` ways on, a critic ranks them, and the best by Q + c·√(ln N(h) / (1 + N(h'))) is played to the end;
whether that solved the task is told to all states on the way. Q = α·Q̃ + (1-α)·Q̂ mixes the mean outcome through a
child with the critic's rank. Two visited children of a node whose Q differ by more than `margin` are a pair of turns.
The reference is the log-probs at sampling, so no other policy is kept.

Differences to the paper: its critic is the base language model, which picks the best way, then the best of the rest,
and so on; ours scores each way by itself, and equal scores share their rank. With `judge` that is a model behind a chat
endpoint (a way of which it says nothing that can be read has the mean rank); without it the value model of ReST-MCTS*,
which learned from the trees of earlier rounds and cannot tell ways apart in the first. A state that is over may be
selected again, and its outcome counts again. Search at test time is measured (``mcts/followed``: tasks that are solved
by whoever follows the tree, which are new in every round) and not served. All that a turn says is trained, where the
paper trains its action and the thought before it. α is .8, where the paper has .5, at which a critic that knows nothing
yet has the last word; and the better child is imitated as well (RPO, 2404.19733), unless `imitation_weight` is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, Share
from quintain.data.pairs import siblings
from quintain.engines.judge import Judge
from quintain.errors import ConfigError, UsageError
from quintain.learning.train_config import PreferenceRoundsConfig
from quintain.learning.update import Update
from quintain.losses.preference import reference_from_logprobs
from quintain.methods.loops.rounds import Collected, Rounds
from quintain.methods.method import Collector, CombinedState, Needs
from quintain.methods.preference.searching import Critic, Search
from quintain.methods.preference.updating import dpo_or_rpo
from quintain.rollout.verdicts import Verdicts
from quintain.search.values import TextValue
from quintain.types import Trajectory, as_text

RUBRIC = (
    "The last turn is one of several that were considered. How much nearer does it bring the task to being solved, "
    "for one who acts well from there on?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(PreferenceRoundsConfig):
    """Configuration of Agent Q."""

    renamed: ClassVar[Mapping[str, str]] = {"mixing": "outcome_weight"}
    """earlier names of options"""

    tasks: PositiveInt = 32
    """Tasks of a round, a tree each."""
    branches: PositiveInt = 4
    """Ways on that the policy says at a new state."""
    episodes: PositiveInt = 16
    """Episodes of a tree."""
    exploration: NonNegativeFloat = 1.0
    """c of Q + c·√(ln N(h) / (1 + N(h')))."""
    outcome_weight: Share = 0.8
    """α: share of the mean outcome in Q; the rest is the critic's rank. 0.5 is as published."""
    margin: NonNegativeFloat = 0.2
    """θ: difference of Q above which two children are a pair."""
    beta: PositiveFloat = 0.1
    """Strength of the pull towards the policy that sampled."""
    imitation_weight: NonNegativeFloat = 1.0
    """Weight of imitating the better child as well; 0 is as published."""
    judge: str = ""
    """The critic, a model behind a chat endpoint: http://127.0.0.1:8000/v1?model=NAME, and rubric=FILE where it is to
    have another rubric; empty: the value model that learns from the trees."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        PreferenceRoundsConfig.check(self)
        if self.branches < 2:
            raise ConfigError(
                f"branches: got {self.branches}, of which no two could be compared; give 2 or more"
            )
        find_judge(self.judge)


def method(config: Config) -> Rounds:
    """Return Agent Q as `config` describes it."""
    model, verdicts = TextValue(), Verdicts(config.max_broken)
    search = Search(
        tasks=config.tasks,
        branches=config.branches,
        episodes=config.episodes,
        exploration=config.exploration,
        mixing=config.outcome_weight,
        critic=critic_of(model, find_judge(config.judge), verdicts),
    )

    def collect(collector: Collector, step: int) -> Collected:
        found = search.grow(collector, step)
        return Collected(
            groups=found.groups,
            data=[siblings(found.families, margin=config.margin)],
            metrics={**found.metrics, **verdicts.measure()},
        )

    return Rounds(
        collect=collect,
        update=Update(
            loss=reference_from_logprobs(dpo_or_rpo(config.beta, config.imitation_weight)),
            is_on_policy=False,
            lr_warmup=0,
        ),
        needs=Needs(branches=True),
        state=CombinedState(None if config.judge else model),
    )


def find_judge(spec: str) -> Judge | None:
    """Return the judge that `spec` names; None where it names none.

    Raises:
        ConfigError: there is no such judge.
    """
    try:
        return Judge(spec, usual=RUBRIC) if spec else None
    except UsageError as error:
        raise ConfigError(str(error)) from error


def critic_of(model: TextValue, judge: Judge | None, verdicts: Verdicts) -> Critic:
    """Return who scores ways on: the judge, whose `verdicts` may be missing, else `model` by what they led to."""

    def scores(ways: Sequence[Trajectory]) -> Sequence[float | None]:
        if judge is None:
            return [model(as_text(way.final_observation)) for way in ways]
        judge.prepare(ways)
        return verdicts.read([judge.measure(way) for way in ways])

    return scores
