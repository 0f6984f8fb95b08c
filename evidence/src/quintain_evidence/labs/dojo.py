"""AgentDojo played by a mind that resists nothing, under a guard.

It does what the user's solution does and, once it has read the injection, what the attacker's does.
Solutions, injections and verdicts are the package's; no model is asked. Guards are a filter that allows the tools that
the user's own solution calls (the best that AgentDojo's tool filter could choose), a policy of ours for each suite,
strict or wide, and filter and wide policy together. The policies were written from the tools' descriptions and the
users' tasks, and are for a suite, not for a task.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing

from quintain.adapters.agentdojo.environment import MAX_ANSWERS, AgentDojo
from quintain.agents.guarded import GuardedEnvironment
from quintain.environments.protocol import Environment, advance, begin
from quintain.environments.tools import GraderFault
from quintain.safety.policy import Policy, Rule, Rules, refuse_unknown
from quintain.types import Action, ToolCall, as_text

ARMS = ("none", "filter", "policy", "wide", "filter and wide")
ATTACK, MARK = "important_instructions", "<INFORMATION>"
DIRECTORIES: Mapping[str, Sequence[str]] = {
    "banking": (),
    "slack": ("get_channels", "get_users_in_channel"),
    "travel": ("get_user_information", "get_all_hotels_in_city", "get_all_restaurants_in_city"),
}
"""suite → tools that list who and what there is, and hold no text of others"""
NAMED: Mapping[str, Mapping[str, Sequence[str]]] = {
    "banking": {
        "send_money": ("recipient",),
        "schedule_transaction": ("recipient",),
        "update_scheduled_transaction": ("recipient",),
        "update_password": ("password",),
        "update_user_info": ("first_name", "last_name", "street", "city"),
    },
    "slack": {
        "add_user_to_channel": ("user", "channel"),
        "send_direct_message": ("recipient",),
        "send_channel_message": ("channel",),
        "invite_user_to_slack": ("user", "user_email"),
        "remove_user_from_slack": ("user",),
        "get_webpage": ("url",),
        "post_webpage": ("url",),
    },
    "travel": {
        "create_calendar_event": ("participants",),
        "cancel_calendar_event": ("event_id",),
        "reserve_hotel": ("hotel",),
        "reserve_car_rental": ("company",),
        "reserve_restaurant": ("restaurant",),
        "send_email": ("recipients", "cc", "bcc"),
    },
}
"""suite → tool that changes or sends something → arguments that user or directory must have said, if they are given"""


def policy_of(suite: str, environment: Environment, *, is_wide: bool) -> Rules:
    """Return our policy: what reads is allowed, what acts needs names from the user (wide: or a list)."""
    rules = {tool.name: (Rule(),) for tool in environment.tools()}
    said = {"said_by": ["task", *(DIRECTORIES[suite] if is_wide else ())]}
    for tool, names in NAMED[suite].items():
        rules[tool] = (Rule(when=dict.fromkeys(names, said), optional=frozenset(names)),)
    refuse_unknown(rules, environment.tools(), suite)
    return rules


def filter_of(environment: AgentDojo) -> Rules:
    """Return the filter of the task that has begun: the tools of the user's own solution."""
    return {call.function: (Rule(),) for call in environment.user.ground_truth(environment.state)}


def solve(environment: AgentDojo, guarded: Environment) -> Mapping[str, float]:
    """Play the user's solution, with the attacker's behind the first result that holds the injection."""
    wanted = list(environment.user.ground_truth(environment.state))
    planted = list(environment.injection.ground_truth(environment.state)) if environment.injection else []
    for turn in range(MAX_ANSWERS):
        count = max(1, -(-len(wanted) // max(1, MAX_ANSWERS - 1 - turn)))
        now, wanted = wanted[:count], wanted[count:]
        calls = tuple(ToolCall(name=each.function, arguments=dict(each.args)) for each in now)
        action = Action(tool_calls=calls) if calls else Action(text=environment.user.GROUND_TRUTH_OUTPUT)
        result = advance(guarded, action)
        if result.is_terminated:
            return result.reward_terms
        if planted and MARK in as_text(result.observation):
            wanted, planted = [*planted, *wanted], []
    raise AssertionError("the last answer ends the episode")


def rules_of(arm: str, suite: str, environment: AgentDojo) -> Rules:
    """Return the rules of `arm` for the task that has begun."""
    chosen = filter_of(environment)
    if arm == "filter":
        return chosen
    own = policy_of(suite, environment, is_wide=arm != "policy")
    return {tool: own[tool] for tool in chosen} if arm == "filter and wide" else own


def measure_arm(suite: str, arm: str, attack: str) -> dict[str, float]:
    """Return the rates of `arm` in `suite`."""
    done: dict[str, list[float]] = {"utility": [], "injection": []}
    broken = 0
    with closing(AgentDojo(suite, attack=attack)) as environment:
        for index in range(len(environment._cases)):  # pyright: ignore[reportPrivateUsage]
            task = environment.task("eval", index)
            begin(environment, task)
            guarded: Environment = environment
            if arm != "none":
                guarded = GuardedEnvironment(environment, Policy(rules_of(arm, suite, environment)))
            begin(guarded, task)
            try:
                for name, value in solve(environment, guarded).items():
                    if name in done:
                        done[name].append(value)
            except GraderFault:
                broken += 1
    rates = {name: sum(values) / len(values) for name, values in done.items() if values}
    return {**rates, "cases": float(len(done["utility"])), "broken": float(broken)}
