"""Tools whose kind is told by their errors, answers that somebody must have told, and three ways to fail."""

from collections.abc import Sequence

import pytest

from quintain.environments.check import check
from quintain.environments.protocol import advance, begin
from quintain.errors import UsageError
from quintain.types import Action, StepResult
from quintain.worlds.toolbox.game import KINDS, Heard, Kit, Tool, Toolbox

KIT = Kit(
    known=(("color", "red"), ("number", "7")),
    tools=(Tool("zor", "number", False, 4), Tool("mip", "color", True, 2), Tool("tak", "color", True, 4)),
    asked=("zor", "mip"),
)


def played(world: Toolbox, *texts: str) -> list[StepResult]:
    world.restore((KIT, Heard(), 0))
    return [advance(world, Action(text=text)) for text in texts]


@pytest.fixture
def world() -> Toolbox:
    found = Toolbox()
    begin(found, found.task("train", 0))
    return found


def said(results: Sequence[StepResult]) -> list[object]:
    return [result.observation for result in results]


def test_an_error_says_what_a_tool_takes_and_is_no_valid_call(world: Toolbox) -> None:
    results = played(world, "call zor red", "call zor 7", "call mip red", "answer 4 2")
    assert said(results) == ["Error: zor takes a number.", "zor says 4.", "mip says 2.", "Done."]
    assert [r.is_valid for r in results] == [False, True, True, True]
    assert results[-1].reward == 1 and results[-1].is_success and results[-1].is_terminated


def test_another_tool_that_tells_the_same_will_do(world: Toolbox) -> None:
    assert played(world, "call tak red", "call mip red", "answer 4 2")[-1].is_success


def test_a_right_number_that_nobody_told_is_luck(world: Toolbox) -> None:
    last = played(world, "call zor 7", "answer 4 2")[-1]
    assert (last.observation, last.is_success, last.reward) == ("Nobody told you.", False, 0)
    assert played(world, "call zor 7", "call mip red", "answer 2 4")[-1].observation == "Wrong."


def test_a_tool_that_does_not_answer_is_no_mistake() -> None:
    world = Toolbox(failures=0.999)
    begin(world, world.task("train", 0))
    (result,) = played(world, "call zor 7")
    assert (result.observation, result.is_valid, result.is_terminated) == ("zor did not answer.", True, False)


def test_what_cannot_be_read_or_is_not_there(world: Toolbox) -> None:
    results = played(world, "call fox red", "please", "call zor", "CALL  Zor 7")
    assert said(results) == [
        "Error: there is zor, mip, tak.",
        "Error: write call TOOL VALUE, or answer NUMBERS.",
        "Error: zor takes a number.",
        "zor says 4.",
    ]
    assert advance(world, Action(error="no text")).observation == "Error: no text."


def test_the_expert_reads_errors(world: Toolbox) -> None:
    world.restore((KIT, Heard(), 0))
    texts: list[str] = []
    for _ in range(world.max_turns):
        texts.append(world.expert_action().text)
        if advance(world, Action(text=texts[-1])).is_terminated:
            break
    assert texts == ["call zor red", "call zor 7", "call mip red", "answer 4 2"]
    assert world.progress() == 1


def test_nothing_is_untold_without_vague_tools() -> None:
    world = Toolbox(vague=0, tools=4, twins=1)
    for index in range(20):
        text = begin(world, world.task("train", index))
        assert "a value" not in str(text)
        kit = world.snapshot()[0]
        assert len({tool.answer for tool in kit.tools}) == 3
        assert all(value in KINDS[kind] for kind, value in kit.known)
        assert all(tool.is_told for tool in kit.tools)


def test_the_truth_is_the_same_when_it_is_computed_again() -> None:
    worlds = Toolbox(), Toolbox()
    for index in range(20):
        for each in worlds:
            begin(each, each.task("eval", index))
        assert worlds[0].snapshot() == worlds[1].snapshot()
        assert worlds[0].state_key() == worlds[1].state_key()


def test_it_keeps_the_rules_of_environments() -> None:
    report = check("toolbox", episodes=8)
    assert report.has_passed, "\n".join(report.lines())


@pytest.mark.parametrize(
    "options",
    [{"steps": 4}, {"tools": 1}, {"kinds": 1}, {"twins": 2, "tools": 4, "steps": 1}, {"failures": 1.0}],
)
def test_what_is_out_of_range_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="toolbox: got"):
        Toolbox(**options)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
