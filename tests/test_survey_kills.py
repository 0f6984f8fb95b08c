"""What a survey names turns red when the function behind it returns a constant: how that is found out."""

import runpy
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from quintain.credit import group
from quintain.eval import statistics

PROGRAM: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("survey_kills.py")))
WILSON = ("quintain.eval.statistics", "wilson")


def test_a_function_returns_a_constant_meanwhile_whoever_has_imported_it() -> None:
    imported = statistics.wilson
    before = imported(1, 2)
    with PROGRAM["replace_by_constant"](WILSON):
        assert imported(1, 2) == () == statistics.wilson(num=3)  # pyright: ignore[reportCallIssue]
    assert imported(1, 2) == before != ()


@pytest.mark.parametrize(
    ("place", "is_there"),
    [
        (WILSON, True),
        (("quintain.store.run", "Run.trajectories"), True),
        (("quintain.eval.report", "Rate.nothing"), False),
        (("quintain.losses.policy", "reinforce.<locals>.loss"), False),
    ],
)
def test_what_can_be_replaced_is_a_function_without_variables_of_another(
    place: tuple[str, str], is_there: bool
) -> None:
    assert (PROGRAM["find_function"](place) is not None) == is_there


def test_the_constant_is_of_the_type_that_is_said() -> None:
    def constant_for(text: Any) -> Any:
        def function() -> None: ...

        function.__annotations__["return"] = text
        return PROGRAM["constant_of"](function)(1, a=2)

    found = [
        constant_for(text)
        for text in ("bool", "float", "tuple[int, int]", "Mapping[str, int]", "Credit", list[int], None)
    ]
    assert found == [False, 0, (), {}, None, [], None]


def test_the_function_that_a_test_is_about_shares_most_words_with_its_name() -> None:
    trace = PROGRAM["Trace"]()
    trace.called.update(
        {("quintain.credit.group", "group_relative"): 1, ("quintain.credit.group", "leave_one_out"): 9}
    )
    trace.called[("quintain.types.group", "Group.scored")] = 99
    choose = PROGRAM["choose_callee"]
    assert choose("credit/test_x.py::test_relative_to_its_group", trace)[1] == "group_relative"
    assert choose("credit/test_x.py::test_nothing_alike", trace)[1] == "leave_one_out", "most calls"
    assert choose("credit/test_x.py::test_x", PROGRAM["Trace"]()) is None
    trace.called[("quintain.store.run", "Run.close")] = 99
    assert choose("store/test_x.py::test_close_of_a_run", trace)[1] == "leave_one_out", (
        "close returns nothing"
    )


def test_the_control_is_a_function_of_the_same_module_that_is_not_run() -> None:
    trace = PROGRAM["Trace"]()
    place = ("quintain.credit.group", "group_relative")
    own = {
        name
        for name, each in vars(group).items()
        if isinstance(each, FunctionType) and each.__module__ == place[0]
    }
    trace.run.update((place[0], name) for name in own - {"leave_one_out"})
    assert isinstance(group, ModuleType) and PROGRAM["choose_control"](place, trace, "seed") == (
        place[0],
        "leave_one_out",
    )
    trace.run.add((place[0], "leave_one_out"))
    assert PROGRAM["choose_control"](place, trace, "seed") is None
