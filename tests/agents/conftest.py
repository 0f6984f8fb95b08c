"""A chat of few words, and sessions that are spoken to in text."""

from collections.abc import Callable

import pytest

from quintain.agents.protocol import Brief, Deliberates, Prompt, Session
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Action, Completion, Task, ToolSpec

CORPUS = [
    "<|system|>Go.<|user|>A wall.<|assistant|>left<|end|>",
    "<|assistant|>right<|end|>",
    "<|tool|>higher",
]


class Talk:
    """A session of which prompts are read and completions are said as text."""

    def __init__(self, chat: Chat, session: Session) -> None:
        self.chat, self.session = chat, session
        self.action = Action()

    def text(self, prompt: Prompt) -> str:
        return ("" if prompt.starts_segment else "...") + self.chat.encoder.decode(prompt.token_ids)

    def sees(self, observation: str, legal: tuple[str, ...] = ()) -> str:
        return self.text(self.session.observe(observation, legal))

    def prompt_after(self, said: str) -> Prompt | None:
        """Say `said` and return the prompt of a harness that has not acted yet."""
        ids = self.chat.write(said)
        self.action = self.session.read(Completion(token_ids=ids, logprobs=(), stop="stop"))
        return self.session.more() if isinstance(self.session, Deliberates) else None

    def says(self, said: str) -> str | None:
        prompt = self.prompt_after(said)
        return None if prompt is None else self.text(prompt)

    def writes(self, action: Action) -> str:
        return self.chat.text(self.session.write(action))


@pytest.fixture(scope="session")
def small_chat() -> Chat:
    return Chat(train_tokenizer(CORPUS, 300))


@pytest.fixture(scope="session")
def brief_of() -> Callable[..., Brief]:
    def make(tools: tuple[ToolSpec, ...] = (), legal: tuple[str, ...] = ()) -> Brief:
        task = Task(id="t/train/0", environment="t", seed=0)
        return Brief(task=task, instructions="Go.", tools=tools, legal_actions=legal)

    return make
