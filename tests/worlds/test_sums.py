"""Answers and verdicts, each paid for its own job."""

import pytest

from quintain.environments.check import check
from quintain.environments.protocol import advance, begin
from quintain.errors import UsageError
from quintain.types import Action, StepResult
from quintain.worlds.sums.game import Sums


def played(world: Sums, *texts: str) -> list[StepResult]:
    world.restore((world.snapshot()[0], 0))
    return [advance(world, Action(text=text)) for text in texts]


@pytest.fixture
def world() -> Sums:
    """Numbers are replaced by 12 and 30."""
    found = Sums(bonus=0.5)
    begin(found, found.task("train", 0))
    sheet, seed = found.snapshot()
    found.restore((type(sheet)(numbers=(12, 30)), seed))
    return found


def test_a_right_answer_and_a_true_verdict_end_it(world: Sums) -> None:
    first, last = played(world, "42", "Right.")
    assert (first.reward, dict(first.reward_terms), first.observation) == (
        0, {"answer": 1.0}, "12 + 30 = 42. Right or wrong?",
    )  # fmt: skip
    assert (last.reward, dict(last.reward_terms), last.is_terminated, last.is_success) == (
        1, {"verdict": 1.0}, True, True,
    )  # fmt: skip


def test_a_wrong_answer_that_is_found_may_be_mended(world: Sums) -> None:
    results = played(world, "41", "wrong", "42", "right")
    assert [r.reward for r in results] == [0, 0, 0, 1]
    assert [sum(r.reward_terms.values()) for r in results] == [0, 1, 1.5, 1]
    assert results[1].observation == "12 + 30 = ? Answer again."
    assert results[-1].is_success


def test_a_right_answer_that_is_spoiled_costs(world: Sums) -> None:
    results = played(world, "42", "wrong", "41", "wrong")
    assert [r.reward for r in results] == [0, 0, 0, 0]
    assert [sum(r.reward_terms.values()) for r in results] == [1, 0, -0.5, 1]
    assert results[-1].is_terminated and results[-1].is_success is False


def test_what_cannot_be_read_is_invalid_and_asked_again(world: Sums) -> None:
    results = played(world, "many", "41", "perhaps", "right")
    assert [r.is_valid for r in results] == [False, True, False, True]
    assert [list(r.reward_terms) for r in results] == [["answer"], ["answer"], ["verdict"], ["verdict"]]
    assert results[-1].reward == 0
    error = advance(world, Action(error="no text"))
    assert (error.observation, error.is_valid) == ("Error: no text", False)


def test_the_expert_slips_finds_it_and_mends_it() -> None:
    world = Sums(slips=1.0)
    for index in range(4):
        begin(world, world.task("train", index))
        texts: list[str] = []
        is_success: bool | None = None
        for _ in range(world.max_turns):
            action = world.expert_action()
            texts.append(action.text)
            result = advance(world, action)
            is_success = result.is_success
            if result.is_terminated:
                break
        assert texts[1::2] == ["wrong", "right"]
        assert is_success
    sure = Sums(slips=0.0)
    begin(sure, sure.task("train", 0))
    assert advance(sure, sure.expert_action()).reward_terms == {"answer": 1.0}


def test_it_keeps_the_rules_of_environments() -> None:
    report = check("sums?digits=1", episodes=4)
    assert report.has_passed, "\n".join(report.lines())


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(UsageError, match="sums: got digits=7"):
        Sums(digits=7)
