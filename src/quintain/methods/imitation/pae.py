"""PAE (arXiv 2412.13194): proposes tasks, and imitates the shortest episodes that an evaluator accepts.

A proposer names tasks, some of which nobody can solve; the policy tries each several times; an evaluator that errs
says 0 or 1. Of a task with more than one accepted episode those remain whose turns are at or below the 20th percentile
of its accepted ones; a single one always remains. Data of the newest rounds is trained on again.

The evaluator is the environment's outcome, above 0, or a judge behind an endpoint; `evaluator_noise` turns a share
of its verdicts round. The truth, whether the environment calls the task solved, enters nothing but
`evaluator/agreement` and the alarm `judge`. Tasks are those that the environment draws, what it says could be asked for
where a task begins (`Proposes`), or what a model behind an endpoint says that is shown that beginning.

Differences to the paper: the proposer is shown how a task begins, in words, where the paper's gets the name of a site
or what a user did there; a judge reads the whole episode, not its last pictures; neither is so unless it is asked for.
What is seen before an action is the agent's to say (one observation there), and gradients are clipped, as everywhere
here. Measured on a table over an open sokoban, with tasks that cannot be solved and an evaluator that errs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from quintain.config.ranges import PositiveInt, Share
from quintain.data.pipeline import Pipeline, Stage
from quintain.data.stages import shortest, threshold
from quintain.engines.judge import Judge
from quintain.errors import ConfigError, UsageError
from quintain.learning.train_config import RoundsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import Needs, sample_groups
from quintain.methods.proposals import check_proposer, collect_proposals, proposer_at
from quintain.methods.rl.parts.measures import Decode
from quintain.rollout.failures import check_failures
from quintain.types import Failure, Group, Score, Trajectory, derive_seed, flatten_scored

RUBRIC = "Was the task done, as its words ask for? 10: yes, all of it. 0: no, or it is not to be seen."
"""What a judge is asked that is given no rubric."""
ACCEPTED = 0.5
"""Score of a judge from which on it says 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RoundsConfig):
    """Configuration of PAE."""

    renamed: ClassVar[Mapping[str, str]] = {"evaluator_mistakes": "evaluator_noise"}
    """earlier names of options"""

    tasks: PositiveInt = 32
    """Tasks of a step."""
    group_size: PositiveInt = 8
    """Episodes of a task."""
    shortest: Share = 0.2
    """Accepted episodes of a task are imitated up to this quantile of their turns; 1 imitates all."""
    memory: PositiveInt = 4
    """Steps whose data is trained on, the newest ones."""
    judge: str = ""
    """Chat endpoint of the evaluator, where a score of 5 of 10 or more is a 1: http://…/v1?model=NAME, and rubric=FILE,
    tape= (a resumed run then hears the same), calls=, …; empty: the environment's outcome, above 0."""
    evaluator_noise: Share = 0.0
    """Share of the evaluator's verdicts that are turned round: an evaluator that errs."""
    proposer: str = ""
    """Who names the tasks: empty for the environment's draw, world for what it says could be asked for (which may be
    impossible), or the chat endpoint of a model, http://…/v1?model=NAME&temperature=1."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        RoundsConfig.check(self)
        check_proposer(self.proposer, self.max_staleness)
        try:
            evaluator_of(self)
        except UsageError as error:
            raise ConfigError(str(error)) from error


def method(config: Config) -> Rounds:
    """Return PAE as `config` describes it."""
    evaluator = evaluator_of(config)
    proposer = proposer_at(config.proposer)
    return Rounds(
        collect=collect_proposals(config.tasks, config.group_size, proposer)
        if config.proposer
        else sample_groups(config.tasks, config.group_size),
        build=Pipeline(keep_accepted(), shortest(config.shortest)),
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        memory=config.memory,
        reward=evaluator.judged,
        measure=evaluator.measure,
        needs=Needs(proposals=bool(config.proposer)),
    )


def evaluator_of(config: Config) -> Evaluator:
    """Return who accepts episodes.

    Raises:
        UsageError: the judge is no such spec, or its rubric cannot be read.
    """
    judge = Judge(config.judge, usual=RUBRIC) if config.judge else None
    return Evaluator(judge, mistakes=config.evaluator_noise, most_broken=config.max_broken)


def keep_accepted() -> Stage:
    """Return the stage that keeps what the evaluator pays for."""
    return threshold(0.0, name="accepted")


class Evaluator:
    """Says 0 or 1 of each episode, and is measured by the truth: ``Evaluator(None, mistakes=0.05).judged(groups)``.

    Whether a verdict is turned round depends on the seed of its episode alone, so that a resumed run repeats it.

    Args:
        judge: a model that is asked; None: the environment's outcome, above 0.
        mistakes: share of verdicts that are turned round.
        most_broken: share of episodes of which the judge may fail to say anything; they are left out.
    """

    def __init__(self, judge: Judge | None, *, mistakes: float = 0.0, most_broken: float = 1.0) -> None:
        self.judge, self.mistakes, self.most_broken = judge, mistakes, most_broken
        self._measured: Mapping[str, float] = {}

    def judged(self, groups: Sequence[Group]) -> Sequence[Group]:
        """Return `groups` with verdicts as outcomes, 0 or 1; whether a task is solved stays as it was.

        Raises:
            FailureRateError: of too many episodes a judge says nothing that can be read.
        """
        episodes = flatten_scored(groups)
        if self.judge is not None:
            self.judge.prepare(episodes)
        said = {id(t): self.verdict(t) for t in episodes}
        broken = [verdict for verdict in said.values() if isinstance(verdict, Failure)]
        check_failures(broken, finished=len(episodes), total=len(episodes), most=self.most_broken)
        self._measured = measure_agreement(
            [(v, t.is_success) for t in episodes if isinstance(v := said[id(t)], bool)]
        )
        self._measured = {**self._measured, "evaluator/unread": len(broken) / max(len(episodes), 1)}
        return [
            replace(group, trajectories=tuple(pay_verdict(t, said.get(id(t))) for t in group.trajectories))
            for group in groups
        ]

    def verdict(self, trajectory: Trajectory) -> bool | Failure:
        """Return whether a scored episode is accepted, or why nothing is said of it."""
        if self.judge is None:
            assert isinstance(trajectory.outcome, Score), "only scored episodes are looked at"
            says = trajectory.outcome.value > 0
        else:
            score = self.judge.measure(trajectory)
            if isinstance(score, Failure):
                return score
            says = score >= ACCEPTED
        return says != errs(trajectory, self.mistakes)

    def measure(self, groups: Sequence[Group], _: Decode) -> Mapping[str, float]:
        """Return what the evaluator is worth, and of how many tasks an episode solved, by the truth, in this round."""
        tasks = [group for group in groups if group.scored]
        solved = sum(any(t.is_success for t in group.scored) for group in tasks)
        return {
            **self._measured,
            "proposer/tasks": float(len(groups)),
            "proposer/solved": solved / max(len(tasks), 1),
        }


def errs(trajectory: Trajectory, share: float) -> bool:
    """Return whether the verdict of an episode is turned round, by its own seed; a higher share errs there as well."""
    return (
        Random(derive_seed("evaluator", trajectory.seed, trajectory.task.id, trajectory.index)).random()
        < share
    )


def pay_verdict(trajectory: Trajectory, verdict: bool | Failure | None) -> Trajectory:
    """Return an episode with `verdict` as its outcome; None leaves it as it is."""
    if verdict is None or isinstance(verdict, Failure):
        return trajectory if verdict is None else replace(trajectory, outcome=verdict)
    return replace(trajectory, outcome=Score(value=float(verdict), is_success=trajectory.is_success))


def measure_agreement(verdicts: Sequence[tuple[bool, bool]]) -> dict[str, float]:
    """Return how `verdicts`, pairs of what was said and what is true, agree; {} of none.

    ``evaluator/agreement`` is the share in which both are the same, ``evaluator/error`` its standard error,
    ``evaluator/accepted`` the share that is accepted, ``evaluator/false_accepts`` that of failures alone.
    """
    if not verdicts:
        return {}
    agrees = sum(said == truth for said, truth in verdicts) / len(verdicts)
    failures = [said for said, truth in verdicts if not truth]
    return {
        "evaluator/agreement": agrees,
        "evaluator/error": math.sqrt(agrees * (1 - agrees) / len(verdicts)),
        "evaluator/accepted": sum(said for said, _ in verdicts) / len(verdicts),
        "evaluator/false_accepts": sum(failures) / max(len(failures), 1),
    }
