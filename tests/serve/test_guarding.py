"""A guard at the recording endpoint: what it takes out of answers, what the client sees, and what is not trained."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.build import make_episode

from quintain.data.used import REFUSED, find_unused
from quintain.rollout.measures import call_metrics
from quintain.safety.policy import Policy, Rule
from quintain.serve.chat_types import AssistantMessage
from quintain.serve.endpoint import EpisodeLimits
from quintain.serve.guarding import remove_refused
from quintain.types import ToolCall

RULES = {
    "find": (Rule(),),
    "pay": (Rule(when={"to": {"said_by": ["task", "find", "say"]}}, says="Pay friends only."),),
}
make_guard = partial(Policy, RULES)


def user(text: str) -> AssistantMessage:
    return AssistantMessage(role="user", text=text)


def answer(*calls: tuple[str, Any], names: tuple[str, ...] = ()) -> AssistantMessage:
    made = tuple(ToolCall(name=name, arguments=given) for name, given in calls)
    return AssistantMessage(role="assistant", text="hm", calls=made, names=names)


def test_a_refused_call_is_taken_out_and_the_others_keep_their_names() -> None:
    spoken = answer(("pay", {"to": "eve"}), ("pay", {"to": "ann"}), names=("a", "b"))
    left, refused = remove_refused(make_guard, (user("Pay ann."),), spoken)
    assert (left.names, [call.arguments["to"] for call in left.calls], left.text) == (("b",), ["ann"], "hm")
    assert refused == ("pay",)


def test_an_answer_without_a_call_left_says_why_and_one_that_is_allowed_stays() -> None:
    history = (user("Pay ann."),)
    left, _ = remove_refused(make_guard, history, answer(("pay", {"to": "eve"}), ("steal", {})))
    assert left.text == "hm\nPay friends only.\nsteal: this tool is not allowed here."
    allowed = answer(("pay", {"to": "ann"}))
    assert remove_refused(make_guard, history, allowed) == (allowed, ())


def test_the_guard_knows_what_the_chat_says_and_goes_back_with_it() -> None:
    looked = answer(("find", {}), names=("a",))
    told = AssistantMessage(role="tool", text="bob is a friend", names=("a",))
    history = (AssistantMessage(role="system", text="eve"), user("Pay."), looked, told, user("And cleo."))
    for name, allowed in (("bob", True), ("cleo", True), ("eve", False)):
        left, _ = remove_refused(make_guard, history, answer(("pay", {"to": name})))
        assert bool(left.calls) == allowed, name
    assert not remove_refused(make_guard, history[:2], answer(("pay", {"to": "bob"})))[0].calls
    assert not remove_refused(make_guard, (), answer(("pay", {"to": "bob"})))[0].calls


def test_a_client_is_never_handed_a_refused_call_and_the_turn_is_not_trained(served: Any) -> None:
    session, url, key = served.open(terms=EpisodeLimits(guard=make_guard))
    said = [json.dumps({"name": "pay", "arguments": {"to": name}}) for name in ("eve", "ann")]
    served.says += [f"<tool_call>{said[0]}</tool_call>", f"<tool_call>{said[1]}</tool_call>", "done"]
    schema = {"type": "object", "properties": {"to": {"type": "string"}}}
    tools: Any = [{"type": "function", "function": {"name": "pay", "parameters": schema}}]
    messages: Any = [{"role": "user", "content": "Pay ann."}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as sdk:
        first = sdk.chat.completions.create(model="m", messages=messages, tools=tools).choices[0]
        assert (first.message.tool_calls, first.finish_reason) == (None, "stop")
        assert "Pay friends only." in str(first.message.content)
        messages += [
            {"role": "assistant", "content": first.message.content},
            {"role": "user", "content": "Go."},
        ]
        found = sdk.chat.completions.create(model="m", messages=messages, tools=tools).model_dump()
        called = found["choices"][0]["message"]["tool_calls"]
        assert [call["function"]["name"] for call in called] == ["pay"]
    turns = session.recorder.turns()
    assert [turn.facts.get("refused") for turn in turns] == [["pay"], None]
    assert find_unused(turns)[0] == REFUSED
    assert turns[1].starts_segment, "what was sampled is no prefix of what the client was handed"
    assert call_metrics([make_episode(*turns)])["endpoint/refused"] == 1.0


def test_a_policy_that_is_none_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    from quintain.api import serving
    from quintain.errors import ConfigError

    (tmp_path / "p.json").write_text("{}")
    with (
        pytest.raises(ConfigError, match="would refuse every call"),
        serving("micro", guard=tmp_path / "p.json"),
    ):
        raise AssertionError("it is not served")
