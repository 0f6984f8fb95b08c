"""Names of harnesses: every name builds, and what does not fit is refused with the nearest name."""

import re
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from quintain.agents import catalog
from quintain.agents.catalog import Layer, build, check, names
from quintain.agents.harness import Choice, JsonTools, PlainText, ReAct
from quintain.agents.protocol import Brief
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, Legal
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Observation, Task
from quintain.worlds.guess.game import Guess
from quintain.worlds.keydoor.game import KeyDoor


class Bare(Environment):
    """Do nothing."""

    def reset(self, task: Task) -> Observation:
        return ""


@pytest.fixture(scope="module")
def chat() -> Chat:
    tokenizer: PreTrainedTokenizerFast = train_tokenizer(["<|user|>wall<|assistant|>left<|end|>"], 280)
    return Chat(tokenizer)


def test_the_harness_that_fits_is_auto(chat: Chat) -> None:
    assert build("auto", chat, Guess()) == JsonTools(chat, max_tokens=128)
    assert build("auto", chat, KeyDoor(), temperature=0.5) == Choice(chat, 0.5, 128)
    assert build("auto", chat, Bare(), max_tokens=7) == PlainText(chat, 1.0, 7)


def test_a_harness_by_name_with_options(chat: Chat) -> None:
    assert build("react", chat, Guess(), temperature=0.0) == ReAct(chat, 0.0, 128)
    assert build("react?max_tokens=9", chat, Bare()) == ReAct(chat, 1.0, 9)
    assert build("choice?list_actions=true", chat, KeyDoor()) == Choice(chat, 1.0, 128, list_actions=True)


def test_the_page_names_them_all() -> None:
    page = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")
    tables = page.partition("## What is trained")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", tables, re.MULTILINE)) == set(names())


@pytest.mark.parametrize("name", names())
def test_every_name_names_something_that_is_there(name: str) -> None:
    layers = check(name)
    assert layers[0] == Layer(name, {})
    assert layers[-1].name not in catalog.WRAPPERS


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("raect", "agent: got 'raect', in which 'raect' is unknown; did you mean 'react'?"),
        ("", "in which '' is unknown; choose from advised, again, auto, "),
        (
            "react?max_token=3",
            "option of react in the agent 'react?max_token=3': got 'max_token'; did you mean 'max_tokens'?",
        ),
        ("react?chat=3", "option of react in the agent 'react?chat=3': got 'chat'; "),
        (
            "react?max_tokens=many",
            "max_tokens of react in the agent 'react?max_tokens=many': got 'many'; give an integer",
        ),
        ("react?max_tokens", "got 'max_tokens'; write them as name=value&name=value"),
        (
            "react?max_tokens=3&max_tokens=4",
            "max_tokens of react in the agent 'react?max_tokens=3&max_tokens=4': got it twice",
        ),
        ("react+tools", "in which react wraps nothing; put the harness last, after "),
        ("rci+window+plan", "in which window forgets what plan stands on; write plan+window+..."),
        ("auto?max_tokens=3", "auto has no options, name the harness instead"),
    ],
)  # fmt: skip
def test_a_spec_that_is_wrong_is_refused(spec: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        check(spec)
    assert message in str(caught.value)


def test_a_harness_that_the_environment_has_nothing_for(chat: Chat) -> None:
    with pytest.raises(UsageError) as caught:
        build("tools", chat, KeyDoor())
    assert str(caught.value) == "agent 'tools' needs tools: got KeyDoor, which has none; take react, or auto"
    with pytest.raises(UsageError, match="agent 'choice' needs legal_actions: got Guess, which has none"):
        build("choice", chat, Guess())


def test_a_mixture_gets_the_harness_that_fits_each_task(chat: Chat) -> None:
    mixture = find("mix:guess,keydoor,twocards")()
    agent = build("auto", chat, mixture, temperature=0.5)
    tasks = {task.environment: task for task in (mixture.task("train", index) for index in range(3))}
    assert isinstance(mixture, Legal)
    for name, kind in {"guess": JsonTools, "keydoor": Choice, "twocards": Choice}.items():
        mixture.reset(tasks[name])
        brief = Brief(
            task=tasks[name],
            instructions="Act.",
            tools=mixture.tools(),
            legal_actions=mixture.legal_actions(),
        )
        fitting, alone = agent.open(brief), kind(chat, 0.5, 128).open(brief)
        assert fitting.observe("go") == alone.observe("go")
    with pytest.raises(UsageError, match="needs legal_actions"):
        build("choice", chat, mixture)
    with pytest.raises(UsageError, match="needs tools"):
        build("tools", chat, mixture)
    assert isinstance(build("choice", chat, find("mix:keydoor,twocards")()), Choice)
