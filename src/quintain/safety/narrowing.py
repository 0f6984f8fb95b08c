"""A policy that allows only what two allow: by its form, and not by trust in whoever wrote the second.

Each rule of the first that allows is joined with each of the second that does: a call matches the two together where it
matches both. So what comes of it can be no wider than the first, whatever the second says, which is what a policy that
a model wrote is for (Progent, arXiv 2504.11703, section 4.3, where an SMT solver asks whether one is).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from quintain.errors import ConfigError
from quintain.safety.policy import Rule, Rules, sort_rules


def narrow_rules(wide: Rules, own: Rules) -> Rules:
    """Return rules under which a call is allowed where both `wide` and `own` allow it, of the tools of both.

    What a rule of `wide` forbids, says or installs stays so.

    Raises:
        ConfigError: a rule of `own` forbids or installs, which cannot be joined.
    """
    for tool, each in own.items():
        for number, rule in enumerate(each, start=1):
            if rule.effect == "forbid" or rule.installs:
                raise ConfigError(
                    f"policy that narrows: got {tool}, rule {number}, which forbids or installs; give rules that allow"
                )
    return {tool: _narrow(sort_rules(each), own[tool]) for tool, each in wide.items() if tool in own}


def _narrow(wide: Sequence[Rule], own: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return the rules of a tool; each keeps the place that it has among those of `wide`."""
    found: list[Rule] = []
    for place, rule in enumerate(wide, start=1):
        joined = [rule] if rule.effect == "forbid" else [_join(rule, each) for each in own]
        found += [replace(each, priority=place) for each in joined]
    always = next((n for n, each in enumerate(found) if not each.when), len(found))
    return tuple(found[: always + 1])  # what comes behind a rule without conditions is never reached


def _join(wide: Rule, own: Rule) -> Rule:
    """Return a rule that matches where both do."""
    when: dict[str, Mapping[str, Any]] = {**wide.when, **own.when}
    for name in wide.when.keys() & own.when.keys():
        when[name] = {"allOf": [wide.when[name], own.when[name]]}
    needed = (wide.when.keys() - wide.optional) | (own.when.keys() - own.optional)
    return replace(wide, when=when, optional=frozenset(when.keys() - needed), says=wide.says or own.says)


def as_table(rules: Rules) -> dict[str, list[dict[str, Any]]]:
    """Return `rules` as a file of JSON has them; what is as usual is left out."""
    return {tool: [_row(rule) for rule in each] for tool, each in rules.items()}


def _row(rule: Rule) -> dict[str, Any]:
    usual = Rule()
    found: dict[str, Any] = {
        "effect": rule.effect, "priority": rule.priority, "when": dict(rule.when),
        "optional": sorted(rule.optional), "fallback": rule.fallback, "says": rule.says,
        "installs": as_table(rule.installs),
    }  # fmt: skip
    return {name: value for name, value in found.items() if value and value != getattr(usual, name)}
