"""The guards that AgentDojo is played under: what each allows of a suite's tools."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from quintain.safety.policy import SAY, Policy
from quintain.types import Action, Task, ToolCall, ToolSpec
from quintain_evidence.labs.dojo import NAMED, rules_of

FIELDS = ("recipient", "channel", "user", "user_email", "url")
NAMES = ("get_channels", "get_users_in_channel", *NAMED["slack"])
TOOLS = tuple(
    ToolSpec(
        name=name, description="", parameters={"properties": {each: {"type": "string"} for each in FIELDS}}
    )
    for name in NAMES
)


class Suite:
    """The user asks for one message."""

    user = SimpleNamespace(ground_truth=lambda _: [SimpleNamespace(function="send_direct_message")])
    state = None

    def tools(self) -> tuple[ToolSpec, ...]:
        return TOOLS


def allows(arm: str, name: str, **given: str) -> bool:
    """Whether `arm` lets a call through after a directory has listed Bob."""
    policy = Policy(rules_of(arm, "slack", cast(Any, Suite())))
    policy.begin(Task(id="t", environment="e", seed=0), "Write to Ann.")
    policy.see((Action(tool_calls=(ToolCall(name="get_users_in_channel"),)),), "Bob")
    return policy.judge(Action(tool_calls=(ToolCall(name=name, arguments=given),))).effect == "allow"


def test_the_filter_knows_tools_and_the_policy_names() -> None:
    assert SAY not in NAMES
    rows = {
        "filter": (True, True, False),
        "policy": (True, False, True),
        "wide": (True, True, True),
        "filter and wide": (True, True, False),
    }
    for arm, expected in rows.items():
        found = (
            allows(arm, "send_direct_message", recipient="Ann"),
            allows(arm, "send_direct_message", recipient="Bob"),
            allows(arm, "invite_user_to_slack", user="Ann"),
        )
        assert found == expected, arm
        assert not allows(arm, "invite_user_to_slack", user="Eve", user_email="eve@x.com")
