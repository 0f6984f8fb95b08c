"""Reward model (arXiv 2203.02155, eq. 1): learns scores of answers from people's rankings of them.

L = -1/C(K,2) Σ log σ(r_i - r_j), i ranked above j.

The model of the run gets a value head and becomes the reward model: its score of an episode is the value after the last
sampled token. It learns from rankings of what the starting policy does, `--answers` episodes of a task at a time, by a
synthetic labeller who knows the environment's reward and errs (`--labeller-temperature`, `--labeller-errors`,
`--tie-band`); or from preferences that people gave (`--preferences FILE`), two at a time. All answers of a ranking are
learned from together, and stand in the batch once each. ``--kind classifier`` learns of each answer by itself whether
it is good, -y log σ(r) - (1-y) log σ(-r): the labeller calls good what is worth more than `--bar`, a file what it
chose.

Comparisons leave open where zero is: at every evaluation the scores are shifted so that the expert's episodes have mean
0. Measured on what is held out: agreement (``eval/reward_model/agreement``), calibration (``…/ece``), and the
correlation of scores with lengths (``…/length_correlation``) beside that of the true reward (``…/gold_length``). A
reward model that says the same of everything is refused. What it is for: ``quintain train instruct_gpt --reward-model
RUN``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from quintain.config.ranges import NonNegativeFloat, PositiveInt, Share
from quintain.data.comparisons import Comparisons, Labeller, as_comparisons, label_groups
from quintain.environments.nothing import NO_ENVIRONMENT
from quintain.errors import ConfigError, DataError
from quintain.eval.reward_model import agreement, calibration_error, length_correlation, refuse_constant
from quintain.learning.train_config import SignalsConfig
from quintain.learning.update import Update
from quintain.losses.reward_model import bradley_terry, classification
from quintain.methods.loops.offline import Data, Offline
from quintain.methods.method import Collector, Needs
from quintain.types import Comparison, Score, Trajectory

if TYPE_CHECKING:
    from quintain.learning.policies import Policies

NUM_SHOWN = 32
"""Episodes of the expert whose mean score is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(SignalsConfig):
    """Configuration of a reward model."""

    environment: str = ""
    """Where the answers are given: a name, as for all methods; none, or empty with preferences of a file."""
    preferences: str = ""
    """File, folder or data set of preferences (chosen and rejected); empty: a synthetic labeller ranks rollouts."""
    kind: Literal["ranking", "classifier"] = "ranking"
    """What it learns: which of two answers is better, or whether each is good."""
    bar: float = 0.5
    """Reward above which the synthetic labeller calls an answer good, for a classifier."""
    held_out: Share = 0.2
    """Share of the comparisons that is not learned from, by task; what the reward model says of it is measured."""
    steps: int = 60
    learning_rate: float = 3e-4
    eval_every: int = 20
    tasks: PositiveInt = 128
    """Tasks whose answers are ranked."""
    group_size: PositiveInt = 8
    """Episodes of a task by the starting policy."""
    answers: PositiveInt = 4
    """Answers of a ranking (K); 2 for pairs."""
    batch_size: PositiveInt = 16
    """Rankings of a step."""
    labeller_temperature: NonNegativeFloat = 0.0
    """Noise of the synthetic labeller: P(one above another) = sigmoid(difference of their rewards / this). 0: the
    higher one, and equal ones tie; with noise these are a coin's."""
    labeller_errors: Share = 0.0
    """Share of the rankings that the synthetic labeller makes up."""
    tie_band: NonNegativeFloat = 0.0
    """Difference of two answers, as the labeller sees it, up to which they tie; for pairs."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        SignalsConfig.check(self)
        if self.answers < 2:
            raise ConfigError(f"answers: got {self.answers}, and nothing to compare it with; give 2 or more")
        if self.tie_band and self.answers != 2:
            raise ConfigError(
                f"tie_band: got {self.tie_band} with {self.answers} answers; give answers 2, or 0"
            )


class RewardModelling:
    """What a reward model is taught and what is measured of it: ``RewardModelling(config)``."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.shown: Sequence[Trajectory] = ()

    def compare(self, collector: Collector) -> Comparisons:
        """Return the comparisons to learn from, and keep the expert's episodes whose scores are to have mean 0."""
        config = self.config
        if config.environment != NO_ENVIRONMENT and config.kind == "ranking":  # a classifier says where 0 is
            self.shown = collector.expert_episodes(collector.tasks(0, NUM_SHOWN))
        if config.preferences:
            found = as_comparisons(collector.preferences())
        else:
            labeller = Labeller(
                temperature=config.labeller_temperature,
                error_rate=config.labeller_errors,
                tie_band=config.tie_band,
            )
            groups = collector.starting_groups(tasks=config.tasks, size=config.group_size)
            bar = config.bar if config.kind == "classifier" else None
            found = label_groups(groups, labeller, size=config.answers, seed=config.seed, bar=bar)
        if len(found) < 2 or not any(differs(each) for each in found):
            raise DataError(
                f"comparisons: got {found}, and {sum(map(differs, found))} that prefer something; raise tasks or "
                "group_size, or start from a policy whose answers differ in what they are worth"
            )
        return found

    def examine(self, policies: Policies, held_out: Data) -> Mapping[str, float]:
        """Shift the scores so that the expert's have mean 0; return what they are worth on what is `held_out`."""
        model = policies.main
        shown = model.episode_scores(self.shown)
        if shown:
            model.shift_values(-fmean(shown))
        comparisons = [each for each in held_out if isinstance(each, Comparison)]
        answers = [answer for each in comparisons for answer in each.answers]
        scores = model.episode_scores(answers)
        if model.version:
            refuse_constant(scores, of="reward model")
        parts = iter(scores)
        nested = [list(islice(parts, len(each.answers))) for each in comparisons]
        lengths = [answer.num_sampled for answer in answers]
        gold = [answer.outcome.value for answer in answers if isinstance(answer.outcome, Score)]
        known = {
            "eval/reward_model/agreement": agreement(nested, comparisons),
            "eval/reward_model/ece": calibration_error(nested, comparisons),
        } if any(map(differs, comparisons)) else {}  # fmt: skip
        return {
            **known,
            "eval/reward_model/length_correlation": length_correlation(scores, lengths),
            "eval/reward_model/gold_length": length_correlation(gold, lengths),
            "eval/reward_model/shift": -fmean(shown) if shown else 0.0,
        }


def differs(comparison: Comparison) -> bool:
    """Return whether one answer of `comparison` is better than another."""
    return len(set(comparison.ranks)) > 1


def method(config: Config) -> Offline:
    """Return the training of a reward model as `config` describes it."""
    modelling = RewardModelling(config)
    return Offline(
        data=modelling.compare,
        update=Update(
            loss=bradley_terry() if config.kind == "ranking" else classification(), is_on_policy=False
        ),
        batch_size=config.batch_size,
        needs=Needs(critic=True),
        held_out=config.held_out,
        examine=modelling.examine,
    )
