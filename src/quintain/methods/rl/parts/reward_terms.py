"""What turns are paid for, by name: ``policy_gradient --rewards "environment, format=0.1, economy@success"``.

A reward is a list of terms, each ``name``, ``name=weight``, with ``<=most`` for the most that it may pay or take in an
episode, and ``@earlier`` for a term that must be above 0 for it to count. What is not listed does not count, the
environment's own reward included.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from quintain.errors import ConfigError, UsageError, suggestion
from quintain.rewards.conduct import (
    environment_reward,
    executed,
    format_penalty,
    invalid_action_penalty,
    new_state_bonus,
    success,
    well_formed,
)
from quintain.rewards.efficiency import fewest_calls
from quintain.rewards.exploration import Visits, untried_bonus
from quintain.rewards.search import turn_shaped_success
from quintain.rewards.terms import Term, check

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
    "executed": (executed, 0.2),
    "format": (format_penalty, 0.1),
    "invalid": (invalid_action_penalty, 0.1),
    "new_state": (new_state_bonus, 0.1),
    "untried": (untried_bonus, 0.1),
}
"""name → term by weight, and its usual weight; "visits" counts over the run and is made apart"""


def terms(text: str, visits: Visits) -> tuple[Term, ...]:
    """Return the terms that `text` lists; those of the name "visits" count by `visits`.

    Example: ``terms("success, invalid=0.2<=0.6", Visits())``.

    Raises:
        ConfigError: a term is unknown, named twice, not written as above, its gate is no earlier term, or economy may
            take away more than success pays.
    """
    found = tuple(_term(part.strip(), visits) for part in text.split(","))
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


def _term(part: str, visits: Visits) -> Term:
    match = TERM.fullmatch(part)
    if match is None:
        raise ConfigError(
            f"rewards: got {part!r}; write name, name=weight, name=weight<=most or name@earlier"
        )
    name, weight, most, gate = match.groups()
    makers = {**TERMS, "visits": (visits.bonus, 0.1)}
    if name not in makers:
        raise ConfigError(f"rewards: got {name!r}; {suggestion(name, makers)}")
    make, usual = makers[name]
    term = make(usual if weight is None else float(weight))
    named = replace(term, name=name)
    if most is not None:
        named = replace(named, cap=(-float(most), float(most)))
    return named if gate is None else replace(named, gate=gate)
