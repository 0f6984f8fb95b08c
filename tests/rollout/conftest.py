import pytest
from transformers import PreTrainedTokenizerFast

from quintain.rollout.collect import Rollout
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer

CORPUS = [
    "<|system|>Go.<|user|>A wall.<|assistant|>left<|end|>",
    "<|assistant|>right<|end|>",
    "<|assistant|>go on<|end|><|tool|>higher",
]


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(CORPUS, 300)


@pytest.fixture(scope="session")
def chat(tokenizer: PreTrainedTokenizerFast) -> Chat:
    return Chat(tokenizer)


@pytest.fixture(params=["lockstep", "async"])
def both_sources(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test once for each source of episodes: it is that of every `Rollout` which names none."""
    defaults: dict[str, object] = dict(Rollout.__init__.__kwdefaults__ or {})
    monkeypatch.setattr(Rollout.__init__, "__kwdefaults__", {**defaults, "source": request.param})
    return str(request.param)
