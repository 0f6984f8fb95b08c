"""What is fetched of others is all there."""

import pytest
from tests.text.foreign import (
    TOKENIZERS,
    byte_tokenizer,
    load_cases,
    load_templates,
    load_tokenizer,
    render_template,
)

pytestmark = pytest.mark.templates

CHAT = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]


def test_templates_of_two_packages() -> None:
    names = list(load_templates())
    assert (sum(name.startswith("trl/") for name in names), len(names)) == (41, 111)


def test_recorded_answers() -> None:
    cases = load_cases()
    assert len(cases) == 469
    assert all((case.expected is None) == bool(case.accepted) for case in cases)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_real_tokenizers(name: str) -> None:
    tokenizer = load_tokenizer(name)
    assert tokenizer.decode(tokenizer.encode("a <b>", add_special_tokens=False)) == "a <b>"


def test_markup_of_a_template_is_one_token_each() -> None:
    source = load_templates()["trl/qwen3"]
    text = render_template(source, [*CHAT, CHAT[0]], prompt=True)
    tokenizer = byte_tokenizer(source, [text])
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.convert_ids_to_tokens(ids).count("<|im_start|>") == 4
    assert tokenizer.decode(ids) == text
