"""Of two policies joined, exactly what both allow is allowed, whatever their rules are."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from quintain.errors import ConfigError
from quintain.safety.narrowing import as_table, narrow_rules
from quintain.safety.policy import Rule, decide, read_policy, sort_rules
from quintain.types import ToolCall

CONDITIONS: tuple[dict[str, Any], ...] = (
    {"minimum": 2}, {"maximum": 2}, {"enum": [1, 3]}, {"const": 2}, {"not": {"const": 1}},
)  # fmt: skip


def draw_rule(rng: Random, *, may_forbid: bool) -> Rule:
    when = {name: rng.choice(CONDITIONS) for name in ("a", "b") if rng.random() < 0.6}
    optional = frozenset(name for name in when if rng.random() < 0.3)
    is_forbid = may_forbid and rng.random() < 0.3
    return Rule(
        effect="forbid" if is_forbid else "allow", priority=rng.randint(1, 3), when=when, optional=optional
    )


def test_what_both_allow_is_allowed_and_nothing_else() -> None:
    rng = Random(0)
    counts = {True: 0, False: 0}
    for _ in range(3_000):
        wide = [draw_rule(rng, may_forbid=True) for _ in range(rng.randint(0, 3))]
        own = [draw_rule(rng, may_forbid=False) for _ in range(rng.randint(0, 2))]
        found = narrow_rules({"f": tuple(wide)}, {"f": tuple(own)})["f"]
        given = {name: rng.randint(1, 3) for name in ("a", "b") if rng.random() < 0.8}
        call = ToolCall(name="f", arguments=given)
        each = [decide(sort_rules(rules), call, ())[0].effect == "allow" for rules in (wide, own, found)]
        assert each[2] == (each[0] and each[1]), (wide, own, given)
        counts[each[2]] += 1
    assert min(counts.values()) > 300, "both are tried"


def test_tools_of_one_alone_are_gone_and_what_the_wide_one_says_stays(tmp_path: Path) -> None:
    installs = {"c": (Rule(),)}
    wide = {"a": (Rule(when={"n": {"maximum": 5}}, says="At most 5.", installs=installs),), "b": (Rule(),)}
    found = narrow_rules(wide, {"a": (Rule(when={"n": {"minimum": 2}, "m": {"const": 1}}),), "c": (Rule(),)})
    (rule,) = found["a"]
    assert found.keys() == {"a"} and rule.says == "At most 5." and rule.installs == installs
    assert rule.when == {"n": {"allOf": [{"maximum": 5}, {"minimum": 2}]}, "m": {"const": 1}}
    file = tmp_path / "p.json"
    file.write_text(json.dumps(as_table(found)))
    assert read_policy(file) == found


def test_a_rule_that_forbids_or_installs_cannot_narrow() -> None:
    for rule in (Rule(effect="forbid"), Rule(installs={"a": (Rule(),)})):
        with pytest.raises(ConfigError, match="got a, rule 1, which forbids or installs"):
            narrow_rules({"a": (Rule(),)}, {"a": (rule,)})
