"""Practice: does a list of experiences that was learned from rewards help with new tasks, more than any list?

Twenty sentences, whose names are drawn: five help, five harm, ten do nothing. An attempt follows some of the
experiences in its list and tries some sentences of its own; it is solved with chance σ(-1 + .8 (helping - harming)) of
what it followed and tried, and its transcript says both. A script contrasts a group by reading the question alone: it
adds the sentence that better attempts had more often, and deletes the experience that they had less often. The number
is the success on new tasks of who follows the whole list. The control is the same with rewards dealt out anew within
each group. The rival is a list of as many sentences as there are, drawn at random. In the null world no sentence does
anything.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from quintain.memory.bank import Bank
from quintain.memory.edits import MAX_LENGTH, merge
from quintain.methods.agents.practice import Config, propose
from quintain.types import (
    Action,
    Completion,
    Group,
    Score,
    Stop,
    Task,
    Trajectory,
    Turn,
    as_content,
    derive_seed,
)

NUM, HELPING, HARMING, TRIED, FOLLOWED = 20, 5, 5, 6, 0.7
NOTE, ATTEMPT = (
    re.compile(r"^\[(\w+)\] (\w+)$", re.MULTILINE),
    re.compile(r"earned (\S+):\n(.*?)(?=\n\nAttempt|\Z)", re.DOTALL),
)
CLEAR = 0.6
"""Difference of mean earnings with and without a sentence from which the script speaks of it."""
WORD = re.compile(r"\bs\d+\b")
WRITTEN = Completion(token_ids=(0,), logprobs=(), stop="stop")
"""What stands for the tokens of an attempt."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications: the success on new tasks of lists that were learned."""
    steps = int(options["steps"])
    rows: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("practice", seed, number)
        worth = worths(own)
        nothing = dict.fromkeys(worth, 0.0)
        learned, other = (practise(worth, own, steps, is_permuted=each) for each in (False, True))
        null, null_other = (practise(nothing, own, steps, is_permuted=each) for each in (False, True))
        drawn = Random(own).sample(sorted(worth), len(learned))
        found = [entry.text for entry in learned.entries]
        rows.append(
            {
                "method": success(worth, [entry.text for entry in learned.entries]),
                "control": success(worth, [entry.text for entry in other.entries]),
                "extra.drawn": success(worth, drawn),
                "extra.helping": sum(worth[text] > 0 for text in found) / HELPING,
                "extra.harming": sum(worth[text] < 0 for text in found) / HARMING,
                "null_method": success(nothing, [entry.text for entry in null.entries]),
                "null_control": success(nothing, [entry.text for entry in null_other.entries]),
            }
        )
    return rows


def worths(seed: int) -> dict[str, float]:
    """Return what each sentence does to the logit of success; which one does what is drawn."""
    order = list(range(NUM))
    Random(seed).shuffle(order)
    return {
        f"s{name}": 0.8 if k < HELPING else -0.8 if k < HELPING + HARMING else 0.0
        for k, name in enumerate(order)
    }


def success(worth: Mapping[str, float], texts: Sequence[str]) -> float:
    """Return the chance of success of who follows the sentences `texts`."""
    return 1 / (1 + math.exp(1 - sum(worth[text] for text in set(texts))))


def practise(worth: Mapping[str, float], seed: int, steps: int, *, is_permuted: bool) -> Bank:
    """Return the list after `steps` steps at the method's defaults."""
    config = Config()
    notes = Bank(size=config.experiences, length=MAX_LENGTH)
    for step in range(steps):
        groups = [
            attempts(worth, notes, derive_seed(seed, step, k), config.group_size, is_permuted=is_permuted)
            for k in range(config.tasks)
        ]
        asked, _ = propose(groups, notes, lambda texts: [contrast(text) for text in texts])
        notes.edit(merge(asked, config.edits))
    return notes


def attempts(worth: Mapping[str, float], notes: Bank, seed: int, size: int, *, is_permuted: bool) -> Group:
    """Return `size` attempts at a task; rewards are dealt out anew among them where it `is_permuted`."""
    rng = Random(seed)
    task = Task(id=f"hints/train/{seed}", environment="hints", seed=seed, split="train")
    had = [
        [entry.text for entry in notes.entries if rng.random() < FOLLOWED] + rng.sample(sorted(worth), TRIED)
        for _ in range(size)
    ]
    won = [rng.random() < success(worth, own) for own in had]
    if is_permuted:
        rng.shuffle(won)
    made = [
        Trajectory(
            task=task,
            turns=(
                Turn(
                    observation=as_content("Solve it."), prompt_ids=(0,), completion=WRITTEN,
                    action=Action(text=" ".join(sorted(set(own)))), reward=float(is_won),
                ),
            ),
            outcome=Score(value=float(is_won), is_success=is_won),
            stop=Stop.TERMINATED, seed=seed, group=task.id, index=index,
        )
        for index, (own, is_won) in enumerate(zip(had, won, strict=True))
    ]  # fmt: skip
    return Group(task=task, trajectories=tuple(made))


def contrast(question: str) -> str:
    """Return the edits of a script that reads `question`: what better attempts had more often, and what less often."""
    notes = {text: name for name, text in NOTE.findall(question)}
    told = [(float(earned), set(WORD.findall(lines))) for earned, lines in ATTEMPT.findall(question)]
    means: dict[str, float] = defaultdict(float)
    for word in {word for _, had in told for word in had}:
        inside = [earned for earned, had in told if word in had]
        outside = [earned for earned, had in told if word not in had]
        if inside and outside:
            means[word] = sum(inside) / len(inside) - sum(outside) / len(outside)
    new = [word for word in sorted(means) if word not in notes and means[word] >= CLEAR]
    old = [word for word in sorted(means) if word in notes and means[word] <= -CLEAR]
    lines = [f"delete {notes[min(old, key=lambda word: means[word])]}"] if old else []
    lines += [f"add: {max(new, key=lambda word: means[word])}"] if new else []
    return "\n".join(lines)
