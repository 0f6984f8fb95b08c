"""What a run stores of the chat format with its tokenizer."""

from datetime import date
from typing import cast

import pytest
from tests.text.families import FAMILIES
from transformers import PreTrainedTokenizerFast

from quintain.learning.chat_format import settle_chat_format
from quintain.learning.train_config import TrainConfig
from quintain.text.chat import Chat
from quintain.text.settings import settings_of

TODAY = date(2026, 1, 31)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_ends_of_a_chat_are_stored_where_the_tokenizer_has_others(name: str) -> None:
    tokenizer = FAMILIES[name].tokenizer()
    before = Chat(tokenizer).stop_ids
    report = settle_chat_format(TrainConfig(), tokenizer, TODAY, is_new=False)
    assert report is not None and report.is_followed and set(report.ends) == FAMILIES[name].ends
    eos = cast(int, tokenizer.eos_token_id)
    assert {*settings_of(tokenizer).end_ids, eos} == before == Chat(tokenizer).stop_ids
    assert bool(settings_of(tokenizer).end_ids) is (len(before) > 1)


def test_a_tokenizer_without_an_end_keeps_those_of_its_model() -> None:
    family = FAMILIES["glm"]
    tokenizer: PreTrainedTokenizerFast = family.tokenizer()
    tokenizer.eos_token = None
    settle_chat_format(TrainConfig(), tokenizer, TODAY, is_new=False)
    assert settings_of(tokenizer).end_ids == ()
