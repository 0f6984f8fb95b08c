"""A model that says what a test tells it to, behind the recording endpoint."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from transformers import PreTrainedTokenizerFast

from quintain.engines.build import build_engine
from quintain.engines.protocol import Engine, Request
from quintain.engines.scripted import Scripted
from quintain.engines.settings import EngineSettings
from quintain.models.tiny import build_tiny
from quintain.serve.endpoint import Endpoint, EpisodeLimits, Session
from quintain.serve.engine_thread import EngineThread
from quintain.serve.listener import Listener
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Failure

CORPUS = ["<|system|>Go.<|user|>A wall.<|assistant|>left<|end|>", "<|assistant|>go on<|end|><|tool|>higher"]


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(CORPUS, 300)


@pytest.fixture(scope="session")
def chat(tokenizer: PreTrainedTokenizerFast) -> Chat:
    return Chat(tokenizer)


@dataclass
class Served:
    """An endpoint, and what its model says next."""

    endpoint: Endpoint
    listener: Listener
    says: list[str | Failure]
    requests: list[Request]
    gate: threading.Event
    """the model answers while it is set"""
    streams: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])

    def open(
        self, name: str = "a", *, seed: int = 1, terms: EpisodeLimits | None = None
    ) -> tuple[Session, str, str]:
        """Return a new episode, its URL and its key."""
        session, key = self.endpoint.open(name, seed, terms)
        return session, f"{self.listener.url}/e/{name}", key


@pytest.fixture
def served(chat: Chat) -> Iterator[Served]:
    says: list[str | Failure] = []
    requests: list[Request] = []
    streams: list[tuple[int, ...]] = []

    def script(request: Request, stream: tuple[int, ...]) -> tuple[int, ...] | Failure:
        requests.append(request)
        streams.append(stream)
        said = says.pop(0) if says else "go on"
        if isinstance(said, Failure):
            return said
        ids = chat.write(said)
        return ids[: request.sampling.max_tokens]

    yield from serving(chat, Scripted(script, max_length=2000), says, requests, streams)


@pytest.fixture
def untrained(chat: Chat, tokenizer: PreTrainedTokenizerFast) -> Iterator[Served]:
    """An endpoint whose model is real, and says anything at all."""
    engine = build_engine(EngineSettings(), build_tiny(tokenizer, size="micro", seed=0), tokenizer)
    yield from serving(chat, engine, [], [], [])


def serving(
    chat: Chat,
    engine: Engine,
    says: list[str | Failure],
    requests: list[Request],
    streams: list[tuple[int, ...]],
) -> Iterator[Served]:
    pump = EngineThread(engine)
    endpoint = Endpoint(pump, chat)
    listener = Listener(endpoint).start()
    over, gate = threading.Event(), threading.Event()
    gate.set()

    def work() -> None:
        while not over.is_set():
            if not gate.is_set() or not pump.work():
                pump.wait(0.02)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield Served(endpoint, listener, says, requests, gate, streams)
    finally:
        over.set()
        thread.join(10)
        listener.close()


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Return what waits until something holds, for at most ten seconds."""

    def wait(holds: Callable[[], bool]) -> None:
        for _ in range(1000):
            if holds():
                return
            threading.Event().wait(0.01)
        raise AssertionError("it does not come to hold")

    return wait
