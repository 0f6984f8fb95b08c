"""Planted faults are what they are called, for someone who does not use the checks."""

import random

import pytest
from jsonschema import Draft202012Validator

from quintain.types import as_text, derive_seed
from quintain_evidence.experiments.imitation import xlam


@pytest.mark.slow
def test_every_planted_fault_is_found_and_schemas_alone_are_blind_to_what_was_not_said() -> None:
    [row] = xlam.measure({"faults": 8, "clean": 30, "expert": "calc?steps=4&names=2"}, 1)
    assert row["violations"] == row["extra.null_alarms"] == 0
    assert row["trials"] == 8 * 9 + 30 + row["extra.expert_calls"] and row["extra.expert_calls"] >= 30
    assert row["control_violations"] == row["control_trials"] == 8 * 3
    assert row["extra.schema_catches"] == pytest.approx(5 / 6)
    assert row["extra.chained"] > 0.3


@pytest.mark.parametrize("kind", xlam.KINDS)
def test_a_planted_fault_is_the_only_one(kind: str) -> None:
    for number in range(10):
        drawn = xlam.draw(random.Random(derive_seed("test", kind, number)), kind)
        tools = {tool.name: tool for tool in drawn.tools}
        told = ""
        wrong: list[str] = []
        for message in drawn.messages:
            for call in message.tool_calls:
                fits = call.name in tools and Draft202012Validator(tools[call.name].parameters).is_valid(
                    dict(call.arguments)
                )
                values = [str(v) for v in call.arguments.values() if v not in xlam.PLACES]
                is_said = all(f" {value} " in told for value in values)
                wrong += [] if fits and is_said else ["unsaid" if fits else "misfit"]
            told += " " + as_text(message.content).replace(",", " ").replace(";", " ") + " "
        assert wrong == (["unsaid"] if kind in xlam.UNSAID else ["misfit"]), (kind, number)
