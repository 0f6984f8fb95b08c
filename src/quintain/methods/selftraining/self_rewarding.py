"""Self-Rewarding LM (arXiv 2401.10020): prefers its own answers by its own judgement of them.

Of each task M_t gives `group_size` answers and judges each `judgements` times; scores are averaged. The best and the
worst make a pair, ties none, and M_{t+1} is M_t after DPO on the pairs of the round, with M_t as the reference. The
judge is the policy: what it learns changes its verdicts, too. So its agreement with the truth is measured, as the share
of pairs of a right and a wrong answer that it ranks rightly, and the alarm `judge` tells when that falls. The truth,
which is the reward term ``answer``, enters nothing else.

Differences to the paper: the environment asks for the verdict (`sums` for right or wrong; another one may show a
rubric and ask for a score of 5), where the paper prompts with one rubric; tasks are the environment's, where the paper
lets the model write instructions; how to answer and how to judge is learned from demonstrations, its two seed sets.
The score's scale is 0 to 1. Measured on sums of single digits, where the paper has instructions.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from quintain.agents.deliberation import describe_action
from quintain.config.ranges import PositiveFloat, PositiveInt
from quintain.errors import ConfigError
from quintain.learning.train_config import RoundsConfig
from quintain.learning.update import Update
from quintain.losses.preference import dpo
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import Collector, Needs
from quintain.methods.rl.parts.contexts import single
from quintain.methods.rl.parts.measures import Decode
from quintain.rollout.replay import prefixes_of
from quintain.types import ANSWER, Group, Pair, Trajectory, flatten_scored

SCORE = re.compile(
    r"score\s*:\s*(\d+(?:\.\d+)?)(?:\s*/\s*5)?|(?<![\d.])(\d+(?:\.\d+)?)\s*/\s*5(?![\d.])", re.IGNORECASE
)
MOST = 5.0
"""Points of the additive rubric."""
WORDS: Mapping[str, float] = {"right": 1.0, "wrong": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RoundsConfig):
    """Configuration of Self-Rewarding LM."""

    environment: str = "sums?digits=1"
    """An environment that asks for a verdict on an answer that it has read."""
    learning_rate: float = 1e-4
    tasks: PositiveInt = 64
    """Tasks of a round."""
    group_size: PositiveInt = 4
    """Answers to a task."""
    judgements: PositiveInt = 3
    """Judgements of an answer, whose scores are averaged."""
    beta: PositiveFloat = 0.1
    """Strength of the pull towards the policy that the round began with."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        RoundsConfig.check(self)
        if self.group_size < 2:
            raise ConfigError(
                f"group_size: got {self.group_size}, of which no two could be compared; give 2 or more"
            )


def method(config: Config) -> Rounds:
    """Return Self-Rewarding LM as `config` describes it."""
    return Rounds(
        collect=sample_and_judge(config.tasks, config.group_size, config.judgements),
        build=prefer_best,
        update=Update(
            loss=dpo(config.beta),
            has_reference=True,
            is_own_reference=True,
            is_on_policy=False,
            lr_warmup=0,
        ),
        needs=Needs(branches=True, answers=True),
        measure=measure_judge,
    )


def sample_and_judge(tasks: int, size: int, judgements: int) -> Callable[[Collector, int], list[Group]]:
    """Return the collection of `size` answers to each task; a group is one answer with each of its judgements."""

    def collect(collector: Collector, step: int) -> list[Group]:
        played = collector.sample(step, collector.tasks(step, tasks), size=size, max_turns=2)
        episodes = [t for t in flatten_scored(played) if len(t.turns) == 2 and t.turns[0].is_valid]
        prefixes = [p for p in prefixes_of(collector.replay_episodes(episodes)) if len(p.turns) == 1]
        again = (
            collector.continue_from(step, prefixes, size=judgements - 1, max_turns=2)
            if judgements > 1 and prefixes
            else [Group(task=t.task, trajectories=()) for t in episodes]
        )
        return [
            Group(task=first.task, trajectories=(first, *others.trajectories))
            for first, others in zip(episodes, again, strict=True)
        ]

    return collect


def read_score(text: str) -> float | None:
    """Return the score from 0 to 1 that a judgement gives; of several the last, None where there is none.

    Example: "right" 1, "Score: 4.5" .9, "3/5" .6, "6/5" None.
    """
    word = text.strip().strip(".").lower()
    if word in WORDS:
        return WORDS[word]
    found = [float(said or share) for said, share in SCORE.findall(text)]
    return found[-1] / MOST if found and found[-1] <= MOST else None


def score_of(answer: Group) -> float | None:
    """Return the mean score of the judgements of an answer that can be read; None where none can."""
    read = [read_score(describe_action(t.turns[-1].action)) for t in answer.scored if len(t.turns) == 2]
    scores = [score for score in read if score is not None]
    return sum(scores) / len(scores) if scores else None


def by_task(answers: Sequence[Group]) -> list[list[tuple[float, Trajectory]]]:
    """Return the answers of each task that have a score: the score, and the answer as an episode of one turn."""
    found: dict[str, list[tuple[float, Trajectory]]] = {}
    for answer in answers:
        score = score_of(answer)
        if score is not None:
            found.setdefault(answer.task.id, []).append((score, single(answer.trajectories[0], 0)))
    return list(found.values())


def prefer_best(answers: Sequence[Group]) -> list[Pair]:
    """Return the best against the worst answer of each task by the judge's scores; of equal ones the first."""
    pairs: list[Pair] = []
    for own in by_task(answers):
        (high, best), (low, worst) = max(own, key=lambda one: one[0]), min(own, key=lambda one: one[0])
        if high > low:
            pairs.append(Pair(chosen=best, rejected=worst, margin=high - low))
    return pairs


def agreement(scores: Sequence[tuple[float, bool]]) -> float | None:
    """Return the share of pairs of a right and a wrong answer in which the right one has the higher score, ties half.

    None where all are right, or none is. The same as the area under the judge's ROC curve.
    """
    right, wrong = ([score for score, truth in scores if truth is which] for which in (True, False))
    if not right or not wrong:
        return None
    wins = sum((a > b) + 0.5 * (a == b) for a, b in product(right, wrong))
    return wins / (len(right) * len(wrong))


def measure_judge(answers: Sequence[Group], _: Decode) -> dict[str, float]:
    """Return the judge's agreement with the truth, what could not be read, and how long preferred answers are."""
    judgements = [t for answer in answers for t in answer.scored if len(t.turns) == 2]
    unread = sum(read_score(describe_action(t.turns[-1].action)) is None for t in judgements)
    known = [one for own in by_task(answers) for one in own]
    agrees = agreement([(score, t.turns[0].reward_terms.get(ANSWER, 0.0) > 0) for score, t in known])
    pairs = prefer_best(answers)
    found = {
        "judge/unread": unread / max(len(judgements), 1),
        "judge/score": sum(score for score, _ in known) / max(len(known), 1),
        "judge/answer_tokens": sum(t.num_sampled for _, t in known) / max(len(known), 1),
        "judge/preferred_tokens": sum(p.chosen.num_sampled - p.rejected.num_sampled for p in pairs)
        / max(len(pairs), 1),
    }
    return found if agrees is None else {"judge/agreement": agrees, **found}
