"""A cap on the calls of an answer, errors by their last line, and results that belong to another task."""

from random import Random

import pytest

from quintain.agents.capped import (
    NONE_LEFT,
    CappedCalls,
    is_answer,
    last_line,
)
from quintain.agents.catalog import build
from quintain.agents.protocol import equip
from quintain.environments.protocol import Environment, Expert, Legal, StateKey, begin
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Action, StepResult, Task, ToolCall, as_text
from quintain.worlds.bandit.game import Bandit
from quintain.worlds.calc.game import Calc
from quintain.worlds.guess.game import Guess


def calls(*names: str) -> Action:
    arguments = {"add": {"a": 1, "b": 2}, "answer": {"number": 3}}
    return Action(tool_calls=tuple(ToolCall(name=name, arguments=arguments[name]) for name in names))


def started(world: Environment) -> Environment:
    begin(world, world.task("train", 0))
    return world


def test_a_call_beyond_the_cap_is_not_carried_out_and_told_so() -> None:
    inner = Calc(names=0, checks=0, failures=1.0)
    world = started(CappedCalls(inner, calls=2))
    assert as_text(world.step(calls("add")).observation).startswith("Error: the tool did not answer")
    assert as_text(world.step(calls("add", "add")).observation).endswith(f"again.\n{NONE_LEFT}")
    assert world.step(calls("add")) == StepResult(observation=NONE_LEFT)
    assert inner.state_key().endswith(", 2)"), "the world counts the calls that it carried out"
    assert world.step(Action(text="add 1 2")).observation == NONE_LEFT
    assert not world.step(Action(error="unreadable")).is_valid, "what cannot be read is no call"
    assert world.step(calls("add", "answer")).is_terminated, "an answer is never refused"


def test_the_cap_is_of_the_answer_not_of_the_turn_and_begins_anew() -> None:
    world = started(CappedCalls(Calc(names=0, checks=0), calls=1))
    assert world.step(calls("add")).observation == "= 3"
    assert world.step(calls("add")).observation == NONE_LEFT
    assert started(world).step(calls("add")).observation == "= 3"
    none = started(CappedCalls(Calc(names=0, checks=0), calls=0))
    assert none.step(calls("add")).observation == NONE_LEFT


def test_no_episode_of_random_play_passes_the_cap() -> None:
    carried: list[int] = []

    class Watched(Calc):
        def step(self, action: Action) -> StepResult:
            carried[-1] += sum(call.name != "answer" for call in action.tool_calls)
            return super().step(action)

        def reset(self, task: Task) -> str:
            carried.append(0)
            return super().reset(task)

    world = CappedCalls(Watched(names=0, checks=0), calls=2)
    rng, num_asked = Random(0), 0
    for index in range(200):
        begin(world, world.task("train", index))
        for _ in range(6):
            asked = rng.choices(["add", "add", "answer"], weights=[4, 4, 1], k=rng.randint(1, 3))
            num_asked += sum(name == "add" for name in asked)
            world.step(calls(*asked))
    assert num_asked > 2_000 and len(carried) == 200 and max(carried) == 2


def test_what_answers_is_not_counted_in_calls_in_words_and_in_code() -> None:
    assert is_answer(calls("answer")) and not is_answer(calls("answer", "add"))
    answers = ["answer 7", "answer(7)", "print(answer(number=7))", " answer(x + 1) "]
    assert all(is_answer(Action(text=text)) for text in answers)
    others = [
        "add 3 4",
        "answer(add(3, 4))",
        "x = 1\nanswer(x)",
        "print(1)",
        "print(answer(1), 2)",
        "f(",
        "3",
        "",
        "a.answer(1)",
    ]
    assert not any(is_answer(Action(text=text)) for text in others)


def test_of_a_traceback_the_last_line_is_told() -> None:
    trace = (
        'Traceback (most recent call last):\n  File "<cell 1>", line 1, in <module>\n    1 / 0\n    ~~^~~\n'
    )
    assert last_line(f"before\n{trace}ZeroDivisionError: division by zero") == (
        "before\nZeroDivisionError: division by zero"
    )
    assert last_line(f"{trace}ValueError: two\nlines\nThe code was stopped: it took too long.") == (
        "ValueError: two\nlines\nThe code was stopped: it took too long."
    )
    for text in (
        "= 3",
        "Error: the tool did not answer; call it again.",
        "Traceback (most recent call last):\n  cut",
    ):
        assert last_line(text) == text


def test_results_of_another_task_have_the_same_form_and_repeat() -> None:
    def told(results: str, index: int) -> tuple[list[str], str]:
        world = CappedCalls(Calc(names=0, steps=2, digits=2, checks=0), calls=9, results=results)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        first = as_text(begin(world, world.task("train", index)))
        found = [as_text(world.step(calls("add")).observation) for _ in range(3)]
        return found, first

    for index in range(5):
        own, asked = told("told", index)
        other, also_asked = told("permuted", index)
        assert asked == also_asked and own == ["= 3"] * 3
        assert all(text.startswith("= ") for text in other) and other[0] == other[2]
        assert told("permuted", index) == (other, asked)
    assert any(told("permuted", index)[0][0] != "= 3" for index in range(5))


def test_a_call_that_fails_says_so_in_the_control_too() -> None:
    world = started(CappedCalls(Calc(names=0, checks=0), calls=9, results="permuted"))
    wrong = Action(tool_calls=(ToolCall(name="add", arguments={"a": 1}),))
    assert as_text(world.step(wrong).observation).startswith("Error: add(b): missing")


def test_it_wraps_what_the_harness_inside_needs(small_chat: Chat) -> None:
    world = equip(build("capped?calls=3+tools", small_chat, Calc()), Calc())
    assert isinstance(world, CappedCalls) and isinstance(world, Expert) and world.num_left == 3
    assert world.tools() == Calc().tools() and world.instructions() == Calc().instructions()
    assert started(world) is world and world.expert_action().tool_calls
    world.close()
    with pytest.raises(UsageError, match=r"calls of capped: got -1; give 0 or more"):
        build("capped?calls=-1", small_chat, Calc())

    class Blind(Environment):
        """It has no expert."""

    assert not isinstance(equip(build("capped+text", small_chat, Blind()), Blind()), Expert)
    with pytest.raises(UsageError, match=r"results=permuted: got blind, which has no expert"):
        CappedCalls(Blind(), calls=1, results="permuted")


def test_what_the_environment_lists_is_passed_on(small_chat: Chat) -> None:
    world = started(equip(build("capped+choice", small_chat, Bandit()), Bandit()))
    assert isinstance(world, Expert) and isinstance(world, Legal)
    assert world.legal_actions()
    assert world.step(Action(text=world.legal_actions()[0])).is_valid
    assert isinstance(world, StateKey) and world.state_key().endswith(" 0"), "a call in words is one, too"


def test_an_expert_who_never_answers_is_told_elsewhere_to_the_end() -> None:
    world = CappedCalls(Guess(high=3), calls=9, results="permuted")
    assert started(world) is world
