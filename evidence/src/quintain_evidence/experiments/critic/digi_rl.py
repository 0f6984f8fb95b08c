"""DigiRL: does the advantage of a step find the right moves inside episodes that succeeded?

A table over the texts of an open sokoban, where a fifth of the moves slip to one side, has imitated demonstrations of
an expert that errs. Its success before every move, and before the first alone, is fitted by the method's own loss on
half of its episodes of some levels. On the other half the method's filters choose. The number is the share of kept
moves, in episodes that succeeded, that were meant to shorten the way (before the slip), less the share that as many
moves drawn at random from the same episodes would have. The control permutes V among the moves of an episode. In the
null world nothing slips and the expert moves, so that every move is right. Beside it: the same of the official code's
advantages, and by how much nearer to a half the success of the levels is that R - V keeps than of those that R keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.credit.layout import credit_of, repeat_over_tokens
from quintain.credit.success import chances, labels
from quintain.credit_lab.permute import permute
from quintain.data.samples import samples_from
from quintain.learning.update import Update
from quintain.losses.value import cross_entropy
from quintain.methods.critic.digi_rl import Config, hard_filter
from quintain.types import Credit, Task, Trajectory, derive_seed, flatten_scored
from quintain_evidence.experiments.selftraining.rest import weak_table
from quintain_evidence.labs.exact import END, World
from quintain_evidence.labs.levels import expert_table, levels, open_floor, starting_at
from quintain_evidence.labs.observed import Moved, play_games
from quintain_evidence.labs.tabular import TablePolicy, packed

SIDES = ((2, 3), (2, 3), (0, 1), (0, 1))
"""move → the moves to its sides"""
FIT_STEPS, FIT_RATE = 150, 0.1
NUM_REPLAYS = 32
"""episodes that say how often a level is solved"""


@dataclass(slots=True)
class Slippery:
    """A level on the open floor whose moves go to one side instead with probability `slip`."""

    world: World
    place: int
    slip: float

    def row(self) -> int:
        """Return what is seen: the place of player, box and target."""
        return self.place

    def key(self) -> str:
        """Return its name."""
        return self.world.keys[self.place]

    def act(self, column: int, luck: float) -> Moved:
        """Move, or slip."""
        if luck < self.slip:
            column = SIDES[column][int(luck >= self.slip / 2)]
        is_solved = bool(self.world.is_success[self.place, column])
        if not is_solved:
            self.place = int(self.world.next[self.place, column])
        return Moved(reward=float(is_solved), is_over=is_solved, is_success=is_solved)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of what is gained in precision by V, and by V permuted."""
    config = Config(keep_fraction=float(options["share"]), outcome_decay=float(options["mixing"]))
    size, slip = int(options["size"]), float(options["slip"])
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("digi_rl", seed, number)
        world = starting_at(levels(own, int(options["levels"]), least=2))
        start = TablePolicy(world, weak_table(own, demonstrations=int(options["demonstrations"])).theta)
        right = play(start, size, own, slip)
        other = play(start, size, derive_seed(own, "fit"), slip)
        judges = Judges(world, other)
        expert = TablePolicy(world, expert_table(mistakes=1e-9).theta)
        safe = play(expert, size, own, 0.0)
        safe_judges = Judges(world, play(expert, size, derive_seed(own, "fit"), 0.0))
        true = success(start, derive_seed(own, "truth"), slip)
        code = replace(config, variant="code")
        found.append(
            {
                "method": precision(right, judges, config),
                "control": precision(right, judges, config, seed=own),
                "null_method": precision(safe, safe_judges, config),
                "null_control": precision(safe, safe_judges, config, seed=own),
                "extra.code": precision(right, judges, code),
                "extra.nearer_half": far_from_half(right, judges, true, config)
                - far_from_half(right, judges, true, replace(config, by_task=False)),
                "extra.success": float(np.mean([t.is_success for t in right])),
                "extra.base": float(np.mean(np.concatenate([truths(t) for t in right if t.is_success]))),
                "extra.kept": kept_share(right, judges, config),
            }
        )
    return found


def play(policy: TablePolicy, size: int, seed: int, slip: float) -> list[Trajectory]:
    """Return `size` episodes of each level of `policy`, one after the other."""
    world = policy.world

    def game(task: Task) -> Slippery:
        return Slippery(world=world, place=task.seed, slip=slip)

    return list(flatten_scored(play_games(policy, game, world.tasks, size=size, seed=seed)))


def success(policy: TablePolicy, seed: int, slip: float) -> dict[str, float]:
    """Return how often each level is solved, of other episodes, by its name."""
    found: dict[str, list[bool]] = {}
    for episode in play(policy, NUM_REPLAYS, seed, slip):
        found.setdefault(episode.task.id, []).append(episode.is_success)
    return {name: float(np.mean(own)) for name, own in found.items()}


class Judges:
    """The two classifiers of success, tables over what is seen, fitted to `episodes` by the method's loss."""

    def __init__(self, world: World, episodes: Sequence[Trajectory]) -> None:
        self.step = fitted(world, episodes, lambda _: True)
        self.task = fitted(world, episodes, lambda turn: turn == 0)

    def values(self, episodes: Sequence[Trajectory]) -> list[list[float]]:
        """Return V(s) before every turn of `episodes`."""
        return chances([[float(self.step[turn.prompt_ids[0]]) for turn in t.turns] for t in episodes])

    def promised(self, episodes: Sequence[Trajectory]) -> list[float]:
        """Return V(task) of `episodes`."""
        return [own[0] for own in chances([[float(self.task[t.turns[0].prompt_ids[0]])] for t in episodes])]


def fitted(
    world: World, episodes: Sequence[Trajectory], has_turn: Callable[[int], bool]
) -> NDArray[np.float64]:
    """Return logits of success of every row, fitted to the turns of `episodes` that `has_turn` says yes to."""
    update = Update(loss=cross_entropy(), keeps_zeros=True)
    known = credit_of(episodes, repeat_over_tokens(episodes, labels(episodes))).advantages
    credit = Credit(trajectories=tuple(episodes), advantages=known, returns=known)
    samples = [
        replace(
            sample,
            loss_weight=sample.loss_weight
            * np.array([has_turn(k) for k in sample.turn_id.tolist()], np.float32),
        )
        for sample in samples_from(credit)
    ]
    batch = packed(samples, update)
    table = TablePolicy(
        world, torch.zeros(world.is_legal.shape), torch.zeros(world.num_states, dtype=torch.float64)
    )
    assert table.values is not None, "given"
    optimizer = torch.optim.Adam([table.values], lr=FIT_RATE)
    for _ in range(FIT_STEPS):
        optimizer.zero_grad()
        torch.autograd.backward(update.loss(table(batch), batch).loss)
        optimizer.step()
    return table.values.detach().numpy()


def truths(episode: Trajectory) -> NDArray[np.bool_]:
    """Return of each turn whether the move that was meant shortens the way, [turns]."""
    floor = open_floor()
    rows = np.array([turn.prompt_ids[0] for turn in episode.turns])
    moves = np.array([turn.completion.token_ids[0] - floor.num_states for turn in episode.turns])
    after = floor.next[rows, moves]
    away = np.where(after == END, 0.0, floor.distance[after])
    return away < floor.distance[rows]


def kept(
    episodes: Sequence[Trajectory], judges: Judges, config: Config, seed: int | None = None
) -> list[NDArray[np.bool_]]:
    """Return which turns of `episodes` are kept; with `seed` V is permuted among the turns of each."""
    values = judges.values(episodes)
    if seed is not None:
        values = [
            permute(own, seed=derive_seed(seed, place), moves_all=False, alone="keep").values
            for place, own in enumerate(values)
        ]
    credit = hard_filter(episodes, judges.promised(episodes), values, config)
    return [np.array([turn[0] > 0 for turn in arrays], np.bool_) for arrays in credit.advantages]


def precision(
    episodes: Sequence[Trajectory], judges: Judges, config: Config, seed: int | None = None
) -> float:
    """Return the share of right moves among those kept in successes, less that of as many random ones of the same."""
    right = base = count = 0.0
    for episode, own in zip(episodes, kept(episodes, judges, config, seed), strict=True):
        if episode.is_success and own.any():
            truth = truths(episode)
            right += float(truth[own].sum())
            base += float(own.sum() * truth.mean())
            count += float(own.sum())
    return (right - base) / count if count else 0.0


def kept_share(episodes: Sequence[Trajectory], judges: Judges, config: Config) -> float:
    """Return the share of the turns of kept successes that are kept."""
    found = [
        own
        for t, own in zip(episodes, kept(episodes, judges, config), strict=True)
        if t.is_success and own.any()
    ]
    return float(np.concatenate(found).mean()) if found else 0.0


def far_from_half(
    episodes: Sequence[Trajectory], judges: Judges, true: Mapping[str, float], config: Config
) -> float:
    """Return how far from a half the success of the tasks is, on average, whose episodes are kept."""
    promised = judges.promised(episodes) if config.by_task else [0.0] * len(episodes)
    credit = hard_filter(episodes, promised, judges.values(episodes), replace(config, by_step=False))
    chosen = [
        abs(true[t.task.id] - 0.5)
        for t, arrays in zip(episodes, credit.advantages, strict=True)
        if arrays[0].any()
    ]
    return float(np.mean(chosen)) if chosen else 0.0
