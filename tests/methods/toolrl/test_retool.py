"""ReTool: words become calls that run, what is kept of them, and what RL is paid for."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from quintain.agents.capped import CappedCalls
from quintain.credit.layout import Critic
from quintain.data.pipeline import as_example
from quintain.environments.protocol import Environment, advance, begin
from quintain.errors import ConfigError, EnvironmentFault, UsageError
from quintain.methods.loops.on_policy import Estimates
from quintain.methods.toolrl import retool
from quintain.methods.toolrl.retool import Author, Rewriter, call_of, rewrite, uses_results
from quintain.testing.episodes import episode_of
from quintain.testing.episodes import turn_of as recorded
from quintain.types import Action, Group, Score, Text, ToolCall, Trajectory, Turn
from quintain.worlds.calc.game import Calc

ANSWER = ToolCall(name="answer", arguments={"number": 14})


def adding(a: int, b: int) -> ToolCall:
    return ToolCall(name="add", arguments={"a": a, "b": b})


def turn_of(told: str, action: Action) -> Turn:
    return recorded(action=action, observation=(Text(text=told),))


def calc(index: int = 0, **options: Any) -> Calc:
    given: dict[str, Any] = {"names": 0, "steps": 2, "digits": 1, "checks": 0, **options}
    world = Calc(**given)
    begin(world, world.task("train", index))
    return world


def test_words_derive_the_answer_and_leave_the_world_as_it_was() -> None:
    trace = Action()
    for index in range(20):
        world = calc(index)
        before = world.snapshot()
        trace = Author().write(world, Random(0))
        assert world.snapshot() == before
        assert len(trace.text.splitlines()) == 2
        assert advance(world, replace(trace, text="")).is_success
    assert trace.tool_calls[0].name == "answer"


def test_one_who_slips_goes_on_with_what_came_out() -> None:
    world = calc()
    right, wrong = Author().write(world, Random(0)), Author(slips=1.0).write(world, Random(0))
    first, second = (line.split() for line in wrong.text.splitlines())
    assert first[:3] == right.text.splitlines()[0].split()[:3]
    assert int(first[4]) - int(right.text.splitlines()[0].split()[4]) in range(1, 10)
    assert second[1] == first[4], "the next line has the number that came out"
    assert wrong.tool_calls[0].arguments["number"] == int(second[4])
    assert not advance(calc(), replace(wrong, text="")).is_success


def test_every_line_that_a_tool_can_work_out_becomes_a_call_and_the_answer_stays() -> None:
    trace = Action(text="First:\nadd 3 4 = 7\nrecall 5 = 2\nmultiply 7 2 = 14\nso 14", tool_calls=(ANSWER,))
    plan = rewrite(trace, Calc().tools())
    assert [action.text for action in plan] == ["", "", ""]
    assert [(a.tool_calls[0].name, dict(a.tool_calls[0].arguments)) for a in plan] == [
        ("add", {"a": 3, "b": 4}),
        ("multiply", {"a": 7, "b": 2}),
        ("answer", {"number": 14}),
    ]
    lookup = next(tool for tool in Calc().tools() if tool.name == "lookup")
    assert call_of(lookup, ["fig"]).arguments == {"name": "fig"}


def test_the_teacher_shows_calls_to_the_end_and_answers_again_where_that_does_not_end_it() -> None:
    for world in (calc(3), CappedCalls(calc(3), calls=9)):
        if isinstance(world, CappedCalls):
            begin(world, world.task("train", 3))
        teacher, seen, result = Rewriter(Author()), ["problem"], None
        while result is None or not result.is_terminated:
            result = advance(world, teacher.act(world, Random(0), seen))
            seen.append(str(result.observation))
        assert len(seen) == 4 and result.is_success
        assert teacher.act(world, Random(0), seen).tool_calls[0].name == "answer"


def shown(*turns: tuple[str, Action], is_success: bool = True) -> Trajectory:
    return episode_of([turn_of(told, action) for told, action in turns], is_success=is_success)


def test_a_result_must_be_used_later() -> None:
    add, answer = Action(tool_calls=(adding(3, 4),)), Action(tool_calls=(ANSWER,))
    again = Action(tool_calls=(adding(7, 7),))
    assert uses_results(shown(("go", add), ("= 7", again), ("= 14", answer)))
    assert not uses_results(shown(("go", add), ("= 8", again), ("= 14", answer)))
    assert not uses_results(shown(("go", add), ("= 7", again), ("= 15", answer)))
    assert uses_results(shown(("go", add), ("= 7", replace(answer, text="7 and 7 are 14"))))
    assert uses_results(shown(("go", add), ("thank you", answer))), "what tells no number needs no use"
    assert uses_results(shown(("go", answer)))


def test_the_funnel_names_the_rule_that_a_trace_breaks() -> None:
    add, answer = Action(tool_calls=(adding(7, 7),)), Action(tool_calls=(ANSWER,))
    good = shown(("go", add), ("= 14", answer))
    broken = replace(good, turns=(replace(good.turns[0], is_valid=False), good.turns[1]))
    unused = shown(("go", add), ("= 15", answer))
    wrong = shown(("go", add), ("= 14", answer), is_success=False)
    made = retool.check_rewrite().run([as_example(t) for t in (good, broken, unused, wrong)])
    passages = {p.stage: p.num_out for p in made.funnel.passages}
    assert passages == {"ran": 3, "used": 2, "answer": 1}


def group_of(*episodes: Trajectory) -> Group:
    return Group(task=episodes[0].task, trajectories=episodes)


def test_the_answer_alone_is_paid_and_code_that_ran_is_not() -> None:
    add, answer = Action(tool_calls=(adding(7, 7),)), Action(tool_calls=(ANSWER,))
    method = retool.method(retool.Config())
    ran, wrong = shown(("go", add), ("= 14", answer)), shown(("go", add), ("= 14", answer), is_success=False)
    broken = replace(wrong, turns=(replace(wrong.turns[0], is_valid=False), wrong.turns[1]))
    (paid,) = method.reward([group_of(ran, shown(("go", answer)), wrong, broken)])
    assert [t.outcome.value for t in paid.trajectories if isinstance(t.outcome, Score)] == [
        1.0,
        1.0,
        -1.0,
        -1.0,
    ]
    assert [turn.reward for turn in paid.trajectories[0].turns] == [0.0, 1.0]
    long = replace(ran, turns=(ran.turns[0], replace(ran.turns[1], prompt_ids=(5,) * 10)))
    values = Critic(values=[[np.zeros(1), np.full(1, 0.5)]] * 2)
    own, other = (
        method.credit(method.reward([group_of(t, wrong)]), Estimates(values=values)).advantages[0]
        for t in (ran, long)
    )
    assert np.array_equal(np.concatenate(list(own)), np.concatenate(list(other))), (
        "longer results change nothing"
    )


def test_code_use_and_repairs_are_counted() -> None:
    add, answer = Action(tool_calls=(adding(7, 7),)), Action(tool_calls=(ANSWER,))
    failed = [replace(turn_of("go", add), is_valid=False), turn_of("Error", add), turn_of("= 14", answer)]
    gave_up = [replace(turn_of("go", add), is_valid=False), turn_of("Error", answer)]
    found = retool.conduct([group_of(episode_of(failed), episode_of(gave_up), shown(("go", answer)))])
    assert found == {"retool/code_use": pytest.approx(2 / 3), "retool/repairs": 0.5}
    assert retool.conduct([group_of(shown(("go", answer)))]) == {"retool/code_use": 0.0}


def test_what_has_no_traces_says_so() -> None:
    class Mute(Environment):
        name = "mute"

    with pytest.raises(UsageError, match="traces of words: got mute, which has no expert or no snapshots"):
        Author().write(Mute(), Random(0))
    world = calc(failures=1.0)
    with pytest.raises(EnvironmentFault, match="the expert of calc gave no answer in"):
        Author().write(world, Random(0))
    with pytest.raises(ConfigError, match="rewrites: got false with the agent auto"):
        retool.Config(rewrites=False).check()


@pytest.mark.parametrize("rewrites", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_it_trains(train: Callable[..., list[dict[str, Any]]], rewrites: bool) -> None:
    agent = "auto" if rewrites else "tools?thoughts=true"
    world = "calc?names=0&steps=1&digits=1&checks=0"
    rows = train("retool", environment=world, demonstrations=8, rewrites=rewrites, agent=agent, episodes=4)
    assert {"reward/verdict", "retool/code_use"} <= rows[-1].keys()
