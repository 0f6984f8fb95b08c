"""Paprika: does a bandit that seeks what is learnable spend its episodes where there is something to learn?

Ten kinds of tasks share one table: four that are solved from the start, three that nobody can solve, and three that
can be learned: guessing one of eight numbers in three turns, and near and far levels of an open sokoban. The method's
own bandit, pairs and loss run for forty updates. The number is the mean success on the learnable kinds, exactly. The
control's bandit reads ν of other kinds, by a permutation drawn once: the same values, the same exploration. In the
null world all ten kinds are copies of the guessing one, with the same tasks, so that it does not matter which is taken,
and both arms are equal bit for bit. Beside them: a bandit whose ν is 1 where outcomes differ, else 0, and one nearly
hopeless kind among the ten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.credit_lab.permute import derange
from quintain.curriculum.levels import Optimist
from quintain.methods.imitation.paprika import Config, Outcomes, method
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import State
from quintain.types import Task, derive_seed
from quintain_evidence.experiments.selftraining.rest import weak_table
from quintain_evidence.labs.exact import END, World
from quintain_evidence.labs.levels import HORIZON, exact, levels, open_floor
from quintain_evidence.labs.observed import Game, Moved, observed_world, play_games
from quintain_evidence.labs.rounds import RoundsRun, train_rounds
from quintain_evidence.labs.tabular import TablePolicy

NUMBERS, GUESSES = 8, 3
SOLVED, HOPELESS, LEARNABLE = 4, 3, ("guess", "near", "far")
KINDS = (*(f"solved {n}" for n in range(SOLVED)), *(f"hopeless {n}" for n in range(HOPELESS)), *LEARNABLE)
COPIES = tuple(f"guess {n}" for n in range(len(KINDS)))
Text = tuple[tuple[int, bool], ...]
"""guesses so far, and whether the number is larger"""


@lru_cache(maxsize=1)
def histories() -> dict[Text, int]:
    """Return the row of each text of the guessing game, after those of sokoban."""
    found: list[Text] = [()]
    last: list[Text] = [()]
    for _ in range(GUESSES - 1):
        last = [
            (*text, (guess, larger)) for text in last for guess in range(NUMBERS) for larger in (False, True)
        ]
        found += last
    first = open_floor().num_states
    return {text: first + place for place, text in enumerate(found)}


def num_rows() -> int:
    """Return the rows of the table: sokoban, guessing, and one for each kind that is a single draw."""
    return open_floor().num_states + len(histories()) + SOLVED + HOPELESS


class Guess:
    """Guess a number in three turns; the reply is whether it is larger."""

    def __init__(self, secret: int) -> None:
        self.secret = secret
        self.text: Text = ()

    def row(self) -> int:
        """Return the row of what was said."""
        return histories()[self.text]

    def key(self) -> str:
        """Return nothing: the method reads no states."""
        return ""

    def act(self, column: int, luck: float) -> Moved:
        """Guess."""
        if column == self.secret:
            return Moved(reward=1.0, is_over=True, is_success=True)
        self.text = (*self.text, (column, self.secret > column))
        return Moved(is_over=len(self.text) == GUESSES)


class Push:
    """A level of sokoban, four of the columns being its moves."""

    def __init__(self, start: int) -> None:
        self.state, self.moves = start, 0

    def row(self) -> int:
        """Return the row of what is seen."""
        return self.state

    def key(self) -> str:
        """Return nothing: the method reads no states."""
        return ""

    def act(self, column: int, luck: float) -> Moved:
        """Move; the horizon of sokoban ends it."""
        floor = open_floor()
        won = bool(floor.is_success[self.state, column])
        self.state, self.moves = int(floor.next[self.state, column]), self.moves + 1
        is_over = won or self.state == END or self.moves == HORIZON
        return Moved(reward=float(won), is_over=is_over, is_success=won)


class Single:
    """One turn: the first column solves it, or none does but by luck."""

    def __init__(self, row: int, *, chance: float) -> None:
        self.place, self.chance = row, chance

    def row(self) -> int:
        """Return its row."""
        return self.place

    def key(self) -> str:
        """Return nothing: the method reads no states."""
        return ""

    def act(self, column: int, luck: float) -> Moved:
        """Take a column."""
        won = column == 0 if self.chance < 0 else luck < self.chance
        return Moved(reward=float(won), is_over=True, is_success=won)


def game(task: Task, *, lucky: float = 0.0) -> Game:
    """Return the game of `task`, whose seed says which number or level; `lucky` solves the first hopeless kind."""
    kind, _, place = task.environment.partition(" ")
    if kind == "guess":
        return Guess(task.seed % NUMBERS)
    if kind in ("near", "far"):
        return Push(task.seed)
    first = open_floor().num_states + len(histories())
    if kind == "solved":
        return Single(first + int(place), chance=-1.0)
    return Single(first + SOLVED + int(place), chance=lucky if place == "0" else 0.0)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the mean success on what can be learned."""
    config = Config(
        tasks=int(options["tasks"]),
        group_size=int(options["size"]),
        pairs=int(options["pairs"]),
        compares_ends=True,
        oversample_factor=len(KINDS) * int(options["of_kind"]) // int(options["tasks"]),
    )
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("paprika", seed, number)
        near = levels(derive_seed(own, "near"), int(options["of_kind"]), least=1, most=3)
        far = levels(derive_seed(own, "far"), int(options["of_kind"]), least=4, most=9)
        start = starting_table(own, int(options["demonstrations"]))

        def learned(
            arm: Rounds,
            kinds: Sequence[str] = KINDS,
            lucky: float = 0.0,
            own: int = own,
            start: TablePolicy = start,
            places: Mapping[str, NDArray[np.int64]] = {"near": near, "far": far},
        ) -> RoundsRun:
            made = replace(arm, update=replace(arm.update, num_epochs=int(options["epochs"])))
            pool = tasks(kinds, places, int(options["of_kind"]))
            play = partial(game, lucky=lucky)
            return train_rounds(
                start,
                made,
                num_rounds=int(options["updates"]),
                seed=own,
                rate=float(options["rate"]),
                pool=pool,
                play=lambda policy, drawn, size, seed: play_games(
                    policy, play, alike(drawn, seed) if kinds is COPIES else drawn, size=size, seed=seed
                ),
            )

        seeking, control = method(config), permuted(method(config), KINDS, own)
        skipping = method(config)
        optimist_of(skipping).value = differs
        run, other = learned(seeking), learned(control)
        dose, dose_control = permuted(method(config), KINDS, own), method(config)
        found.append(
            {
                "method": learnt(run.policy, near, far),
                "control": learnt(other.policy, near, far),
                "null_method": guessed(learned(method(config), COPIES).policy),
                "null_control": guessed(learned(permuted(method(config), COPIES, own), COPIES).policy),
                "extra.start": learnt(start, near, far),
                "extra.skipping": learnt(learned(skipping).policy, near, far),
                "extra.share": share(seeking),
                "extra.control_share": share(control),
                "extra.lucky": learnt(learned(dose_control, lucky=0.02).policy, near, far),
                "extra.lucky_control": learnt(learned(dose, lucky=0.02).policy, near, far),
                "extra.guess": guessed(run.policy),
                "extra.far": float(exact(on_floor(run.policy), far).success.mean()),
            }
        )
    return found


def tasks(kinds: Sequence[str], places: Mapping[str, NDArray[np.int64]], count: int) -> list[Task]:
    """Return `count` tasks of each kind."""
    return [
        Task(
            id=f"{kind}/{number}",
            environment=kind,
            seed=int(places[kind][number]) if kind in places else number,
        )
        for kind in kinds
        for number in range(count)
    ]


def alike(drawn: Sequence[Task], seed: int) -> list[Task]:
    """Return `drawn` with the numbers that a step has, whichever copies they are of."""
    secrets = np.random.default_rng(derive_seed("copies", seed)).integers(0, NUMBERS, len(drawn))
    return [replace(task, seed=secret) for task, secret in zip(drawn, secrets.tolist(), strict=True)]


def starting_table(seed: int, demonstrations: int) -> TablePolicy:
    """Return the table: sokoban after demonstrations of an expert that errs, guessing anew, draws as they are."""
    world = whole_world()
    theta = torch.zeros(world.is_legal.shape, dtype=torch.float64)
    floor = open_floor()
    theta[: floor.num_states, : floor.is_legal.shape[1]] = weak_table(
        seed, demonstrations=demonstrations
    ).theta.detach()
    first = floor.num_states + len(histories())
    theta[first : first + SOLVED, 0] = float(np.log(0.99 * (NUMBERS - 1) / 0.01))
    return TablePolicy(world, theta)


@lru_cache(maxsize=1)
def whole_world() -> World:
    """Return rows and columns of all kinds; in rows of sokoban only its moves are legal."""
    world = observed_world(num_rows(), [str(n) for n in range(NUMBERS)], [NO_TASK], horizon=HORIZON)
    world.is_legal[: open_floor().num_states, open_floor().is_legal.shape[1] :] = False
    return world


NO_TASK = Task(id="none", environment="none", seed=0)


def optimist_of(arm: Rounds) -> Optimist:
    """Return the bandit of `arm`."""
    state: State = arm.state
    (outcomes,) = getattr(state, "parts")  # noqa: B009 - a fold of one part
    assert isinstance(outcomes, Outcomes), "the method's only state"
    return outcomes.chooser


def permuted(arm: Rounds, kinds: Sequence[str], seed: int) -> Rounds:
    """Return `arm`, whose bandit reads the ν of other kinds."""
    order = derange(len(kinds), derive_seed("kinds", seed))
    optimist_of(arm).relabel = {kind: kinds[place] for kind, place in zip(kinds, order, strict=True)}
    return arm


def differs(outcomes: Sequence[float]) -> float:
    """Return 1 where some outcomes are solved and others not."""
    return float(0 < sum(outcomes) < len(outcomes))


def share(arm: Rounds) -> float:
    """Return the share of tasks that were of kinds that can be learned."""
    counts = {kind: len(values) for kind, values in optimist_of(arm).found.items()}
    return sum(counts.get(kind, 0) for kind in LEARNABLE) / max(sum(counts.values()), 1)


def on_floor(policy: TablePolicy) -> TablePolicy:
    """Return the rows of sokoban."""
    floor = open_floor()
    return TablePolicy(floor, policy.theta.detach()[: floor.num_states, : floor.is_legal.shape[1]])


def learnt(policy: TablePolicy, near: NDArray[np.int64], far: NDArray[np.int64]) -> float:
    """Return the mean success on the three kinds that can be learned, exactly."""
    floor = on_floor(policy)
    pushed = [float(exact(floor, rows).success.mean()) for rows in (near, far)]
    return float(np.mean([guessed(policy), *pushed]))


def guessed(policy: TablePolicy) -> float:
    """Return the probability of guessing a number in three turns, exactly."""
    chances = policy.probabilities().numpy()

    def solved(secret: int, text: Text) -> float:
        own = chances[histories()[text]]
        total = float(own[secret])
        if len(text) < GUESSES - 1:
            total += sum(
                float(own[guess]) * solved(secret, (*text, (guess, secret > guess)))
                for guess in range(NUMBERS)
                if guess != secret
            )
        return total

    return float(np.mean([solved(secret, ()) for secret in range(NUMBERS)]))
