"""What other people's templates write is what a stream holds: thoughts, calls, results, ends, options, dates."""

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as Decoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from quintain.agents.harness import JsonTools, PlainText
from quintain.agents.protocol import Brief
from quintain.agents.transcripts import Rules, Transcriber
from quintain.data.files import FileValue
from quintain.data.records import read_record
from quintain.errors import DataError, ModelError, UsageError
from quintain.text.chat import Chat, without_thought
from quintain.text.settings import (
    read_options,
    read_template,
    set_template,
    settings_of,
    store_settings,
    writes_date,
)
from quintain.text.template_check import check_template
from quintain.types import Action, CallResult, Completion, Message, Task, ToolCall, ToolSpec, as_content

THINK = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
LOOK = ToolSpec(
    name="look",
    description="Look at a thing.",
    parameters={"type": "object", "properties": {"at": {"type": "string"}}},
)


def tokenizer_of(
    template: str, markup: Sequence[str], eos: str, plain: Sequence[str] = THINK
) -> PreTrainedTokenizerFast:
    """Return a tokenizer of bytes, and of any markup."""
    bytes_of = {character: place for place, character in enumerate(sorted(ByteLevel.alphabet()))}
    made = Tokenizer(BPE(vocab=bytes_of, merges=[]))
    made.pre_tokenizer, made.decoder = ByteLevel(add_prefix_space=False), Decoder()
    special = dict.fromkeys([*markup, eos, "<|pad|>"])
    made.add_tokens([AddedToken(each, special=True, normalized=False) for each in special])
    made.add_tokens([AddedToken(each, special=False, normalized=False) for each in plain])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, chat_template=template, eos_token=eos, pad_token="<|pad|>",
        clean_up_tokenization_spaces=False,
    )  # fmt: skip


def user(text: str) -> Message:
    return Message(role="user", content=as_content(text))


def streams(chat: Chat, messages: list[dict[str, Any]], tools: Sequence[Any] = ()) -> list[str]:
    """Return the streams that these messages train."""
    value = {"messages": messages, **({"tools": list(tools)} if tools else {})}
    trajectory = Transcriber(chat, Rules()).trajectory(
        read_record(value, FileValue(file="f", line=1, value=value))
    )
    assert trajectory is not None
    found: list[list[int]] = []
    for turn in trajectory.turns:
        if turn.starts_segment or not found:
            found.append([])
        found[-1] += [*turn.prompt_ids, *turn.completion.token_ids]
    return [chat.encoder.decode(each) for each in found]


OPENS = (
    "{%- for m in messages -%}{%- set c = m.content or '' -%}{%- if m.role == 'assistant' -%}"
    "{%- set r = m.reasoning_content or '' -%}"
    "{%- if '</think>' in c -%}{%- set r = c.split('</think>')[0].split('<think>')[-1].strip('\n') -%}"
    "{%- set c = c.split('</think>')[-1].lstrip('\n') -%}{%- endif -%}"
    "{{ '<|im_start|>assistant\n<think>\n' + r + '\n</think>\n\n' + c + '<|im_end|>\n' }}"
    "{%- else -%}{{ '<|im_start|>' + m.role + '\n' + c + '<|im_end|>\n' }}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n<think>\n' }}{%- endif -%}"
)
"""A prompt that opens a thought, as Qwen3.5's does."""
QWEN = (
    "{%- if tools -%}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{%- endif -%}"
    "{%- for m in messages -%}{%- if m.role == 'assistant' -%}{{ '<|im_start|>assistant\n' }}"
    "{%- if m.reasoning_content -%}{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{%- endif -%}"
    "{{ m.content or '' }}"
    "{%- for c in m.tool_calls or [] -%}{%- if (loop.first and m.content) or not loop.first -%}{{ '\n' }}{%- endif -%}"
    '{{ \'<tool_call>\n{"name": "\' + c.function.name + \'", "arguments": \' + (c.function.arguments | tojson)'
    " + '}\n</tool_call>' }}{%- endfor -%}{{ '<|im_end|>\n' }}"
    "{%- elif m.role == 'tool' -%}"
    "{{ '<|im_start|>user\n<tool_response>\n' + m.content + '\n</tool_response><|im_end|>\n' }}"
    "{%- else -%}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
)
"""Qwen3's way to write thoughts, calls and results."""
HARMONY = (
    "{%- for m in messages -%}{%- if m.role == 'assistant' -%}"
    "{%- if m.thinking -%}"
    "{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{%- endif -%}"
    "{{ '<|start|>assistant<|channel|>final<|message|>' + m.content"
    " + ('<|return|>' if loop.last and not add_generation_prompt else '<|end|>') }}"
    "{%- else -%}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|start|>assistant' }}{%- endif -%}"
)
HARMONY_MARKS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>")
GLM = (
    "{%- for m in messages -%}{{ {'user':'<|user|>','assistant':'<|assistant|>','tool':'<|observation|>',"
    "'system':'<|system|>'}[m.role] + '\n' + (m.content or '') }}"
    '{%- for c in m.tool_calls or [] -%}{{ \'<tool_call>{"name": "\' + c.function.name + \'", "arguments": \''
    " + (c.function.arguments | tojson) + '}</tool_call>' }}{%- endfor -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"
)
GLM_MARKS = ("<|user|>", "<|assistant|>", "<|observation|>", "<|system|>")
IM = ("<|im_start|>", "<|im_end|>")
MISTRAL = (
    "{{ bos_token }}{%- for m in messages -%}{%- if m.role == 'user' -%}"
    "{%- if tools -%}{{ '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif -%}"
    "{{ '[INST]' + m.content + '[/INST]' }}"
    "{%- elif m.role == 'tool' -%}"
    "{%- if m.tool_call_id | length != 9 -%}{{ raise_exception('ids have nine characters') }}{%- endif -%}"
    '{{ \'[TOOL_RESULTS]{"content": \' + (m.content | tojson) + \', "call_id": "\' + m.tool_call_id'
    " + '\"}[/TOOL_RESULTS]' }}"
    "{%- elif m.tool_calls -%}{{ '[TOOL_CALLS][' }}{%- for c in m.tool_calls -%}"
    '{{ \'{"name": "\' + c.function.name + \'", "arguments": \' + (c.function.arguments | tojson)'
    " + ', \"id\": \"' + c.id + '\"}' + (', ' if not loop.last else '') }}{%- endfor -%}{{ ']' + eos_token }}"
    "{%- else -%}{{ m.content + eos_token }}{%- endif -%}{%- endfor -%}"
)
MISTRAL_MARKS = ("<s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
                 "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]")  # fmt: skip


@pytest.fixture(scope="module")
def opens() -> Chat:
    return Chat(tokenizer_of(OPENS, IM, "<|im_end|>"))


@pytest.fixture(scope="module")
def qwen() -> Chat:
    return Chat(tokenizer_of(QWEN, IM, "<|im_end|>"))


@pytest.fixture(scope="module")
def harmony() -> Chat:
    return Chat(tokenizer_of(HARMONY, HARMONY_MARKS, "<|return|>"))


def call_row(name: str, call_id: str = "", **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"type": "function", "function": function, **({"id": call_id} if call_id else {})}


def test_a_thought_that_the_prompt_opens_is_closed_as_the_template_closes_it(opens: Chat) -> None:
    asked = {"role": "user", "content": "Q"}
    (with_thought,) = streams(opens, [asked, {"role": "assistant", "content": "A", "reasoning_content": "R"}])
    assert with_thought.endswith("assistant\n<think>\nR\n</think>\n\nA<|im_end|>")
    (without,) = streams(opens, [asked, {"role": "assistant", "content": "A"}])
    assert without.endswith("assistant\n<think>\n\n</think>\n\nA<|im_end|>")


def test_a_prompt_that_closes_an_empty_thought_takes_no_other(opens: Chat) -> None:
    closes = OPENS.replace(
        "'<|im_start|>assistant\n<think>\n' }}{%- endif",
        "'<|im_start|>assistant\n<think>\n\n</think>\n\n' }}{%- endif",
    )
    chat = Chat(tokenizer_of(closes, IM, "<|im_end|>"))
    message = Message(role="assistant", content=as_content("A"), reasoning="R")
    conversation = chat.conversation()
    conversation.prompt([user("Q")])
    written = conversation.write(message)
    assert (chat.encoder.decode(written.token_ids), written.lost) == ("A<|im_end|>", ("reasoning",))


def test_what_stands_between_thought_words_and_calls_is_the_templates(qwen: Chat) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": LOOK.parameters}}]
    asked = {"role": "user", "content": "Q"}
    call = '<tool_call>\n{"name": "look", "arguments": {"at": "a"}}\n</tool_call>'
    for said, expected in (
        ({"reasoning_content": "R"}, f"<think>\nR\n</think>\n\n{call}<|im_end|>"),
        ({"content": "W"}, f"W\n{call}<|im_end|>"),
        ({}, f"{call}<|im_end|>"),
    ):
        answer = {"role": "assistant", "content": "", "tool_calls": [call_row("look", at="a")], **said}
        (stream,) = streams(qwen, [asked, answer], tools)
        assert stream.endswith(f"<|im_start|>assistant\n{expected}")


def test_channels_are_written_read_and_kept_apart(harmony: Chat) -> None:
    asked = {"role": "user", "content": "Q"}
    (thought,) = streams(harmony, [asked, {"role": "assistant", "content": "A", "reasoning_content": "R"}])
    assert thought.endswith(
        "<|start|>assistant<|channel|>analysis<|message|>R<|end|><|start|>assistant<|channel|>final<|message|>A<|return|>"
    )
    (plain,) = streams(harmony, [asked, {"role": "assistant", "content": "A"}])
    assert plain.endswith("<|start|>assistant<|channel|>final<|message|>A<|return|>")


def test_the_history_has_what_was_said_in_real_channels(harmony: Chat) -> None:
    conversation = harmony.conversation()
    conversation.prompt([user("Q")])
    sampled = "<|channel|>analysis<|message|>R<|end|><|start|>assistant<|channel|>final<|message|>A<|return|>"
    conversation.record(harmony.encoder.encode_marked(sampled, continues=True))
    prompt = conversation.prompt([user("Q2")])
    text = harmony.encoder.decode(prompt.token_ids)
    assert prompt.starts_segment and "<|channel|>final<|message|>A<|end|>" in text
    channel = harmony.encoder.markup_id("<|channel|>")
    assert prompt.token_ids.count(cast(int, channel)) == text.count("<|channel|>") > 0
    session = PlainText(harmony).open(Brief(task=Task(id="t", environment="t", seed=0), instructions=""))
    session.observe("Q")
    ids = harmony.encoder.encode_marked(sampled, continues=True)
    assert session.read(Completion(token_ids=ids, logprobs=(), stop="stop")) == Action(text="A")


def test_a_demonstration_ends_with_what_the_next_message_begins_with() -> None:
    chat = Chat(tokenizer_of(GLM, GLM_MARKS, "<|endoftext|>"))
    (stream,) = streams(
        chat,
        [
            {"role": "user", "content": "Q"},
            {"role": "assistant", "content": "", "tool_calls": [call_row("look", at="a")]},
            {"role": "tool", "content": "T"},
            {"role": "assistant", "content": "A"},
        ],
    )
    assert "</tool_call><|observation|>\nT<|assistant|>\nA<|user|>" in stream
    assert {chat.encoder.decode([token]) for token in chat.stop_ids} >= {
        "<|user|>",
        "<|observation|>",
        "<|endoftext|>",
    }


def test_ends_of_the_models_configuration_stop(qwen: Chat) -> None:
    tokenizer = tokenizer_of(QWEN, (*IM, "<|endoftext|>"), "<|im_end|>")
    store_settings(tokenizer, end_ids=[cast(int, tokenizer.convert_tokens_to_ids("<|endoftext|>"))])
    chat = Chat(tokenizer)
    assert {chat.encoder.decode([token]) for token in chat.stop_ids} == {"<|im_end|>", "<|endoftext|>"}


def test_results_keep_ids_names_and_order() -> None:
    chat = Chat(tokenizer_of(MISTRAL, MISTRAL_MARKS, "</s>"))
    assert chat.template.takes_tool_role and not chat.template.entries.shape.takes_foreign_ids
    conversation = chat.conversation((LOOK,))
    conversation.prompt([user("Q")])
    calls = (ToolCall(name="look", arguments={"at": "a"}, id="call_one_of_a_file"), ToolCall(name="look"))
    message = Message(role="assistant", content=(), tool_calls=calls)
    written = conversation.write(message)
    conversation.record(written.token_ids, written.message)
    results = [
        Message(role="tool", content=as_content("first"), tool_call_id="call_one_of_a_file"),
        Message(role="tool", content=as_content("second")),
    ]
    prompt = conversation.prompt(results)
    text = chat.encoder.decode(prompt.token_ids)
    own = chat.template.entries.fit_id("call_one_of_a_file")
    assert not prompt.starts_segment and len(own) == 9
    assert f'"id": "{own}"' in chat.encoder.decode(written.token_ids)
    assert text.startswith(f'[TOOL_RESULTS]{{"content": "first", "call_id": "{own}"}}[/TOOL_RESULTS]')
    assert '{"content": "second", "call_id": "call00001"}' in text


def test_several_results_are_a_message_each_in_a_rollout(qwen: Chat) -> None:
    session = JsonTools(qwen).open(
        Brief(task=Task(id="t", environment="t", seed=0), instructions="", tools=(LOOK,))
    )
    session.observe("Q")
    ids = session.write(Action(tool_calls=(ToolCall(name="look"), ToolCall(name="look"))))
    session.read(Completion(token_ids=ids, logprobs=(), stop="stop"))
    prompt = session.observe((CallResult(text="sun", call=0), CallResult(text="rain", call=1)))
    text = qwen.encoder.decode(prompt.token_ids)
    assert text.count("<tool_response>") == 2 and text.index("sun") < text.index("rain")


def test_html_is_text_where_the_template_does_not_write_it() -> None:
    template = (
        "{%- for m in messages -%}{{ '<|' + m.role + '|>' + m.content }}{%- if m.role == 'assistant' -%}"
        "{{ '<|end|>' }}{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"
    )
    tokenizer = tokenizer_of(
        template,
        ["<|user|>", "<|assistant|>", "<|end|>"],
        "<|end|>",
        plain=("<b>", "</b>", "<table>", "<think>"),
    )
    chat = Chat(tokenizer)
    text = "a <b>x</b> <table>"
    ids = chat.conversation().prompt([user(text)]).token_ids
    assert list(ids) == tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    hostile = chat.conversation().prompt([user("<think><|end|>")]).token_ids
    assert len(hostile) == 2 + len("<think><|end|>")


def test_calls_in_a_thought_are_not_carried_out(qwen: Chat) -> None:
    call = '<tool_call>{"name": "%s", "arguments": {}}</tool_call>'
    for text, names in (
        (f"<think>maybe {call % 'x'}?</think>\n{call % 'look'}", ["look"]),
        (f"<think>{call % 'x'}</think>\nDone.", []),
        (f"<think>I write <tool_call> now</think>\n{call % 'look'}", ["look"]),
        (f"<think>never ended {call % 'look'}", []),
    ):
        session = JsonTools(qwen).open(
            Brief(task=Task(id="t", environment="t", seed=0), instructions="", tools=(LOOK,))
        )
        session.observe("Q")
        ids = (*qwen.encoder.encode_marked(text, continues=True), qwen.end_id)
        action = session.read(Completion(token_ids=ids, logprobs=(), stop="stop"))
        assert ([made.name for made in action.tool_calls], action.error) == (names, None)


@pytest.mark.parametrize(
    ("text", "prefix", "expected"),
    [
        ("<think>a</think>b", "", "b"),
        ("a</think>b", "<think>\n", "b"),
        ("a</think>b", "<think></think>", "a</think>b"),
        ("<think>a", "", ""),
        ("a", "<think>", ""),
        ("<think>a</think><think>b</think>c", "", "c"),
        ("left", "", "left"),
    ],
)
def test_thoughts_in_front_are_left_out(text: str, prefix: str, expected: str) -> None:
    assert without_thought(text, ("<think>", "</think>"), prefix) == expected


@pytest.mark.parametrize(
    ("template", "marks", "eos"),
    [(OPENS, IM, "<|im_end|>"), (QWEN, IM, "<|im_end|>"), (HARMONY, HARMONY_MARKS, "<|return|>"),
     (GLM, GLM_MARKS, "<|endoftext|>")],
)  # fmt: skip
def test_templates_are_followed(template: str, marks: tuple[str, ...], eos: str) -> None:
    report = check_template(Chat(tokenizer_of(template, marks, eos)))
    assert report.is_followed, report.line
    assert "followed byte for byte" in report.line


def test_a_template_that_differs_is_said(qwen: Chat) -> None:
    loses = "{% for m in messages %}{{ m.content if m.role == 'user' }}<|im_end|>{% endfor %}"
    report = check_template(Chat(tokenizer_of(loses, IM, "<|im_end|>")))
    assert not report.is_followed and "DIFFERS" in report.line
    strange = QWEN.replace("{{ m.content or '' }}", "{{ '<|mid|>' + (m.content or '') }}")
    tokenizer = tokenizer_of(strange, (*IM, "<|mid|>"), "<|im_end|>")
    store_settings(tokenizer, end_ids=[cast(int, tokenizer.convert_tokens_to_ids("<|mid|>"))])
    assert "'<|mid|>' ends answers, and the template writes it inside" in check_template(Chat(tokenizer)).line


def test_a_template_that_takes_one_call_says_so_where_two_are_written() -> None:
    single = QWEN.replace(
        "{%- for c in m.tool_calls or [] -%}",
        "{%- if m.tool_calls and m.tool_calls | length > 1 -%}{{ raise_exception('one call at once') }}{%- endif -%}"
        "{%- for c in m.tool_calls or [] -%}",
    )
    chat = Chat(tokenizer_of(single, IM, "<|im_end|>"))
    report = check_template(chat)
    assert report.is_followed and "cannot show 'two calls'" in report.line
    conversation = chat.conversation((LOOK,))
    conversation.prompt([user("Q")])
    with pytest.raises(ModelError, match="one call at once"):
        conversation.write(Message(role="assistant", content=(), tool_calls=(ToolCall(name="look"),) * 2))


def test_a_call_that_is_lost_is_refused() -> None:
    first = QWEN.replace("in m.tool_calls or []", "in (m.tool_calls or [])[:1]")
    conversation = Chat(tokenizer_of(first, IM, "<|im_end|>")).conversation((LOOK,))
    conversation.prompt([user("Q")])
    calls = (ToolCall(name="look"), ToolCall(name="other"))
    with pytest.raises(DataError, match="does not show whole"):
        conversation.write(Message(role="assistant", content=(), tool_calls=calls))


def test_options_template_and_date_travel_with_the_tokenizer(tmp_path: Path) -> None:
    dated = "{{ strftime_now('%Y') }}{{ mood }}" + QWEN
    file = tmp_path / "own.jinja"
    file.write_text(dated, encoding="utf-8")
    tokenizer = tokenizer_of(QWEN, IM, "<|im_end|>")
    set_template(tokenizer, template=str(file), options="mood=calm,depth=2,loud=false")
    assert writes_date(tokenizer)
    store_settings(tokenizer, today=datetime.date(1999, 1, 2))
    tokenizer.save_pretrained(tmp_path / "saved")
    again = PreTrainedTokenizerFast.from_pretrained(tmp_path / "saved")
    assert settings_of(again).template_options == {"mood": "calm", "depth": 2, "loud": False}
    chat = Chat(again)
    assert chat.encoder.decode(chat.conversation().prompt([user("Q")]).token_ids).startswith(
        "1999calm<|im_start|>"
    )


@pytest.mark.parametrize("written", ["loud", "=1", "a b=1"])
def test_options_that_cannot_be_read(written: str) -> None:
    with pytest.raises(UsageError, match="template options: got"):
        read_options(written)


def test_a_template_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="chat template"):
        read_template(str(tmp_path / "none.jinja"))
    (tmp_path / "long.jinja").write_text("x" * 30)
    monkeypatch.setattr("quintain.text.settings.LONGEST_TEMPLATE", 20)
    with pytest.raises(UsageError, match="got 30 characters"):
        read_template(str(tmp_path / "long.jinja"))


@pytest.mark.parametrize(
    ("key", "value"), [("template_options", [1]), ("template_date", "soon"), ("end_token_ids", ["<eos>"])]
)
def test_settings_of_the_wrong_kind(key: str, value: Any) -> None:
    tokenizer = tokenizer_of(QWEN, IM, "<|im_end|>")
    cast("dict[str, Any]", tokenizer.init_kwargs)[key] = value
    with pytest.raises(ModelError, match=key):
        settings_of(tokenizer)
