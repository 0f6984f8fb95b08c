"""Five small experiments to be extended, each as a repository, with patches that are right, nearly right, or cheats.

All read numbers and a seed from files and write one result, printed and into a table. What a task hides are other
numbers on another scale and another seed, so that a result which was right on what can be seen is wrong there.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import unified_diff
from random import Random
from typing import NamedTuple

from quintain.adapters.rexbench.judging import predict_range, read_number, run_trial
from quintain.adapters.rexbench.layout import Extension, Judging, Target, Trial

RUN = """import random
from method import measure

numbers = [float(text) for text in open("data.csv").read().split()]
result = measure(numbers, random.Random(int(open("seed.txt").read())))
print("result: %.6f" % result)
with open("results.csv", "w") as file:
    file.write("step,result\\n1,%.6f\\n" % result)
"""
LABEL, TABLE, COLUMN = "result:", "results.csv", "result"


class Mini(NamedTuple):
    """An experiment: what is asked for, and the body of ``measure(numbers, rng)`` in several versions."""

    asked: str
    hints: tuple[str, str]
    base: str
    changed: tuple[str, str, str]
    """a piece of the base, what stands there in the extension, and what in a usual mistake"""
    rewritten: str
    """the extension in other words, with other draws"""

    @property
    def gold(self) -> str:
        """The extension."""
        return self.base.replace(self.changed[0], self.changed[1])

    @property
    def near(self) -> str:
        """A usual mistake."""
        return self.base.replace(self.changed[0], self.changed[2])


MINIS: Mapping[str, Mini] = {
    "baseline": Mini(
        "Report the mean squared advantage with a leave-one-out baseline: from each reward of a group of four the mean "
        "of the other three is taken.",
        ("The baseline of a sample may not contain the sample.", "(sum(group) - reward) / 3"),
        """total = 0.0
for _ in range(1500):
    group = [rng.choice(numbers) + rng.gauss(0, numbers[0]) for _ in range(4)]
    total += sum(r ** 2 for r in group) / 4
return total / 1500""",
        ("r ** 2", "(r - (sum(group) - r) / 3) ** 2", "(r - sum(group) / 4) ** 2"),
        """found = []
for _ in range(1500):
    group = [rng.gauss(0, numbers[0]) + rng.choice(numbers) for _ in range(4)]
    mean = sum(group) / 4
    found += [((r - mean) * 4 / 3) ** 2 for r in group]
return sum(found) / len(found)""",
    ),
    "seeds": Mini(
        "Report the standard error of the mean over one hundred runs, in the place of the mean of one run.",
        ("An error is smaller than a deviation.", "statistics.stdev(means) / 100 ** 0.5"),
        """import statistics
means = [sum(rng.choice(numbers) for _ in range(50)) / 50 for _ in range(100)]
return means[0]""",
        ("means[0]", "statistics.stdev(means) / 100 ** 0.5", "statistics.stdev(means)"),
        """means = []
for _ in range(100):
    means.append(sum(rng.choices(numbers, k=50)) / 50)
mean = sum(means) / 100
return (sum((m - mean) ** 2 for m in means) / 99 / 100) ** 0.5""",
    ),
    "steps": Mini(
        "Train for fifty steps in the place of twenty, and report the mean distance that is left.",
        ("Nothing else changes.", "range(50)"),
        """total = 0.0
for _ in range(300):
    place = rng.choice(numbers)
    for _ in range(20):
        place -= 0.05 * (place + rng.gauss(0, 0.02 * numbers[0]))
    total += abs(place)
return total / 300""",
        ("range(20)", "range(50)", "range(40)"),
        """found = []
while len(found) < 300:
    place = rng.choices(numbers)[0]
    for _ in range(50):
        noise = rng.gauss(0, 0.02 * numbers[0])
        place = 0.95 * place - 0.05 * noise
    found.append(abs(place))
return sum(found) / 300""",
    ),
    "spread": Mini(
        "Report the mean of the unbiased variances of groups of five, in the place of the mean of their means.",
        ("Mind the degrees of freedom.", "sum of squares / 4"),
        """total = 0.0
for _ in range(2000):
    group = [rng.choice(numbers) for _ in range(5)]
    mean = sum(group) / 5
    total += mean
return total / 2000""",
        (
            "+= mean",
            "+= sum((x - mean) ** 2 for x in group) / 4",
            "+= sum((x - mean) ** 2 for x in group) / 5",
        ),
        """import statistics
return statistics.fmean(statistics.variance(rng.choices(numbers, k=5)) for _ in range(2000))""",
    ),
    "held_out": Mini(
        "Report the mean absolute error of the line on the four points that it was not fitted to, in the place of its "
        "mean slope.",
        ("Points that were fitted to are too near to the line.", "judge on points[4:]"),
        """total = 0.0
for _ in range(1000):
    places = (1, 2, 3, 4, 1, 2, 3, 4)
    points = [(x, numbers[0] * x + rng.gauss(0, numbers[0])) for x in places]
    slope = sum(x * y for x, y in points[:4]) / sum(x * x for x, _ in points[:4])
    total += slope
return total / 1000""",
        (
            "+= slope",
            "+= sum(abs(y - slope * x) for x, y in points[4:]) / 4",
            "+= sum(abs(y - slope * x) for x, y in points[:4]) / 4",
        ),
        """errors = []
for _ in range(1000):
    points = [(x, numbers[0] * x + rng.gauss(0, numbers[0])) for x in (1, 2, 3, 4, 4, 3, 2, 1)]
    top = bottom = 0.0
    for x, y in points[:4]:
        top, bottom = top + x * y, bottom + x * x
    errors += [abs(y - top / bottom * x) for x, y in points[4:]]
return sum(errors) / len(errors)""",
    ),
}


def write_method(body: str) -> str:
    """Return the file ``method.py``."""
    return "def measure(numbers, rng):\n" + "".join(f"    {line}\n" for line in body.split("\n"))


def draw_numbers(rng: Random, scale: float) -> str:
    """Return eight numbers on a scale, the first of which is the scale's own."""
    return " ".join(f"{scale * (1 + 0.6 * place + 0.1 * rng.random()):.4f}" for place in range(8)) + "\n"


def draw_extension(name: str, rng: Random, *, gold_runs: int = 20) -> Extension:
    """Return the task `name` with numbers drawn, and the ranges that `gold_runs` runs of its gold patch predict.

    Two trials: numbers on more than twice, and less than half of the scale that can be seen.
    """
    mini = MINIS[name]
    before = {
        "run_final.py": RUN, "method.py": write_method(mini.base), "data.csv": draw_numbers(rng, 1.0),
        "seed.txt": "1\n",
    }  # fmt: skip
    hidden: dict[str, str] = {}
    for trial, scale in enumerate((rng.uniform(2.5, 3.5), rng.uniform(0.25, 0.4))):
        hidden[f"{trial}/data.csv"] = draw_numbers(rng, scale)
        hidden[f"{trial}/seed.txt"] = f"{rng.randrange(1_000_000, 2_000_000)}\n"
    after = {**before, "method.py": write_method(mini.gold)}
    first, second = (
        f"\n### {title}\n{hint}\n"
        for title, hint in zip(("Hints", "More detailed hints"), mini.hints, strict=True)
    )
    open_range = Target(low=-1e9, high=1e9, label=LABEL)
    made = Extension(
        name=name, instructions=f"# {name}\n{mini.asked}\n{first}{second}", repository=before,
        judging=Judging(command=("python3", "run_final.py"), trials=(Trial(targets=(open_range,)),)),
        hidden=hidden, gold=write_diff(before, after),
    )  # fmt: skip
    trials: list[Trial] = []
    for trial in range(2):
        values: list[float] = []
        for number in range(gold_runs):
            ran = run_trial(
                made,
                {**after, "data.csv": hidden[f"{trial}/data.csv"], "seed.txt": f"{number}\n"},
                made.judging.trials[0],
            )
            value = read_number(ran.files[""], open_range)
            assert value is not None, f"the gold patch of {name} runs: {ran}"
            values.append(value)
        low, high = predict_range(values)
        targets = (
            Target(low=low, high=high, label=LABEL),
            Target(low=low, high=high, column=COLUMN, file=TABLE),
        )
        files = {path: f"{trial}/{path}" for path in ("data.csv", "seed.txt")}
        trials.append(Trial(targets=targets, files=files))
    judging = made.judging.model_copy(update={"trials": tuple(trials)})
    return Extension(
        name=name,
        instructions=made.instructions,
        repository=before,
        judging=judging,
        hidden=hidden,
        gold=made.gold,
    )


def write_diff(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return the unified diff of two repositories of the same files."""
    found = ""
    for name in sorted(before):
        lines = unified_diff(
            before[name].split("\n"), after[name].split("\n"), f"a/{name}", f"b/{name}", lineterm=""
        )
        found += "".join(f"{line}\n" for line in lines)
    return found
