"""What differs between a step as it was recorded and as it was made again.

Episodes are compared before what is made of them, signals before metrics, and metrics before weights, so that what is
named is the first thing that does not follow. On the machine that computed the step every number must be the same; on
another one those that are computed may differ by rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any

import numpy as np

from quintain.methods.loops.recall import is_clock
from quintain.types import Trajectory, Use

FIRST = ("train/success", "train/reward", "credit/", "train/loss", "train/grad_norm", "gap/")
"""Beginnings of metrics in the order in which a step comes to them; others follow."""
ROUNDING, NOTHING_MUCH = 0.02, 1e-3
"""How far two numbers may be apart on another machine: as a share of the larger one, or as they are."""
SIGNALS = {
    "advantages": "advantages",
    "returns": "returns",
    "weights": "loss weights",
    "logprobs": "log-probs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What does not follow: ``Difference(step=7, what="metrics", text="train/loss is 0.1, recorded is 0.2")``."""

    step: int
    what: str
    """episodes, seeds, tokens, uses, advantages, returns, loss weights, log-probs, loss, gradient norm, metrics,
    version, weights or checkpoint"""
    text: str


class DifferenceFound(Exception):
    """Ends what makes steps again where one does not follow."""

    def __init__(self, found: Difference) -> None:
        super().__init__(found.text)
        self.found = found


def compare_episodes(made: Trajectory, known: Trajectory) -> tuple[str, str]:
    """Return in what the episode `made` is not the `known` one, and how; two empty strings where it is the same."""
    name = f"episode {known.index} of {known.group}"
    if made.seed != known.seed:
        return "seeds", f"{name} is sampled from seed {made.seed} here, and was from {known.seed}"
    for number, (turn, other) in enumerate(zip(made.turns, known.turns, strict=False)):
        ids, said = turn.completion.token_ids, other.completion.token_ids
        if turn.prompt_ids != other.prompt_ids:
            return "episodes", f"{name} is shown something else in turn {number}"
        if ids != said:
            place = next((i for i, (a, b) in enumerate(zip(ids, said, strict=False)) if a != b), None)
            at = min(len(ids), len(said)) if place is None else place
            return "tokens", f"{name} has other tokens from token {at} of turn {number} on"
        if turn.completion.logprobs != other.completion.logprobs:
            return "log-probs", f"{name} has other log-probs at sampling in turn {number}"
        if turn.reward != other.reward:
            return (
                "episodes",
                f"{name} is paid {turn.reward:g} in turn {number}, recorded is {other.reward:g}",
            )
    if len(made.turns) != len(known.turns):
        return "episodes", f"{name} has {len(made.turns)} turns, recorded are {len(known.turns)}"
    names = ("task", "outcome", "stop", "turns", "parent")
    for field in (name_ for name_ in names if getattr(made, name_) != getattr(known, name_)):
        return "episodes", f"{name} has another {field}"
    return "", ""


def compare_uses(made: Sequence[Use], known: Sequence[Use], *, is_exact: bool) -> tuple[str, str]:
    """Return in what the uses of a step are not those that were recorded, and how."""
    names, others = [use.episode for use in made], [use.episode for use in known]
    if names != others:
        place = next((i for i, (a, b) in enumerate(zip(names, others, strict=False)) if a != b), None)
        where = f"from use {place} on" if place is not None else "in number"
        return (
            "uses",
            f"the step learns from {len(names)} episodes, recorded are {len(others)}, which differ {where}",
        )
    for use, other in zip(made, known, strict=True):
        if use.signals is not None and other.signals is None:
            return "episodes", f"episode {use.episode} is not the one whose signals the step recorded"
        if use.signals is None or other.signals is None:
            continue
        for field in SIGNALS:
            text = _compare_arrays(
                getattr(use.signals, field), getattr(other.signals, field), is_exact=is_exact
            )
            if text:
                return SIGNALS[field], f"{SIGNALS[field]} of episode {use.episode}: {text}"
    return "", ""


def _compare_arrays(made: Any, known: Any, *, is_exact: bool) -> str:
    """Return how two arrays over the tokens of an episode differ; empty where they do not."""
    if made is None or known is None:
        return "" if made is known else "there are none on one side"
    made, known = np.asarray(made, np.float64), np.asarray(known, np.float64)
    if made.shape != known.shape:
        return f"got {made.size} numbers, recorded are {known.size}"
    apart = made != known if is_exact else ~np.isclose(made, known, rtol=ROUNDING, atol=NOTHING_MUCH)
    if not apart.any():
        return ""
    place = int(apart.argmax())
    return f"token {place} has {made[place]:.9g}, recorded is {known[place]:.9g} ({int(apart.sum())} differ)"


def compare_metrics(
    made: Mapping[str, Any], known: Mapping[str, Any], *, is_exact: bool, leaves_out: Sequence[str] = ()
) -> tuple[str, str, float]:
    """Return what kind of metric differs first, how, and the largest share by which one is apart.

    Clocks, and those that begin with one of `leaves_out`, are not compared.
    """
    largest = 0.0
    for name in sorted(made.keys() | known.keys(), key=_rank):
        if name in ("step", "phase") or is_clock(name) or name.startswith(tuple(leaves_out)):
            continue
        if name not in made or name not in known:
            where = "is not recorded" if name in made else "is recorded alone"
            return "metrics", f"{name} {where}", largest
        own, other = made[name], known[name]
        if own == other:
            continue
        if not is_exact and own is not None and other is not None:
            largest = max(largest, abs(own - other) / max(abs(own), abs(other)))
            if isclose(own, other, rel_tol=ROUNDING, abs_tol=NOTHING_MUCH):
                continue
        return kind_of(name), f"{name} is {_number(own)}, recorded is {_number(other)}", largest
    return "", "", largest


def kind_of(metric: str) -> str:
    """Return what a difference in `metric` is called."""
    known = {"train/loss": "loss", "train/grad_norm": "gradient norm"}
    return known.get(metric, "advantages" if metric.startswith("credit/") else "metrics")


def _rank(name: str) -> tuple[int, str]:
    places = [place for place, beginning in enumerate(FIRST) if name.startswith(beginning)]
    return (places[0] if places else len(FIRST), name)


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.9g}"
