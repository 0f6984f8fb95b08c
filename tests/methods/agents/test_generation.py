"""Generation tries what fits and refuses the rest; a configuration takes its place by success alone."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.methods.test_training import config_of, rows, train
from transformers import PreTrainedTokenizerFast

from quintain.agents.configured import Configuration, load_configuration
from quintain.agents.harness import ReAct
from quintain.errors import ConfigError
from quintain.methods.agents import generation
from quintain.methods.agents.generation import FILE, pick, read_kept, sift, write_question
from quintain.methods.find import find_method
from quintain.runs.collector import Collector
from quintain.store.run import Run
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Group
from quintain.worlds.calc.game import Calc

TOLD = {"agent": "tools", "tools": ["guess"], "instructions": "Halve."}


def test_what_fits_is_tried_and_the_rest_is_said() -> None:
    tokenizer: PreTrainedTokenizerFast = train_tokenizer(
        ["<|system|>Go.<|user|>x<|assistant|>{}<|end|>"], 300
    )
    fits = {"agent": "react", "tools": ["answer"]}
    written: list[Any] = [
        {"agent": "react", "tools": ["fly"]}, {"agent": "rect"}, fits, {"agent": "code"}, fits, {"agent": "mine.py:f"},
        {"agent": "scored"}, {"agent": "window?turns=2+react", "instructions": "Look."}, {"agent": "react"},
    ]  # fmt: skip
    sound, refused = sift(written, Calc(), ReAct(Chat(tokenizer)), 2)
    assert sound == [
        Configuration(agent="react", tools=("answer",)),
        Configuration(agent="window?turns=2+react", instructions="Look."),
    ]
    for text, start in zip(
        refused,
        ("tools of an agent: got 'fly'", "agent: got 'rect'", "harness of an agent: got code", "configuration of an ",
         "agent 'scored' needs legal_actions"),
        strict=True,
    ):  # fmt: skip
        assert text.startswith(start), text


def test_it_stands_until_another_does_better() -> None:
    assert pick([0.5, 0.5, 0.4]) == 0 and pick([0.4, 0.5, 0.5]) == 1 and pick([0.0]) == 0


def test_the_writer_is_told_what_became_of_the_last() -> None:
    history = [{"tried": [{"agent": name}], "refused": [name]} for name in "abc"]
    told = json.loads(write_question("Sums.", {"add": "Add two numbers."}, history))
    assert told["for"] == "Sums." and told["tools"] == {"add": "Add two numbers."}
    assert [row["agent"] for row in told["tried"]] == told["refused"] == ["b", "c"]
    assert (
        "react" in told["harnesses"] and "plan+…" in told["harnesses"] and "endpoint" not in told["harnesses"]
    )


def test_what_no_run_can_have_is_refused() -> None:
    for fields, message in (
        ({}, "description: got none"),
        ({"description": "x", "agent": "endpoint?run=a.py:f"}, "which lives outside"),
    ):
        with pytest.raises(ConfigError, match=message):
            config_of("generation", **fields).check()


def test_a_resumed_run_has_its_configuration_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(
        _self: Collector, _told: str, questions: Sequence[str], *, seed: int, max_tokens: int
    ) -> list[str]:
        asked.extend(questions)
        more = {**TOLD, "instructions": f"Halve {len(json.loads(questions[0])['tried'])}."}
        return [f"Here: {json.dumps(more)} {json.dumps({'agent': 'fly'})}"]

    def favour(groups: Sequence[Group]) -> float:
        favour.calls += 1  # pyright: ignore[reportFunctionMemberAccess]
        assert groups
        return float(favour.calls % 2 == 0)  # pyright: ignore[reportFunctionMemberAccess]

    favour.calls = 0  # pyright: ignore[reportFunctionMemberAccess]
    monkeypatch.setattr(Collector, "ask", answer)
    monkeypatch.setattr(generation, "rate", favour)
    sizes = {"tasks": 2, "environment": "guess", "description": "Find a number.", "eval_every": 1}
    part = train("generation", tmp_path / "part", steps=1, **sizes)
    first = load_configuration(part / FILE)
    assert first == Configuration(agent="tools", tools=("guess",), instructions="Halve 0.")
    with Run.open(part) as run:
        config = config_of("generation", steps=2, **sizes)
        find_method("generation").make(config).train(run, config)
        assert read_kept(run, before=2) == first
        told = load_configuration(part / FILE)
        assert read_kept(run) == told and told.instructions == "Halve 1."
        assert len({*run.weights().values()}) == 1, "no weight changed"
    assert len(asked) == 2 and "'fly' is unknown" in json.loads(asked[1])["refused"][0]
    last = rows(part)[-1]
    assert (last["generation/tried"], last["generation/refused"], last["generation/replaced"]) == (
        1.0,
        1.0,
        1.0,
    )
