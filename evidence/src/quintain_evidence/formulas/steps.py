"""Rules by which single steps are found, compared and put right, each beside a plain second version."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import exp
from types import ModuleType

import numpy as np

from quintain.rollout.corrections import TriedProposal
from quintain.types import Action, Group, StepResult, Task, Trajectory
from quintain_evidence.formulas.formula import Formula, Rng
from quintain_evidence.formulas.preference import lived

Branching = list[tuple[tuple[int, ...], float]]
"""[episode] what was done, and what it is worth"""
Drawn = list[tuple[float, list[float]]]
"""[state] what the step before is worth, and what each of those drawn is"""
Sides = tuple[list[list[float]], list[list[float]]]
"""features of the expert's steps, and of others"""
Acted = list[tuple[int, list[int]]]
"""[state] what the expert does, and what else was done"""
Drafts = list[tuple[int, int, int, int]]
"""[lesson] what is drafted, what is right (-1: nothing is known), what the environment says, and the turn"""
GOOD, GAP, DROP, KEPT = 0.4, 0.2, 0.5, 2


def draw_tree(rng: Rng) -> Branching:
    """Return two to eight episodes of one to five actions that begin alike, worth quarters."""
    return [
        (tuple(int(x) for x in rng.integers(0, 2, int(rng.integers(1, 6)))), float(rng.integers(0, 5)) / 4)
        for _ in range(int(rng.integers(2, 9)))
    ]


def acted(said: Sequence[int], value: float, index: int) -> Trajectory:
    """Return an episode that says what it does."""
    bare = lived(said, value, index)
    return replace(
        bare,
        turns=tuple(
            replace(turn, action=Action(text=str(k))) for k, turn in zip(said, bare.turns, strict=True)
        ),
    )


def there(step: Trajectory, task: Task) -> Trajectory:
    """Return a step in the state that `task` stands for."""
    turn = replace(step.turns[0], prompt_ids=(int(task.id[1:]),))
    return replace(step, task=task, turns=(turn,))


def _revisions() -> Formula:
    """Return Agent-R's partners, verdicts, cuts and good episodes."""

    def ours(module: ModuleType, case: Branching) -> list[float]:
        tree = [acted(said, value, k) for k, (said, value) in enumerate(case)]
        found: list[float] = []
        for failed, good in module.partners(tree, good=GOOD, gap=GAP):
            parted = module.num_common(failed, good)
            told = module.verdicts(tree, failed, DROP)
            cut = module.first_bad(told, parted)
            found += [failed.index, good.index, parted, -1 if cut is None else cut]
            found += [("good", "uncertain", "bad").index(each) for each in told]
        return [*found, -9, *(float(t.index) for t in module.shortest(tree, GOOD, KEPT))]

    def reference(case: Branching) -> list[float]:
        found: list[float] = []
        for place, (said, value) in enumerate(case):
            best: tuple[tuple[float, ...], int] | None = None
            for other, (theirs, worth) in enumerate(case):
                if worth > GOOD and worth - value > GAP:
                    rank = (float(common(said, theirs)), worth, -len(theirs), -other)
                    if best is None or rank > best[0]:
                        best = rank, other
            if best is None:
                continue
            parted = int(best[0][0])
            worths = [mean([w for theirs, w in case if theirs[:k] == said[:k]]) for k in range(len(said) + 1)]
            codes = [
                2 if after * 2 < before else 0 if after >= before else 1 for before, after in pairwise(worths)
            ]
            bad = [k for k, code in enumerate(codes) if code == 2 and k >= parted]
            found += [place, best[1], parted, bad[0] + 1 if bad else -1, *codes]
        kept: list[int] = []
        for length in range(6):
            for place, (said, worth) in enumerate(case):
                is_new = all(case[k][0] != said for k in kept)
                if worth > GOOD and len(said) == length and is_new:
                    kept.append(place)
        return [*found, -9, *map(float, kept[:KEPT])]

    return Formula("agent_r.revisions", "methods.preference.agent_r",
        ("partners", "verdicts", "first_bad", "num_common", "shortest"), draw_tree, ours, reference)  # fmt: skip


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many both begin with."""
    k = 0
    while k < min(len(one), len(other)) and one[k] == other[k]:
        k += 1
    return k


def mean(values: Sequence[float]) -> float:
    """Return the mean."""
    return sum(values) / len(values)


def _rising() -> Formula:
    """Return RRO's stops and what it follows."""

    def draws(rng: Rng) -> Drawn:
        return [
            (
                float(rng.integers(0, 6)) / 5,
                [float(x) / 5 for x in rng.integers(0, 6, int(rng.integers(1, 6)))],
            )
            for _ in range(8)
        ]

    def ours(module: ModuleType, case: Drawn) -> list[float]:
        found: list[float] = []
        for before, values in case:
            for is_strict in (True, False):
                num = module.num_drawn(values, before, is_strict=is_strict)
                found += [num, module.choose_followed(values[:num], before, is_strict=is_strict)]
        return found

    def reference(case: Drawn) -> list[float]:
        found: list[float] = []
        for before, values in case:
            for least in (before + 1e-9, before - 1e-9):
                num = 0
                while num < len(values):
                    num += 1
                    if values[num - 1] > least:
                        break
                drawn = values[:num]
                found += [num, num - 1 if drawn[-1] > least else drawn.index(max(drawn))]
        return found

    return Formula(
        "rro.rising",
        "methods.preference.rro",
        ("num_drawn", "choose_followed", "has_risen"),
        draws,
        ours,
        reference,
    )


def _discriminator() -> Formula:
    """Return StepAgent's discriminator, its reward and its chance."""

    def draws(rng: Rng) -> Sides:
        width = int(rng.integers(1, 5))
        experts, own = (rng.integers(0, 3, (int(rng.integers(1, 7)), width)).astype(float) for _ in range(2))
        return experts.tolist(), own.tolist()

    def ours(module: ModuleType, case: Sides) -> list[float]:
        experts, own = (np.array(rows) for rows in case)
        weights = module.fit_discriminator(experts, own, ridge=0.7)
        rewards = [float(row @ weights) for row in (*experts, *own)]
        return [*weights.tolist(), *rewards, *map(module.probability, rewards)]

    def reference(case: Sides) -> list[float]:
        experts, own = case
        rows = [(row, 1.0, 1 / len(experts)) for row in experts] + [(row, 0.0, 1 / len(own)) for row in own]
        width, penalty = len(experts[0]), 0.7 * 2 / len(rows)
        weights = [0.0] * width
        for _ in range(150):
            for k in range(width):
                slope, curve = penalty * weights[k], penalty
                for row, label, share in rows:
                    chance = 1 / (1 + exp(-sum(w * x for w, x in zip(weights, row, strict=True))))
                    slope += share * (chance - label) * row[k]
                    curve += share * chance * (1 - chance) * row[k] ** 2
                weights[k] -= slope / curve
        rewards = [sum(w * x for w, x in zip(weights, row, strict=True)) for row, _, _ in rows]
        return [*weights, *rewards, *(1 / (1 + exp(-reward)) for reward in rewards)]

    return Formula("step_agent.discriminator", "methods.preference.step_agent",
        ("fit_discriminator", "probability"), draws, ours, reference)  # fmt: skip


def _inspected() -> Formula:
    """Return StepAgent's pairs of steps."""

    def draws(rng: Rng) -> Acted:
        return [
            (int(rng.integers(0, 3)), [int(x) for x in rng.integers(0, 3, int(rng.integers(1, 6)))])
            for _ in range(5)
        ]

    def ours(module: ModuleType, case: Acted) -> list[float]:
        groups, experts = list[Group](), dict[str, Trajectory]()
        for place, (right, said) in enumerate(case):
            task = Task(id=f"s{place}", environment="toy", seed=0)
            experts[task.id] = there(acted((right,), 0.0, 100), task)
            own = [there(acted((done,), 1.0, k), task) for k, done in enumerate(said)]
            groups.append(Group(task=task, trajectories=tuple(own)))
        found = module.prefer_expert(groups, experts)
        return [float(x) for p in found for x in (p.chosen.turns[0].action.text, p.rejected.index, p.margin)]

    def reference(case: Acted) -> list[float]:
        return [
            float(x)
            for right, said in case
            for k, done in enumerate(said)
            if done != right and done not in said[:k]
            for x in (right, k, 0)
        ]

    return Formula("step_agent.preferred", "methods.preference.step_agent",
        ("prefer_expert", "does_the_same"), draws, ours, reference)  # fmt: skip


def _lessons() -> Formula:
    """Return what E2CL teaches of drafts: feedback, what is said in turn, and which turns count."""
    named = ("0", "1", "2", "not here")
    sentences = ("Closed. table: mug", "Hands full. here; holding: pen", "Not here", "No use.")

    def draws(rng: Rng) -> Drafts:
        return [
            (
                int(rng.integers(0, 4)),
                int(rng.integers(-1, 3)),
                int(rng.integers(0, 5)),
                int(rng.integers(0, 4)),
            )
            for _ in range(8)
        ]

    def ours(module: ModuleType, case: Drafts) -> list[float]:
        found: list[float] = []
        for draft, right, said, turn in case:
            shown = acted((5, 6, 7, 8), 1.0, 0)
            result = StepResult(observation=sentences[said % 4], is_valid=said == 4)
            expert = None if right < 0 else Action(text=str(right))
            lesson = module.lesson_of(shown, turn, Action(text=named[draft]), TriedProposal(result, expert))
            if lesson is None:
                found.append(-1.0)
                continue
            words = [each.text for each in lesson.said]
            whole = acted((*range(turn), *range(len(words) + draft)), 1.0, 0)
            weights = module.example_of(lesson, whole).weights
            found += [float(sum(map(ord, word))) for word in (lesson.feedback, *words, *lesson.place[1])]
            found += [float(own.sum()) for own in weights]
        return found

    def reference(case: Drafts) -> list[float]:
        told = ("closed", "hands full", "not here", "no use", "fine")
        found: list[float] = []
        for draft, right, said, turn in case:
            if said != 4 and (right in (-1, draft) or (draft, said) == (3, 2)):
                found.append(-1.0)
                continue
            words = [named[draft], "fine"] if said == 4 else [named[draft], told[said], str(right)]
            before = ["5", "6", "7", "8"][:turn]
            found += [float(sum(map(ord, word))) for word in (told[said], *words, *before)]
            found += [0.0] * turn + [0.0] + [1.0] * (len(words) - 1 + draft)
        return found

    return Formula("e2cl.lessons", "methods.preference.e2cl",
        ("lesson_of", "feedback_of", "example_of", "Lesson", "list_actions"), draws, ours, reference)  # fmt: skip


FORMULAS: tuple[Formula, ...] = (_revisions(), _rising(), _lessons(), _discriminator(), _inspected())
