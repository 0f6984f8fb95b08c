"""R' = R + α·Δ for each answer of an agent, with Q its mean reward before: margin Δ = R - Q, quality Δ = R + Q - 1.

MARTI (github.com/TsinghuaC3I/MARTI): agents answer several times in a talk, each answer has a
reward R of 0 or 1, and is paid more where it mends what was wrong before (margin), or goes on being right (quality,
written there as Q·R - (1 - Q)(1 - R)). Q is of the agent's own earlier answers, or of all agents' (what its code for
debates does, while its documentation says own). The first answer, before which there is none, keeps R. R' leaves [0,
1]: what asks whether rewards differ must ask R. Q is fixed before the answer, so margin is a baseline and lowers no
flips by itself.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Literal, get_args

from quintain.errors import UsageError, suggestion

Shape = Literal["margin", "quality"]
Whose = Literal["own", "all"]


def allocate(
    answers: Sequence[tuple[str, float]],
    *,
    shape: Shape = "margin",
    history: Whose = "own",
    alpha: float = 0.5,
) -> list[float]:
    """Return R' of each of `answers`, (agent, R) in the order of speaking.

    Example: two agents answer twice, [[0, 1], [1, 1]] by round; with margin and α .5 the first agent's second answer is
    paid 1.5 by its own history and 1.25 by that of all.

    Raises:
        UsageError: `shape` or `history` is another word.
    """
    for asked, got, known in (("shape", shape, get_args(Shape)), ("history", history, get_args(Whose))):
        if got not in known:
            raise UsageError(f"{asked} of an allocation: got {got!r}; {suggestion(got, known)}")
    found: list[float] = []
    spoke: list[tuple[str, float]] = []
    rounds: dict[str, int] = {}
    for agent, reward in answers:
        rounds[agent] = rounds.get(agent, 0) + 1
        before = _before(spoke, agent, rounds[agent], history)
        quality = fmean(before) if before else None
        if quality is None:
            found.append(reward)
        elif shape == "margin":
            found.append(reward + alpha * (reward - quality))
        else:
            found.append(reward + alpha * (reward + quality - 1))
        spoke.append((agent, reward))
    return found


def _before(spoke: Sequence[tuple[str, float]], agent: str, number: int, history: Whose) -> list[float]:
    """Return the rewards of earlier answers: the agent's, or all agents' of earlier rounds."""
    if history == "own":
        return [reward for name, reward in spoke if name == agent]
    rounds: dict[str, int] = {}
    found: list[float] = []
    for name, reward in spoke:
        rounds[name] = rounds.get(name, 0) + 1
        if rounds[name] < number:
            found.append(reward)
    return found
