"""What searches compute, each beside a plain second version."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import combinations
from random import Random
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.environments.protocol import Environment, advance, begin
from quintain.models.navigator import Navigator
from quintain.types import Action, StepResult, Task
from quintain.worlds.solver.thoughts import Sorting
from quintain_evidence.formulas.formula import Formula, Rng

Planned = tuple[list[list[str]], list[str], list[str], float]
"""(solved plans, way, rest, share of the samples)"""


def draw_plans(rng: Rng) -> list[Planned]:
    """Return ten memories of up to four plans in few letters, with a way and a rest of letters known or not."""

    def letters(least: int, most: int, known: int) -> list[str]:
        return ["abcdefgh"[k] for k in rng.integers(0, known, int(rng.integers(least, most))).tolist()]

    return [
        (
            [letters(1, 6, 5) for _ in range(int(rng.integers(0, 5)))],
            letters(1, 6, 5),
            letters(0, 5, 8),
            float(rng.integers(1, 4)) / 3,
        )
        for _ in range(10)
    ]


def costs_of_plans(module: ModuleType, case: Sequence[Planned]) -> list[float]:
    """Return the code's cost of the last step, and of the rest."""
    found: list[float] = []
    for plans, way, rest, share in case:
        memory = module.PlanMemory(tuple(map(tuple, plans)), frozenset("abcdefgh"))
        found += [memory.cost_of_step(way, share), memory.cost_of_rest(way, rest)]
    return found


def costs_by_lists(case: Sequence[Planned]) -> list[float]:
    """Return the same: subsequences are enumerated, and a letter that no plan has is like none."""
    found: list[float] = []
    for plans, way, rest, share in case:
        agreed = max((common(way, plan) / min(len(way), len(plan)) for plan in plans), default=0.0)
        found.append(((1 - agreed) * (1 - share)) ** 0.5)
        behind = len(way) / (len(way) + (len(rest) or 1))
        total = 0.0
        for letter in rest or [""]:
            places = [(k + 1) / len(plan) for plan in plans for k in range(len(plan)) if plan[k] == letter]
            total += (1 - (sum(places) / len(places) if places else 0.0)) ** 0.5 * (1 - behind) ** 0.5
        found.append(total)
    return found


def common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the longest subsequence of `one` that is one of `other`, by trying all."""
    return next(
        size
        for size in range(len(one), -1, -1)
        if any(is_within([one[k] for k in places], other) for places in combinations(range(len(one)), size))
    )


def is_within(part: Sequence[str], whole: Sequence[str]) -> bool:
    """Return whether `part` is a subsequence of `whole`."""
    left = iter(whole)
    return all(letter in left for letter in part)


@dataclass(frozen=True)
class Pool:
    """Attempts as words of single letters, what each was paid, which letters changed something, and a seed."""

    words: list[str]
    paid: list[float]
    changed: list[list[bool]]
    seed: int

    def attempts(self, module: ModuleType) -> list[Any]:
        """Return them as the module's."""
        both = zip(self.words, self.paid, self.changed, strict=True)
        return [module.Attempt(actions=tuple(w), changed=tuple(c), paid=p) for w, p, c in both]


def draw_pools(rng: Rng) -> list[Pool]:
    """Return six pools of two to seven short attempts in few letters, some paid alike."""
    found: list[Pool] = []
    for _ in range(6):
        words = [
            "".join("abcdef"[k] for k in rng.integers(0, 6, int(rng.integers(1, 7))).tolist())
            for _ in range(int(rng.integers(2, 8)))
        ]
        paid = [int(rng.integers(0, 9)) / 8 for _ in words]
        changed = [[bool(rng.random() < 0.7) for _ in word] for word in words]
        found.append(Pool(words, paid, changed, int(rng.integers(0, 99))))
    return found


def number_word(word: Iterable[str]) -> float:
    """Return a number that tells `word` from others."""
    return float(sum(ord(sign) * 7 ** (k % 17) for k, sign in enumerate(word)))


def operate(module: ModuleType, case: Sequence[Pool]) -> list[float]:
    """Return what the code's operators make of each pool, words as numbers, -1 for nothing."""
    found: list[float] = []
    for each in case:
        pool = each.attempts(module)
        best = module.find_best(pool)
        mate = module.pick_mate(best, pool)
        child = mate and module.recombine(best, mate, pool, Random(each.seed))
        found += [number_word(best.actions), number_word(mate.actions) if mate else -1.0]
        found += [number_word(child) if child else -1.0, number_word(module.prune(best))]
        found += [number_word(module.find_risks(pool))]
    return found


def operate_by_rule(case: Sequence[Pool]) -> list[float]:
    """Return the same, written out by indices."""
    found: list[float] = []
    for each in case:
        words, paid = each.words, each.paid
        top = min(k for k in range(len(words)) if paid[k] == max(paid))
        span = (max(paid) - min(paid)) or 1.0
        ranks: dict[int, float] = {}
        for k, word in enumerate(words):
            if word != words[top]:
                common = sum(
                    b.size for b in SequenceMatcher(None, words[top], word, False).get_matching_blocks()
                )
                likeness = 2 * common / (len(word) + len(words[top]))
                ranks[k] = (paid[k] - min(paid)) / span + (1 - likeness) / 2
        mate = max(ranks, key=lambda k: ranks[k]) if ranks else None
        child = -1.0 if mate is None else mix(words[top], words[mate], words, paid, Random(each.seed))
        kept = "".join(sign for sign, has in zip(words[top], each.changed[top], strict=True) if has)
        letters = list(dict.fromkeys("".join(words)))
        low = [sign for sign in letters if hold(sign, words, paid) < sum(paid) / len(paid)]
        found += [number_word(words[top]), -1.0 if mate is None else number_word(words[mate]), child]
        found += [number_word(kept), number_word(sorted(low, key=lambda sign: hold(sign, words, paid)))]
    return found


def hold(letters: str, words: Sequence[str], paid: Sequence[float]) -> float:
    """Return what those with all `letters` were paid on average."""
    own = [each for word, each in zip(words, paid, strict=True) if all(sign in word for sign in letters)]
    return sum(own) / len(own) if own else 0.0


def mix(one: str, other: str, words: Sequence[str], paid: Sequence[float], rng: Random) -> float:
    """Return the number of the first new child of nine, the first of which takes the better side of each segment."""
    parts: list[tuple[str, str]] = []
    at, to = 0, 0
    for block in SequenceMatcher(None, one, other, False).get_matching_blocks():
        left, right = one[at : block.a], other[to : block.b]
        if left and len(left) == len(right):
            parts += zip(left, right, strict=True)
        elif left or right:
            parts.append((left, right))
        same = one[block.a : block.a + block.size]
        parts += [(same, same)] if same else []
        at, to = block.a + block.size, block.b + block.size
    for number in range(9):
        child = ""
        for left, right in parts:
            lead = 0.0 if number else hold(left, words, paid) - hold(right, words, paid)
            child += left if lead > 0 else right if lead < 0 else rng.choice((left, right))
        if child not in words:
            return number_word(child)
    return -1.0


class Tower(Environment):
    """Letters on one another, each paid by its place in the alphabet."""

    name = "tower"
    max_turns = 99
    built = ""

    def reset(self, task: Task) -> str:
        """Begin with nothing."""
        self.built = ""
        return "."

    def step(self, action: Action) -> StepResult:
        """Put a letter on top."""
        self.built += action.text
        return StepResult(observation=f".{self.built}", reward=float(ord(action.text)))

    def snapshot(self) -> str:
        """Return the letters."""
        return self.built

    def restore(self, state: str) -> None:
        """Have these letters."""
        self.built = state


def draw_ways(rng: Rng) -> list[list[str]]:
    """Return five lists of a dozen actions: letters, and going back to states that are there or not."""

    def draw_action() -> str:
        if rng.random() < 0.4:
            return f"goto {int(rng.integers(0, 8))}: {int(rng.integers(0, 9))}"
        return "abc"[int(rng.integers(0, 3))]

    return [[draw_action() for _ in range(12)] for _ in range(5)]


def go_back(module: ModuleType, case: Sequence[Sequence[str]]) -> list[float]:
    """Return after each action what the code shows, as a number, and what it paid."""
    found: list[float] = []
    for actions in case:
        world = module.RollbackWorld(Tower())
        found.append(number_word(str(begin(world, Task(id="t", environment="tower", seed=0)))))
        for action in actions:
            result = advance(world, Action(text=action))
            found += [number_word(str(result.observation)), result.reward, float(result.is_valid)]
    return found


def go_back_by_list(case: Sequence[Sequence[str]]) -> list[float]:
    """Return the same from one list of all states with their parents, and notes by state."""
    found: list[float] = []
    for actions in case:
        parents, letters, notes, here = [-1], [""], [list[str]()], 0
        for action in ["", *actions]:
            way, said, paid, is_valid = lineage(parents, here), "", 0.0, True
            if action.startswith("goto"):
                number, why = int(action[5]), action.split(": ")[1]
                if number in way[:-1]:
                    left = way[way.index(number) + 1 :]
                    paid = -float(sum(ord(letters[k]) for k in left))
                    notes[number].append(f"{' > '.join(letters[k] for k in left)}: {why}")
                    here = number
                else:
                    there = ", ".join(map(str, way[:-1])) or "none"
                    said, is_valid = f"\n\nError: goto {number}: there are {there}.", False
            elif action:
                parents, letters, notes = [*parents, here], [*letters, action], [*notes, []]
                here, paid = len(parents) - 1, float(ord(action))
            way = lineage(parents, here)
            tower = "".join(letters[k] for k in way)
            note = f"\n\nLeft from here: {'; '.join(notes[here])}" if notes[here] else ""
            head = f"[search back {' '.join(map(str, way))}]\n" if action else ""
            found.append(number_word(f"{head}.{tower}{said}{note}"))
            found += [paid, float(is_valid)] if action else []
    return found


def lineage(parents: Sequence[int], here: int) -> list[int]:
    """Return the states from the first one to `here`."""
    return [] if here < 0 else [*lineage(parents, parents[here]), here]


class Steered(NamedTuple):
    """States of a navigator of weights `seed`, and what it learns of them."""

    seed: int
    scores: NDArray[np.float32]
    rewards: NDArray[np.float32]
    following: NDArray[np.float32]
    older: NDArray[np.float32]
    legal: NDArray[np.bool_]
    is_over: NDArray[np.bool_]
    discount: float


def draw_states(rng: Rng) -> Steered:
    """Return eight states, some of which are the last."""
    return Steered(
        int(rng.integers(0, 1000)),
        rng.integers(1, 4, (8, 7)).astype(np.float32),
        rng.normal(size=8).astype(np.float32),
        rng.normal(size=(8, 5)).astype(np.float32),
        rng.normal(size=(8, 5)).astype(np.float32),
        np.concatenate((rng.random((8, 4)) < 0.5, np.ones((8, 1), bool)), 1),
        rng.random(8) < 0.3,
        float(rng.choice([0.0, 0.5, 0.9])),
    )


def steer_by_code(module: ModuleType, case: Steered) -> list[float]:
    """Return the code's values and targets, and the gradient of the squared error in the shared layer."""
    navigator = module.Navigator(case.seed)
    values = navigator(torch.from_numpy(case.scores))
    targets = module.double_targets(
        *map(torch.from_numpy, (case.rewards, case.following, case.older, case.legal, case.is_over)),
        case.discount,
    )
    ((values[:, 0] - targets) ** 2).mean().backward()
    return [*values.flatten().tolist(), *targets.tolist(), *navigator.shared.weight.grad.flatten().tolist()]


def steer_by_loops(case: Steered) -> list[float]:
    """Return the same with numpy, a state at a time, the gradient by hand."""
    own = {name: value.numpy().astype(float) for name, value in Navigator(case.seed).state_dict().items()}
    values: list[float] = []
    targets: list[float] = []
    gradient = np.zeros((32, 7))
    for k in range(len(case.scores)):
        seen = case.scores[k] - 2.0
        before = own["shared.weight"] @ seen + own["shared.bias"]
        shared = before * (before > 0)
        state = own["of_state.weight"] @ shared + own["of_state.bias"]
        blocks = own["of_blocks.weight"] @ shared + own["of_blocks.bias"]
        value = own["value.weight"][0] @ (state * (state > 0)) + own["value.bias"][0]
        raw = own["advantage.weight"] @ (blocks * (blocks > 0)) + own["advantage.bias"]
        mine = [float(value + raw[a] - sum(raw) / 5) for a in range(5)]
        target = float(case.rewards[k])
        if not case.is_over[k]:
            best = max((a for a in range(5) if case.legal[k][a]), key=lambda a, k=k: case.following[k][a])
            target += case.discount * float(case.older[k][best])
        slope = 2 * (mine[0] - target) / len(case.scores)
        to_raw = (np.eye(5)[0] - 0.2) @ own["advantage.weight"] * (blocks > 0)
        to_shared = (
            own["value.weight"][0] * (state > 0) @ own["of_state.weight"] + to_raw @ own["of_blocks.weight"]
        )
        gradient += slope * np.outer(to_shared * (before > 0), seen)
        values += mine
        targets.append(target)
    return [*values, *targets, *gradient.flatten().tolist()]


def draw_steps(rng: Rng) -> list[tuple[str, str, str]]:
    """Return a dozen critiques, what was tried, and where a step goes back to, each nothing now and then."""
    critiques = ("", "good", "Good.", "good: a list", "bad", "bad: a wall")
    tried = ("", "click a", "click a: bad; click b > click c: bad")
    targets = ("", "home")
    draws = [(critiques, tried, targets)[k] for k in (0, 1, 2)]
    return [tuple(each[int(rng.integers(len(each)))] for each in draws) for _ in range(12)]  # pyright: ignore[reportReturnType]


def think(module: ModuleType, case: Sequence[tuple[str, str, str]]) -> list[float]:
    """Return the code's thought of each step, its skills, and words of it that are not of a few, as numbers."""
    found: list[float] = []
    few, every = frozenset({"a", "home"}), frozenset({"a", "b", "home", "wall", "bad"})
    for critique, tried, target in case:
        step = module.SearchStep(action=Action(text="x"), critique=critique, tried=tried, target=target)
        found += [number_word(step.thought), number_word("".join(step.skills))]
        found += [number_word("".join(module.find_leaks(step.thought, few, every)))]
    return found


def think_by_rule(case: Sequence[tuple[str, str, str]]) -> list[float]:
    """Return the same, sentence by sentence."""
    found: list[float] = []
    for critique, tried, target in case:
        said, skills = "", ""
        if tried and target == "":
            said = f"I tried {tried}."
        if critique.lower().strip(".") not in ("", "good"):
            said, skills = f"{said} This state is {critique}.", "reflection"
        skills += "branching" if tried else ""
        if target:
            said, skills = f"{said} I go back to {target}, from where I tried {tried}.", f"{skills}rollback"
        said = said.strip()
        split = "".join(sign.lower() if sign.isalnum() else " " for sign in said).split()
        found += [number_word(said), number_word(skills)]
        found += [number_word("".join(word for word in split if word in ("b", "wall", "bad")))]
    return found


class Scheduled(NamedTuple):
    """A list of numbers, steps for it, and a seed of the solver's errors."""

    content: list[int]
    steps: list[str]
    seed: int

    def draw(self) -> Sorting:
        """Return the list as it begins."""
        size = len(self.content)
        return Sorting.draw(
            Random(self.seed), size=size, most=20, errors=1.0, noise=0.5, slope="even", is_free=False, seed=self.seed
        )  # fmt: skip


def draw_schedules(rng: Rng) -> list[Scheduled]:
    """Return four lists of 4 to 16 numbers, each with up to ten steps."""
    names = ["solve", "refine", "split", "merge", "again", "solve", "again"]
    return [
        Scheduled(
            [0] * int(rng.choice([4, 8, 16])),
            [names[k] for k in rng.integers(0, len(names), int(rng.integers(1, 11))).tolist()],
            int(rng.integers(0, 1000)),
        )
        for _ in range(4)
    ]


def answer_by_script(problem: Sorting, move: str) -> Sorting:
    """Return `problem` after the scripted solver did `move`."""
    return problem.apply(move, [problem.answer(move, (), Random(problem.calls))])


def schedule(module: ModuleType, case: Sequence[Scheduled]) -> list[float]:
    """Return all moves of the code's schedules, as numbers."""
    found: list[float] = []
    for each in case:
        problem, own, move = each.draw(), module.Schedule(tuple(each.steps)), ""
        for _ in range(99):
            move = own.choose(problem.graph, problem.legal())
            found.append(number_word(move))
            if move == "stop":
                break
            problem = answer_by_script(problem, move)
    return found


def schedule_by_lists(case: Sequence[Scheduled]) -> list[float]:
    """Return the same from lists of what is a half of what and what answers what."""
    found: list[float] = []
    for each in case:
        problem, level, moves = each.draw(), [0], list[str]()
        for step in each.steps:
            best: dict[int, tuple[float, int]] = {}
            for k, thought in enumerate(problem.graph):
                if thought.kind == "answer" and thought.of is not None and not thought.is_dropped:
                    best[thought.of] = max(best.get(thought.of, (-2.0, 0)), (thought.score or 0.0, -k))
            above = [of for k in level if (of := problem.graph[k].of) is not None]
            above = [of for k, of in enumerate(above) if of not in above[:k]]
            ranks = [best.get(k, (-1.0, 0))[0] for k in level]
            wished = {
                "solve": [f"solve {k}" for k in level],
                "split": [f"split {k}" for k in level],
                "refine": [f"refine {-best[k][1]}" for k in level if k in best],
                "merge": [f"merge {k}" for k in above],
                "again": [f"solve {level[ranks.index(min(ranks))]}"],
            }[step]
            for move in wished:
                if move in problem.legal():
                    moves.append(move)
                    problem = answer_by_script(problem, move)
            if step == "merge":
                level = above or level
            if step == "split":
                parts = [
                    [n for n, t in enumerate(problem.graph) if t.kind == "problem" and t.of == k]
                    for k in level
                ]
                level = [part for k, own in zip(level, parts, strict=True) for part in own or [k]]
        while "stop" not in problem.legal():
            moves.append(problem.legal()[0])
            problem = answer_by_script(problem, moves[-1])
        found += [number_word(move) for move in [*moves, "stop"]]
    return found


def draw_votes(rng: Rng) -> list[tuple[list[str], list[str]]]:
    """Return six votes of one to seven letters, some of nothing, and which letters count."""
    letters = ["", "a", "b", "c", "d"]
    return [
        (
            [letters[k] for k in rng.integers(0, 5, int(rng.integers(1, 8))).tolist()],
            [each for each in "abcd" if rng.random() < 0.5],
        )
        for _ in range(6)
    ]


def count_by_code(module: ModuleType, case: Sequence[tuple[list[str], list[str]]]) -> list[float]:
    """Return the place that the code's count chooses in each vote."""
    return [float(module.count_votes(said, legal)) for said, legal in case]


def count_by_trying(case: Sequence[tuple[list[str], list[str]]]) -> list[float]:
    """Return the same: each place against all others, those that count before those that do not."""
    found: list[float] = []
    for said, legal in case:
        ranks = [((word in legal), word != "", said.count(word), -said.index(word)) for word in said]
        found.append(float(-max(ranks)[3]))
    return found


USUAL = {"drafts": 5, "debug": 0.5, "depth": 3, "tune": 0.1, "most_tuned": 0.3, "greedy": 0.8, "tricks": 0.8}
"""What the chances of a tree of solutions are where nothing is said."""


@dataclass(frozen=True)
class Forest:
    """Solutions as (parent, metric, times mended), settings, tricks that were told or useless, ratings, and a seed."""

    nodes: list[tuple[int | None, float | None, int]]
    chances: dict[str, Any]
    told: list[str]
    useless: list[str]
    words: str
    steps: list[tuple[str, float]]
    seed: int


def draw_forests(rng: Rng) -> list[Forest]:
    """Return eight forests of up to twelve solutions; a third do not run, some measure the same."""
    found: list[Forest] = []
    for _ in range(8):
        nodes: list[tuple[int | None, float | None, int]] = []
        for number in range(int(rng.integers(0, 13))):
            parent = None if number == 0 or rng.random() < 0.3 else int(rng.integers(0, number))
            metric = None if rng.random() < 0.35 else round(float(rng.random()), 1)
            is_mended = parent is not None and nodes[parent][1] is None
            nodes.append((parent, metric, nodes[parent or 0][2] + 1 if is_mended else 0))
        chances = {
            name: round(float(rng.random()), 1)
            for name in ("debug", "tune", "most_tuned", "greedy", "tricks")
        }
        chances |= {"drafts": int(rng.integers(1, 5)), "depth": int(rng.integers(0, 3))}
        chances = {name: chance for name, chance in chances.items() if rng.random() < 0.8}
        told, useless = ([name for name in "abc" if rng.random() < 0.5] for _ in range(2))
        lines = ["abcdef"[k] for k in rng.integers(0, 6, 12).tolist()]
        steps = [("\n".join(lines[k : k + 3]), round(float(rng.random()), 1)) for k in range(0, 9, 2)]
        words = "".join("x 0379"[k] for k in rng.integers(0, 6, 4).tolist())
        found.append(Forest(nodes, chances, told, useless, words, steps, int(rng.integers(0, 999))))
    return found


def grow(module: ModuleType, case: Sequence[Forest]) -> list[float]:
    """Return what the code does next with each forest, which trick it tells, and what it finds that helped."""
    found: list[float] = []
    for each in case:
        tree: list[Any] = []
        for number, (parent, metric, depth) in enumerate(each.nodes):
            kind = "draft" if parent is None else "debug" if depth else "improve"
            root = number if parent is None else tree[parent].root
            tree.append(
                module.Solution(
                    number=number, kind=kind, parent=parent, root=root, text="", metric=metric, depth=depth
                )
            )
        policy = module.Policy(**each.chances)
        rng = Random(each.seed)
        move = module.choose(tree, policy, rng)
        tricks = [module.Entry(id=name, key="k", text="t") for name in "abc"]
        trick = module.pick_trick(tricks, each.told, each.useless, policy.tricks, rng)
        found += [float(("draft", "debug", "tune", "improve").index(move.kind))]
        found += [-1.0 if move.node is None else float(move.node.number)]
        found += [number_word(trick.id) if trick else -1.0, float(module.read_rating(each.words))]
        found += [number_word(text) + gain for text, gain in module.list_gains(each.steps)]
    return found


def grow_by_rule(case: Sequence[Forest]) -> list[float]:
    """Return the same by indices: roots are followed up, and every branch of the policy stands by itself."""
    found: list[float] = []
    for each in case:
        rng, chances = Random(each.seed), {**USUAL, **each.chances}
        kind, node = move_by_rule(each.nodes, chances, rng)
        trick = -1.0
        if rng.random() < chances["tricks"]:
            left = sorted({"a", "b", "c"} - set(each.told))
            good = [name for name in left if name not in each.useless]
            if good:
                trick = number_word(rng.choice(good))
            elif left:
                name = rng.choice(left)
                trick = rng.choice([number_word(name), -1.0])
        digits = [int(sign) for sign in each.words if sign in "12345"]
        found += [kind, node, trick, float(digits[0]) if digits else 1.0]
        best, lines = 0.0, list[str]()
        for text, metric in each.steps:
            if metric > best:
                new = [line for line in text.split("\n") if line not in lines]
                if new and metric - best >= each.steps[-1][1] / 10:
                    found.append(number_word("\n".join(new)) + metric - best)
                best, lines = metric, text.split("\n")
    return found


def move_by_rule(
    nodes: Sequence[tuple[int | None, float | None, int]], chances: Mapping[str, Any], rng: Random
) -> tuple[float, float]:
    """Return the number of what is done next, and of the solution that it is done to."""
    drafts = [k for k, each in enumerate(nodes) if each[0] is None]
    if len(drafts) < chances["drafts"]:
        return 0.0, -1.0
    if rng.random() < chances["debug"]:
        leaves = set(range(len(nodes))) - {each[0] for each in nodes}
        broken = [k for k in sorted(leaves) if nodes[k][1] is None and nodes[k][2] < chances["depth"]]
        if broken:
            return 1.0, float(rng.choice(broken))
    best: dict[int, int] = {}
    for k, (_, metric, _) in enumerate(nodes):
        top, up = k, nodes[k][0]
        while up is not None:
            top, up = up, nodes[up][0]
        if metric is not None and (top not in best or metric > (nodes[best[top]][1] or 0.0)):
            best[top] = k
    if not best:
        return 0.0, -1.0
    bests = [best[top] for top in sorted(best)]
    if rng.random() < min(chances["most_tuned"], chances["tune"] * len(bests)):
        return 2.0, float(rng.choice(bests))
    if rng.random() < chances["greedy"]:
        return 3.0, float(min(bests, key=lambda k: (-(nodes[k][1] or 0.0), k)))
    return 3.0, float(rng.choice(bests))


FORMULAS: tuple[Formula, ...] = (
    Formula("aries.schedule", "search.thoughts", ("find_weakest", "list_level_moves", "find_wholes", "change_level",
        "Schedule"), draw_schedules, schedule, schedule_by_lists),
    Formula("aries.votes", "agents.voted", ("count_votes",), draw_votes, count_by_code, count_by_trying),
    Formula("drafted.policy", "search.solutions", ("choose", "find_best", "find_bests", "pick_trick", "read_rating",
        "list_gains"), draw_forests, grow, grow_by_rule),
    Formula("webcot.thought", "methods.search.webcot", ("SearchStep", "find_leaks"), draw_steps, think,
        think_by_rule),
    Formula("rollback.way", "agents.rollback", ("RollbackWorld",), draw_ways, go_back, go_back_by_list),
    Formula("evolve.operators", "search.evolve", ("find_best", "pick_mate", "align", "weigh", "recombine", "prune",
        "find_risks"), draw_pools, operate, operate_by_rule),
    Formula("toolchain.costs", "search.astar", ("PlanMemory", "count_common"), draw_plans, costs_of_plans,
        costs_by_lists),
    Formula("rlot.navigator", "models.navigator", ("Navigator", "double_targets"), draw_states, steer_by_code,
        steer_by_loops),
)  # fmt: skip
