"""A small byte-level BPE tokenizer trained on given texts, with the house's compact chat template.

One turn costs two markers: ``<|user|>content<|assistant|>`` sampled ``<|end|>``, no newlines, because the length of
prompts decides how fast a small model rolls out. For the same reason tokens may span a few words, unless they are
asked not to: worlds repeat their phrases ("red ball", "3 ahead"). Training is deterministic, and a word or phrase the
corpus shows as a whole answer is one token where there is room for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Split
from tokenizers.pre_tokenizers import Sequence as Sequence_
from tokenizers.trainers import BpeTrainer

from quintain.errors import DataError, UsageError
from quintain.text.encoder import TextEncoder
from quintain.types.unicode import valid_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

SPECIAL_TOKENS = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
CALL_TOKENS = ("<tool_call>", "</tool_call>")
SMALLEST_VOCABULARY = 256 + len(SPECIAL_TOKENS) + len(CALL_TOKENS)
MAX_ANSWERS, LONGEST_ANSWER = 64, 32
ANSWER_REPEATS = (16, 256, 4096)
"""How often the words that must be one token are repeated in the corpus, tried until they are."""

COMPACT_TEMPLATE = (
    "{%- set first = messages[0].content if messages[0].role == 'system' else '' -%}"
    "{%- if first or tools -%}{{ '<|system|>' + first }}"
    "{%- if tools -%}{{ '\\nTools:' if first else 'Tools:' }}"
    "{%- for tool in tools -%}{{ '\\n' + (tool.function | tojson) }}{%- endfor -%}{%- endif -%}{%- endif -%}"
    "{%- for message in messages -%}"
    "{%- if message.role not in ('system', 'user', 'assistant', 'tool') -%}"
    "{{ raise_exception('roles are system, user, assistant and tool') }}{%- endif -%}"
    "{%- if not (loop.first and message.role == 'system') -%}"
    "{{ '<|' + message.role + '|>' + (message.content or '') }}"
    "{%- for call in message.tool_calls or [] -%}"
    "{{ '<tool_call>' + ({'name': call.function.name, 'arguments': call.function.arguments} | tojson)"
    " + '</tool_call>' }}{%- endfor -%}"
    "{%- if message.role == 'assistant' -%}{{ '<|end|>' }}{%- endif -%}"
    "{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"
)
"""Append-only template over `SPECIAL_TOKENS`: tools in the system message, calls as Hermes writes them."""

PHRASES = r" ?\p{L}+(?: \p{L}+){0,3}| ?\d+(?: \p{L}+)?| ?[^\s\p{L}\d]+|\s+"
"""Up to four words, a number with the word after it, or punctuation."""
WORDS = r" ?\p{L}+| ?\d+| ?[^\s\p{L}\d]+|\s+"
"""A word, a number, or punctuation."""
RUNS = r"\p{L}+|\d+|[^\p{L}\d]+"
"""A run of letters, of digits, or of anything else: a word is the same token wherever it stands."""
SPANS = {"phrases": PHRASES, "words": WORDS, "runs": RUNS}
"""What a token may span, by name. Phrases make short streams; words let a model copy what it never saw together; with
runs what is copied, into a call as well, is the same token as what was read."""

_MARKERS = re.compile(f"({'|'.join(map(re.escape, (*SPECIAL_TOKENS, *CALL_TOKENS)))})")
_ENCODERS: WeakKeyDictionary[PreTrainedTokenizerBase, TextEncoder] = WeakKeyDictionary()


def train_tokenizer(
    corpus: Iterable[str], vocab_size: int = 1024, *, tokens: str = "phrases"
) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer of at most `vocab_size` `tokens` (see `SPANS`), trained on `corpus`.

    Special tokens may appear in the corpus; they only separate its texts. A word or phrase that is a whole text, or
    stands between ``<|assistant|>`` and the next marker, becomes one token if the vocabulary has room for it.
    The same corpus always gives the same tokenizer; it saves and loads as any `PreTrainedTokenizerFast`.

    Raises:
        UsageError: `vocab_size` has no room for the bytes and markers.
        DataError: the corpus is empty.
    """
    if vocab_size < SMALLEST_VOCABULARY:
        raise UsageError(
            f"vocab_size of the tokenizer: got {vocab_size}; "
            f"give at least {SMALLEST_VOCABULARY} (bytes and markers)"
        )
    cut = cutter(tokens)
    pieces, answers = corpus_pieces(corpus, cut)
    if not pieces:
        raise DataError("the corpus of the tokenizer: got no text; give at least one text that is not empty")
    tokenizer = _train(pieces, vocab_size, cut)
    for repeats in ANSWER_REPEATS:
        if all(len(tokenizer.encode(word).ids) == 1 for word in answers):
            break
        tokenizer = _train([*pieces, *answers * repeats], vocab_size, cut)
    return _wrap(tokenizer)


def encode_text(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Return the ids of untrusted `text`: no special token can come out, whatever the text spells.

    Tokenizers with a word-start rule (SentencePiece) encode it as a continuation, without a leading blank.
    """
    return list(encoder_of(tokenizer).plain(text))


def encoder_of(tokenizer: PreTrainedTokenizerBase) -> TextEncoder:
    """Return the encoder of `tokenizer`, made once, and again after tokens or another template were given to it."""
    encoder = _ENCODERS.get(tokenizer)
    is_known = encoder is not None and encoder.num_tokens == len(tokenizer)
    if encoder is None or not is_known or encoder.template != tokenizer.chat_template:
        encoder = _ENCODERS[tokenizer] = TextEncoder(tokenizer)
    return encoder


def corpus_pieces(corpus: Iterable[str], cut: Sequence_) -> tuple[list[str], tuple[str, ...]]:
    """Return the texts of `corpus` between markers, and what `cut` leaves whole of answers, commonest first."""
    pieces: list[str] = []
    answers: Counter[str] = Counter()
    for text in corpus:
        parts = _MARKERS.split(valid_text(text))
        for index in range(0, len(parts), 2):
            part = parts[index]
            is_answer = len(parts) == 1 or (index > 0 and parts[index - 1] == "<|assistant|>")
            if not part:
                continue
            pieces.append(part)
            if is_answer and len(part) <= LONGEST_ANSWER and len(cut.pre_tokenize_str(part)) == 1:
                answers[part] += 1
    ranked = sorted(answers.items(), key=lambda item: (-item[1], item[0]))
    return pieces, tuple(word for word, _ in ranked[:MAX_ANSWERS])


def cutter(tokens: str) -> Sequence_:
    """Return the pre-tokenizer that cuts text into `SPANS[tokens]`, as bytes."""
    pattern = Regex(SPANS[tokens])
    return Sequence_([Split(pattern, "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)])


def _train(pieces: Sequence[str], vocab_size: int, cut: Sequence_) -> Tokenizer:
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = cut
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=vocab_size - len(CALL_TOKENS),
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(pieces, trainer)
    return tokenizer


def _wrap(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast

    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in CALL_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|end|>",
        pad_token="<|pad|>",
        extra_special_tokens=list(SPECIAL_TOKENS[2:]),
        chat_template=COMPACT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
