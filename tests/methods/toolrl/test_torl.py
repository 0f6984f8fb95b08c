"""ToRL: the outcome, a penalty for code that did not run, and what is counted."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from quintain.agents.capped import NONE_LEFT
from quintain.methods.toolrl import torl
from quintain.rewards.conduct import is_broken
from quintain.testing.episodes import episode_of
from quintain.testing.episodes import turn_of as recorded
from quintain.types import Action, Group, Score, Text, ToolCall, ToolCause, ToolError, Trajectory, Turn

ADD, ANSWER = Action(tool_calls=(ToolCall(name="add"),)), Action(tool_calls=(ToolCall(name="answer"),))


def turn_of(told: str, action: Action, *, is_valid: bool = True, causes: Sequence[ToolCause] = ()) -> Turn:
    errors = tuple(ToolError(tool="add", cause=cause) for cause in causes)
    return recorded(action=action, observation=(Text(text=told),), is_valid=is_valid, tool_errors=errors)


def values(penalty: float, *episodes: Trajectory) -> list[float]:
    method = torl.method(torl.Config(code_penalty=penalty))
    (paid,) = method.reward([Group(task=episodes[0].task, trajectories=episodes)])
    return [t.outcome.value for t in paid.trajectories if isinstance(t.outcome, Score)]


def test_right_is_1_wrong_is_minus_1_and_code_that_did_not_run_costs_once_where_asked_for() -> None:
    right = episode_of([turn_of("go", ADD), turn_of("= 3", ANSWER)], is_success=True)
    broken = turn_of("go", ADD, is_valid=False, causes=["invalid_call"])
    wrong = episode_of([broken, broken, turn_of("Error", ANSWER)])
    assert values(0.0, right, wrong) == [1.0, -1.0]
    assert values(0.5, right, wrong) == [1.0, -1.5]


def test_what_tools_break_and_what_was_refused_by_the_cap_is_no_fault() -> None:
    assert is_broken(turn_of("", ADD, is_valid=False)), "code that raised"
    assert is_broken(turn_of("", ADD, causes=["tool_error", "invalid_call"]))
    assert not is_broken(turn_of("", ADD, causes=["tool_error"]))
    assert not is_broken(turn_of("", ADD, is_valid=False, causes=["infrastructure"]))
    assert not is_broken(turn_of("", Action(error="unreadable"), is_valid=False))
    assert not is_broken(turn_of("", ADD))


def test_calls_are_counted_without_the_answer() -> None:
    answer = replace(turn_of(NONE_LEFT, ANSWER), reward_terms={"answer": 1.0})
    capped = episode_of([turn_of("go", ADD), turn_of("= 3", ADD), answer])
    plain = episode_of([turn_of("go", ADD, is_valid=False), replace(answer, observation=())])
    found = torl.conduct([Group(task=capped.task, trajectories=(capped, plain))])
    assert found == {"torl/calls": 1.5, "torl/broken": 0.5, "torl/beyond_cap": 0.5}
    assert torl.conduct([]) == {"torl/calls": 0.0, "torl/broken": 0.0, "torl/beyond_cap": 0.0}


@pytest.mark.slow
def test_it_trains(train: Callable[..., list[dict[str, Any]]]) -> None:
    rows = train("torl", environment="calc?names=0&steps=1&digits=1&checks=0", code_penalty=0.5, tasks=2)
    assert {"reward/verdict", "reward/broken_calls", "torl/calls"} <= rows[-1].keys()


@pytest.mark.parametrize("cap", [0, 2])
def test_the_cap_is_the_harness_s(cap: int) -> None:
    torl.Config(agent=f"capped?calls={cap}").check()
