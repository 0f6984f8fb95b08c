"""The options of a configuration: names, defaults, help and limits, also of what it inherits and what it holds."""

import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, make_dataclass
from enum import Enum
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Thread
from typing import Annotated, Any, ClassVar, Literal

import pytest
from annotated_types import Ge, Interval, Le, Lt

from quintain.config import Option, fields, options, sections, show, words
from quintain.config.ranges import NonNegativeFloat, PositiveInt, PositiveShare, Share

SOURCE = Path(__file__).parents[2] / "src"


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Policy:
    renamed: ClassVar[Mapping[str, str]] = {"where": "device"}
    device: str = "cpu"
    """Where it
    lives."""
    size: int = 3


@dataclass(frozen=True)
class Shared:
    section: ClassVar[str] = "update"
    steps: PositiveInt = 10
    """Steps of training."""
    rate: float = 1e-3
    limit: PositiveInt | None = None


@dataclass(frozen=True)
class Middle(Shared):
    mode: Literal["a", "b"] = "a"
    """Which loss."""


@dataclass(frozen=True)
class Method(Middle):
    renamed: ClassVar[Mapping[str, str]] = {"old": "extra", "device": "policy.device"}
    steps: int = 20
    limit: Annotated[int, Ge(5)] | None = None
    extra: str = ""
    """Only here."""
    policy: Policy = Policy(size=4)
    policies: dict[str, Policy] = field(default_factory=dict[str, Policy])
    weights: dict[str, float] = field(default_factory=dict[str, float])
    """Weights by name."""
    computed: int = field(init=False, default=0)


@dataclass
class Needy:
    data: str


FOUND = {option.name: option for option in options(Method)}


def test_options_stand_in_the_order_of_the_fields_with_those_of_tables_in_their_place() -> None:
    assert list(FOUND) == [
        "steps", "rate", "limit", "mode", "extra", "policy.device", "policy.size", "policies.NAME.device",
        "policies.NAME.size", "weights.NAME",
    ]  # fmt: skip


def test_an_option_has_its_flag_default_and_help() -> None:
    assert FOUND["mode"] == Option(name="mode", annotation=Literal["a", "b"], default="a", help="Which loss.")
    assert FOUND["policy.size"].default == 4
    assert FOUND["policies.NAME.size"].default == 3
    assert FOUND["policies.NAME.size"].flag == "--policies.NAME.size"
    assert FOUND["policies.NAME.device"].help == FOUND["policy.device"].help == "Where it lives."
    assert FOUND["weights.NAME"].help == "Weights by name."
    assert FOUND["weights.NAME"].default is MISSING
    (needed,) = options(Needy)
    assert needed.is_required and not FOUND["mode"].is_required
    assert Option(name="group_size", annotation=int, default=8, help="").flag == "--group-size"


def test_a_field_that_is_declared_again_keeps_its_help_and_its_limits_unless_it_has_others() -> None:
    assert (FOUND["steps"].default, FOUND["steps"].help) == (20, "Steps of training.")
    assert words(FOUND["steps"].annotation) == "an integer of 1 or more"
    assert words(FOUND["limit"].annotation) == "an integer of 5 or more or none"


def test_a_class_without_source_has_options_without_help() -> None:
    (option,) = options(make_dataclass("Made", [("steps", int, 3)]))
    assert option == Option(name="steps", annotation=int, default=3, help="")


def test_options_stand_in_the_section_that_declares_them_and_others_are_the_methods_own() -> None:
    assert [name for name, option in FOUND.items() if option.section] == ["steps", "rate", "limit"]
    assert sections(Method) == {"update": Shared}


def test_old_names_match_too() -> None:
    assert {name: option.old_names for name, option in FOUND.items() if option.old_names} == {
        "extra": ("old",),
        "policy.device": ("policy.where", "device"),
        "policies.NAME.device": ("policies.NAME.where",),
    }
    device = FOUND["policies.NAME.device"]
    assert device.matches("policies.critic.device") and device.matches("policies.critic.where")
    assert not device.matches("policies.critic.size") and not device.matches("policies.a.b.device")


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int | None, "an integer or none"),
        (list[int], "a list, each an integer"),
        (tuple, "a list"),
        (tuple[PositiveInt, ...], "a list, each an integer of 1 or more"),
        (dict[str, Any], "a table"),
        (Policy | None, "a table or none"),
        (Literal[1, "a"], "1 or 'a'"),
        (type[Shared], "type"),
        (Colour, "Colour"),
        (PositiveInt | None, "an integer of 1 or more or none"),
        (Share, "a share from 0 to 1"),
        (PositiveShare, "a share above 0, up to 1"),
        (NonNegativeFloat, "a number of 0 or more"),
        (Annotated[int, Ge(2), Le(9)], "an integer from 2 to 9"),
        (Annotated[int, Interval(ge=2, lt=9)], "an integer of 2 or more, below 9"),
        (Annotated[float, Lt(1)], "a number below 1"),
        (Annotated[int, "a note"], "an integer"),
    ],
)
def test_types_in_words(annotation: object, expected: str) -> None:
    assert words(annotation) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "none"), (True, "true"), ((1, 2), "1,2"), ((), ""), (1e-3, "0.001"), ("a", "a")],
)
def test_values_as_they_are_written(value: object, text: str) -> None:
    assert show(value) == text


def test_the_room_loads_nothing_heavy() -> None:
    program = "import sys, quintain.config; print({'torch', 'transformers', 'numpy'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(SOURCE)!r}); {program}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "set()\n"


def test_source_is_parsed_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting, met = Barrier(2), list[int]()

    def read(_: object) -> str:
        with suppress(BrokenBarrierError):
            met.append(meeting.wait(0.2))
        return "class Any: pass"

    monkeypatch.setattr(fields.inspect, "getsource", read)
    threads = [Thread(target=fields.field_helps.__wrapped__, args=(Policy,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not met
