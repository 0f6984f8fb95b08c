from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from quintain.errors import DataError, UsageError
from quintain.text.chat import Chat
from quintain.text.tokenizer import (
    CALL_TOKENS,
    SPECIAL_TOKENS,
    corpus_pieces,
    cutter,
    encode_text,
    train_tokenizer,
)
from quintain.types import Message, as_content

CORPUS = (
    "<|system|>Reach the goal.<|user|>You see a red ball.<|assistant|>left<|end|>"
    "<|user|>A wall.<|assistant|>go on<|end|>",
    "forward",
    "You see a red ball. You see a door.",
)


def test_special_tokens_come_first_and_call_tags_are_single_tokens() -> None:
    tokenizer = train_tokenizer(CORPUS, 300)
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == [0, 1, 2, 3, 4, 5]
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1)
    assert tokenizer.all_special_tokens == list(dict.fromkeys(tokenizer.all_special_tokens))
    assert set(tokenizer.all_special_tokens) == set(SPECIAL_TOKENS)
    assert [len(tokenizer(tag).input_ids) for tag in CALL_TOKENS] == [1, 1]
    assert len(tokenizer) <= 300


def test_a_word_that_is_a_whole_answer_is_one_token_even_in_a_tight_vocabulary() -> None:
    noise = ["abcdefgh ijklmnop " * 50] * 3
    tokenizer = train_tokenizer([*noise, "<|assistant|>left<|end|>", "forward"], 280)
    assert len(encode_text(tokenizer, "left")) == 1
    assert len(encode_text(tokenizer, "forward")) == 1


def test_answers_are_found_between_markers_and_as_whole_texts() -> None:
    pieces, answers = corpus_pieces(
        ["<|assistant|>left<|end|>", "<|user|>see<|assistant|>go on", "up", "up", "a long one", "too, long"],
        cutter("phrases"),
    )
    assert pieces == ["left", "see", "go on", "up", "up", "a long one", "too, long"]
    assert answers == ("up", "a long one", "go on", "left")


def test_tokens_span_phrases_or_words() -> None:
    text = "take the red ball 12 ahead, now"
    phrases = train_tokenizer([text] * 9)
    words = train_tokenizer([text] * 9, tokens="words")
    cuts = [[t.decode([i]) for i in encode_text(t, text)] for t in (phrases, words)]
    assert cuts[0] == ["take the red ball", " 12 ahead", ",", " now"]
    assert cuts[1] == ["take", " the", " red", " ball", " 12", " ahead", ",", " now"]


def test_training_is_deterministic() -> None:
    first, second = train_tokenizer(CORPUS, 320), train_tokenizer(iter(CORPUS), 320)
    assert first.backend_tokenizer.to_str() == second.backend_tokenizer.to_str()
    assert encode_text(first, "You see a red ball.") == [279, 278, 19]


def test_any_text_comes_back_from_its_ids() -> None:
    tokenizer = train_tokenizer(["a"], 264)
    text = "Größe → 東京 🙂\x00\t <|end|>"
    assert tokenizer.decode(encode_text(tokenizer, text)) == text


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(CORPUS, 300)
    tokenizer.save_pretrained(tmp_path)
    messages = [Message(role="user", content=as_content("A wall."))]
    wanted = Chat(tokenizer).conversation().prompt(messages).token_ids
    for loaded in (
        PreTrainedTokenizerFast.from_pretrained(tmp_path),
        AutoTokenizer.from_pretrained(tmp_path),
    ):
        assert loaded.chat_template == tokenizer.chat_template
        assert (loaded.pad_token_id, loaded.eos_token_id) == (0, 1)
        assert Chat(loaded).conversation().prompt(messages).token_ids == wanted
        assert loaded.decode(list(wanted)) == "<|user|>A wall.<|assistant|>"


def test_the_compact_template_writes_what_it_says() -> None:
    tokenizer = train_tokenizer(CORPUS, 300)
    call = {"type": "function", "function": {"name": "look", "arguments": {"at": "é"}}}
    chat: list[dict[str, Any]] = [
        {"role": "system", "content": "Go."},
        {"role": "user", "content": "A wall."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "a door"},
        {"role": "system", "content": "Hurry."},
        {"role": "assistant", "content": "left"},
    ]
    tools: list[Any] = [
        {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {}}}
    ]
    listed = 'Tools:\n{"name": "look", "description": "Look.", "parameters": {}}'
    body = (
        '<|user|>A wall.<|assistant|><tool_call>{"name": "look", "arguments": {"at": "é"}}</tool_call><|end|>'
        "<|tool|>a door<|system|>Hurry.<|assistant|>left<|end|>"
    )
    assert tokenizer.apply_chat_template(chat, tokenize=False) == "<|system|>Go." + body
    with_tools = tokenizer.apply_chat_template(chat, tools=tools, tokenize=False, add_generation_prompt=True)
    assert with_tools == f"<|system|>Go.\n{listed}{body}<|assistant|>"
    no_system = tokenizer.apply_chat_template(chat[1:2], tools=tools, tokenize=False)
    assert no_system == f"<|system|>{listed}<|user|>A wall."


def test_what_cannot_be_trained_is_said() -> None:
    with pytest.raises(UsageError, match="got 100; give at least 264"):
        train_tokenizer(CORPUS, 100)
    with pytest.raises(DataError, match="got no text"):
        train_tokenizer(["<|end|>", ""])
