"""What the policy got wrong is exported with what mended it; what tools got wrong is not."""

from dataclasses import replace

import pytest
from tests.build import make_episode, make_turn

from quintain.data.files import FileValue
from quintain.data.messages import OpeningPrompt
from quintain.data.negatives import mend_calls, negatives, preference_record
from quintain.data.pipeline import Pipeline, as_example
from quintain.data.records import read_preferences
from quintain.errors import DataError
from quintain.types import (
    Action,
    Score,
    Stop,
    Task,
    Text,
    ToolError,
    Turn,
    as_text,
)


def turn(number: int, error: str | None = None, tool_errors: tuple[ToolError, ...] = ()) -> Turn:
    return make_turn(
        (number,),
        logprob=-1.0,
        shows=(Text(text=f"seen {number}"),),
        action=Action(text=str(number), error=error),
        is_valid=error is None and all(e.cause != "invalid_call" for e in tool_errors),
        tool_errors=tool_errors,
    )


def wrong(tool: str) -> ToolError:
    return ToolError(tool=tool, cause="invalid_call")


EPISODE = make_episode(
    turn(0, error="not JSON"),
    turn(1, tool_errors=(wrong("unknown"),)),
    turn(2, tool_errors=(ToolError(tool="search", cause="timeout"),)),
    turn(3, tool_errors=(wrong("unknown"), wrong("guess"))),
    task=Task(id="t/train/0", environment="t", seed=0),
    outcome=Score(value=0.0, is_success=False),
    stop=Stop.MAX_TURNS,
    seed=1,
)


def decode(ids: object) -> str:
    return f"said {ids}"


def test_mistakes_of_the_policy_and_what_mended_them() -> None:
    found = negatives([EPISODE, replace(EPISODE, turns=(turn(5),))])
    assert [(n.turn, n.kind, n.mended) for n in found] == [
        (0, "unreadable", None),
        (1, "unknown_tool", 2),
        (3, "invalid_arguments", None),
    ]


def test_what_mended_a_call_alone_counts_and_is_preferred_to_it() -> None:
    made = Pipeline(mend_calls()).run([as_example(EPISODE)])
    (example,) = made.examples
    assert [own.tolist() for own in example.weights or ()] == [[0], [0], [1]]
    assert made.funnel.passages[0].says == (
        "has no wrong call that the next turn mended (2 not mended in the next turn, 1 of unknown tools)"
    )
    record = preference_record(example.trajectory, decode, told=OpeningPrompt(system="Go."))
    assert record["prompt"][0] == {"role": "system", "content": "Go."}
    assert record["prompt"][-1] == {"role": "user", "content": "seen 1"}
    assert record["rejected"] == [{"role": "assistant", "content": "said (1,)", "weight": 1}]
    assert record["chosen"] == [{"role": "assistant", "content": "said (2,)"}]
    assert (record["kind"], record["task"]) == ("unknown_tool", "t/train/0")
    found = [FileValue(file="pairs.jsonl", line=1, value=record)]
    (pair,) = read_preferences(found)
    assert [as_text(side.messages[-1].content) for side in (pair.chosen, pair.rejected)] == [
        "said (2,)", "said (1,)",
    ]  # fmt: skip
    with pytest.raises(
        DataError, match="got an episode that does not end with a wrong call and what mended it"
    ):
        preference_record(replace(EPISODE, turns=EPISODE.turns[2:3]), decode)


def test_an_episode_without_mistakes_goes() -> None:
    assert not Pipeline(mend_calls()).run([as_example(replace(EPISODE, turns=(turn(5),)))]).examples
