"""The harness of roles: the last one acts, in words or by a call."""

import pytest

from quintain.agents.roles import is_transcript, parse_roles, write_action
from quintain.environments.protocol import tool_action
from quintain.types import Action

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
