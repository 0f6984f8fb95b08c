"""What states and actions of Gymnasium's discrete environments are called: one `Wording` per family.

FrozenLake, Taxi and CliffWalking are told in words, from where the agent stands; everything else by rule: the
observation as numbers, actions as ``action 0``, ``action 1`` … Observations are kept short: they are prompts.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quintain.errors import UsageError

MAX_NUMBERS = 64
"""An observation of more numbers than this is no text to learn from."""
CELLS = {"S": "ice", "F": "ice", "H": "hole", "G": "goal"}
LAKE_MOVES = (("left", 0, -1), ("down", 1, 0), ("right", 0, 1), ("up", -1, 0))
TAXI_MOVES = ("south", "north", "east", "west")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """How a family of environments is told.

    Example: ``Wording(instructions="Balance the pole.", actions=("left", "right"))``.
    """

    instructions: str = "Reach a high reward."
    actions: tuple[str, ...] = ()
    """Names of the actions in the environment's numbering; empty: ``action 0`` and so on."""
    observe: Callable[[Any, Any], str] | None = None
    """(unwrapped environment, observation) → text; None: the numbers."""
    introduce: Callable[[Any], str] | None = None
    """Unwrapped environment → what the first observation starts with."""
    succeeds: Callable[[float], bool] | None = None
    """Whether an end with this last reward is a success; None: when the total reward is above 0."""


def in_numbers(_world: Any, observation: Any) -> str:
    """Return `observation` as numbers: ``13 10 0``, ``0.02 -0.1``.

    Raises:
        UsageError: it has too many of them, or is not made of numbers.
    """
    parts: Sequence[Any] = observation if isinstance(observation, tuple) else (observation,)
    numbers = [value for part in parts for value in np.asarray(part).ravel().tolist()]
    if len(numbers) > MAX_NUMBERS or not all(isinstance(value, (int, float)) for value in numbers):
        raise UsageError(
            f"observation as text: got {len(numbers)} values of type {type(observation).__name__}; "
            f"choose an environment whose observation is at most {MAX_NUMBERS} numbers"
        )
    return " ".join(str(int(value)) if float(value).is_integer() else f"{value:.3g}" for value in numbers)


def lake_board(world: Any) -> str:
    """Return FrozenLake's map, a line per row: S start, F ice, H hole, G goal."""
    return "\n".join("".join(cell.decode() for cell in row) for row in world.desc)


def lake_view(world: Any, state: Any) -> str:
    """Return what is around the agent on FrozenLake and where the goal is."""
    row, column = divmod(int(state), int(world.ncol))
    around: list[str] = []
    for word, down, right in LAKE_MOVES:
        i, j = row + down, column + right
        is_inside = 0 <= i < world.nrow and 0 <= j < world.ncol
        around.append(f"{word} {CELLS[world.desc[i, j].decode()] if is_inside else 'edge'}")
    goal = int(np.flatnonzero(world.desc.ravel() == b"G")[0])
    i, j = divmod(goal, int(world.ncol))
    return (
        f"row {row} column {column}, {', '.join(around)}, goal {_away(i - row, j - column, ('down', 'up'))}"
    )


def taxi_view(world: Any, state: Any) -> str:
    """Return where Taxi's passenger and destination are from the taxi, and which sides are blocked."""
    row, column, passenger, destination = world.decode(int(state))
    mask = world.action_mask(int(state))
    blocked = [word for word, is_open in zip(TAXI_MOVES, mask[:4].tolist(), strict=True) if not is_open]
    places = [_away(i - row, j - column, ("south", "north"), ("east", "west")) for i, j in world.locs]
    parts = [f"at {row} {column}"]
    if blocked:
        parts.append(f"blocked {' '.join(blocked)}")
    parts.append("passenger aboard" if passenger == len(world.locs) else f"passenger {places[passenger]}")
    parts.append(f"destination {places[destination]}")
    return ", ".join(parts)


def cliff_view(world: Any, state: Any) -> str:
    """Return the agent's place on CliffWalking's 4 by 12 cells."""
    row, column = divmod(int(state), int(world.shape[1]))
    return f"row {row} column {column}"


def wording_of(world: Any) -> Wording:
    """Return the wording for the unwrapped environment `world`."""
    return WORDINGS.get(re.sub(r"Env$", "", type(world).__name__), Wording())


def _away(
    down: int, right: int, vertical: tuple[str, str], horizontal: tuple[str, str] = ("right", "left")
) -> str:
    """Return a relative place in words: ``2 south 1 east``, or ``here``."""
    parts = [f"{abs(down)} {vertical[0] if down > 0 else vertical[1]}"] if down else []
    if right:
        parts.append(f"{abs(right)} {horizontal[0] if right > 0 else horizontal[1]}")
    return " ".join(parts) or "here"


def _is_positive(reward: float) -> bool:
    """Whether `reward` says that the end was the goal."""
    return reward > 0


WORDINGS: dict[str, Wording] = {
    "FrozenLake": Wording(
        instructions="Cross the ice to the goal without falling into a hole. Act: left, down, right or up.",
        actions=("left", "down", "right", "up"),
        observe=lake_view,
        introduce=lake_board,
        succeeds=_is_positive,
    ),
    "Taxi": Wording(
        instructions="Bring the passenger to the destination. "
        "Act: south, north, east, west, pickup or dropoff.",
        actions=("south", "north", "east", "west", "pickup", "dropoff"),
        observe=taxi_view,
        succeeds=_is_positive,
    ),
    "CliffWalking": Wording(
        instructions="Walk from row 3 column 0 to row 3 column 11; the cells between are a cliff. "
        "Act: up, right, down or left.",
        actions=("up", "right", "down", "left"),
        observe=cliff_view,
        succeeds=lambda _reward: True,
    ),
    "Blackjack": Wording(
        instructions="Beat the dealer without going over 21. You see your sum, the dealer's card and whether "
        "you hold a usable ace. Act: stick or hit.",
        actions=("stick", "hit"),
        succeeds=_is_positive,
    ),
    "CartPole": Wording(
        instructions="Keep the pole upright. You see position, speed, angle and turning speed. "
        "Act: left or right.",
        actions=("left", "right"),
    ),
    "MountainCar": Wording(
        instructions="Drive up the right hill. You see position and speed. Act: left, wait or right.",
        actions=("left", "wait", "right"),
        succeeds=lambda _reward: True,
    ),
}
"""By the name of the class, without its ``Env``."""
