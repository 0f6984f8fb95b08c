"""What imitation makes its data by, each beside a plain second version: marks, filters, weights."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt
from types import ModuleType

import numpy as np
import torch

from quintain.data.pack import pack
from quintain.losses.imitation import imitation
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import (
    Action,
    Example,
    Group,
    Outputs,
    Text,
    Trajectory,
    Turn,
    derive_seed,
)
from quintain_evidence.formulas.formula import Formula, Rng, flatten

RATIOS = (0.1, 0.3, 0.5, 1.0)
"""Shares of turns that are marked."""
WORDS = ("open", "take", "put")
TEXTS = ("open", "take mug", "Put", "go to desk", "look", "opener", "")
LONGEST = 24
"""Tokens of an episode that is short enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An episode in plain numbers: tokens read and said in each turn, whether it came out right, a weight a turn."""

    read: list[list[int]]
    said: list[list[int]]
    weights: list[float]
    is_right: bool

    def example(self) -> Example:
        """Return the episode as the code that ships takes it."""
        turns = (
            turn_of(said, Action(text=str(said)), prompt_ids=tuple(read))
            for read, said in zip(self.read, self.said, strict=True)
        )
        trajectory = episode_of(turns, float(self.is_right), is_success=self.is_right)
        return Example(trajectory=trajectory, sources=("t",))


def episodes(rng: Rng) -> list[Told]:
    """Return one to six ragged episodes; at least one token of the first counts."""
    found: list[Told] = []
    for number in range(int(rng.integers(1, 7))):
        num = int(rng.integers(1, 5))
        weights = [float(w) for w in rng.choice([0.0, 0.0, 0.5, 1.0, 2.0], num)]
        if not number:
            weights[0] = 1.0
        found.append(
            Told(
                read=[rng.integers(0, 50, int(rng.integers(1, 8))).tolist() for _ in range(num)],
                said=[rng.integers(0, 50, int(rng.integers(1, 5))).tolist() for _ in range(num)],
                weights=weights,
                is_right=bool(rng.random() < 0.6),
            )
        )
    return found


def logs_of(case: Sequence[Told]) -> list[list[list[float]]]:
    """Return a log-probability of every token that is said, made of its place, [episode][turn][token]."""
    return [
        [
            [-0.1 - 0.01 * ((7 * i + 5 * k + 3 * j) % 40) for j in range(len(turn))]
            for k, turn in enumerate(told.said)
        ]
        for i, told in enumerate(case)
    ]


def weighed(module: ModuleType, case: Sequence[Told]) -> list[float]:
    """Return the loss over what counts of all episodes and its slopes by every token's log-probability."""
    examples = [module.weigh_turns(told.example(), told.weights) for told in case]
    samples = module.example_samples(examples)
    batch = pack(samples)
    known = logs_of(case)
    logs = torch.zeros(len(batch.token_ids))
    place = 0
    for sample in samples:
        said = [x for turn in known[sample.trajectory] for x in turn]
        at = [place + k for k, turn in enumerate(sample.turn_id.tolist()) if turn >= 0]
        logs[at] = torch.tensor(said)
        place += len(sample.token_ids)
    logs.requires_grad_()
    found = imitation()(Outputs(logprobs=logs, entropy=torch.zeros_like(logs), values=None), batch).loss
    (slopes,) = torch.autograd.grad(found, logs)
    return flatten([found.item(), slopes, [sample.trajectory for sample in samples]])


def weighed_plainly(case: Sequence[Told]) -> list[float]:
    """Return the same: -Σ w·log π over the number of tokens with a weight; episodes without one are left out."""
    kept = [i for i, told in enumerate(case) if any(told.weights)]
    count = sum(len(case[i].said[k]) for i in kept for k, w in enumerate(case[i].weights) if w)
    logs, total, slopes = logs_of(case), 0.0, list[float]()
    for i in kept:
        for k, weight in enumerate(case[i].weights):
            slopes += [0.0] * len(case[i].read[k])
            for log in logs[i][k]:
                total -= weight * log / count
                slopes.append(-weight / count)
    return [total, *slopes, *map(float, kept)]


def kept_as_right(module: ModuleType, case: Sequence[Told]) -> list[float]:
    """Return which episodes FireAct imitates, and how many it counts behind each stage."""
    examples = [told.example() for told in case]
    made = module.pipeline(LONGEST).run(examples)
    kept = {id(example.trajectory) for example in made.examples}
    counts = [passage.num_out for passage in made.funnel.passages]
    return flatten([[float(id(example.trajectory) in kept) for example in examples], counts])


def kept_as_right_plainly(case: Sequence[Told]) -> list[float]:
    """Return the same: right, and with all it read and said not longer than allowed."""
    right = [told.is_right for told in case]
    short = [sum(map(len, [*told.read, *told.said])) <= LONGEST for told in case]
    both = [float(a and b) for a, b in zip(right, short, strict=True)]
    return [*both, float(sum(right)), sum(both)]


Marked = tuple[list[float | None], list[str], bool]
"""progress before each turn, what was done in it, and whether the episode succeeded"""


def marks(rng: Rng) -> Marked:
    """Return one to twelve turns; progress moves now and then, and is sometimes not known."""
    num, level, known = int(rng.integers(1, 13)), 0.0, list[float | None]()
    for _ in range(num):
        known.append(None if rng.random() < 0.1 else level)
        level = float(rng.choice([level, level, 0.5, 1.0, 0.0]))
    return known, [str(text) for text in rng.choice(TEXTS, num)], bool(rng.random() < 0.5)


def marked(module: ModuleType, case: Marked) -> list[float]:
    """Return ATLaS' marks at each ratio."""
    scores = module.scores_of(case[0], case[1], WORDS, is_success=case[2])
    chosen = [module.most_critical(scores, ratio) for ratio in RATIOS]
    return flatten([scores, [[float(k in own) for k in range(len(scores))] for own in chosen]])


def marked_plainly(case: Marked) -> list[float]:
    """Return the same: a turn is marked where fewer than the quota are more critical, or as critical and earlier."""
    before, texts, is_success = case
    num, scores = len(texts), list[float]()
    for turn, text in enumerate(texts):
        score, old = 0.0, before[turn]
        new = before[turn + 1] if turn + 1 < num else (1.0 if is_success else old)
        if old is not None and new is not None and old != new:
            score += 2
        if text.lower().split(" ")[0] in WORDS:
            score += 1
        scores.append(score)
    found = list(scores)
    for ratio in RATIOS:
        for turn, own in enumerate(scores):
            ahead = sum(o > own or (o == own and k < turn) for k, o in enumerate(scores))
            found.append(float(own > 0 and ahead < ceil(round(ratio * num, 6))))
    return found


Parts = tuple[list[Told], list[str], dict[str, float]]
"""episodes, the part that each is of, and the shares of parts"""


def parts(rng: Rng) -> Parts:
    """Return two to twelve episodes of up to three parts, of which all that have a share occur."""
    told = [each for _ in range(3) for each in episodes(rng)][:12]
    told = told if len(told) > 1 else told * 2
    names = [str(name) for name in rng.choice(["a", "b", "c"], len(told))]
    shares = {name: float(rng.choice([0.0, 0.2, 1.0, 3.0])) for name in sorted(set(names))}
    shares[names[0]] = 0.5
    return told, names, shares


def drawn(module: ModuleType, case: Parts) -> list[float]:
    """Return how likely every episode is to be drawn, by samples and by tokens."""
    examples = [told.example() for told in case[0]]
    part = {id(example): name for example, name in zip(examples, case[1], strict=True)}
    return flatten(
        [module.odds(examples, lambda e: part[id(e)], case[2], count) for count in ("samples", "tokens")]
    )


def drawn_plainly(case: Parts) -> list[float]:
    """Return the same: by tokens, a part's chance times the mean length of its episodes is to be as its share."""
    told, names, shares = case
    found: list[float] = []
    for by_tokens in (False, True):
        chance: dict[str, float] = {}
        for name, share in shares.items():
            own = [sum(map(len, t.said)) for t, n in zip(told, names, strict=True) if n == name]
            chance[name] = share / (sum(own) / len(own) if by_tokens else 1.0)
        total = sum(chance.values())
        found += [chance[name] / total / names.count(name) for name in names]
    return found


Levels = tuple[list[int], list[int]]


def levels(rng: Rng) -> Levels:
    """Return the difficulties of what is shown and of the tasks, which have every one of them."""
    tasks = rng.integers(0, 5, int(rng.integers(3, 30))).tolist()
    return rng.choice(tasks, int(rng.integers(1, 20))).tolist(), tasks


def gap_plainly(case: Levels) -> list[float]:
    """Return KL(shown ‖ tasks) as a sum over what is shown, each a share of it."""
    shown, tasks = case
    return [
        sum(np.log(shown.count(k) * len(tasks) / len(shown) / tasks.count(k)) for k in shown) / len(shown)
    ]


Spoken = tuple[list[tuple[str, str]], str]
"""(what was read, what was said) of each turn, and the answer"""


def spoken(rng: Rng) -> Spoken:
    """Return one to four turns of a few numbers and marks, and an answer of one or two words."""

    def text() -> str:
        return " ".join(
            rng.choice(["10", "100", "Red,", "red", "(blue)", "the", "10."], int(rng.integers(0, 4)))
        )

    turns = [(text(), text()) for _ in range(int(rng.integers(1, 5)))]
    return turns, str(rng.choice(["10", "red", "red 10", "blue", ""]))


def early_plainly(case: Spoken) -> list[float]:
    """Return whether the answer is said before it was read, by words with a blank on both sides."""

    def padded(text: str) -> str:
        return f" {' '.join(re.findall('[a-z0-9]+', text.lower()))} "

    turns, gold = case
    for k, (_, said) in enumerate(turns):
        read = padded(" ".join(before for before, _ in turns[: k + 1]))
        if gold and padded(gold) in padded(said) and padded(gold) not in read:
            return [1.0]
    return [0.0]


def books(rng: Rng) -> tuple[str, str]:
    """Return what was read, facts and a question, and what was then said."""
    facts = [
        f"{key} = {int(rng.integers(0, 3))}{' (new)' if rng.random() < 0.2 else ''}."
        for key in rng.choice(["red", "blue", "tired"], int(rng.integers(0, 4)))
    ]
    said = str(rng.choice(["read", "answer 0", "answer 1", "Answer 2", "wait", " READ "]))
    return " ".join([*facts, f"{rng.choice(['red', 'blue'])}?"]), said


def grounded_plainly(case: tuple[str, str]) -> list[float]:
    """Return 1 where the last fact about the key is what is said, or where there is none and reading goes on."""
    read, said = case
    words = read.split()
    key, known = words[-1][:-1], ""
    for k in range(len(words) - 2):
        if words[k] == key and words[k + 1] == "=":
            known = words[k + 2].strip(".")
    first, _, number = said.strip().lower().partition(" ")
    return [float(number == known if first == "answer" and known else first == "read" and not known)]


def courses(rng: Rng) -> list[float | None]:
    """Return the progress before each of up to nine turns, sometimes not known."""
    return [
        None if rng.random() < 0.1 else float(rng.integers(0, 4)) / 4 for _ in range(int(rng.integers(0, 10)))
    ]


def kept_plainly(before: list[float | None]) -> list[float]:
    """Return the same: the longest beginning that ends with a rise to a level that nothing later is below."""
    for num in range(len(before) - 1, 0, -1):
        old, new = before[num - 1], before[num]
        known = [level for level in before[num:] if level is not None]
        if old is not None and new is not None and old < new == min(known):
            return [float(num)]
    return [0.0]


def requests(rng: Rng) -> tuple[str, list[str]]:
    """Return a text of few words, and up to six others, some of which share none with it."""

    def text() -> str:
        return " ".join(rng.choice(["open", "Open", "red", "blue", "lamp", "a"], int(rng.integers(0, 5))))

    return text(), [text() for _ in range(int(rng.integers(0, 7)))]


def alike_plainly(case: tuple[str, list[str]]) -> list[float]:
    """Return the place of the text whose vector of counts has the smallest angle, -1 where all are at right angles."""
    text, others = case
    names = ("open", "red", "blue", "lamp", "a")

    def vector(of: str) -> list[int]:
        return [of.lower().split().count(name) for name in names]

    best, found = 0.0, -1
    for place, other in enumerate(others):
        one, two = np.array(vector(text), np.float64), np.array(vector(other), np.float64)
        if one.any() and two.any():
            angle = float(one @ two) / float(np.sqrt((one @ one) * (two @ two)))
            if angle > best + 1e-12:
                best, found = angle, place
    return [float(found), round(best, 12)]


def alike(module: ModuleType, case: tuple[str, list[str]]) -> list[float]:
    """Return which text `module` finds most alike, and how much."""
    text, others = case
    place = module.most_alike(text, others)
    return [-1.0, 0.0] if place is None else [float(place), module.likeness(text, others[place])]


def replies(rng: Rng) -> tuple[list[bool], list[bool]]:
    """Return of up to nine replies whether they have the form of a call, and whether they make one."""
    num = int(rng.integers(1, 10))
    return (rng.random(num) < 0.5).tolist(), (rng.random(num) < 0.3).tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """A step that the policy took its own way, in plain words and numbers."""

    shown: list[str]
    explored: list[str]
    way_out: list[str]
    number: int
    worth: tuple[float, float, float]
    """of the expert's step before it, of the expert's, of the policy's"""
    is_success: bool
    is_saved: bool
    """whether the way out solves the task"""


ALIKE = 0.77
"""Cosine from which on two actions are the same."""


def explored(rng: Rng) -> Explored:
    """Return episodes of one to five turns of few words; the step is in each, and two of them begin alike."""

    def texts(num: int) -> list[str]:
        return [
            " ".join(rng.choice(["go", "Go", "take", "mug"], int(rng.integers(0, 4)))) for _ in range(num)
        ]

    number = int(rng.integers(0, 4))
    own = texts(number + 1 + int(rng.integers(0, 3)))
    return Explored(
        shown=texts(number + 1 + int(rng.integers(0, 3))),
        explored=own,
        way_out=[*own[: number + 1], *texts(int(rng.integers(1, 4)))],
        number=number,
        worth=(float(rng.integers(0, 3)) / 2, float(rng.integers(0, 3)) / 2, float(rng.integers(0, 3)) / 2),
        is_success=bool(rng.random() < 0.4),
        is_saved=bool(rng.random() < 0.8),
    )


def calibrated(module: ModuleType, case: Explored) -> list[float]:
    """Return what STeCa learns of a step, and the weight of every turn of it."""

    def episode(texts: list[str], *, is_success: bool) -> Trajectory:
        count = len(texts)
        told = Told(read=[[1]] * count, said=[[2]] * count, weights=[1.0] * count, is_right=is_success)
        whole = told.example().trajectory
        turns = tuple(replace(t, action=Action(text=x)) for t, x in zip(whole.turns, texts, strict=True))
        return replace(whole, turns=turns)

    before, expert, own = case.worth
    step = module.Step(
        shown=episode(case.shown, is_success=True),
        number=case.number,
        explored=episode(case.explored, is_success=case.is_success),
        before=before,
        expert=expert,
        own=own,
        way_out=episode(case.way_out, is_success=case.is_saved),
    )
    kinds = module.kinds_of(step, ALIKE)
    weights = [module.imitate_step(step, kind).weights for kind in kinds]
    names = ("calibrated", "shown", "explored")
    return flatten([[float(name in kinds) for name in names], [list(own) for own in weights]])


def calibrated_plainly(case: Explored) -> list[float]:
    """Return the same, with distances as the least over all paths that are walked one by one."""
    number, (before, expert, own) = case.number, case.worth
    mine, theirs = case.explored[number], case.shown[number]

    def alike(left: str, right: str) -> float:
        a, b = left.lower().split(), right.lower().split()
        if sorted(a) == sorted(b):
            return 1.0
        both = np.array([[a.count(w), b.count(w)] for w in sorted({*a, *b})], float)
        norms = np.linalg.norm(both, axis=0)
        return float(both[:, 0] @ both[:, 1] / norms.prod()) if norms.all() else 0.0

    def far(left: list[str], right: list[str]) -> float:
        def walk(i: int, j: int) -> float:
            here = 1 - alike(left[i], right[j])
            ahead = [(i + 1, j + 1), (i + 1, j), (i, j + 1)]
            return here + min((walk(a, b) for a, b in ahead if a < len(left) and b < len(right)), default=0.0)

        if not left or not right:
            return float(len(left) + len(right) > 0)
        return walk(0, 0) / max(len(left), len(right))

    is_calibrated = (
        number > 0 and case.is_saved and own <= before and not case.is_success
        and mine != theirs and alike(mine, theirs) < ALIKE
    )  # fmt: skip
    is_shown, is_explored = expert > own + 0.01, case.is_success and own >= expert
    found = [float(is_calibrated), float(is_shown), float(is_explored)]
    if is_calibrated:
        rest = case.way_out[number + 1 :]
        found += [0.0] * (number + 1) + [1 + 0.01 * far(rest, case.explored[number + 1 :])] * len(rest)
    if is_shown:
        rest = case.shown[number:]
        found += [0.0] * number + [1 + 0.01 * far(rest, case.explored[number:])] * len(rest)
    if is_explored:
        rest = case.explored[number:]
        found += [0.0] * number + [1 - 0.01 * far(rest, case.shown[number:])] * len(rest)
    return found


Call = tuple[int, int, bool]
"""what was shown, what was said, and whether it was carried out"""
Tried = list[tuple[list[Call], bool]]
"""the calls of each episode, and whether it solved the task"""


def tried(rng: Rng) -> Tried:
    """Return two to five episodes of a task of one to three calls each; many begin alike."""
    return [
        (
            [
                (int(rng.random() < 0.2), int(rng.integers(0, 3)), bool(rng.random() < 0.5))
                for _ in range(int(rng.integers(1, 4)))
            ],
            bool(rng.random() < 0.6),
        )
        for _ in range(int(rng.integers(2, 6)))
    ]


def compared(module: ModuleType, case: Tried) -> list[float]:
    """Return both sides of every pair of calls: what was shown and said in all their turns, by pair."""
    episodes: list[Trajectory] = []
    for index, (calls, is_success) in enumerate(case):
        shown, said = [[shown] for shown, _, _ in calls], [[said] for _, said, _ in calls]
        told = Told(read=shown, said=said, weights=[1.0] * len(calls), is_right=is_success)
        whole = told.example().trajectory
        turns = tuple(
            replace(t, is_valid=is_valid) for t, (_, _, is_valid) in zip(whole.turns, calls, strict=True)
        )
        episodes.append(replace(whole, turns=turns, index=index))
    group = Group(task=episodes[0].task, trajectories=tuple(episodes))
    pairs = [
        [
            [[t.prompt_ids[0], t.completion.token_ids[0]] for t in side.turns]
            for side in (p.chosen, p.rejected)
        ]
        for p in module.call_pairs([group])
    ]
    return flatten(sorted(map(flatten, pairs)))


def compared_plainly(case: Tried) -> list[float]:
    """Return the same, by trying every place: alike before it, shown the same in it, and only one carried out."""
    found = set[tuple[float, ...]]()
    for good, is_success in case:
        for bad, _ in case:
            for k in range(min(len(good), len(bad))):
                before = [c[:2] for c in good[:k]] == [c[:2] for c in bad[:k]]
                here, there = good[k], bad[k]
                parts = here[0] == there[0] and here[1] != there[1]
                if is_success and before and parts and here[2] and not there[2]:
                    found.add(tuple(flatten([[c[:2] for c in good[: k + 1]], [c[:2] for c in bad[: k + 1]]])))
    return flatten(sorted(map(list, found)))


Turns = tuple[list[int], list[int], int, int, int]
"""names of the base, of what was found, batch size, number of the batch, and seed"""


def rehearsals(rng: Rng) -> Turns:
    """Return a base of one to nine, nothing to nine found, and one of the first batches of two to eight."""
    base, found = int(rng.integers(1, 10)), int(rng.integers(0, 10))
    return (
        list(range(base)),
        list(range(100, 100 + found)),
        int(rng.integers(2, 9)),
        int(rng.integers(0, 12)),
        int(rng.integers(0, 1000)),
    )


def rehearsed(module: ModuleType, case: Turns) -> list[float]:
    """Return a batch, and the share of it that is of the base."""
    base, found, size, number, seed = case
    batch = module.rehearsal_batch(base, found, size, number, seed)
    return flatten([batch, float(np.mean([name < 100 for name in batch]))])


def rehearsed_plainly(case: Turns) -> list[float]:
    """Return the same: epochs are shuffled and dealt like cards, the larger half of a batch from the base."""
    base, found, size, number, seed = case

    def dealt(cards: list[int], most: int, label: str) -> list[int]:
        hands = max(1, round(len(cards) / most))
        shuffled = np.random.default_rng(derive_seed(seed, label, number // hands)).permutation(len(cards))
        return [cards[place] for k, place in enumerate(shuffled) if k % hands == number % hands]

    ours = dealt(base, size - size // 2 if found else size, "base")
    both = ours + (dealt(found, size // 2, "found")[: len(ours)] if found else [])
    return [*map(float, both), len(ours) / len(both)]


def played(rng: Rng) -> tuple[list[str], list[tuple[str, float]], tuple[float, float], int]:
    """Return how up to five tasks begin, how up to six that were played did and went, a band, how many are asked."""
    names = ["open red lamp", "open blue lamp", "close red door", "find a cup", "open red door", ""]
    begins = [names[int(k)] for k in rng.integers(0, len(names), int(rng.integers(1, 6)))]
    known = [
        (names[int(k)], float(rng.integers(0, 5)) / 4) for k in rng.integers(0, 6, int(rng.integers(1, 7)))
    ]
    return begins, known, (0.05, 0.75), int(rng.integers(1, 5))


def ordered(
    module: ModuleType, case: tuple[list[str], list[tuple[str, float]], tuple[float, float], int]
) -> list[float]:
    """Return the order of tasks, and what success is expected of each."""
    begins, known, _, num = case
    near = [[(module.likeness(text, other), success) for other, success in known] for text in begins]
    return flatten([module.in_order(*case), [module.expect_success(each, num) for each in near]])


def ordered_plainly(case: tuple[list[str], list[tuple[str, float]], tuple[float, float], int]) -> list[float]:
    """Return the same: inside the band by likeness to a failure, highest first; then the rest in order."""
    begins, known, (low, high), num = case

    def cosine(one: str, other: str) -> float:
        a, b = one.split(), other.split()
        return len(set(a) & set(b)) / sqrt(len(a) * len(b)) if a and b else 0.0

    means, drawn_to = list[float](), list[float]()
    for text in begins:
        far = [(-cosine(text, other), k) for k, (other, _) in enumerate(known)]
        asked = [known[k][1] for _, k in sorted(far)][:num]
        means.append(sum(asked) / len(asked))
        drawn_to.append(max(-alike * (1 - known[k][1]) for alike, k in far))
    inside = [k for k, mean in enumerate(means) if low <= mean <= high]
    inside.sort(key=lambda k: -drawn_to[k])
    return [*map(float, [*inside, *(k for k in range(len(begins)) if k not in inside)]), *means]


def failures_to_blame(rng: Rng) -> tuple[list[bool], list[bool], list[bool]]:
    """Return of up to twelve tasks whether they were solved, plainly and with each of two experts."""
    num = int(rng.integers(1, 13))
    return (
        (rng.random(num) < 0.4).tolist(),
        (rng.random(num) < 0.5).tolist(),
        (rng.random(num) < 0.5).tolist(),
    )


def blamed_plainly(case: tuple[list[bool], list[bool], list[bool]]) -> list[float]:
    """Return the failures that the first expert alone mends, that the second alone does, and all others."""
    first = sum(b and not c and not a for a, b, c in zip(*case, strict=True))
    second = sum(c and not b and not a for a, b, c in zip(*case, strict=True))
    return [float(first), float(second), float(case[0].count(False) - first - second)]


def draw_repairs(rng: Rng) -> list[Trajectory]:
    """Return ten episodes of up to five turns in code: some fail, are unreadable, raise, or give a wrong answer."""
    told = ("ok", "Traceback (most recent call last)\nNameError: x", "This is not the answer.", "ok", "ok")
    found: list[Trajectory] = []
    for _ in range(10):
        turns: list[Turn] = []
        for number in range(int(rng.integers(1, 6))):
            kind = int(rng.integers(0, 8))
            made = turn_of([1], Action(text="a", error="no code" if kind == 0 else None))
            shown = (Text(text=told[int(rng.integers(5))] if number else "Go."),)
            seat = "agent/plan" if kind == 2 else "agent"
            turns.append(replace(made, is_valid=kind != 1, observation=shown, seat=seat))
        found.append(episode_of(turns, 1.0, is_success=True))
    return found


def repairs_found(module: ModuleType, case: Sequence[Trajectory]) -> list[float]:
    """Return what the code says failed, and whether it says that it was mended."""
    return [
        x for each in case for x in (*map(float, module.find_failures(each)), float(module.is_mended(each)))
    ]


def find_repairs(case: Sequence[Trajectory]) -> list[float]:
    """Return the same, turn by turn from the last one to the first."""
    found: list[float] = []
    for trajectory in case:
        marks, after, works_later, is_mended = list[float](), "", False, False
        for turn in reversed([t for t in trajectory.turns if "/" not in t.seat]):
            is_bad = turn.action.error is not None or not turn.is_valid
            is_bad = is_bad or "Traceback" in after or "not the answer" in after
            is_mended, works_later = is_mended or (is_bad and works_later), works_later or not is_bad
            marks.insert(0, float(is_bad))
            after = "".join(part.text for part in turn.observation if isinstance(part, Text))
        found += [*marks, float(is_mended)]
    return found


FORMULAS: tuple[Formula, ...] = (
    Formula("imitation.in_order", "methods.imitation.autoglm", ("in_order", "expect_success"), played, ordered,
        ordered_plainly),
    Formula("imitation.blamed", "methods.imitation.autoglm", ("count_blame",), failures_to_blame,
        lambda m, case: list(map(float, m.count_blame(*case).values())), blamed_plainly),
    Formula("data.weigh_turns", "data.pipeline", ("weigh_turns", "example_samples"), episodes, weighed,
        weighed_plainly),
    Formula("imitation.most_critical", "methods.imitation.atlas", ("most_critical", "scores_of"), marks, marked,
        marked_plainly),
    Formula("imitation.right_and_short", "methods.imitation.fireact", ("pipeline", "within", "num_tokens"),
        episodes, kept_as_right, kept_as_right_plainly),
    Formula("imitation.calibrated", "methods.imitation.steca", ("kinds_of", "imitate_step"), explored, calibrated,
        calibrated_plainly),
    Formula("imitation.call_pairs", "methods.imitation.lam_simulator", ("call_pairs",), tried, compared,
        compared_plainly),
    Formula("imitation.rehearsal_batch", "methods.imitation.imitation_phase", ("rehearsal_batch",), rehearsals,
        rehearsed, rehearsed_plainly),
    Formula("code_act.mended", "methods.agents.code_act", ("is_mended", "find_failures"), draw_repairs, repairs_found,
        find_repairs),
    Formula("data.odds", "data.mixtures", ("odds",), parts, drawn, drawn_plainly),
    Formula("imitation.difficulty_gap", "methods.imitation.agent_bank", ("difficulty_gap",), levels,
        lambda m, case: [m.difficulty_gap(*case)], gap_plainly),
    Formula("imitation.tells_early", "methods.imitation.agent_bank", ("tells_early", "stands_in"), spoken,
        lambda m, case: [float(m.tells_early(*case))], early_plainly),
    Formula("selftraining.num_kept", "methods.selftraining.androidgen", ("num_kept",), courses,
        lambda m, case: [float(m.num_kept(case))], kept_plainly),
    Formula("agents.most_alike", "agents.experience", ("most_alike", "likeness"), requests, alike,
        alike_plainly),
    Formula("imitation.hallucination_score", "methods.imitation.agent_flan", ("hallucination_score",), replies,
        lambda m, case: [m.hallucination_score(*case)],
        lambda case: [1 - (sum(case[0]) + sum(case[1])) / 2 / len(case[0])]),
    Formula("selftraining.grounding", "methods.selftraining.rest_react", ("grounding",), books,
        lambda m, case: [m.grounding(*case)], grounded_plainly),
)  # fmt: skip
