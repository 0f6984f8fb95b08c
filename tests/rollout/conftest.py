import pytest
from transformers import PreTrainedTokenizerFast

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
