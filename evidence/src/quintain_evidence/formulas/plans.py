"""How plans are cut from what was done and said, each beside a plain second version."""

from collections.abc import Sequence
from types import ModuleType

from quintain.types import Action
from quintain_evidence.formulas.formula import Formula, Rng

Way = tuple[list[str], list[float]]
"""(actions, progress before each and at the end)"""
WORDS = ("open", "red", "lamp", "buy", "it", "go")


def ways_drawn(rng: Rng) -> list[Way]:
    """Return ten ways of up to eight actions, whose progress rises, falls or stays."""
    found: list[Way] = []
    for _ in range(10):
        num = int(rng.integers(0, 9))
        found.append(([f"a{k}" for k in range(num)], rng.integers(0, 3, num + 1).astype(float).tolist()))
    return found


def ways_cut(module: ModuleType, case: Sequence[Way]) -> list[float]:
    """Return the code's steps, each as the numbers of its actions behind a mark."""
    found: list[float] = []
    for actions, progress in case:
        for step in module.split_steps([Action(text=text) for text in actions], progress):
            found += [-1.0, *(float(action.text[1:]) for action in step)]
    return found


def cut_by_marks(case: Sequence[Way]) -> list[float]:
    """Return the same: a mark before the first action, and before each that follows a change."""
    found: list[float] = []
    for actions, progress in case:
        for number in range(len(actions)):
            if number == 0 or progress[number] != progress[number - 1]:
                found.append(-1.0)
            found.append(float(number))
    return found


Told = tuple[list[list[str]], str]
"""(steps, each the texts of its actions; what was seen)"""


def draw_told(rng: Rng) -> list[Told]:
    """Return ten lists of steps in few words, some of which were seen."""

    def text(most: int) -> str:
        return " ".join(WORDS[k] for k in rng.integers(0, len(WORDS), int(rng.integers(1, most))).tolist())

    return [
        (
            [[text(4) for _ in range(int(rng.integers(1, 3)))] for _ in range(int(rng.integers(0, 20)))],
            f"Task: {text(5).upper()}. {text(3)}!",
        )
        for _ in range(10)
    ]


def plans_said(module: ModuleType, case: Sequence[Told]) -> list[float]:
    """Return the code's plans as numbers."""
    found: list[float] = []
    for steps, seen in case:
        made = module.step_plan([[Action(text=text) for text in step] for step in steps], seen)
        found += [number_of(step.text) for step in made.steps] + [letters(made.text)]
    return found


def number_of(text: str) -> float:
    """Return a number that tells texts of `WORDS` apart."""
    return float(sum((WORDS.index(word) + 1) * 7**k for k, word in enumerate(text.split())))


def letters(text: str) -> float:
    """Return the sum of the letters of `text`."""
    return float(sum(map(ord, text)))


def say_plans(case: Sequence[Told]) -> list[float]:
    """Return the last action of each step in seen words, what says nothing or the same again left out, 16 at most."""
    found: list[float] = []
    for steps, seen in case:
        words = seen.lower().replace(".", " ").replace("!", " ").replace(":", " ").split()
        said: list[str] = []
        before = ""
        for step in steps:
            text = " ".join(word for word in step[-1].split() if word in words)
            if text != before and text:
                said.append(text)
            before = text
        lines = "\n".join(f"{n + 1}. {text}" for n, text in enumerate(said[:16]))
        found += [number_of(text) for text in said[:16]] + [letters(lines)]
    return found


FORMULAS: tuple[Formula, ...] = (
    Formula("plan.split_steps", "agents.plan", ("split_steps",), ways_drawn, ways_cut, cut_by_marks),
    Formula("plan.step_plan", "agents.plan", ("step_plan",), draw_told, plans_said, say_plans),
)
