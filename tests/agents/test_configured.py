"""A configuration of an agent is data: what does not exist, or is outside, is refused; what it hides is not called."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from quintain.agents.catalog import build, check
from quintain.agents.configured import (
    Configuration,
    Configured,
    check_tools,
    load_configuration,
    read_configuration,
)
from quintain.agents.protocol import Brief
from quintain.config.trust import find_names
from quintain.errors import DataError, UsageError
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Completion
from quintain.worlds.calc.game import Calc


@pytest.fixture(scope="module")
def chat() -> Chat:
    tokenizer: PreTrainedTokenizerFast = train_tokenizer(
        ["<|system|>Go.<|user|>x<|assistant|>{}<|end|>"], 300
    )
    return Chat(tokenizer)


WRONG: tuple[tuple[Any, str], ...] = (
    ([], "got list; give agent, tools, instructions"),
    ({"agent": "react", "tool": ["add"]}, "got 'tool'; "),
    ({"tools": ["add"]}, "got other things than texts and a list of texts"),
    ({"agent": "react", "tools": "add"}, "got other things than texts and a list of texts"),
    ({"agent": "react", "tools": [1]}, "got other things than texts and a list of texts"),
    ({"agent": "react", "instructions": "x" * 2001}, "got 2001 characters; give at most 2000"),
    ({"agent": "mine.py:run"}, "the Python file mine.py:run; name a harness of quintain's own"),
    ({"agent": "endpoint?command=rm"}, "name a harness of quintain's own"),
    ({"agent": "cased?cases=x+react"}, "name a harness of quintain's own"),
    ({"agent": "other.toml"}, "name a harness of quintain's own"),
)


@pytest.mark.parametrize(("values", "message"), WRONG)
def test_what_is_no_configuration_is_refused(values: Any, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_configuration(values)
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_a_file_is_an_agent(tmp_path: Path, chat: Chat) -> None:
    path = tmp_path / "agent.toml"
    own = Configuration(
        agent="window?turns=2+react", tools=("lookup", "answer"), instructions='Say "ü"\n\t{}.'
    )
    own.save(path)
    assert load_configuration(path) == own
    assert [layer.name for layer in check(str(path))] == ["configured", "window", "react"]
    made = build(str(path), chat, Calc())
    assert isinstance(made, Configured) and made.configuration == own
    assert [(each.kind, each.text) for each in find_names({"agent": "agent.toml"})] == [
        ("file", "agent.toml")
    ]
    Configuration(agent="react", tools=("serach",)).save(path)
    with pytest.raises(UsageError, match="tools of an agent: got 'serach', which calc does not have; "):
        build(str(path), chat, Calc())
    Configuration(agent="raect").save(path)
    with pytest.raises(UsageError, match="in which 'raect' is unknown; did you mean 'react'"):
        build(str(path), chat, Calc())
    for text, error in (("agent = ", "which is no TOML"), ('agents = "react"', "got 'agents'")):
        path.write_text(text)
        with pytest.raises((DataError, UsageError), match=error):
            check(str(path))
    with pytest.raises(DataError, match="which is no TOML"):
        check(str(tmp_path / "none.toml"))


def test_what_it_does_not_see_it_cannot_call(tmp_path: Path, chat: Chat) -> None:
    world = Calc()
    path = tmp_path / "agent.toml"
    Configuration(agent="tools", tools=("lookup", "answer"), instructions="Look first.").save(path)
    agent = build(str(path), chat, world)
    brief = Brief(task=world.task("train", 0), instructions="Compute.", tools=world.tools())
    prompt = str(chat.tokenizer.decode(list(agent.open(brief).observe("Compute: 1.").token_ids)))
    assert "Compute.\n\nLook first." in prompt and "lookup" in prompt and "multiply" not in prompt

    def read(name: str) -> Any:
        call = f"<tool_call>{json.dumps({'name': name, 'arguments': {'number': 1}})}</tool_call>"
        session = agent.open(brief)
        session.observe("Compute: 1.")
        return session.read(Completion(token_ids=chat.write(call), logprobs=(), stop="stop"))

    assert read("multiply").error == "there is no tool multiply; there is lookup, answer"
    assert read("answer").error is None


def test_none_hides_nothing() -> None:
    check_tools(Configuration(agent="react"), Calc())
    with pytest.raises(UsageError, match="got 'fly', which calc does not have"):
        check_tools(Configuration(agent="react", tools=("add", "fly")), Calc())
