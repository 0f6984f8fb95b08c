"""What turns are paid for, by name: ``policy_gradient --rewards "environment, format=0.1, economy@success"``.

A reward is a list of terms, each ``name``, ``name=weight``, with ``<=most`` for the most that it may pay or take in an
episode, and ``@earlier`` for a term that must be above 0 for it to count. What is not listed does not count, the
environment's own reward included. The term ``judge`` is what a model behind a chat endpoint gives by a rubric.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from quintain.engines.judge import Judge
from quintain.errors import ConfigError, UsageError, suggestion
from quintain.rewards.conduct import (
    environment_reward,
    format_penalty,
    illegal_act_penalty,
    invalid_action_penalty,
    new_state_bonus,
    pay_executed,
    refused_call_penalty,
    success,
    well_formed,
)
from quintain.rewards.efficiency import fewest_calls
from quintain.rewards.exploration import Visits, pay_untried
from quintain.rewards.search import turn_shaped_success
from quintain.rewards.terms import Term, apply_all, check
from quintain.types import Group, Trajectory

ONLY_ENVIRONMENT = "environment"
TERM = re.compile(r"(\w+)(?:=(-?\d+\.?\d*))?(?:<=(\d+\.?\d*))?(?:@(\w+))?")
STATES = frozenset({"new_state", "visits"})
"""Terms that need an environment that recognises its states."""
TERMS: Mapping[str, tuple[Callable[[float], Term], float]] = {
    "environment": (environment_reward, 1.0),
    "success": (success, 1.0),
    "economy": (lambda weight: fewest_calls(success(weight)), 1.0),
    "shaped": (turn_shaped_success, 1.0),
    "well_formed": (well_formed, 1.0),
    "executed": (pay_executed, 0.2),
    "format": (format_penalty, 0.1),
    "invalid": (invalid_action_penalty, 0.1),
    "refused": (refused_call_penalty, 0.1),
    "illegal": (illegal_act_penalty, 0.1),
    "new_state": (new_state_bonus, 0.1),
    "untried": (pay_untried, 0.1),
}
"""name → term by weight, and its usual weight; "visits" counts over the run and "judge" asks: they are made apart"""


def terms(text: str, visits: Visits, judge: Judge | None = None) -> tuple[Term, ...]:
    """Return the terms that `text` lists; that of the name "visits" counts by `visits`, "judge" asks `judge`.

    Example: ``terms("success, invalid=0.2<=0.6", Visits())``.

    Raises:
        ConfigError: a term is unknown, named twice, not written as above, its gate is no earlier term, or economy may
            take away more than success pays.
    """
    found = tuple(_term(part.strip(), visits, judge) for part in text.split(","))
    try:
        check(found)
    except UsageError as error:
        raise ConfigError(f"rewards: {error}") from error
    _refuse_dear(found)
    return found


def needs_states(text: str) -> bool:
    """Return whether a term that `text` lists reads the states of turns."""
    return any(term.name in STATES for term in terms(text, Visits()))


def needs_tools(text: str) -> bool:
    """Return whether a term that `text` lists counts tool calls."""
    return any(term.name == "economy" for term in terms(text, Visits()))


def _refuse_dear(found: Sequence[Term]) -> None:
    """Raise where many calls make a right answer worth less than a wrong one."""
    by_name = {term.name: term for term in found}
    if "economy" not in by_name:
        return
    saved = by_name["economy"]
    right = by_name[saved.gate or ""]
    most = saved.weight if saved.cap is None else min(saved.weight, -saved.cap[0])
    if most > right.weight:
        raise ConfigError(
            f"rewards: got economy={saved.weight:g} with {right.name}={right.weight:g}, and many calls would make a "
            f"right answer worth less than a wrong one; give economy={right.weight:g} or less"
        )


def has_judge(text: str) -> bool:
    """Return whether a term that `text` lists asks a judge."""
    return any(term.name == "judge" for term in terms(text, Visits()))


def read_judge(text: str, spec: str) -> Judge | None:
    """Return the judge that `spec` names, None where the terms in `text` need none.

    Raises:
        ConfigError: a judge is needed and not given, given and not needed, or cannot be.
    """
    if has_judge(text) != bool(spec):
        advice = (
            "give judge=http://127.0.0.1:8000/v1?model=NAME&rubric=FILE" if not spec else "add the term judge"
        )
        raise ConfigError(f"judge: got {spec!r} with rewards {text!r}; {advice}")
    try:
        return Judge(spec) if spec else None
    except UsageError as error:
        raise ConfigError(str(error)) from error


def pay(groups: Sequence[Group], *, paid: Sequence[Term], judge: Judge | None) -> list[Group]:
    """Return `groups` with the terms `paid` as rewards; the judge is asked about all episodes at the same time."""
    if judge is not None:
        judge.prepare(trajectory for group in groups for trajectory in group.scored)
    return apply_all(groups, paid)


def _stand_in_judge(_: Trajectory) -> float:
    """Stand for a judge where only the names of terms are looked at."""
    raise AssertionError("nothing is measured here")


def _term(part: str, visits: Visits, judge: Judge | None) -> Term:
    match = TERM.fullmatch(part)
    if match is None:
        raise ConfigError(
            f"rewards: got {part!r}; write name, name=weight, name=weight<=most or name@earlier"
        )
    name, weight, most, gate = match.groups()
    measure = _stand_in_judge if judge is None else judge.measure
    makers = {
        **TERMS,
        "visits": (visits.bonus, 0.1),
        "judge": (lambda weight: Term(name="judge", measure=measure, weight=weight), 1.0),
    }
    if name not in makers:
        raise ConfigError(f"rewards: got {name!r}; {suggestion(name, makers)}")
    make, usual = makers[name]
    term = make(usual if weight is None else float(weight))
    named = replace(term, name=name)
    if most is not None:
        named = replace(named, cap=(-float(most), float(most)))
    return named if gate is None else replace(named, gate=gate)
