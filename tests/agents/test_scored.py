"""GLAM and TWOSOME: every legal action is a candidate, of the length that its normalization says."""

from typing import Any

import pytest

from quintain.agents.protocol import Brief
from quintain.agents.scored import Scored, length
from quintain.engines.protocol import Candidates
from quintain.errors import DataError, UsageError
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Action, Completion, Task

LEGAL = ("left", "go on", "go on left", " left ")


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(
        train_tokenizer(["<|user|>A wall.<|assistant|>left<|end|>", "<|assistant|>go on<|end|>"], 300)
    )


def brief(legal: tuple[str, ...] = LEGAL) -> Brief:
    task = Task(id="t/train/0", environment="t", seed=0)
    return Brief(task=task, instructions="Go.", legal_actions=legal)


def test_golden_ids_of_a_scored_choice(chat: Chat) -> None:
    session = Scored(chat, normalization="word").open(brief())
    prompt = session.observe("A wall.")
    assert chat.encoder.decode(prompt.token_ids) == "<|system|>Go.<|user|>A wall.<|assistant|>"
    left, go_on, longer = (chat.answer_ids(text) for text in ("left", "go on", "go on left"))
    assert prompt.sampling.candidates == Candidates(token_ids=(left, go_on, longer), lengths=(1.0, 2.0, 3.0))
    assert prompt.sampling.max_tokens == len(longer)
    assert session.write(Action(text="go on")) == go_on
    read = session.read(Completion(token_ids=go_on, logprobs=(), stop="stop"))
    assert read == Action(text="go on")
    following = session.observe("A wall.", ("left",))
    assert chat.encoder.decode(following.token_ids) == "<|end|><|user|>A wall.<|assistant|>"
    assert following.sampling.candidates == Candidates(token_ids=(left,), lengths=(1.0,))
    with pytest.raises(DataError, match="not a legal action: got 'go on'"):
        session.write(Action(text="go on"))


def test_actions_can_be_listed_as_glam_does(chat: Chat) -> None:
    prompt = Scored(chat, list_actions=True).open(brief(("left", "go on"))).observe("A wall.")
    assert chat.encoder.decode(prompt.token_ids).endswith("A wall.\nActions: left, go on<|assistant|>")


@pytest.mark.parametrize(("normalization", "expected"), [("sum", 1.0), ("token", 3.0), ("word", 2.0)])
def test_what_a_score_is_divided_by(normalization: Any, expected: float) -> None:
    assert length("go on", (1, 2, 3), normalization) == expected
    assert length(" ", (1,), normalization) == 1.0


def test_what_cannot_be_scored(chat: Chat) -> None:
    wrong: Any = "mean"
    with pytest.raises(UsageError, match="normalization of scores: got 'mean'; choose sum, token or word"):
        Scored(chat, normalization=wrong).open(brief())
    with pytest.raises(UsageError, match="got '', which has no token"):
        Scored(chat).open(brief(("left", ""))).observe("A wall.")


def test_half_of_the_actions_of_a_task_have_words_without_a_meaning(chat: Chat) -> None:
    legal = tuple(f"go {word}" for word in ("left", "on", "up", "down", "back", "in", "out", "by"))
    halves: list[frozenset[str]] = []
    for seed in range(12):
        task = Task(id=f"t/train/{seed}", environment="t", seed=seed)
        session = Scored(chat, normalization="word", pad=3).open(
            Brief(task=task, instructions="Go.", legal_actions=legal)
        )
        candidates = session.observe("A wall.").sampling.candidates
        assert candidates is not None
        assert set(candidates.lengths) <= {2.0, 5.0}
        halves.append(frozenset(a for a, n in zip(legal, candidates.lengths, strict=True) if n == 5.0))
        for action, ids in zip(legal, candidates.token_ids, strict=True):
            assert session.write(Action(text=action)) == ids
            assert session.read(Completion(token_ids=ids, logprobs=(), stop="stop")) == Action(text=action)
            session.observe("A wall.")
            assert chat.encoder.decode(ids) == action + " so then well" * (action in halves[-1])
    assert len(set(halves)) > 6 and 3 < sum(map(len, halves)) / len(halves) < 5
    with pytest.raises(UsageError, match="pad of scored actions: got -1"):
        Scored(chat, pad=-1).open(brief())
