"""r_k = Σ_i cap_i(w_i · m_i,k): named, weighted, capped and gated terms become turn rewards and a `Score`.

A term measures a whole trajectory: one number goes to the last turn, a number for every turn goes where it says. The
environment's own reward is a term like any other (`quintain.rewards.conduct.environment_reward`): what is not listed
does not count. Every term is logged by name in `Turn.reward_terms`. None, NaN, a wrong type or a wrong number of
turns is a `Failure` of the judge, never a 0.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from quintain.errors import UsageError, suggestion
from quintain.types import Failure, Group, Score, Trajectory, Turn
from quintain.types.plain import MAX_AMOUNT, as_number

Measure = Callable[[Trajectory], float | Sequence[float] | Failure]


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One thing a trajectory is rewarded for.

    Example: ``Term(name="brief", measure=lambda t: -t.num_sampled, weight=0.01, cap=(-0.2, 0),
    gate="correct")``.
    """

    name: str
    measure: Measure
    """Trajectory → one number (for the last turn), one number per turn, or why there is none."""
    weight: float = 1.0
    cap: tuple[float, float] | None = None
    """Bounds of the weighted sum over the episode; what passes them, turn by turn, is cut."""
    gate: str | None = None
    """Name of an earlier term; unless its measure adds up to more than 0, this term is 0."""

    def __post_init__(self) -> None:
        """Check that weight and cap are numbers that a reward can have."""
        if not math.isfinite(self.weight):
            raise UsageError(
                f"weight of the reward term {self.name}: got {self.weight}; give a finite number"
            )
        if self.cap is not None and not self.cap[0] <= self.cap[1]:
            raise UsageError(f"cap of the reward term {self.name}: got {self.cap}; give (lowest, highest)")


def acts(trajectory: Trajectory) -> list[Turn]:
    """Return the turns of `trajectory` in which something was done: no plan, no memory, no draft, no critique."""
    return [turn for turn in trajectory.turns if not turn.is_internal]


def apply(trajectory: Trajectory, terms: Sequence[Term]) -> Trajectory:
    """Return `trajectory` with the turn rewards, reward terms and `Score` that `terms` give it.

    `Score.value` is the sum of the turn rewards; whether the task is solved stays as it was. A `Failure`
    stays a `Failure`. Raises `UsageError` for terms of equal name or a gate that is not an earlier term.
    """
    check(terms)
    if not isinstance(trajectory.outcome, Score):
        return trajectory
    measured: dict[str, list[float]] = {}
    weighted: dict[str, list[float]] = {}
    for term in terms:
        numbers = _measure(term, trajectory)
        if isinstance(numbers, Failure):
            return replace(trajectory, outcome=numbers)
        measured[term.name] = numbers
        is_open = term.gate is None or sum(measured[term.gate]) > 0
        weighted[term.name] = _cap([is_open * term.weight * number for number in numbers], term.cap)
    broken = _find_overflow(terms, weighted)
    if broken is not None:
        return replace(trajectory, outcome=broken)
    turns = tuple(
        replace(
            turn,
            reward=sum(numbers[index] for numbers in weighted.values()),
            reward_terms={
                **turn.reward_terms,
                **{name: numbers[index] for name, numbers in weighted.items()},
            },
        )
        for index, turn in enumerate(trajectory.turns)
    )
    value = math.fsum(number for numbers in weighted.values() for number in numbers)
    return replace(trajectory, turns=turns, outcome=replace(trajectory.outcome, value=value))


def apply_all(groups: Sequence[Group], terms: Sequence[Term]) -> list[Group]:
    """Return `groups` with `terms` applied to every trajectory."""
    return [
        replace(group, trajectories=tuple(apply(t, terms) for t in group.trajectories)) for group in groups
    ]


def check(terms: Sequence[Term]) -> None:
    """Raise a `UsageError` for terms of equal name or a gate that is not an earlier term."""
    names: list[str] = []
    for term in terms:
        if term.name in names:
            raise UsageError(f"names of reward terms: got {term.name!r} twice; give each its own name")
        if term.gate is not None and term.gate not in names:
            hint = suggestion(term.gate, names)
            raise UsageError(
                f"gate of the reward term {term.name}: got {term.gate!r}, not an earlier term; {hint}"
            )
        names.append(term.name)


def _measure(term: Term, trajectory: Trajectory) -> list[float] | Failure:
    """Return one finite number per turn (one in all for an episode without turns), or why there is none."""
    found = cast(object, term.measure(trajectory))
    if isinstance(found, Failure):
        return found
    size = max(len(trajectory.turns), 1)
    if hasattr(found, "tolist"):
        found = cast(Any, found).tolist()
    one = as_number(found)
    if one is not None:
        numbers: list[object] = [*[0.0] * (size - 1), one]
    elif isinstance(found, Sequence) and not isinstance(found, str | bytes):
        numbers = list(cast(Sequence[object], found))
    else:
        return _failure(term, "reward_type", f"got {found!r} of type {type(found).__name__}")
    if len(numbers) != len(trajectory.turns) and one is None:
        return _failure(term, "reward_shape", f"got {len(numbers)} numbers for {len(trajectory.turns)} turns")
    known = [as_number(number) for number in numbers]
    floats = [number for number in known if number is not None]
    if len(floats) < len(known):
        return _failure(term, "reward_type", f"got {numbers!r}")
    if not all(math.isfinite(number) for number in floats):
        return _failure(term, "reward_not_finite", f"got {floats}")
    return floats


def _find_overflow(terms: Sequence[Term], weighted: Mapping[str, Sequence[float]]) -> Failure | None:
    """Return the failure of the term with which the sums are no reward any longer."""
    total = 0.0
    for term in terms:
        total += sum(map(abs, weighted[term.name]))
        if not total <= MAX_AMOUNT:
            kind = "reward_too_large" if math.isfinite(total) else "reward_not_finite"
            return _failure(term, kind, f"got {list(weighted[term.name])} with weight {term.weight}")
    return None


def _failure(term: Term, kind: str, found: str) -> Failure:
    wanted = f"a finite number of at most {MAX_AMOUNT:g}, or one for every turn"
    message = f"reward term {term.name}: {found}; return {wanted}"
    return Failure(owner="judge", kind=kind, message=message)


def _cap(numbers: Sequence[float], cap: tuple[float, float] | None) -> list[float]:
    """Cut `numbers` so that no running sum leaves `cap`."""
    if cap is None:
        return list(numbers)
    result: list[float] = []
    total = kept = 0.0
    for number in numbers:
        total += number
        bounded = min(max(total, cap[0]), cap[1])
        result.append(bounded - kept)
        kept = bounded
    return result


def mean_terms(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return the mean of each reward term over scored episodes, by name."""
    scored = [trajectory for trajectory in trajectories if isinstance(trajectory.outcome, Score)]
    sums: dict[str, float] = {}
    for turn in (turn for trajectory in scored for turn in trajectory.turns):
        for name, value in turn.reward_terms.items():
            sums[name] = sums.get(name, 0.0) + value
    return {name: value / len(scored) for name, value in sorted(sums.items())}
