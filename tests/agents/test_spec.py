"""What an agent is made of is read off its name, and it can be built back."""

import json
from pathlib import Path

import pytest

from quintain.agents.catalog import OUTSIDE, PRESETS, names
from quintain.agents.spec import FILLS, FORGETFUL, MODULE_NAMES, describe, lint_spec
from quintain.errors import UsageError


@pytest.mark.parametrize(
    ("agent", "filled", "is_active"),
    [
        ("tools", {"memory", "action"}, True),
        ("window?turns=0+tools", {"action"}, False),
        ("window?turns=2+choice", {"action"}, False),
        ("memory+tools", {"memory", "action"}, True),
        ("plan+window?turns=1+text", {"planning", "action"}, True),
        ("plan?replan_every=2+tools", {"planning", "action"}, True),
        ("plan?replan_every=0+tools", {"planning", "memory", "action"}, True),
        ("plan+memory+tools", {"planning", "memory", "action"}, True),
        ("rci+react", {"planning", "memory", "action"}, True),
        ("labelled?label=wrong+window+text", {"profile", "action"}, True),
        ("roles", {"profile", "memory", "action"}, True),
        ("workforce", {"planning", "memory", "action"}, True),
    ],
)
def test_modules_by_table(agent: str, filled: set[str], is_active: bool) -> None:
    found = describe(agent, "desk")
    assert (found.list_modules(), found.is_active, found.security) == (filled, is_active, ())
    assert (found.name, found.place) == (agent, "desk")
    assert describe(found.name, found.place) == found


def test_every_layer_of_the_catalogue_has_a_module() -> None:
    assert set(FILLS) | set(FORGETFUL) == set(names())
    for name in names():
        found = describe("endpoint?command=true" if name == OUTSIDE else name)
        assert found.action and describe(found.name) == found
    assert set(PRESETS) <= set(FILLS)


def test_options_stand_in_the_module_and_in_the_name() -> None:
    found = describe("summary?every=2&max_tokens=64+tools?calls=llama")
    assert found.memory == ("summary?every=2&max_tokens=64",) and found.action == ("tools?calls=llama",)
    assert describe("memory").order == ("memory", "auto"), "what wraps nothing wraps what fits"


def test_a_guard_is_the_security_and_stays_at_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text(json.dumps({"respond": [{}]}))
    found = describe("tools", f"guarded:desk@{file}")
    assert found.security == (str(file),) and found.environment == "desk"
    assert found.place == f"guarded:desk@{file}" and describe(found.name, found.place) == found
    assert found.list_modules() == {"memory", "action", "security"}


def test_an_empty_security_is_said(tmp_path: Path) -> None:
    told = lint_spec(describe("plan+tools", "desk"))
    assert told.state == "note"
    assert told.detail == (
        "active: planning plan; memory conversation; action tools; security is empty: give --guard POLICY.json "
        "(docs/guards.md)"
    )
    assert lint_spec(describe("plan+text", "guess"), has_tools=False).state == "pass"
    file = tmp_path / "policy.json"
    file.write_text("{}")
    guarded = lint_spec(describe("window?turns=0+tools", f"guarded:desk@{file}"))
    assert (guarded.state, guarded.detail) == ("pass", f"passive: action tools; security {file}")


def test_an_agent_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="in which 'plann' is unknown"):
        describe("plann+tools")
    assert MODULE_NAMES == ("planning", "memory", "profile", "action", "security")
