"""A process reward model of actions: how good an action looks before it is done, learned from a run's episodes.

R(x, h, s, a), from 0 to 1, of the task x, the actions h before, what is seen s and the action a: ridge regression on
the words of the action and on where else each of them stands (in the task, on the page, in what was done before), so
that what is learned of one task's things holds of another's. It learns that actions of solved episodes are good and
those of failed ones are not. Demonstrations alone say nothing of what is bad, and are refused (GuidNav, arXiv
2504.16073, adds the agent's own play, judged). What follows an action is never read.

Places change: what is called otherwise than it was is not known to the model, and scored by the rest of its words. So
the newest quarter of the episodes is held against the older ones (`drift_of`): where more of its actions than is let
through name what neither the task nor any older episode names, the model is refused (`require_steady`).
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from quintain.agents.deliberation import describe_action
from quintain.data.searched import follow_searches
from quintain.errors import DataError
from quintain.search.values import TextValue
from quintain.store.run import Run
from quintain.types import Score, Task, Trajectory, as_text

RECENT = 4
"""Actions before that are read."""
NEWEST = 4
"""One in so many episodes, the newest ones, is what the others are held against."""
WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Step:
    """An action, and what was known before: ``Step("a red lamp", ("click lamps",), "links: red", "click red")``."""

    task: str
    before: tuple[str, ...]
    seen: str
    action: str

    def describe(self) -> str:
        """Return what the model reads: each word of the action with where else it stands, and what was done before.

        Example: the step above: click , red , click_task_page , click_after_click.
        """
        verb, *words = WORD.findall(self.action.lower()) or [""]
        task, seen, done = words_of(self.task), words_of(self.seen), words_of(" ".join(self.before))
        marks = [
            "".join(
                f"_{name}"
                for name, known in (("task", task), ("page", seen), ("done", done))
                if word in known
            )
            for word in words
        ]
        told = [f"{verb}{mark or '_else'}" for mark in marks]
        again = [f"{verb}_again"] if self.action in self.before else []
        last = WORD.findall(self.before[-1].lower())[:1] if self.before else ["first"]
        return " , ".join([verb, *words, *told, *again, *(f"{verb}_after_{word}" for word in last)])


def words_of(text: str) -> set[str]:
    """Return the words of `text`, in small letters."""
    return set(WORD.findall(text.lower()))


def describe_goal(task: Task, first: str) -> str:
    """Return what the task is, where it says so itself or in what is seen `first`."""
    return f"{task.prompt} {first}".strip()


def steps_of(trajectory: Trajectory) -> Iterator[Step]:
    """Yield the steps of an episode in which something was done."""
    turns = [turn for turn in trajectory.turns if not turn.is_internal]
    done: list[str] = []
    for turn in turns:
        action = describe_action(turn.action)
        goal = describe_goal(trajectory.task, as_text(turns[0].observation))
        yield Step(goal, tuple(done[-RECENT:]), as_text(turn.observation), action)
        done.append(action)


@dataclass(frozen=True, slots=True)
class StepScores:
    """What actions look like: ``StepScores.learn(trajectories)(step)``."""

    value: TextValue
    known: frozenset[str]
    """words of all actions that it learned from"""

    @classmethod
    def learn(cls, trajectories: Sequence[Trajectory]) -> StepScores:
        """Return what `trajectories` teach: each action of a solved one is worth 1, of another one 0.

        Raises:
            DataError: all are solved, or none.
        """
        num_solved = sum(t.is_success for t in trajectories)
        if not 0 < num_solved < len(trajectories):
            raise DataError(
                f"scores of actions: got {num_solved} solved of {len(trajectories)} episodes, from which nobody learns "
                "what is bad and what is good; give a run with both, such as of the agent's own play"
            )
        value = TextValue()
        said = [(step, float(t.is_success)) for t in trajectories for step in steps_of(t)]
        value.learn([(step.describe(), solved) for step, solved in said])
        return cls(value, frozenset(word for step, _ in said for word in words_of(step.action)))

    def __call__(self, step: Step) -> float:
        """Return the score of `step`, from 0 to 1."""
        return self.value(step.describe())


def drift_of(known: Collection[str], trajectories: Sequence[Trajectory]) -> float:
    """Return the share of the actions in `trajectories` with a word that is neither `known` nor named by the task.

    Example: known "click lamps"; of "click lamps", "click all lamps" and, for a red one, "click red": 1/3.
    """
    found = [
        bool(words_of(step.action) - set(known) - words_of(step.task))
        for t in trajectories
        for step in steps_of(t)
    ]
    return sum(found) / max(len(found), 1)


def load_scores(source: pathlib.Path, most: float) -> StepScores:
    """Return what the training episodes of the run at `source` teach, if its newest still agree with the older ones.

    Raises:
        DataError: there is nothing to be learned, or the drift is above `most`.
    """
    with Run.open(source, writable=False) as run:
        found = list(follow_searches(t for t in run.trajectories() if not t.task.is_held_out))
    found = [t for t in found if isinstance(t.outcome, Score)]
    return require_steady(found, most, str(source))


def require_steady(found: Sequence[Trajectory], most: float, source: str) -> StepScores:
    """Return what `found`, oldest first, teach, if the newest quarter agrees with what the others say.

    Raises:
        DataError: there is nothing to be learned, or the drift is above `most`.
    """
    num = max(len(found) // NEWEST, 1)
    older, newest = found[:-num], found[-num:]
    known = {word for t in older for step in steps_of(t) for word in words_of(step.action)}
    if (drift := drift_of(known, newest)) > most:
        raise DataError(
            f"scores of {source}: got new names in {drift:.0%} of the actions of its newest {num} episodes, where "
            f"{most:.0%} are let through: places have changed; collect newer episodes, or give most_drift=1"
        )
    return StepScores.learn(found)
