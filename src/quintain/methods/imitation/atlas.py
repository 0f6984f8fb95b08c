"""ATLaS (arXiv 2503.02197): imitates the critical steps of an expert's episodes alone.

L = -Σ_{t ∈ C} log π(a_t | h_t) / Σ_{t ∈ C} |a_t|.

C is the `ratio` of an episode's turns that matter most. All other turns stay in the context and carry no loss; the
normaliser is the number of tokens that do. An episode without a critical turn is left out. With a ratio of 1 this is
`sft`.

Differences to the paper: a rule marks the turns, where the paper asks a language model to tag plans, critical
observations, critical actions and corrections of mistakes: turns after which the environment's `progress` is another,
then turns whose action begins with one of the words `critical`. A model does so with `judge`: it scores each turn of an
episode by itself, and names no kind; an episode with a verdict that cannot be read is left out. Measured with the rule,
on `house`, with an expert that looks around needlessly in a style of its own; the paper has the expert sets of agent
benchmarks.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quintain.config.ranges import Share
from quintain.data import stages
from quintain.data.pipeline import Pipeline, PipelineResult, Stage
from quintain.engines.judge import Judge
from quintain.environments.nothing import NO_ENVIRONMENT, NONE
from quintain.errors import ConfigError, UsageError
from quintain.learning.train_config import ImitationConfig
from quintain.methods.imitation.supervised import choose_trajectories, imitate_data
from quintain.methods.loops.offline import Offline
from quintain.methods.method import Collector, Needs
from quintain.methods.rl.parts.contexts import ExpertLabels, ask_progress
from quintain.rollout.verdicts import Verdicts
from quintain.types import Action, Example, Trajectory

StepJudge = Callable[[Trajectory], Sequence[float]]
"""episode → how critical each of its turns is; 0 for one that is not"""
RUBRIC = (
    "The material is an episode and the number of one of its turns, counted from 0. Score how critical that turn is: "
    "10 where the task is decided in it (a plan that holds, something done without which the task is not solved, a "
    "mistake that is mended), 0 where it could be left out."
)
"""What a judge is asked that is given no rubric."""


CURES = {"critical": "name the first words of actions that matter (--critical), or give a --judge"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ImitationConfig):
    """Configuration of ATLaS."""

    ratio: Share = 0.3
    """Most of an episode's turns that are trained, rounded up; 1: all of them, as `sft` does."""
    critical: tuple[str, ...] = ("open", "take", "put", "pick", "buy", "submit", "answer")
    """First words of actions that are critical beside those that change the progress."""
    judge: str = ""
    """Chat endpoint that scores how critical each turn is, in the place of the rule: http://…/v1?model=NAME, and
    rubric=FILE, tape= (a resumed run then hears the same), …; empty: the rule."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        ImitationConfig.check(self)
        if not self.ratio:
            raise ConfigError("ratio: got 0, which trains no turn; give a share above 0")
        try:
            judge_of(self)
        except UsageError as error:
            raise ConfigError(str(error)) from error


def method(config: Config) -> Offline:
    """Return ATLaS as `config` describes it."""
    model = judge_of(config)
    verdicts = Verdicts(config.max_broken)
    made = (
        pipeline(config.ratio, rule(config.environment, config.critical))
        if model is None or config.ratio == 1
        else Pipeline(stages.keep_solved(), *by_model(model, verdicts, config.ratio))
    )

    def data(collector: Collector) -> PipelineResult:
        return choose_trajectories(collector.demonstrations(), made, "imitating critical turns", CURES)

    return imitate_data(
        config,
        data,
        batch_size=config.batch_size,
        needs=needs_of(config),
        metrics=lambda _: verdicts.measure(),
    )


def needs_of(config: Config) -> Needs:
    """Return what is asked for: an expert, or recorded episodes; a rule that knows progress carries these out."""
    is_read = isinstance(config.demonstrations, str) and (
        bool(config.judge) or config.environment in (NONE, NO_ENVIRONMENT)
    )
    return Needs(expert=not is_read)


def judge_of(config: Config) -> Judge | None:
    """Return the model that says how critical turns are; None where none is named, and the rule does.

    Raises:
        UsageError: the judge is no such spec, or its rubric cannot be read.
    """
    return Judge(config.judge, usual=RUBRIC) if config.judge else None


def by_model(
    model: Judge, verdicts: Verdicts, ratio: float, *, name: str = "critical"
) -> tuple[Stage, Stage]:
    """Return the stages that ask `model` about every turn and let the critical ones count.

    The first leaves out an episode with a turn of which the model said nothing that can be read.
    """
    known: dict[int, tuple[Trajectory, list[int]]] = {}

    def ask(examples: Sequence[Example]) -> list[Example]:
        left: list[Example] = []
        for example in examples:
            read = verdicts.read(model.turns(example.trajectory))
            scores = [score for score in read if score is not None]
            if len(scores) == len(read):
                known[id(example.trajectory)] = example.trajectory, most_critical(scores, ratio)
                left.append(example)
        return left

    return (
        Stage(name="read", says="has a turn without a verdict that can be read", apply=ask),
        stages.critical(lambda trajectory: known[id(trajectory)][1], name=name),
    )


def pipeline(ratio: float, judge: StepJudge) -> Pipeline:
    """Return solved → critical turns; all turns with a `ratio` of 1."""
    if ratio == 1:
        return Pipeline(stages.keep_solved())
    return Pipeline(stages.keep_solved(), stages.critical(lambda t: most_critical(judge(t), ratio)))


def most_critical(scores: Sequence[float], ratio: float) -> list[int]:
    """Return the numbers of the `ratio` of turns, rounded up, with the highest `scores` above 0; the earlier of equals.

    Example: scores 0, 2, 1, 2 at .5 → 1, 3.
    """
    most = math.ceil(ratio * len(scores) - 1e-9)
    ranked = sorted(range(len(scores)), key=lambda turn: (-scores[turn], turn))
    return sorted(turn for turn in ranked[:most] if scores[turn] > 0)


def rule(environment: str, words: Sequence[str]) -> StepJudge:
    """Return a judge by rule: 2 for a turn that changes the progress in `environment`, 1 for one of `words`.

    Without an environment it goes by the words alone.
    """
    labels = None if environment in (NONE, NO_ENVIRONMENT) else ExpertLabels(environment, ask_progress)

    def judge(trajectory: Trajectory) -> list[float]:
        return scores_of(
            [None] * len(trajectory.turns) if labels is None else labels.labels(trajectory),
            [first_word(turn.action) for turn in trajectory.turns],
            words,
            is_success=trajectory.is_success,
        )

    return judge


def scores_of(
    before: Sequence[float | None], texts: Sequence[str], words: Sequence[str], *, is_success: bool
) -> list[float]:
    """Return 2 for a turn after which the progress, known `before` each, is another, plus 1 for one of `words`.

    The last turn changed it where the episode succeeded. Progress that is not known (None) counts as unchanged.
    """
    after = [*before[1:], 1.0 if is_success else before[-1]] if before else []
    return [
        2.0 * (None not in (old, new) and old != new) + (text.split(" ")[0].lower() in words)
        for old, new, text in zip(before, after, texts, strict=True)
    ]


def first_word(action: Action) -> str:
    """Return the first word of an action, or the name of the first tool that it calls."""
    return action.tool_calls[0].name if action.tool_calls else action.text.partition(" ")[0]
