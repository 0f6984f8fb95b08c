"""Configurations from mappings and from flags: strict types, nearest names, one-line errors."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from quintain.config.knobs import knobs
from quintain.config.wording import words
from quintain.errors import ConfigError
from quintain.training.configure import build, read_texts
from quintain.training.job import Job


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Config:
    steps: int = 10
    """Steps of
    training."""
    rate: float = 1e-3
    is_fast: bool = False
    mode: Literal["grpo", "ppo"] = "grpo"
    """Which loss."""
    levels: tuple[str, ...] = ("a",)
    sizes: tuple[int, ...] = (1, 2)
    limit: int | None = None
    where: Path = Path("x")
    clip: Annotated[float, Field(gt=0)] = 0.2
    budget: int | Literal["auto"] = "auto"
    weights: dict[str, float] = field(default_factory=dict[str, float])
    colour: Colour = Colour.RED

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ValueError(f"steps: got {self.steps}; give 0 or more")


@dataclass(frozen=True)
class Needy:
    data: str
    """File of messages."""


@dataclass(frozen=True)
class Child(Config):
    steps: int = 20
    extra: str = ""
    """Only here."""


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("steps", 3, 3),
        ("rate", 1, 1.0),
        ("is_fast", True, True),
        ("mode", "ppo", "ppo"),
        ("levels", ["x", "y"], ("x", "y")),
        ("sizes", (3,), (3,)),
        ("limit", None, None),
        ("limit", 4, 4),
        ("where", "a/b", Path("a/b")),
        ("clip", 0.5, 0.5),
        ("budget", 7, 7),
        ("weights", {"a": 1}, {"a": 1.0}),
        ("colour", "red", Colour.RED),
        ("colour", Colour.RED, Colour.RED),
    ],
)
def test_values_that_fit(key: str, value: object, expected: object) -> None:
    got = vars(build(Config, {key: value}, "f"))[key]
    assert got == expected
    assert type(got) is type(expected)


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("steps", "8", 'steps in f must be an integer: got "8" (text); give an integer such as 10'),
        ("steps", 8.0, "steps in f must be an integer: got 8.0 (a number); give an integer such as 10"),
        ("steps", True, "steps in f must be an integer: got true (true or false); give an integer such as 10"),
        ("rate", "1", 'rate in f must be a number: got "1" (text); give a number such as 0.001'),
        ("rate", False, "rate in f must be a number: got false (true or false); give a number such as 0.001"),
        ("rate", float("nan"), "rate in f must be finite: got nan; give a number such as 0.001"),
        ("is_fast", 1, "is_fast in f must be true or false: got 1 (an integer); give true or false"),
        ("mode", "ppoo", "mode in f must be 'grpo' or 'ppo': got \"ppoo\" (text); did you mean 'ppo'?"),
        ("levels", "a", 'levels in f must be a list, each text: got "a" (text); '
         "give a list, each text such as a"),
        ("sizes", [1, "2"], 'sizes in f must be a list, each an integer: got [1, "2"] (a list); '
         "give a list, each an integer such as 1,2"),
        ("limit", "3", 'limit in f must be an integer or none: got "3" (text); give an integer or none'),
        ("clip", 0, "clip in f must be greater than 0: got 0 (an integer); give a number such as 0.2"),
        ("weights", {"a": "x"}, 'weights in f must be a table: got {"a": "x"} (a table); '
         "give a table such as {}"),
        ("stesp", 3, "configuration key in f: got 'stesp'; did you mean 'steps'?"),
        ("steps", -1, "configuration in f: steps: got -1; give 0 or more"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit(key: str, value: object, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(Config, {key: value}, "f")
    assert str(caught.value) == line


def test_a_value_that_json_does_not_know_is_an_error_too() -> None:
    with pytest.raises(ConfigError, match=r"steps in train\(\) must be an integer: got .*object"):
        build(Config, {"steps": object()}, "train()")


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^configuration in x.json needs data: got nothing; give text$"):
        build(Needy, {}, "x.json")
    assert build(Needy, {"data": "a"}, "x.json") == Needy("a")


def test_a_job_is_checked_for_values_that_no_run_can_have() -> None:
    with pytest.raises(ConfigError, match="steps: got 0; give 1 or more"):
        build(Job, {"steps": 0}, "f")


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("steps", "8", 8),
        ("rate", "1e-4", 1e-4),
        ("is_fast", "true", True),
        ("is_fast", "no", False),
        ("mode", "ppo", "ppo"),
        ("levels", "a, b", ("a", "b")),
        ("levels", "", ()),
        ("sizes", "1,2", (1, 2)),
        ("sizes", "[1, 2]", (1, 2)),
        ("limit", "none", None),
        ("limit", "3", 3),
        ("where", "a/b", Path("a/b")),
        ("budget", "3", 3),
        ("budget", "auto", "auto"),
        ("weights", '{"a": 1}', {"a": 1.0}),
        ("colour", "red", Colour.RED),
    ],
)
def test_texts_that_fit(key: str, text: str, expected: object) -> None:
    assert read_texts(Config, {key: text}) == {key: expected}


@pytest.mark.parametrize(
    ("key", "text", "line"),
    [
        ("steps", "eight", "--steps must be an integer: got 'eight'; give an integer such as 10"),
        ("steps", "8.5", "--steps must be an integer: got '8.5'; give an integer such as 10"),
        ("rate", "inf", "--rate must be finite: got inf; give a number such as 0.001"),
        ("is_fast", "maybe", "--is-fast must be true or false: got 'maybe'; give true or false"),
        ("mode", "ppoo", "--mode must be 'grpo' or 'ppo': got 'ppoo'; did you mean 'ppo'?"),
        ("sizes", "1,x", "--sizes must be a list, each an integer: got '1,x'; "
         "give a list, each an integer such as 1,2"),
        ("clip", "-1", "--clip must be greater than 0: got '-1'; give a number such as 0.2"),
        ("weights", "x", "--weights must be a table: got 'x'; give a table such as {}"),
        ("stesp", "3", "configuration key in the command line: got 'stesp'; did you mean 'steps'?"),
    ],
)  # fmt: skip
def test_texts_that_do_not_fit(key: str, text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_texts(Config, {key: text})
    assert str(caught.value) == line


def test_text_stays_text_whatever_it_looks_like() -> None:
    assert read_texts(Needy, {"data": "[3"}) == {"data": "[3"}
    assert read_texts(Needy, {"data": "none"}) == {"data": "none"}


def test_documents_are_read_from_under_the_fields() -> None:
    documents = {knob.name: knob.document for knob in knobs(Child)}
    assert documents["steps"] == "Steps of training."
    assert documents["mode"] == "Which loss."
    assert documents["extra"] == "Only here."
    assert documents["rate"] == ""


def test_knobs_know_flags_and_defaults() -> None:
    found = {knob.name: knob for knob in knobs(Child)}
    assert found["is_fast"].flag == "--is-fast"
    assert found["steps"].default == 20
    assert found["weights"].default == {}
    assert knobs(Needy)[0].is_required


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int | None, "an integer or none"),
        (list[int], "a list, each an integer"),
        (tuple, "a list"),
        (dict[str, Any], "a table"),
        (Literal[1, "a"], "1 or 'a'"),
        (type[Config], "type"),
        (Colour, "Colour"),
    ],
)
def test_types_in_words(annotation: object, expected: str) -> None:
    assert words(annotation) == expected
