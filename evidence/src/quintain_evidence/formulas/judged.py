"""What is computed of actions that are judged, before they are done or after, each beside a plain second version."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from types import ModuleType

from quintain.data.searched import with_head
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Action, Group, Task, Text, Trajectory, as_content
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


@dataclass(frozen=True, slots=True)
class Played:
    """An episode in words: ``Played("red lamp", ["click red", "back"], ["links: red", "red: buy"], True)``."""

    goal: str
    actions: list[str]
    pages: list[str]
    is_solved: bool

    def record(self) -> Trajectory:
        """Return it as it is recorded; the goal stands before the first page."""
        shown = [f"{self.goal} {self.pages[0]}", *self.pages[1:]]
        turns = [
            turn_of(action=Action(text=action), observation=as_content(page))
            for action, page in zip(self.actions, shown, strict=True)
        ]
        return episode_of(turns, float(self.is_solved), is_success=self.is_solved)


def draw_played(rng: Rng) -> list[Played]:
    """Return three to eight episodes in few words, the first solved and the second not."""

    def say(least: int, most: int) -> str:
        words = ["click", "back", "red", "lamp", "cup", "buy", "all", "home"]
        return " ".join(
            words[k] for k in rng.integers(0, len(words), int(rng.integers(least, most))).tolist()
        )

    found: list[Played] = []
    for number in range(int(rng.integers(3, 9))):
        length = int(rng.integers(1, 8))
        actions, pages = ([say(least, 4) for _ in range(length)] for least in (1, 0))
        is_solved = number == 0 or (number > 1 and rng.random() < 0.5)
        found.append(Played(say(1, 3), actions, pages, is_solved))
    return found


def describe_played(module: ModuleType, case: Sequence[Played]) -> list[float]:
    """Return the bytes of what is read of each step."""
    texts = [step.describe() for each in case for step in module.steps_of(each.record())]
    return [float(byte) for text in texts for byte in text.encode()]


def write_played(case: Sequence[Played]) -> list[float]:
    """Return the same, by words that are written out here."""
    texts = [describe_by_hand(each, k) for each in case for k in range(len(each.actions))]
    return [float(byte) for text in texts for byte in text.encode()]


def describe_by_hand(each: Played, number: int) -> str:
    """Return what is read of a step."""
    verb, *words = each.actions[number].split()
    before = each.actions[max(0, number - 4) : number]
    page = each.pages[number] if number else f"{each.goal} {each.pages[0]}"
    told = [verb, *words]
    for word in words:
        goal = f"{each.goal} {each.pages[0]}".split()
        marks = [("task", goal), ("page", page.split()), ("done", " ".join(before).split())]
        names = [name for name, known in marks if word in known] or ["else"]
        told.append("_".join([verb, *names]))
    if each.actions[number] in before:
        told.append(f"{verb}_again")
    told.append(f"{verb}_after_{before[-1].split()[0] if before else 'first'}")
    return " , ".join(told)


def find_drift(module: ModuleType, case: Sequence[Played]) -> list[float]:
    """Return how much of the last episodes names what the first two did not."""
    episodes = [each.record() for each in case]
    known = {word for each in case[:2] for action in each.actions for word in action.split()}
    return [module.drift_of(known, episodes[2:])]


def find_drift_by_hand(case: Sequence[Played]) -> list[float]:
    """Return the same."""
    known = {word for each in case[:2] for action in each.actions for word in action.split()}
    new = [
        any(
            word not in known and word not in f"{each.goal} {each.pages[0]}".split()
            for word in action.split()
        )
        for each in case[2:]
        for action in each.actions
    ]
    return [sum(new) / len(new)]


FORMULAS: tuple[Formula, ...] = (
    Formula("guidnav.steps", "search.step_scores", ("Step", "steps_of"), draw_played, describe_played, write_played),
    Formula("guidnav.drift", "search.step_scores", ("drift_of",), draw_played, find_drift, find_drift_by_hand),
    Formula("backtrack.credit", "methods.search.backtrack", ("credit_attempts",), draw_judged, credit_judged,
        judge_by_hand),
)  # fmt: skip
