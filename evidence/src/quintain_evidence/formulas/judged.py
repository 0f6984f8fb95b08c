"""What is computed of attempts that are judged and taken back, each beside a plain second version."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from types import ModuleType

from quintain.data.searched import with_head
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Group, Task, Text, as_content
from quintain_evidence.formulas.formula import Formula, Rng, flatten


@dataclass(frozen=True, slots=True)
class Judged:
    """An episode of attempts and verdicts in plain letters: ``Judged("ajaja", (2, 4), 1.0)``."""

    letters: str
    """a for an attempt, j for a verdict, of which each is a turn of two tokens"""
    way: tuple[int, ...]
    """numbers of the attempts that were kept"""
    outcome: float


def draw_judged(rng: Rng) -> list[list[Judged]]:
    """Return one to three tasks of one to four episodes, whose attempts are judged or not, and kept or not."""
    tasks: list[list[Judged]] = []
    for number in range(int(rng.integers(1, 4))):
        own: list[Judged] = []
        for _ in range(int(rng.integers(1, 5))):
            letters = "".join("aj" if rng.random() < 0.6 else "a" for _ in range(int(rng.integers(1, 5))))
            way = tuple(k for k, letter in enumerate(letters) if letter == "a" and rng.random() < 0.6)
            outcome = float(rng.integers(0, 2)) if number else float(rng.normal())
            own.append(Judged(letters, way, outcome))
        tasks.append(own)
    return tasks


def credit_judged(module: ModuleType, case: Sequence[Sequence[Judged]]) -> list[float]:
    """Return the advantages of all tokens, and which turns are trained."""
    groups = [
        Group(
            task=(task := Task(id=f"t{number}", environment="e", seed=0)),
            trajectories=tuple(
                episode_of(
                    [
                        turn_of(
                            (2, 3),
                            observation=(
                                Text(text=str(with_head("x", "judge" if letter == "j" else "", ()))),
                            ),
                        )
                        for letter in each.letters
                    ],
                    each.outcome,
                    task=task,
                    group=f"g/{number}",
                    index=index,
                    final_observation=as_content(with_head("x", "end", each.way)),
                )
                for index, each in enumerate(own)
            ),
        )
        for number, own in enumerate(case)
    ]
    credit = module.credit_attempts(groups, weight=0.5)
    return flatten(credit.advantages) + flatten([list(map(float, own)) for own in credit.is_trained])


def judge_by_hand(case: Sequence[Sequence[Judged]]) -> list[float]:
    """Return the same, attempt by attempt."""
    numbers, trained = list[float](), list[float]()
    for own in case:
        outcomes = [each.outcome for each in own]
        spread = stdev(outcomes) if len(outcomes) > 1 else 0.0
        share = fmean(float(k in each.way) for each in own for k, a in enumerate(each.letters) if a == "a")
        for each in own:
            lead = (each.outcome - fmean(outcomes)) / (spread + 1e-6) if spread else 0.0
            for k, letter in enumerate(each.letters):
                trained.append(float(letter == "a"))
                numbers += 2 * [lead + 0.5 * (float(k in each.way) - share) if letter == "a" else 0.0]
    return numbers + trained


FORMULAS: tuple[Formula, ...] = (
    Formula("backtrack.credit", "methods.search.backtrack", ("credit_attempts",), draw_judged, credit_judged,
        judge_by_hand),
)  # fmt: skip
