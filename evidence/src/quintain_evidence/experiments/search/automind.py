"""AutoMind: is a better solution handed in if one is told what worked on tasks of this kind, than of other kinds?

Tables of `fit`: two features of three columns are hidden in a target, and the kind of the task says which shapes they
have. A script works on the agent's tree (`drafted` at its defaults): it draws features by shape, one that it is told of
three times as often, writes a line wrong now and then, mends half of what is wrong, adds features where it is to
improve and changes numbers where it is to tune. A plan has one to three features, and the more the harder it is rated.
What is known was found out by the same script on training tasks, in longer searches that were told nothing and planned
one feature at a time: of tasks that it solved the lines that gained. In the control each is kept under the words of
another kind, as many and the same. The rival makes as many independent drafts and is told the same. In the null world
the target is a straight line of the columns, and no feature helps. What the script draws for a solution depends on its
task, its number and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from statistics import fmean
from typing import Any

from quintain.data.searched import split_head
from quintain.environments.protocol import advance, begin
from quintain.memory.bank import Bank, Entry
from quintain.search.drafted import (
    CODE,
    DONE,
    GOALS,
    KNOWN,
    LINE,
    RATE,
    SO_FAR,
    Drafted,
    DraftedWorld,
    tell_knowledge,
)
from quintain.search.solutions import Move, find_best, list_gains
from quintain.types import Action, Split, Task, as_text, derive_seed
from quintain.worlds.fit.game import GOOD, Fit
from quintain.worlds.fit.table import COLUMNS, KINDS, LIMITS, SHAPES, fill_shape

FAVOUR, WRONG, MENDED, FEATURES = 3, 0.15, 0.5, 3
"""How much more often a shape is drawn that was told; how often a line is wrong, and mended; features of a plan."""
TUNE = "other numbers"
"""What the script plans where numbers are to be changed."""
CHAT: Any = None


class Uniform(DraftedWorld):
    """The same tree, with the next solution chosen among a draft and one for each node, all alike."""

    def _choose(self, rng: Random) -> Move:
        """See `DraftedWorld`."""
        node = rng.choice([None, *self.tree])
        return Move("draft") if node is None else Move("debug" if node.metric is None else "improve", node)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return of each task the R² on hidden rows of what each arm hands in."""
    found = find_out(int(options["known"]), int(options["steps"]), seed)
    untold = Drafted(chat=CHAT)
    told = [tell_knowledge(untold, keep(found, shift)) for shift in range(len(KINDS))]
    rows: list[Mapping[str, float]] = []
    for number in range(int(options["tasks"])):
        task = draw_task("eval", number, seed)
        known = told[0]
        other = told[Random(derive_seed(seed, "other kind", number)).randrange(1, len(KINDS))]
        arms = {
            "method": DraftedWorld(Fit(), known),
            "control": DraftedWorld(Fit(), other),
            "null_method": DraftedWorld(Fit(features=0), known),
            "null_control": DraftedWorld(Fit(features=0), other),
            "extra.drafts": DraftedWorld(Fit(), change(known, drafts=known.steps)),
            "extra.uniform": Uniform(Fit(), known),
            "extra.chain": DraftedWorld(Fit(), change(known, drafts=1, greedy=1.0, tune=0.0)),
            "extra.untold": DraftedWorld(Fit(), untold),
            "extra.whole": DraftedWorld(Fit(), change(known, stepwise=5)),
        }
        row = {name: play(world, task) for name, world in arms.items()}
        row["extra.saved"] = fail_rate(arms["extra.whole"]) - fail_rate(arms["method"])
        rows.append(row)
    return rows


def change(settings: Drafted, **changes: Any) -> Drafted:
    """Return `settings` with `changes`, and with what it knows."""
    assert settings.bank is not None, "it was told something"
    return tell_knowledge(replace(settings, **changes), settings.bank)


def draw_task(split: Split, number: int, seed: int) -> Task:
    """Return a task of `split`."""
    return Task(
        id=f"fit/{split}/{number}", environment="fit", seed=derive_seed(seed, split, number), split=split
    )


def find_out(tasks: int, steps: int, seed: int) -> Sequence[Entry]:
    """Return what the script handed in of training tasks that it solved, told nothing, in `steps` solutions."""
    found: list[Entry] = []
    for number in range(tasks):
        task = draw_task("train", number, seed)
        world = DraftedWorld(Fit(), Drafted(chat=CHAT, steps=steps))
        paid = play(world, task, most=1)
        if paid >= GOOD:
            words = as_text(world.inner.reset(task)).partition(".")[0]
            found += [
                Entry(id=f"{number}/{k}", key=words, text=text, value=gain, source=task.id)
                for k, (text, gain) in enumerate(list_gains(trace(world)))
            ]
    return found


def trace(world: DraftedWorld) -> list[tuple[str, float]]:
    """Return the solutions that led to the best in the tree of `world`, and what each measured."""
    node, found = find_best(world.tree), list[tuple[str, float]]()
    while node is not None:
        found.append((node.text, node.metric or 0.0))
        node = None if node.parent is None else world.tree[node.parent]
    return found[::-1]


def keep(found: Sequence[Entry], shift: int) -> Bank:
    """Return a bank of what was `found`, each under the words of the kind that is `shift` further."""
    kinds = [number for entry in found for number, words in enumerate(KINDS) if entry.key in words]
    moved = [KINDS[(kind + shift) % len(KINDS)] for kind in kinds]
    both = zip(found, kinds, moved, strict=True)
    return Bank(
        replace(entry, key=words[KINDS[kind].index(entry.key)]) for entry, kind, words in both
    ).freeze()


def play(world: DraftedWorld, task: Task, most: int = FEATURES) -> float:
    """Return what the script, which plans `most` features at most, is paid for `task` in `world`."""
    observation, number, turns = begin(world, task), 0, 0
    while True:
        number, turns = len(world.tree), turns + 1 if number == len(world.tree) else 0
        rng = Random(derive_seed(task.id, task.seed, number, turns))
        result = advance(world, Action(text=say(as_text(split_head(observation)[2]), rng, most)))
        observation = result.observation
        if result.is_over:
            return result.reward


def fail_rate(world: DraftedWorld) -> float:
    """Return the share of the drafts in `world` that do not run."""
    return fmean(float(node.metric is None) for node in world.tree if node.kind == "draft")


def say(shown: str, rng: Random, most: int) -> str:
    """Return what the script says to what it is `shown`."""
    if shown.endswith(tuple(GOALS.values())):
        return TUNE if shown.endswith(GOALS["tune"]) else f"{rng.randint(1, most)} features"
    planned = shown.rpartition("Plan: ")[2]
    num = int(planned[0]) if planned[0].isdigit() else 0
    if shown.endswith(RATE):
        return str(1 + num)
    told = find_shapes(shown.partition(KNOWN)[2].partition("\n\n")[0])
    if shown.endswith(LINE):
        lines = [line for line in shown.removesuffix(LINE).partition(SO_FAR)[2].split("\n") if line]
        if len(lines) < num:
            return write_feature(len(lines) + 1, told, rng)
        return DONE if len(lines) > num else write_fit(lines)
    assert shown.endswith(CODE), "nothing else is asked"
    base = re.search(r"Solution \d+:\n(.*)\n(R2|Error)", shown, re.DOTALL)
    lines = [] if base is None else [line for line in base[1].split("\n") if "=" in line]
    if base is None:
        lines = [write_feature(k + 1, told, rng) for k in range(num)]
    elif base[2] == "Error":
        lines = [mend(line, rng) if rng.random() < MENDED else line for line in lines]
    elif planned.startswith(TUNE):
        lines = [re.sub(r"\b[3-6]\b", lambda _: str(rng.choice(LIMITS)), line) for line in lines]
    else:
        lines += [write_feature(len(lines) + k + 1, told, rng) for k in range(num)]
    return "\n".join([*lines, write_fit(lines)])


def find_shapes(told: str) -> list[str]:
    """Return the shapes of the features in lines that were `told`. Example: "x1 = b / a": ``p / q``."""
    found: list[str] = []
    for feature in re.findall(r"= (.*)", told):
        columns = dict(zip(dict.fromkeys(re.findall(r"\b[abc]\b", feature)), "pqr", strict=False))
        shape = re.sub(r"\b[abc]\b", lambda match, named=columns: named[match[0]], feature)
        found.append(re.sub(r"\b[3-6]\b", "k", shape))
    return found


def write_feature(number: int, told: Sequence[str], rng: Random) -> str:
    """Return a line with a feature, of a shape that was `told` more often; some name a column that is none."""
    (shape,) = rng.choices(SHAPES, [FAVOUR if shape in told else 1 for shape in SHAPES])
    feature = fill_shape(shape, rng)
    if rng.random() < WRONG:
        feature = re.sub(r"\b[abc]\b", "d", feature, count=1)
    return f"x{number} = {feature}"


def mend(line: str, rng: Random) -> str:
    """Return `line` with a column in the place of the one that is none."""
    return re.sub(r"\bd\b", rng.choice(COLUMNS), line)


def write_fit(lines: Sequence[str]) -> str:
    """Return the last line of a program."""
    return f"fit({', '.join((*COLUMNS, *(line.partition(' ')[0] for line in lines)))})"
