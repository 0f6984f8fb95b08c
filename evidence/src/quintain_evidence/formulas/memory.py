"""What agents remember: how entries of a bank are drawn and valued, each beside a plain second version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from types import ModuleType
from typing import Any

import torch

from quintain.agents.harness import JsonTools
from quintain.memory.bank import Bank, Entry
from quintain.memory.retrieval import Label
from quintain.text.chat import Chat
from quintain.types import Task
from quintain.worlds.calc.game import Calc
from quintain_evidence.formulas.formula import Formula, Rng
from quintain_evidence.labs.mind import mind_tokenizer


def entry_of(number: int) -> Entry:
    """Return an entry."""
    return Entry(id=str(number), key=f"k{number}", text="t", source=f"s{number % 3}")


@dataclass(frozen=True, slots=True)
class Drawing:
    """Scores of entries, and how they are read."""

    scores: tuple[float, ...]
    count: int
    temperature: float
    seed: int


def drawings(rng: Rng) -> list[Drawing]:
    """Return ten readings of up to seven entries, some of which read the best."""
    return [
        Drawing(
            tuple(rng.normal(size=int(rng.integers(1, 8))).round(2).tolist()),
            int(rng.integers(1, 5)),
            float(rng.choice([0.0, 0.1, 0.5, 3.0])),
            int(rng.integers(0, 1000)),
        )
        for _ in range(10)
    ]


def chances_read(module: ModuleType, case: Sequence[Drawing]) -> list[float]:
    """Return which entries the code reads, and with which chances."""
    found: list[float] = []
    for each in case:
        bank = module.Bank([module.Entry(**fields(k)) for k in range(len(each.scores))])
        reads = bank.read(
            "q", each.count, rank=lambda _, own, each=each: [each.scores[int(e.id)] for e in own],
            without=["s1"], temperature=each.temperature, seed=each.seed,
        )  # fmt: skip
        found += [number for read in reads for number in (float(read.entry.id), read.chance)]
    return found


def fields(number: int) -> dict[str, str]:
    """Return the fields of an entry."""
    made = entry_of(number)
    return {"id": made.id, "key": made.key, "text": made.text, "source": made.source}


def chances_by_hand(case: Sequence[Drawing]) -> list[float]:
    """Return the same: newest first among those of other sources, drawn one by one by exp(score / α), or the best."""
    import numpy as np

    found: list[float] = []
    for each in case:
        left = [k for k in reversed(range(len(each.scores))) if k % 3 != 1]
        rng = np.random.default_rng(each.seed)
        for _ in range(min(each.count, len(left))):
            if each.temperature == 0:
                best = max(each.scores[k] for k in left)
                place, chance = next(p for p, k in enumerate(left) if each.scores[k] == best), 1.0
            else:
                most = max(each.scores[k] for k in left)
                grown = [exp((each.scores[k] - most) / each.temperature) for k in left]
                chances = [number / sum(grown) for number in grown]
                place = int(rng.choice(len(left), p=chances))
                chance = chances[place]
            found += [float(left.pop(place)), chance]
    return found


Known = tuple[str, list[Label], float]
"""(query, labels, width)"""


def labels_drawn(rng: Rng) -> list[Known]:
    """Return ten queries with up to nine labels of four entries, one of which has none."""
    return [
        (
            str(round(float(rng.random()), 2)),
            [
                Label(
                    query=str(round(float(rng.random()), 2)), case=entry_of(int(rng.integers(0, 3))),
                    chance=1.0, outcome=float(rng.integers(0, 2)),
                )
                for _ in range(int(rng.integers(0, 10)))
            ],
            float(rng.choice([0.1, 0.3, 1.0])),
        )
        for _ in range(10)
    ]  # fmt: skip


def near(one: str, other: str) -> float:
    """Return how like two numbers are."""
    return 1 - abs(float(one) - float(other))


def kernel_read(module: ModuleType, case: Sequence[Known]) -> list[float]:
    """Return the code's Q of four entries."""
    own = [entry_of(k) for k in range(4)]
    return [
        value
        for query, labels, width in case
        for value in module.kernel_values(query, own, labels, like=near, width=width)
    ]


def kernel_by_hand(case: Sequence[Known]) -> list[float]:
    """Return Σ k r / Σ k of the labels of each entry, ½ where there is none."""
    found: list[float] = []
    for query, labels, width in case:
        for name in "0123":
            above = below = 0.0
            for label in labels:
                if label.case.id == name:
                    k = exp(-abs(float(query) - float(label.query)) / width)
                    above, below = above + k * label.outcome, below + k
            found.append(above / below if below else 0.5)
    return found


Towers = tuple[list[list[float]], list[list[float]], list[float], list[float]]
"""(what the tower of each query made, of each case, usual logits, outcomes)"""


def towers_drawn(rng: Rng) -> Towers:
    """Return up to eight queries and cases of three numbers each, with outcomes."""
    num = int(rng.integers(1, 9))
    return (
        rng.normal(size=(num, 3)).tolist(), rng.normal(size=(num, 3)).tolist(),
        rng.normal(size=num).tolist(), rng.integers(0, 2, num).astype(float).tolist(),
    )  # fmt: skip


def towers_read(module: ModuleType, case: Towers) -> list[float]:
    """Return the code's loss of success, and its gradient by what the towers made."""
    value = module.CaseValue(size=3, buckets=7)
    with torch.no_grad():
        for layer in (value.queries, value.cases):
            layer.weight.copy_(torch.cat((torch.eye(3), torch.zeros(3, 4)), 1))
        value.usual.weight.copy_(torch.tensor([[0.0, 0, 0, 1, 0, 0, 0]]))
        value.usual.bias.zero_()
    value.double()
    queries, cases, usual, outcomes = (torch.tensor(part, dtype=torch.float64) for part in case)
    asked = torch.cat((queries, torch.zeros(len(queries), 4)), 1).requires_grad_()
    told = torch.cat((cases, usual[:, None], torch.zeros(len(cases), 3)), 1).requires_grad_()
    loss = module.cross_entropy(value(asked, told), outcomes)
    loss.backward()
    assert asked.grad is not None and told.grad is not None, "both reach the loss"
    return [loss.item(), *asked.grad[:, :3].flatten().tolist(), *told.grad[:, :4].flatten().tolist()]


def towers_by_hand(case: Towers) -> list[float]:
    """Return the mean of -log of the chance of what came, and its gradient, (σ - r) / N times the other tower."""
    queries, cases, usual, outcomes = case
    num = len(queries)
    loss, asked, told = 0.0, list[float](), list[float]()
    for q, c, u, r in zip(queries, cases, usual, outcomes, strict=True):
        chance = 1 / (1 + exp(-(sum(a * b for a, b in zip(q, c, strict=True)) + u)))
        loss -= (log(chance) if r else log(1 - chance)) / num
        slope = (chance - r) / num
        asked += [slope * b for b in c]
        told += [*(slope * a for a in q), slope]
    return [loss, *asked, *told]


PIECES = (
    "add: look first", "add:  look   twice ", "- Add: go", "update 3: wait", "update [b]: go", "update: go", "delete 4",
    "delete", "delete [a]", "add:", "I would add: go", "", "keep", "* DELETE 2", "update 9:",
)  # fmt: skip
"""Lines of answers, with what is an edit and what is none."""
MEANT = (
    (1, "", "look first"), (1, "", "look twice"), (1, "", "go"), (2, "3", "wait"), (2, "b", "go"), None, (3, "4", ""),
    None, (3, "a", ""), None, None, "", None, (3, "2", ""), None,
)  # fmt: skip
"""What each is: (1 add, 2 update, 3 delete; number; words), None for no edit, "" for nothing."""


def answers_drawn(rng: Rng) -> list[list[int]]:
    """Return ten answers, as places of their lines."""
    return [rng.integers(0, len(PIECES), int(rng.integers(0, 6))).tolist() for _ in range(10)]


def edits_read(module: ModuleType, case: Sequence[Sequence[int]]) -> list[float]:
    """Return the edits that the code reads, and the lines that it does not."""
    found: list[float] = []
    for lines in case:
        edits, unread = module.read_edits("\n".join(PIECES[k] for k in lines), source="t")
        for edit in edits:
            kind = ("", "add", "update", "delete").index(edit.kind)
            words = edit.text or ""
            assert edit.key == edit.text and (edit.source == "t") == (edit.kind != "delete"), "as it is kept"
            found += [kind, number_words(edit.id), number_words(words)]
        found.append(float(unread))
    return found


def number_words(text: str) -> float:
    """Return a number that tells `text` from others."""
    return float(sum(ord(sign) * (k + 1) for k, sign in enumerate(text)))


def edits_by_table(case: Sequence[Sequence[int]]) -> list[float]:
    """Return the same by what each line means: the first two edits; all other lines that say something are unread."""
    found: list[float] = []
    for lines in case:
        meant = [MEANT[k] for k in lines]
        edits = [each for each in meant if each]
        for kind, name, words in edits[:2]:
            found += [float(kind), number_words(name), number_words(words)]
        found.append(float(sum(each is None for each in meant) + max(0, len(edits) - 2)))
    return found


def draw_asked(rng: Rng) -> list[tuple[list[tuple[str, str, str]], int]]:
    """Return ten lists of edits that are asked for, some more than once."""
    kinds = ("add", "update", "delete")
    return [
        (
            [
                (kinds[int(rng.integers(0, 3))], "12"[int(rng.integers(0, 2))], "ab"[int(rng.integers(0, 2))])
                for _ in range(int(rng.integers(0, 12)))
            ],
            int(rng.integers(1, 5)),
        )
        for _ in range(10)
    ]


def edits_merged(module: ModuleType, case: Sequence[tuple[list[tuple[str, str, str]], int]]) -> list[float]:
    """Return what the code carries out."""
    found: list[float] = []
    for asked, most in case:
        edits = [module.Edit(kind=kind, id=name, text=text) for kind, name, text in asked]
        found += [number_words(each.kind + each.id + each.text) for each in module.merge(edits, most)] + [
            -1.0
        ]
    return found


def merge_by_counts(case: Sequence[tuple[list[tuple[str, str, str]], int]]) -> list[float]:
    """Return the most frequent of what was asked; of equal ones what was asked first."""
    found: list[float] = []
    for asked, most in case:
        left = list(dict.fromkeys(asked))
        for _ in range(most):
            if left:
                best = max(left, key=lambda each: (asked.count(each), -asked.index(each)))
                left.remove(best)
                found.append(number_words("".join(best)))
        found.append(-1.0)
    return found


Written = tuple[bool, list[tuple[str, int]], str]
"""(whether the task is held out, functions with what they return, name that is called)"""
FUNCTIONS, ROOM = ("fig", "gum", "hat"), 4


def libraries_drawn(rng: Rng) -> list[Written]:
    """Return up to a dozen solved episodes that write and call a few functions, whose bodies differ."""

    def name() -> str:
        return FUNCTIONS[int(rng.integers(0, 3))]

    return [
        (
            bool(rng.random() < 0.15),
            [*{name(): int(rng.integers(1, 4)) for _ in range(int(rng.integers(0, 3)))}.items()],
            name() + ("" if rng.random() < 0.6 else "_2"),
        )
        for _ in range(int(rng.integers(1, 13)))
    ]


def library_grown(module: ModuleType, case: Sequence[Written]) -> list[float]:
    """Return the functions that the code keeps, with their uses, and how well they fit a query."""
    library = module.ActionLibrary(Bank(size=ROOM, length=99))
    for is_held_out, functions, called in case:
        task = Task(id="e/train/0", environment="e", seed=0, split="eval" if is_held_out else "train")
        cells = [f"def {name}(): return {body}" for name, body in functions]
        library.learn(task, [*cells, f"{called}()"], set())
    entries = library.bank.entries
    found = [number_of(each.id, int(each.text.split()[-1]), each.value) for each in entries]
    return [*found, *with_order(module.rank_by_words("a hat, figs or a fig", entries))]


def grow_by_hand(case: Sequence[Written]) -> list[float]:
    """Return the same, from a list of [name, body, uses], oldest first."""
    kept: list[list[Any]] = []
    for is_held_out, functions, called in case:
        if is_held_out:
            continue
        own: list[list[Any]] = []
        for name, body in functions:
            given, number = name, 1
            while any(k[0] == given and k[1] != body for k in kept):
                number += 1
                given = f"{name}_{number}"
            own.append([given, body, 0])
        new = [each for each in own if each[0] not in [k[0] for k in kept]]
        while len(kept) + len(new) > ROOM:
            loose = [k for k in kept if k[0] not in [each[0] for each in own]]
            fewest = min(k[2] for k in loose)
            kept.remove(next(k for k in loose if k[2] == fewest))
        kept += new
        for k in kept:
            k[2] += k[0] == called and called not in [name for name, _ in functions]
    stems = [k[0].split("_")[0] for k in kept]
    scores = [
        log(1 + len(kept) / stems.count(stem)) * (1 + 1e-9 * k[2]) if stem in ("hat", "fig") else 0.0
        for stem, k in zip(stems, kept, strict=True)
    ]
    return [*(number_of(*k) for k in kept), *with_order(scores)]


def with_order(scores: Sequence[float]) -> list[float]:
    """Return `scores`, and the places of the best, the second best and so on."""
    return [*scores, *map(float, sorted(range(len(scores)), key=lambda place: -scores[place]))]


def number_of(name: str, body: int, uses: float) -> float:
    """Return a function as a number."""
    stem, _, number = name.partition("_")
    return 1000.0 * FUNCTIONS.index(stem) + 100 * int(number or 1) + 20 * body + uses


OFFERED: tuple[tuple[object, bool], ...] = (
    ({"agent": "react"}, True), ({"agent": "tools", "tools": ["add", "answer"]}, True),
    ({"agent": "window?turns=2+react", "instructions": "Look."}, True), ({"agent": "react", "tools": ["fly"]}, False),
    ({"agent": "raect"}, False), ({"agent": "code"}, False), ({"agent": "mine.py:f"}, False),
    ({"tools": ["add"]}, False), ({"agent": "scored"}, False), (["react"], False),
)  # fmt: skip
"""Configurations for sums with tools, and whether each fits."""


def configurations_drawn(rng: Rng) -> tuple[list[int], int]:
    """Return places of up to eight configurations, and how many are wanted."""
    return rng.integers(0, len(OFFERED), int(rng.integers(0, 9))).tolist(), int(rng.integers(1, 4))


def sift_read(module: ModuleType, case: tuple[Sequence[int], int]) -> list[float]:
    """Return which configurations the code has tried, and how many it refuses."""
    places, count = case
    written = [OFFERED[place][0] for place in places]
    sound, refused = module.sift(written, Calc(), JsonTools(Chat(mind_tokenizer())), count)
    own = [each for each, _ in OFFERED if isinstance(each, dict)]
    names = [(each.get("agent"), tuple(each.get("tools", ()))) for each in own]
    return [*(float(names.index((each.agent, each.tools))) for each in sound), -1.0, float(len(refused))]


def sift_by_table(case: tuple[Sequence[int], int]) -> list[float]:
    """Return the same, by `OFFERED`."""
    places, count = case
    fitting = [*dict.fromkeys(place for place in places if OFFERED[place][1])]
    return [*map(float, fitting[:count]), -1.0, float(sum(not OFFERED[place][1] for place in places))]


FORMULAS: tuple[Formula, ...] = (
    Formula("memory.chances", "memory.bank", ("read", "softmax"), drawings, chances_read, chances_by_hand),
    Formula("memory.kernel", "memory.retrieval", ("kernel_values",), labels_drawn, kernel_read, kernel_by_hand),
    Formula("memory.case_value", "memory.retrieval", ("cross_entropy", "forward"), towers_drawn, towers_read,
        towers_by_hand),
    Formula("practice.edits", "memory.edits", ("read_edits",), answers_drawn, edits_read, edits_by_table),
    Formula("practice.merge", "memory.edits", ("merge",), draw_asked, edits_merged, merge_by_counts),
    Formula("generation.sift", "methods.agents.generation", ("sift",), configurations_drawn, sift_read,
        sift_by_table),
    Formula("agents.library", "agents.library", ("learn", "rank_by_words"), libraries_drawn, library_grown,
        grow_by_hand),
)  # fmt: skip
