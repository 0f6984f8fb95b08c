"""Calls that could not be carried out cannot be sampled, even from a model that knows nothing."""

import sys
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from quintain.agents.constrained import Constrained, calls_grammar, shape
from quintain.agents.harness import JsonTools
from quintain.agents.protocol import Brief
from quintain.engines.grammar import Grammars, check_grammar
from quintain.engines.local import Local
from quintain.engines.protocol import Grammar
from quintain.environments.protocol import Environment
from quintain.environments.tools import call_tool, tool
from quintain.errors import MissingExtra, UsageError
from quintain.models.tiny import build_tiny
from quintain.rollout.collect import Limits, Rollout
from quintain.rollout.measures import tool_metrics
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.text.tool_formats import FORMATS
from quintain.types import Action, Observation, Task, ToolCall, ToolSpec

CORPUS = [
    '<|user|>Shop.<|assistant|><tool_call>{"name": "buy", "arguments": {"item": "key"}}</tool_call><|end|>'
]


class Shop(Environment):
    """Shop."""

    max_turns = 3

    def reset(self, task: Task) -> Observation:
        return "Shop."

    @tool
    def buy(self, item: Literal["key", "red ball"], count: int = 1) -> str:
        """Buy."""
        return "bought"

    @tool
    def leave(self) -> str:
        """Leave."""
        return "left"


SPECS = Shop().tools()
BUY = ToolCall(name="buy", arguments={"item": "red ball", "count": 12})
LEAVE = ToolCall(name="leave")


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(CORPUS, 300)


@pytest.fixture(scope="module")
def chat(tokenizer: PreTrainedTokenizerFast) -> Chat:
    return Chat(tokenizer)


def brief(tools: tuple[ToolSpec, ...] = SPECS) -> Brief:
    return Brief(task=Task(id="t", environment="t", seed=0), instructions="Shop.", tools=tools)


def accepted(chat: Chat, constraint: Grammar | None, ids: tuple[int, ...]) -> int:
    """Return how many of `ids` are allowed one after the other."""
    assert constraint is not None
    guide = Grammars(len(chat.tokenizer), chat.tokenizer).begin(constraint, chat.stop_ids)
    for number, token in enumerate(ids):
        if not guide.allow_tokens()[token]:
            return number
        guide.take(token)
    return len(ids)


@pytest.mark.parametrize("calls", sorted(FORMATS))
def test_what_is_written_is_what_is_allowed(chat: Chat, calls: str) -> None:
    session = Constrained(chat, calls=calls, max_calls=2).open(brief())
    constraint = session.observe("Shop.").sampling.constraint
    for right in ((BUY,), (LEAVE,), (LEAVE, BUY)):
        ids = session.write(Action(tool_calls=right))
        assert accepted(chat, constraint, ids) == len(ids)
    for wrong in (
        ToolCall(name="sell"),
        ToolCall(name="buy", arguments={"item": "door"}),
        ToolCall(name="buy", arguments={"item": "key", "colour": "red"}),
        ToolCall(name="buy", arguments={"item": "key", "count": "many"}),
        ToolCall(name="buy"),
        ToolCall(name="leave", arguments={"now": True}),
    ):
        ids = session.write(Action(tool_calls=(wrong,)))
        assert accepted(chat, constraint, ids) < len(ids)
    too_many = session.write(Action(tool_calls=(LEAVE, LEAVE, LEAVE)))
    assert accepted(chat, constraint, too_many) < len(too_many)
    assert accepted(chat, constraint, chat.write("I leave.")) == 0


def test_the_shape_of_calls_in_every_format(chat: Chat) -> None:
    assert shape(chat, "auto", "a") == ("", '<tool_call>{"name": "a", "arguments": ', "", "}</tool_call>", "")
    assert shape(chat, "llama", "a") == ("", '{"name": "a", "parameters": ', "; ", "}", "")
    assert shape(chat, "mistral", "a") == (
        "[TOOL_CALLS][",
        '{"name": "a", "arguments": ',
        ", ",
        "}",
        "]",
    )
    assert shape(chat, "mistral-named", "a") == ("", "[TOOL_CALLS]a[ARGS]", "", "", "")


def test_markup_of_the_tokenizer_is_its_token(chat: Chat) -> None:
    text = calls_grammar(SPECS, chat, 1)
    opens, closes = chat.encoder.markup_id("<tool_call>"), chat.encoder.markup_id("</tool_call>")
    assert (
        f'tool_0: <[{opens}]> "{{\\"name\\": \\"buy\\", \\"arguments\\": " args_0 "}}" <[{closes}]>' in text
    )
    assert "start:  call \n" in text


def test_an_untrained_model_calls_rightly_or_is_cut(chat: Chat, tokenizer: PreTrainedTokenizerFast) -> None:
    model = build_tiny(tokenizer, size="micro", seed=0)

    def episodes(agent: JsonTools | Constrained) -> list[Action]:
        rollout = Rollout(agent, Shop, Local(model, tokenizer), limits=Limits(max_turns=2))
        groups = rollout.groups([Shop().task("train", n) for n in range(3)], size=2, seed=1)
        trajectories = [t for group in groups for t in group.trajectories]
        metrics = tool_metrics(trajectories)
        assert not [name for name in metrics if name.endswith("invalid_call")]
        turns = [turn for t in trajectories for turn in t.turns if turn.completion.stop == "stop"]
        return [turn.action for turn in turns]

    done = episodes(Constrained(chat, max_tokens=64))
    assert len(done) >= 6
    for action in done:
        assert action.error is None
        assert [call_tool(Shop(), call).is_error for call in action.tool_calls] == [False]
    assert not any(action.tool_calls for action in episodes(JsonTools(chat, max_tokens=64)))


def test_grammars_are_written_once_and_shared(chat: Chat) -> None:
    agent = Constrained(chat)
    first, second = (agent.open(brief()).observe("Shop.").sampling.constraint for _ in range(2))
    assert first is second
    assert agent.open(brief(SPECS[:1])).observe("Shop.").sampling.constraint is not first


def test_what_cannot_be_constrained(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="got 0 tools and max_calls=1; give at least 1 of each"):
        Constrained(chat).open(brief(()))
    with pytest.raises(UsageError, match="got 2 tools and max_calls=0"):
        Constrained(chat, max_calls=0).open(brief())
    odd = ToolSpec(name="odd", description="", parameters={"type": "nothing"})
    with pytest.raises(UsageError, match=r"grammar of a completion: got .*; simplify the grammar"):
        Constrained(chat).open(brief((odd,)))
    monkeypatch.setitem(sys.modules, "llguidance", None)
    check_grammar.cache_clear()
    with pytest.raises(MissingExtra, match=r'pip install -e "\.\[constrained\]"'):
        Constrained(chat).open(brief())


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    found = np.exp(scores)
    return found / found.sum(-1, keepdims=True)


def test_what_a_constraint_leaves_out_of_a_policy_gradient_is_as_the_docs_say() -> None:
    # Games of two of 4 tokens, 2 of which may follow each beginning; rows: what comes before the token.
    rng, num = np.random.default_rng(0), 2_000
    first, second = rng.normal(size=(num, 4)), rng.normal(size=(num, 4, 4))
    rewards = rng.normal(size=(num, 4, 4))
    may_begin, may_follow = (
        rng.permuted(np.broadcast_to([0, 0, 1, 1], s.shape), axis=-1) for s in (first, second)
    )
    full = softmax(first), softmax(second)
    cut = softmax(np.where(may_begin, first, -np.inf)), softmax(np.where(may_follow, second, -np.inf))
    weights = cut[0][..., None] * cut[1]
    weights = weights * (rewards - (weights * rewards).sum((1, 2), keepdims=True))  # chance times advantage

    def gradient(begin: NDArray[np.float64], follow: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        by_first = weights.sum(2)
        at_first = by_first - by_first.sum(1, keepdims=True) * begin
        after = weights - by_first[..., None] * follow
        return at_first, np.concatenate([at_first, after.reshape(num, -1)], 1)

    ours, true = gradient(*full), gradient(*cut)
    assert np.allclose(ours[0], true[0]), "exact at the first token, where the advantages are centred"
    norms = np.linalg.norm(ours[1], axis=1) * np.linalg.norm(true[1], axis=1)
    cosines = (ours[1] * true[1]).sum(1) / norms
    assert (round(float(cosines.mean()), 2), round(float(cosines.min()), 2)) == (0.93, 0.68)
