"""What is chosen: tokens that decide an action, answers that stand in for failed ones, and who is believed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Action, Group, Trajectory
from quintain_evidence.formulas.formula import Formula, Rng, flatten


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A turn in plain numbers."""

    tokens: tuple[int, ...]
    action: str
    """empty where it could not be read"""
    is_answer: bool = True
    is_right: bool = False


def lived(turns: Sequence[Said], index: int, *, is_success: bool) -> Trajectory:
    """Return the episode of `turns` as it is recorded."""
    told = (
        turn_of(
            said.tokens,
            Action(text=said.action, error=None if said.action else "not read"),
            reward_terms={"answer": float(said.is_right)} if said.is_answer else {},
            starts_segment=True,
        )
        for said in turns
    )
    return episode_of(told, float(is_success), is_success=is_success, index=index)


def some_tokens(rng: Rng) -> tuple[int, ...]:
    """Return one to six tokens out of eight."""
    return tuple(int(x) for x in rng.integers(0, 8, int(rng.integers(1, 7))))


def draw_said(rng: Rng) -> list[Said]:
    """Return 2 to 20 turns of up to four actions, some of which cannot be read."""
    actions = ["left", "right", "up", "down", ""]
    return [
        Said(tokens=some_tokens(rng), action=actions[int(rng.integers(0, 5))])
        for _ in range(int(rng.integers(2, 21)))
    ]


def decisive(case: Sequence[Said], window: int, most: int) -> list[float]:
    """Return CoSo's B of every token: half of Σ_a |p(a | the end) - p(a | without the window)|, p by naive Bayes.

    p(a | end) ∝ n_a Π_{place in the end} (n_{a, token at the place} + .1) / (n_a + .2), places counted from the last
    token; of the actions in the order in which they came all from number `most` on share a name. The end is one token
    longer than the ends that two turns of one half share though their actions differ.
    """
    names: list[str] = []
    read = [said for said in case if said.action]
    for said in read:
        if said.action not in names and len(names) < most - 1:
            names.append(said.action)
    classes = [said.action if said.action in names else "rest" for said in read]
    every = [*names, *(["rest"] if "rest" in classes else [])]
    if len(every) < 2:
        return [0.0 for said in case for _ in said.tokens]
    half = len(case) // 2
    length = 0
    for part in (case[:half], case[half:]):
        own = [said for said in part if said.action]
        for one in own:
            for other in own:
                called = {said.action if said.action in names else "rest" for said in (one, other)}
                if len(called) == 1 or one.tokens == other.tokens:
                    continue
                same = 0
                while same < min(len(one.tokens), len(other.tokens)):
                    if one.tokens[-1 - same] != other.tokens[-1 - same]:
                        break
                    same += 1
                length = max(length, same + 1)

    def chances(tokens: Sequence[int], kept: set[int]) -> list[float]:
        raw: list[float] = []
        for name in every:
            members = [said.tokens for said, own in zip(read, classes, strict=True) if own == name]
            score = float(len(members))
            for place in kept:
                back = len(tokens) - place
                has = sum(len(m) >= back and m[-back] == tokens[place] for m in members)
                score *= (has + 0.1) / (len(members) + 0.2)
            raw.append(score)
        return [score / sum(raw) for score in raw]

    found: list[float] = []
    for said in case:
        end = set(range(len(said.tokens))[-length:]) if length else set[int]()
        whole = chances(said.tokens, end)
        for place in range(len(said.tokens)):
            first = max(0, place - (window - 1) // 2)
            rest = end - set(range(first, first + window))
            found.append(sum(abs(a - b) for a, b in zip(whole, chances(said.tokens, rest), strict=True)) / 2)
    return found


def weighed(module: ModuleType, case: Sequence[Said], window: int, most: int) -> list[float]:
    """Return the weights that the code gives every token."""
    model = module.ActionModel(window=window, max_actions=most)
    half = len(case) // 2
    for part in (case[:half], case[half:]):
        episode = lived(part, 0, is_success=False)
        model.update([Group(task=episode.task, trajectories=(episode,))] if part else [])
    return [weight for said in case for weight in model.weights(said.tokens)]


WINDOWS = ((1, 32), (3, 3))
"""Tokens that are left out together, and actions that are told apart."""


def draw_differences(rng: Rng) -> list[list[float]]:
    """Return one to six differences of three features each."""
    return rng.normal(size=(int(rng.integers(1, 7)), 3)).round(3).tolist()


def descended(case: Sequence[Sequence[float]]) -> list[float]:
    """Return weights after five steps of length 1 down the mean of -log σ(w·d) + .05 |w|², slopes by differences."""
    weights = [0.0] * 3

    def objective(w: Sequence[float]) -> float:
        margins = [sum(x * y for x, y in zip(w, row, strict=True)) for row in case]
        fit = sum(math.log1p(math.exp(-margin)) for margin in margins) / len(case)
        return fit + 0.05 * sum(x * x for x in w)

    for _ in range(5):
        slopes: list[float] = []
        for k in range(3):
            up = [x + 1e-5 * (j == k) for j, x in enumerate(weights)]
            down = [x - 1e-5 * (j == k) for j, x in enumerate(weights)]
            slopes.append((objective(up) - objective(down)) / 2e-5)
        weights = [x - slope for x, slope in zip(weights, slopes, strict=True)]
    return weights


Episode = tuple[list[Said], bool]
"""turns, and whether it succeeded"""


def draw_rooms(rng: Rng) -> list[list[Episode]]:
    """Return one to four tasks with one to six episodes of one to four turns; the last turn of a success is right."""
    tasks: list[list[Episode]] = []
    for _ in range(int(rng.integers(1, 5))):
        episodes: list[Episode] = []
        for _ in range(int(rng.integers(1, 7))):
            turns = [
                Said(
                    tokens=some_tokens(rng),
                    action="x",
                    is_answer=bool(rng.random() < 0.7),
                    is_right=bool(rng.random() < 0.2),
                )
                for _ in range(int(rng.integers(0, 4)))
            ]
            is_success = bool(rng.random() < 0.4)
            last = Said(tokens=some_tokens(rng), action="x", is_answer=True, is_right=is_success)
            episodes.append(([*turns, last], is_success))
        tasks.append(episodes)
    return tasks


def opinion(tokens: Sequence[int]) -> float:
    """Return what stands for the verifier's score; other tokens have another."""
    return math.sin(1e-3 * sum(9**k * (token + 1) for k, token in enumerate(tokens)))


def replaced(case: Sequence[Sequence[Episode]]) -> list[float]:
    """Return, for each task with a right answer, the successes, and the two failures that the verifier likes best.

    Each as a list of its number, of its turns and of its last tokens, where a failure has the answer that comes first
    by 100 · label + score.
    """
    found: list[float] = []
    for episodes in case:
        pool = [
            (100.0 * said.is_right + opinion(said.tokens), said)
            for turns, _ in episodes
            for said in turns
            if said.is_answer
        ]
        best = max(pool, key=lambda pair: pair[0])[1] if pool else None
        if best is None or not best.is_right:
            continue
        for index, (turns, is_success) in enumerate(episodes):
            if is_success:
                found += [float(index), float(len(turns)), *map(float, turns[-1].tokens)]
        failed = [
            (opinion([said for said in turns if said.is_answer][-1].tokens), index)
            for index, (turns, is_success) in enumerate(episodes)
            if not is_success
        ]
        for _, index in sorted(failed, key=lambda pair: -pair[0])[:2]:
            found += [float(index), 1.0, *map(float, best.tokens)]
    return found


def relabelled(module: ModuleType, case: Sequence[Sequence[Episode]]) -> list[float]:
    """Return the same of what the code makes of the episodes."""
    groups: list[Group] = []
    for episodes in case:
        lives = [lived(turns, k, is_success=ok) for k, (turns, ok) in enumerate(episodes)]
        groups.append(Group(task=lives[0].task, trajectories=tuple(lives)))
    made: Any = module.relabel_groups(groups, lambda turn: opinion(turn.completion.token_ids), count=2)
    return flatten(
        [
            [t.index, len(t.turns), *t.turns[-1].completion.token_ids]
            for group in made
            for t in group.trajectories
        ]
    )


FORMULAS: tuple[Formula, ...] = (
    Formula("losses.causal_weights", "losses.causal", ("ActionModel",), draw_said,
        lambda module, case: [x for window in WINDOWS for x in weighed(module, case, *window)],
        lambda case: [x for window in WINDOWS for x in decisive(case, *window)]),
    Formula("credit.verifier", "credit.verifier", ("fit",), draw_differences,
        lambda module, case: module.fit(np.array(case), 0.05, 5).tolist(), descended),
    Formula("data.relabelled", "methods.rl.parts.relabelling", ("relabel_groups",), draw_rooms, relabelled,
        replaced),
)  # fmt: skip
