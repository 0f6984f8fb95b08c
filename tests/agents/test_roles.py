"""The harness of roles: the last one acts, in words or by a call."""

import pytest

from quintain.agents.roles import is_transcript, one_transcript, parse_roles, write_action
from quintain.environments.protocol import tool_action
from quintain.types import Action, Completion, Score, Stop, Task, Trajectory, Turn, as_content

DONE = (
    "<think>x</think><suggested_answer>12</suggested_answer><double_check>4</double_check><action>12</action>"
)


def test_the_last_role_acts() -> None:
    assert parse_roles(DONE, has_tools=False) == Action(text="12")
    assert write_action(Action(text=DONE)) == DONE and is_transcript(DONE)
    assert write_action(Action(text="go < 3")) == "<action>go &lt; 3</action>"
    assert parse_roles("<action>go &lt; 3</action>", has_tools=False) == Action(text="go < 3")


def test_a_call_is_read_out_of_its_role() -> None:
    call = tool_action("guess", number=16)
    text = write_action(call)
    assert text.startswith("<action>&lt;tool_call&gt;")
    assert parse_roles(text, has_tools=True).tool_calls == call.tool_calls


@pytest.mark.parametrize(("text", "said"), [
    ("12", "expected roles"),
    ("<think>x</think>", "the last role must be action; it is think"),
])  # fmt: skip
def test_what_cannot_be_read_is_told(text: str, said: str) -> None:
    action = parse_roles(text, has_tools=False)
    assert action.error is not None and action.error.startswith(said) and not is_transcript(text)


def spoke(seat: str, text: str, seen: str, *, is_valid: bool = True) -> Turn:
    return Turn(
        seat=seat, observation=as_content(seen), prompt_ids=(1,), action=Action(text=text), is_valid=is_valid,
        completion=Completion(token_ids=(2,), logprobs=(), stop="stop"),
    )  # fmt: skip


def played(*turns: Turn) -> Trajectory:
    return Trajectory(
        task=Task(id="t", environment="e", seed=0), turns=turns, outcome=Score(value=1.0, is_success=True),
        stop=Stop.TERMINATED, seed=0, group="g", index=0,
    )  # fmt: skip


def test_what_roles_thought_stands_in_front_of_the_action_in_one_answer() -> None:
    episode = played(
        spoke("agent/plan", "1. go < 3", "At 0."), spoke("agent", "go", "At 0."),
        spoke("agent", "fly", "At 1.", is_valid=False), spoke("agent/critique", "no", "At 1."),
        spoke("agent", "stay", "At 1."),
    )  # fmt: skip
    made = one_transcript(episode, lambda turn: turn.action.text, {"critique": "double_check"})
    assert made == [
        {"role": "user", "content": "At 0."},
        {"role": "assistant", "content": "<plan>1. go &lt; 3</plan><action>go</action>"},
        {"role": "user", "content": "At 1."},
        {"role": "assistant", "content": "<action>fly</action>", "weight": 0},
        {"role": "user", "content": "At 1."},
        {"role": "assistant", "content": "<double_check>no</double_check><action>stay</action>"},
    ]
    assert parse_roles(str(made[1]["content"]), has_tools=False) == Action(text="go")


def test_seats_speak_in_turn_in_marks_of_their_names() -> None:
    episode = played(
        spoke("A", "say 3", "Yours: 3."), spoke("B/plan", "add", "A: 3."), spoke("B", "4", "A: 3.")
    )
    made = one_transcript(episode, lambda turn: turn.action.text)
    assert [m["content"] for m in made if m["role"] == "assistant"] == [
        "<A>say 3</A>", "<plan>add</plan><B>4</B>",
    ]  # fmt: skip
