"""Failures are counted by tool and cause, whoever made them, from the environment to the step's metrics."""

from dataclasses import replace
from typing import Literal

import pytest

from quintain.agents.harness import JsonTools
from quintain.engines.protocol import Request
from quintain.engines.scripted import Scripted
from quintain.environments.protocol import Environment
from quintain.environments.tools import tool
from quintain.rollout.collect import Limits, Rollout
from quintain.rollout.measures import cause_of, tool_metrics
from quintain.runs.report import rollout_metrics
from quintain.text.chat import Chat
from quintain.types import Failure, Group, Observation, Task, ToolCause, Trajectory


class Shaky(Environment):
    """Look around."""

    max_turns = 4

    def reset(self, task: Task) -> Observation:
        return "A wall."

    @tool
    def look(self, at: Literal["wall", "door", "key"]) -> str:
        """Look."""
        if at == "door":
            return self.failure("The light went out.", cause="timeout")
        if at == "key":
            raise ValueError("no hands")
        return "red"


def call(name: str, arguments: str) -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


WALL, DOOR, KEY = (call("look", f'{{"at": "{at}"}}') for at in ("wall", "door", "key"))


def played(chat: Chat, *said: str) -> Group:
    words = iter(said)

    def script(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        return chat.write(next(words))

    rollout = Rollout(
        JsonTools(chat, max_tokens=999),
        Shaky,
        Scripted(script),
        limits=Limits(attempts=1, max_failure_share=1.0),
    )
    (group,) = rollout.groups([Shaky().task("train", 0)], size=1, seed=0)
    return group


def test_calls_are_counted_by_tool_and_cause(chat: Chat) -> None:
    group = played(chat, WALL + DOOR, call("lok", "{}") + WALL, call("look", '{"at": 3}'), "<tool_call>{")
    (episode,) = group.trajectories
    assert [[(e.tool, e.cause) for e in turn.tool_errors] for turn in episode.turns] == [
        [("look", "timeout")],
        [("unknown", "invalid_call")],
        [("look", "invalid_call")],
        [],
    ]
    assert [turn.is_valid for turn in episode.turns] == [True, False, False, False]
    expected = {
        "actions/unreadable": 1.0,
        "tools/look/calls": 4.0,
        "tools/look/invalid_call": 1.0,
        "tools/look/timeout": 1.0,
        "tools/unknown/calls": 1.0,
        "tools/unknown/invalid_call": 1.0,
    }
    assert tool_metrics(group.trajectories) == expected
    assert expected.items() <= rollout_metrics([group]).items()


def test_a_tool_that_breaks_the_episode_is_counted_as_its_own(chat: Chat) -> None:
    group = played(chat, WALL, KEY)
    assert isinstance(group.trajectories[0].outcome, Failure)
    assert tool_metrics(group.trajectories) == {
        "failures/tool/tool_error": 1.0,
        "tools/look/calls": 1.0,
        "tools/look/tool_error": 1.0,
    }


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (Failure(owner="environment", kind="timeout", message="slow"), "timeout"),
        (Failure(owner="tool", kind="contract", message="tool x broke"), "tool_error"),
        (Failure(owner="engine", kind="not_finite", message="nan"), "infrastructure"),
        (Failure(owner="judge", kind="HTTPError", message="502"), "infrastructure"),
    ],
)
def test_the_cause_of_a_failed_episode(chat: Chat, failure: Failure, cause: ToolCause) -> None:
    assert cause_of(failure) == cause
    failed: Trajectory = replace(played(chat, "a", "b", "c", "d").trajectories[0], outcome=failure)
    assert tool_metrics([failed])[f"failures/{failure.owner}/{cause}"] == 1.0
