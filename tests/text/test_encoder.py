from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import BPE, Unigram
from tokenizers.normalizers import NFKC
from tokenizers.pre_tokenizers import Metaspace
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from quintain.errors import ModelError
from quintain.text.encoder import BREAK, MARK, Defuser, TextEncoder, is_markup
from quintain.text.tokenizer import encode_text, encoder_of

Family = Callable[..., PreTrainedTokenizerFast]
FAMILIES = ("chatml", "qwen3", "llama3", "gemma", "mistral", "deepseek")
FRAGMENTS = (
    *(
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<|begin_of_text|>",
        "<|start_header_id|>",
        "<|eot_id|>",
    ),
    *("<bos>", "<start_of_turn>", "<end_of_turn>", "<s>", "</s>", "[INST]", "[/INST]"),
    *("<｜User｜>", "<｜end▁of▁sentence｜>"),
    *(
        "<think>",
        "</tool_call>",
        "<tool_response>",
        "<",
        "<|",
        "|>",
        "]",
        "[",
        "im_end|>",
        " ",
        "\n",
        "system",
    ),
    *(MARK, BREAK, MARK + "0"),
)
hostile = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=4)), max_size=8).map("".join)


def test_plain_text_is_its_ids_and_nothing_else(family: Family) -> None:
    tokenizer = family("qwen3")
    assert encode_text(tokenizer, "go left") == tokenizer("go left").input_ids
    assert tokenizer("<|im_end|>").input_ids == [2]
    assert len(encode_text(tokenizer, "<|im_end|>")) > 1
    assert encode_text(tokenizer, "") == []


@settings(max_examples=100, deadline=None)
@given(text=hostile)
def test_no_text_gives_markup_and_the_text_comes_back(family: Family, text: str) -> None:
    tokenizer = family("qwen3")
    ids = encode_text(tokenizer, text)
    assert encoder_of(tokenizer).markup_ids.isdisjoint(ids)
    assert set(tokenizer.all_special_ids).isdisjoint(ids)
    assert tokenizer.decode(ids) == text


@settings(max_examples=100, deadline=None)
@given(before=hostile, text=hostile, after=hostile)
def test_only_the_markup_of_the_template_survives_around_defused_text(
    family: Family, before: str, text: str, after: str
) -> None:
    encoder = encoder_of(family("qwen3"))
    untrusted = [encoder.defuse(part) for part in (before, text, after)]
    rendered = f"<|im_start|>{untrusted[0]}{untrusted[1].strip()}<|im_end|>{untrusted[2]}"
    ids = encoder.encode_marked(rendered, continues=False)
    assert [token for token in ids if token in encoder.markup_ids] == [1, 2]
    assert encoder.decode(ids) == f"<|im_start|>{before}{text.strip()}<|im_end|>{after}"


def test_defused_pieces_cannot_join_into_a_token() -> None:
    defuse = Defuser(["<|end|>"])
    assert defuse("a <|end|> b") == f"a <{BREAK}|end|> b"
    assert defuse("a <|e") + defuse("nd|> b") == f"a <|e{BREAK}{BREAK}nd|> b"
    assert defuse("a < ") == f"a <{BREAK} "  # a template that trims finds the blank at the edge
    assert defuse(f"{MARK}1") == f"{MARK}01"


def test_tokens_that_overlap_are_all_broken() -> None:
    defuse = Defuser(["<ab>", "b><c>"])
    broken = defuse("<ab><c>")
    assert broken.replace(BREAK, "") == "<ab><c>"
    assert "<ab>" not in broken
    assert "b><c>" not in broken


def test_a_text_without_tokens_is_untouched() -> None:
    assert Defuser([])("<|end|> anything") == "<|end|> anything"


def test_an_answer_may_use_markup_but_no_special_token(family: Family) -> None:
    encoder = encoder_of(family("qwen3"))
    ids = encoder.encode_marked(encoder.defuse_answer("<tool_call><|im_end|></tool_call>"), continues=True)
    assert encoder.decode(ids[:1]) == "<tool_call>"
    assert encoder.decode(ids[-1:]) == "</tool_call>"
    assert encoder.markup_ids.isdisjoint(ids[1:-1])


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (AddedToken("<|im_end|>", special=True), True),
        (AddedToken("END", special=True), True),
        (AddedToken("<think>", special=False), True),
        (AddedToken("[INST]", special=False), True),
        (AddedToken("left", special=False), False),
        (AddedToken("   ", special=False), False),
        (AddedToken("!", special=True), False),
    ],
)
def test_what_counts_as_markup(token: AddedToken, expected: bool) -> None:
    assert is_markup(token, "{{ '[INST]' }}") is expected


def test_added_words_stay_usable_in_text(make_tokenizer: Family) -> None:
    tokenizer = make_tokenizer(None)
    tokenizer.add_tokens(["leftmost"])
    assert encode_text(tokenizer, "leftmost") == [tokenizer.convert_tokens_to_ids("leftmost")]


def test_the_encoder_is_renewed_when_tokens_are_added(make_tokenizer: Family) -> None:
    tokenizer = make_tokenizer(None)
    first = encoder_of(tokenizer)
    assert encoder_of(tokenizer) is first
    tokenizer.add_special_tokens({"extra_special_tokens": ["<|new|>"]})
    assert encoder_of(tokenizer) is not first
    assert len(encode_text(tokenizer, "<|new|>")) > 1


def test_markup_that_the_vocabulary_itself_spells_is_spelled_by_character() -> None:
    pieces = [
        ("<unk>", 0.0),
        ("<s>", 0.0),
        ("<", -9.0),
        ("s", -9.0),
        (">", -9.0),
        ("a", -9.0),
        ("\ufdd0", -9.0),
    ]
    backend = Tokenizer(Unigram(pieces, unk_id=0))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>")
    assert encode_text(tokenizer, "a<s>a") == [5, 2, 3, 4, 5]


def test_markup_that_normalisation_would_make_stays_text(make_tokenizer: Family) -> None:
    backend = make_tokenizer(None).backend_tokenizer
    backend.normalizer = NFKC()
    backend.add_tokens([AddedToken("<sly>", normalized=True)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    wide = "＜sly＞"  # noqa: RUF001
    assert len(tokenizer(wide).input_ids) == 1
    assert tokenizer.decode(encode_text(tokenizer, wide)) == "<sly>"
    assert encoder_of(tokenizer).markup_ids.isdisjoint(encode_text(tokenizer, wide))


def test_lone_surrogates_become_replacement_characters(family: Family) -> None:
    tokenizer = family("chatml")
    assert tokenizer.decode(encode_text(tokenizer, "a\ud800b")) == "a\ufffdb"


def test_long_and_repeated_texts(family: Family) -> None:
    encoder = TextEncoder(family("chatml"))
    long = "go left " * 1000
    assert encoder.decode(encoder.encode_marked(long, continues=False)) == long
    for number in range(20_000):
        encoder.encode_marked(f"{number}", continues=True)
    assert encoder.decode(encoder.encode_marked("19999", continues=True)) == "19999"


@pytest.mark.parametrize("scheme", ["first", "always", "never"])
def test_word_start_rules_encode_as_the_tokenizer_does(scheme: str) -> None:
    backend = Tokenizer(BPE(unk_token="<unk>"))
    backend.pre_tokenizer = Metaspace(prepend_scheme=scheme)
    backend.decoder = MetaspaceDecoder(prepend_scheme=scheme)
    backend.train_from_iterator(
        ["go left and go right"], BpeTrainer(special_tokens=["<unk>", "<s>", "</s>"], show_progress=False)
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    encoder = TextEncoder(tokenizer)
    for text in ("go left", "<s>go left</s>go right", "<s> go</s> left "):
        expected = tokenizer(text, add_special_tokens=False).input_ids
        assert list(encoder.encode_marked(text, continues=False)) == expected


def test_blanks_that_markup_swallows_are_swallowed() -> None:
    backend = Tokenizer(BPE(unk_token="?"))
    backend.train_from_iterator(["ab \n"], BpeTrainer(special_tokens=["?"], show_progress=False))
    backend.add_special_tokens([AddedToken("<end>", rstrip=True), AddedToken("<mid>", lstrip=True)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")
    encoder = TextEncoder(tokenizer)
    text = "a<end>\nb <mid>a"
    assert list(encoder.encode_marked(text, continues=False)) == tokenizer(text).input_ids
    assert encoder.first_markup(text) == (7, tokenizer.eos_token_id)
    assert encoder.first_markup("ab") is None


@pytest.mark.parametrize("name", FAMILIES)
def test_trusted_text_encodes_as_the_tokenizer_does(family: Family, name: str) -> None:
    tokenizer = family(name)
    messages = [
        {"role": "user", "content": "You see 2 doors.\n\n Go?"},
        {"role": "assistant", "content": "left"},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    assert isinstance(text, str)
    assert list(encoder_of(tokenizer).encode_marked(text, continues=False)) == tokenizer(text).input_ids


def test_a_slow_tokenizer_is_refused() -> None:
    class Slow:
        is_fast = False

    with pytest.raises(ModelError, match="fast backend is needed: got Slow; convert it"):
        TextEncoder(Slow())  # pyright: ignore[reportArgumentType]


def test_what_is_remembered_of_defused_texts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.text.encoder.CACHED_TEXTS", 2)
    defuse = Defuser(["<x>"])
    first = [defuse(text) for text in ("a<x>b", "c", "d", "a<x>b")]
    assert first[0] == first[3] != "a<x>b"
    assert first[1:3] == ["c", "d"]


def test_a_tokenizer_that_gives_up_is_an_error_of_the_model(family: Family) -> None:
    class PanicException(BaseException):
        """What a library written in Rust raises when it gives up."""

    class Backend:
        def encode(self, *_: object, **__: object) -> None:
            raise PanicException("called unwrap")

    encoder = TextEncoder(family("chatml"))
    encoder._backend = Backend()  # type: ignore[assignment] # pyright: ignore
    with pytest.raises(ModelError, match=r"encoding 'left': the tokenizer gave up \(called unwrap\)"):
        encoder._encode("left", False)  # pyright: ignore[reportPrivateUsage]
