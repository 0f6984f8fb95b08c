"""Answers of every family, whole and in pieces: words, thoughts and calls, and what is wrong with broken ones."""

# ruff: noqa: E501  (answers stand as models write them)

import json
import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.text.pace import STEADY, growth
from transformers.utils.chat_parsing import ResponseParser, parse_response
from transformers.utils.chat_parsing.response_templates import load_response_template

from quintain.errors import DataError
from quintain.text.answer_reader import LONGEST_MARK, MAX_CALLS, MAX_SKIPPED
from quintain.text.probe_chats import FIND, PROBE_TOOLS, say
from quintain.text.reading import (
    NAMES,
    Answer,
    AnswerEvent,
    AnswerFormat,
    Delta,
    FormatSample,
    ReadCall,
    attach_table,
    choose_format,
    is_read_back,
    load_formats,
    own_format,
)
from quintain.types import ToolSpec

FORMATS = load_formats()
CITY, TYPED = (
    {"city": "Rome"},
    {"city": 'the "old"\ntown', "seats": 2, "direct": True, "days": ["Mon"], "code": "007"},
)
HERMES = '<tool_call>\n{"name": "find_train", "arguments": {"city": "Rome"}}\n</tool_call>'
XML = "<tool_call>\n<function=find_train>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>"
DSML = '<｜DSML｜invoke name="find_train">\n<｜DSML｜parameter name="city" string="true">Rome</｜DSML｜parameter>\n</｜DSML｜invoke>'
M3 = "]<]minimax[>["

ANSWERS: dict[str, tuple[str, str, str]] = {
    # format, end of the prompt, what is written: a thought "R", words "A", a call of find_train in Rome
    "hermes": ("hermes", "<|im_start|>assistant\n", f"<think>\nR\n</think>\n\nA\n{HERMES}"),
    "hermes, thought opened": (
        "hermes",
        "<|im_start|>assistant\n<think>\n",
        f"R\n</think>\n\nA\n{HERMES}<|im_end|>",
    ),
    "qwen-xml": ("qwen-xml", "<|im_start|>assistant\n<think>\n", f"R\n</think>\n\nA\n\n{XML}"),
    "qwen-xml, opening forgotten": (
        "qwen-xml",
        "<think>\n",
        "R</think>A" + XML.removeprefix("<tool_call>\n"),
    ),
    "seed-oss": (
        "seed-oss",
        "<seed:bos>assistant\n",
        "<seed:think>R</seed:think>\nA\n<seed:tool_call>\n<function=find_train>\n<parameter=city>Rome</parameter>\n</function>\n</seed:tool_call>",
    ),
    "glm 4.5": (
        "glm",
        "<|assistant|>",
        "\n<think>R</think>\nA\n<tool_call>find_train\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n</tool_call>",
    ),
    "glm 4.7": (
        "glm",
        "<|assistant|><think>",
        "R</think>A<tool_call>find_train<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>",
    ),
    "hunyuan": (
        "hunyuan",
        "<｜hy_Assistant:opensource｜><think:opensource>",
        "R</think:opensource>A<tool_calls:opensource>\n<tool_call:opensource>find_train<tool_sep:opensource>\n"
        "<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>Rome</arg_value:opensource>\n"
        "</tool_call:opensource>\n</tool_calls:opensource>",
    ),
    "deepseek-v3": (
        "deepseek-v3",
        "<｜Assistant｜><think>\n",
        "R</think>A<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>find_train\n"
        '```json\n{"city": "Rome"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ),
    "deepseek-v31": (
        "deepseek-v31",
        "<｜Assistant｜><think>",
        'R</think>A<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>find_train<｜tool▁sep｜>{"city": "Rome"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ),
    "deepseek-v32": (
        "deepseek-v32",
        "<｜Assistant｜><think>",
        f"R</think>A\n\n<｜DSML｜function_calls>\n{DSML}\n</｜DSML｜function_calls>",
    ),
    "deepseek-v4.1": (
        "deepseek-v32",
        "<｜Assistant｜><think>",
        f"R</think>A\n\n<｜DSML｜ calls>\n{DSML.replace('DSML｜', 'DSML｜ ')}\n</｜DSML｜ calls>",
    ),
    "kimi-k2": (
        "kimi-k2",
        "<|im_assistant|>assistant<|im_middle|>",
        "<think>R</think>A<|tool_calls_section_begin|><|tool_call_begin|>functions.find_train:0"
        '<|tool_call_argument_begin|>{"city": "Rome"}<|tool_call_end|><|tool_calls_section_end|>',
    ),
    "kimi-k3": (
        "kimi-k3",
        '<|open|>message role="assistant"<|sep|><|open|>think<|sep|>',
        "R<|close|>think<|sep|><|open|>response<|sep|>A<|close|>response<|sep|><|open|>tools<|sep|>"
        '<|open|>call tool="find_train" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>Rome'
        "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>",
    ),
    "harmony, tool in the channel": (
        "harmony",
        "<|start|>assistant",
        "<|channel|>analysis<|message|>R<|end|><|start|>assistant<|channel|>commentary<|message|>A<|end|>"
        '<|start|>assistant<|channel|>commentary to=functions.find_train <|constrain|>json<|message|>{"city": "Rome"}<|call|>',
    ),
    "harmony, tool in the role": (
        "harmony",
        "<|start|>assistant",
        "<|channel|>analysis<|message|>R<|end|><|start|>assistant<|channel|>commentary<|message|>A<|end|>"
        '<|start|>assistant to=functions.find_train<|channel|>commentary json<|message|>{"city": "Rome"}',
    ),
    "minimax-m1": (
        "minimax-m1",
        "<beginning_of_sentence>ai name=assistant\n",
        '<think>R</think>A<tool_calls>\n{"name": "find_train", "arguments": {"city": "Rome"}}\n</tool_calls>',
    ),
    "apriel": (
        "apriel",
        "<|begin_assistant|>\nHere are my reasoning steps:\n",
        'R\n[BEGIN FINAL RESPONSE]\nA\n<tool_calls>[{"name": "find_train", "arguments": {"city": "Rome"}}]</tool_calls>',
    ),
    "nemotron-v2": (
        "nemotron-v2",
        "<SPECIAL_11>Assistant\n<think>\n",
        'R</think>A<TOOLCALL>[{"name": "find_train", "arguments": {"city": "Rome"}}]</TOOLCALL>',
    ),
    "minimax-m2": (
        "minimax-m2",
        "]~b]ai\n<think>\n",
        'R\n</think>\n\nA\n<minimax:tool_call>\n<invoke name="find_train">\n<parameter name="city">Rome</parameter>\n'
        "</invoke>\n</minimax:tool_call>",
    ),
    "minimax-m3": (
        "minimax-m3",
        "]~b]ai\n",
        f'<mm:think>R</mm:think>A{M3}<tool_call>\n{M3}<invoke name="find_train">{M3}<city>Rome{M3}</city>{M3}</invoke>\n{M3}</tool_call>',
    ),
    "gemma4": (
        "gemma4",
        "<|turn>model\n",
        '<|channel>thought\nR\n<channel|><|tool_call>call:find_train{city:<|"|>Rome<|"|>}<tool_call|>A<|tool_response>',
    ),
    "lfm2": (
        "lfm2",
        "<|im_start|>assistant\n",
        "<think>R</think>A<|tool_call_start|>[find_train(city='Rome')]<|tool_call_end|>",
    ),
    "command": (
        "command",
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_THINKING|>",
        "R<|END_THINKING|><|START_RESPONSE|>A<|END_RESPONSE|><|START_ACTION|>[\n"
        '    {"tool_call_id": "0", "tool_name": "find_train", "parameters": {"city": "Rome"}}\n]<|END_ACTION|>',
    ),
    "mistral-v3": (
        "mistral-v3",
        "[/INST]",
        '[THINK]R[/THINK]A[TOOL_CALLS][{"name": "find_train", "arguments": {"city": "Rome"}, "id": "callaaaa1"}]',
    ),
    "mistral-v11": (
        "mistral-v11",
        "[/INST]",
        '[THINK]R[/THINK]A[TOOL_CALLS]find_train[CALL_ID]callaaaa1[ARGS]{"city": "Rome"}</s>',
    ),
    "apertus": (
        "apertus",
        "<|assistant_start|>",
        '<|inner_prefix|>R<|inner_suffix|>A<|tools_prefix|>[{"find_train": {"city": "Rome"}}]<|tools_suffix|>',
    ),
    "solar": (
        "solar",
        "<|begin|>assistant",
        "<|think|>R<|end|><|begin|>assistant<|content|>A<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>c1"
        '<|tool_call:name|>find_train<|tool_call:args|>{"city": "Rome"}<|tool_call:end|><|calls|>',
    ),
    "muse": (
        "muse",
        "<|start|>assistant",
        " to=self<|message|>R<|eom|><|start|>assistant to=user<|message|>A<|eom|><|start|>assistant to=find_train<|message|>"
        '<atem:function_calls>\n<atem:invoke name="find_train">\n<atem:parameter name="city">Rome</atem:parameter>\n'
        "</atem:invoke>\n</atem:function_calls><|eot|>",
    ),
    "minicpm5": (
        "minicpm5",
        "<|im_start|>assistant\n",
        '<think>\nR\n</think>\n\nA\n<function name="find_train"><param name="city"><![CDATA[Rome]]></param></function>',
    ),
    "granite33": (
        "granite33",
        "<|start_of_role|>assistant<|end_of_role|>",
        '<think>R</think>A<|tool_call|>[{"name": "find_train", "arguments": {"city": "Rome"}}]',
    ),
}
WITHOUT_THOUGHTS: dict[str, tuple[str, str]] = {
    "llama": ("A", '{"name": "find_train", "parameters": {"city": "Rome"}}<|eot_id|>'),
    "llama4": ("A", '[find_train(city="Rome")]'),
    "functionary-v31": ("A", '<function=find_train>{"city": "Rome"}</function>'),
    "functionary-v32": (">>>all\nA", '>>>find_train\n{"city": "Rome"}'),
    "gigachat3": (
        "A",
        'function call<|role_sep|>\n{"name": "find_train", "arguments": {"city": "Rome"}}<|message_sep|>',
    ),
    "gigachat31": (
        "A",
        '<|function_call|>{"name": "find_train", "arguments": {"city": "Rome"}}<|message_sep|>',
    ),
    "command-r": (
        "A",
        'Action:\n```json\n[{"tool_name": "find_train", "parameters": {"city": "Rome"}}]\n```',
    ),
}


def stream(
    form: AnswerFormat, text: str, size: int, prefix: str = "", tools: Sequence[ToolSpec] = ()
) -> tuple[Answer, list[AnswerEvent]]:
    """Return the answer of `text` fed in pieces of `size`, and the events on the way."""
    reader = form.stream(prefix=prefix, tools=tools)
    events = [event for at in range(0, len(text), size) for event in reader.feed(text[at : at + size])]
    answer = reader.close()
    return answer, [*events, *reader.last_events]


def read(form: AnswerFormat, text: str, prefix: str = "", tools: Sequence[ToolSpec] = PROBE_TOOLS) -> Answer:
    """Return the answer of `text`, which is the same in pieces of any size."""
    whole = form.parse(text, prefix=prefix, tools=tools)
    for size in (1, 3, 7):
        answer, events = stream(form, text, size, prefix, tools)
        assert answer == whole, size
        for name in ("content", "reasoning"):
            said = "".join(event.text for event in events if isinstance(event, Delta) and event.field == name)
            assert said == getattr(whole, name), (size, name)
        assert tuple(event for event in events if isinstance(event, ReadCall)) == whole.calls, size
    return whole


def calls_of(answer: Answer) -> list[tuple[str, Any, str]]:
    return [(call.name, call.arguments, call.status) for call in answer.calls]


@pytest.mark.parametrize("name", ANSWERS)
def test_thought_words_and_call_of_each_family(name: str) -> None:
    form, prompt, written = ANSWERS[name]
    answer = read(FORMATS[form], written, prompt)
    assert (answer.reasoning, answer.content, answer.is_reasoning_complete) == ("R", "A", True)
    assert calls_of(answer) == [("find_train", CITY, "ok")]
    call = answer.calls[0]
    assert written[slice(*call.span)] == call.raw


@pytest.mark.parametrize("name", WITHOUT_THOUGHTS)
def test_families_that_do_not_think(name: str) -> None:
    words, call = WITHOUT_THOUGHTS[name]
    alone = read(FORMATS[name], call)
    assert (alone.content, calls_of(alone)) == ("", [("find_train", CITY, "ok")])
    assert read(FORMATS[name], words) == Answer(content="A")
    if not name.startswith("llama"):  # there a call stands alone
        both = read(FORMATS[name], words + call)
        assert (both.content, calls_of(both)) == ("A", [("find_train", CITY, "ok")])


def test_each_format_is_shown_here() -> None:
    shown = {form for form, _, _ in ANSWERS.values()} | set(WITHOUT_THOUGHTS) | {"plain"}
    assert shown == set(FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_tables_are_what_servers_read(name: str) -> None:
    table = FORMATS[name].table
    assert set(table["fields"]) <= {"thinking", "content", "tool_calls"}
    text = json.dumps(table)
    assert '"join"' not in text and "|$" not in text
    load_response_template(dict(table))


def as_message(answer: Answer) -> dict[str, Any]:
    """Return `answer` as transformers gives it."""
    calls = [
        {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in answer.calls
    ]
    message: dict[str, Any] = {"role": "assistant", "thinking": answer.reasoning, "content": answer.content}
    return {**message, "tool_calls": calls}


OWN_WAY = {
    "apertus": "the name of a tool is a key, which no table can say",
    "minimax-m1": "one object a line is no JSON",
    "mistral-v3": "the id is not asked for in the table",
    "gemma4": "the words behind a call overwrite those before it",
    "qwen-xml, opening forgotten": "the table is strict",
    "solar": "blanks between marks",
}


@pytest.mark.parametrize("name", [name for name in ANSWERS if name not in OWN_WAY])
def test_tables_read_in_transformers_as_here(name: str) -> None:
    form, prompt, written = ANSWERS[name]
    message = parse_response(written, dict(FORMATS[form].table), prefix=prompt)
    for call in message.get("tool_calls", []):
        call.pop("id", None)
    assert message == as_message(FORMATS[form].parse(written, prefix=prompt))
    for size in (1, 3, 7):
        parser = ResponseParser(dict(FORMATS[form].table), prefix=prompt)
        for at in range(0, len(written), size):
            parser.feed(written[at : at + size])
        streamed, _ = parser.finalize()
        for call in streamed.get("tool_calls", []):
            call.pop("id", None)
        assert streamed == message, size


TYPED_CALLS = {
    "qwen-xml": '<tool_call>\n<function=find_train>\n<parameter=city>\nthe "old"\ntown\n</parameter>\n<parameter=seats>\n2\n</parameter>\n'
    "<parameter=direct>\nTrue\n</parameter>\n<parameter=days>\n['Mon']\n</parameter>\n<parameter=code>\n007\n</parameter>\n</function>\n</tool_call>",
    "glm": '<tool_call>find_train\n<arg_key>city</arg_key>\n<arg_value>the "old"\ntown</arg_value>\n<arg_key>seats</arg_key>\n<arg_value>2</arg_value>\n'
    '<arg_key>direct</arg_key>\n<arg_value>true</arg_value>\n<arg_key>days</arg_key>\n<arg_value>["Mon"]</arg_value>\n<arg_key>code</arg_key>\n<arg_value>007</arg_value>\n</tool_call>',
    "gemma4": '<|tool_call>call:find_train{city:<|"|>the "old"\ntown<|"|>,code:<|"|>007<|"|>,days:[<|"|>Mon<|"|>],direct:true,seats:2}<tool_call|>',
    "lfm2": "<|tool_call_start|>[find_train(city='the \"old\"\ntown', seats=2, direct=True, days=['Mon'], code='007')]<|tool_call_end|>",
    "deepseek-v32": '<｜DSML｜invoke name="find_train">\n<｜DSML｜parameter name="city" string="true">the "old"\ntown</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="seats" string="false">2</｜DSML｜parameter>\n<｜DSML｜parameter name="direct" string="false">true</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="days" string="false">["Mon"]</｜DSML｜parameter>\n<｜DSML｜parameter name="code" string="true">007</｜DSML｜parameter>\n</｜DSML｜invoke>',
    "minimax-m3": f'{M3}<invoke name="find_train">{M3}<city>the "old"\ntown{M3}</city>{M3}<seats>2{M3}</seats>{M3}<direct>true{M3}</direct>'
    f"{M3}<days>{M3}<item>Mon{M3}</item>{M3}</days>{M3}<code>007{M3}</code>{M3}</invoke>",
}


@pytest.mark.parametrize("name", TYPED_CALLS)
def test_arguments_have_the_types_of_the_tool(name: str) -> None:
    assert calls_of(read(FORMATS[name], TYPED_CALLS[name])) == [("find_train", TYPED, "ok")]


def test_calls_in_a_thought_are_no_calls() -> None:
    hermes = FORMATS["hermes"]
    other = HERMES.replace("Rome", "Oslo")
    answer = read(hermes, f"<think>maybe {other}?</think>\n{HERMES}")
    assert (answer.reasoning, calls_of(answer)) == (f"maybe {other}?", [("find_train", CITY, "ok")])
    assert read(hermes, f"<think>{HERMES}</think>\nDone.") == Answer(content="Done.", reasoning=HERMES)
    named = read(hermes, f"<think>I write <tool_call> now</think>\n{HERMES}")
    assert calls_of(named) == [("find_train", CITY, "ok")]
    cut = read(hermes, f"<think>{HERMES}")
    assert cut == Answer(reasoning=HERMES, is_reasoning_complete=False)


def test_a_thought_whose_beginning_nobody_saw_ends_before_calls_are_looked_for() -> None:
    hermes = FORMATS["hermes"]
    text = f"maybe {HERMES}?</think>A"
    whole = hermes.parse(text)
    assert whole.content == "A" and whole.calls == ()
    assert whole.reasoning.startswith("maybe") and HERMES in whole.reasoning
    for size in (1, 3, 7):
        assert stream(hermes, text, size)[0] == whole
    assert hermes.parse("</think>A") == Answer(content="A")
    # A prompt whose end is not known as one: what it opened last and did not close counts.
    assert hermes.parse("R</think>A", prefix="who? <think>\n") == Answer(content="A", reasoning="R")
    assert hermes.parse("A", prefix="who? <think></think>") == Answer(content="A")
    assert FORMATS["llama"].parse("A", prefix="who?") == Answer(content="A")


def test_a_second_thought_and_words_behind_calls_are_kept() -> None:
    answer = read(FORMATS["hermes"], f"<think>R</think>A{HERMES}B<think>S</think>C")
    assert (answer.reasoning, answer.content) == ("R\n\nS", "ABC")
    blank = read(FORMATS["hermes"], f"A \n{HERMES}\n B")
    assert blank.content == "A \n\n B"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ('{"name": "find_train", "arguments": {"city": "Rome"}', "invalid_json"),
        ('{"name": "find_train", "arguments": {"seats": NaN}}', "invalid_json"),
        ('{"name": "find_train", "arguments": {"a": 1, "a": 2}}', "invalid_json"),
        ('{"name": "find_train", "arguments": ' + "[" * 99 + "]" * 99 + "}", "invalid_json"),
        ("", "malformed"),
        ("[]", "malformed"),
        ("3", "malformed"),
        ('{"arguments": {}}', "missing_name"),
        ('{"name": "", "arguments": {}}', "missing_name"),
        ('{"name": " ", "arguments": {}}', "missing_name"),
        ('{"name": 3}', "missing_name"),
        ('{"name": "book", "arguments": 3}', "malformed"),
        ('{"name": "book", "arguments": {}, "parameters": {}}', "malformed"),
        ('{"name": "book", "arguments": {}, "why": 1}', "malformed"),
        ('{"type": "tool", "name": "book", "arguments": {}}', "malformed"),
        ('{"name": "book", "arguments": "no"}', "invalid_json"),
        ('{"name": "fly", "arguments": {}}', "unknown_tool"),
    ],
)
def test_a_broken_call_loses_nothing_else(body: str, status: str) -> None:
    answer = read(FORMATS["hermes"], f"A{HERMES}<tool_call>{body}</tool_call>{HERMES}B")
    assert answer.content == "AB"
    assert [call.status for call in answer.calls] == ["ok", status, "ok"]
    broken = answer.calls[1]
    assert broken.raw == f"<tool_call>{body}</tool_call>" and broken.problem
    assert (broken.arguments is None) == (status != "unknown_tool")


@pytest.mark.parametrize(
    ("body", "call"),
    [
        ('{"type": "function", "id": "c7", "name": "book", "parameters": {"train": "IC 9"}}', "c7"),
        (
            '{"type": "function", "id": "c7", "function": {"name": "book", "arguments": {"train": "IC 9"}}}',
            "c7",
        ),
        ('{"function": "book", "arguments": {"train": "IC 9"}}', ""),
        ('{"name": "book", "arguments": "{\\"train\\": \\"IC 9\\"}"}', ""),
    ],
)
def test_other_ways_to_write_a_call(body: str, call: str) -> None:
    answer = read(FORMATS["hermes"], f"<tool_call>{body}</tool_call>")
    assert calls_of(answer) == [("book", {"train": "IC 9"}, "ok")]
    assert answer.calls[0].id == call


def test_marks_inside_values_close_nothing() -> None:
    hermes = FORMATS["hermes"]
    text = (
        '<tool_call>{"name": "book", "arguments": {"train": "a </tool_call> \\" <tool_call> b"}}</tool_call>A'
    )
    answer = read(hermes, text)
    assert (answer.content, answer.calls[0].arguments) == ("A", {"train": 'a </tool_call> " <tool_call> b'})
    inside = XML.replace("Rome", "a </tool_call> and </parameter> and <function=x> b")
    assert read(FORMATS["qwen-xml"], inside).calls[0].arguments == {
        "city": "a </tool_call> and </parameter> and <function=x> b"
    }
    quoted = '<|tool_call>call:book{train:<|"|><tool_call|> or }<|"|>}<tool_call|>'
    assert read(FORMATS["gemma4"], quoted).calls[0].arguments == {"train": "<tool_call|> or }"}
    listed = "<|tool_call_start|>[book(train='<|tool_call_end|> \"it\\'s\" ')]<|tool_call_end|>"
    assert read(FORMATS["lfm2"], listed).calls[0].arguments == {"train": '<|tool_call_end|> "it\'s" '}
    ended = '[TOOL_CALLS]book[ARGS]{"train": "[TOOL_CALLS]x[ARGS]{}"}[TOOL_CALLS]book[ARGS]{}'
    assert [call.arguments for call in read(FORMATS["mistral-v11"], ended).calls] == [
        {"train": "[TOOL_CALLS]x[ARGS]{}"},
        {},
    ]
    harmony = ' to=functions.book<|channel|>commentary<|message|>{"train": "<|call|> <|end|>"}'
    assert read(FORMATS["harmony"], harmony).calls[0].arguments == {"train": "<|call|> <|end|>"}


def test_a_value_that_is_never_closed_does_not_swallow_the_next_call() -> None:
    hermes = FORMATS["hermes"]
    answer = read(hermes, f'<tool_call>{{"name": "book", "arguments": {{"train": "a</tool_call>{HERMES}A')
    assert [call.status for call in answer.calls] == ["invalid_json", "ok"]
    assert answer.content == "A"
    two = "<tool_call>\n<function=book>\n<parameter=train>\na\n</tool_call>\n" + XML
    assert [call.status for call in read(FORMATS["qwen-xml"], two).calls] == ["malformed", "ok"]
    many = read(hermes, '<tool_call>{"a": "' + "</tool_call>" * (MAX_SKIPPED + 2) + HERMES)
    assert [call.status for call in many.calls] == ["invalid_json", "ok", "malformed"]


def test_calls_that_are_cut() -> None:
    for name, text in {
        "hermes": HERMES[:40],
        "glm": "<tool_call>find_train\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n",
        "llama": '{"name": "find_train", "parameters": {"city":',
        "llama4": '[find_train(city="Rome"), find_train(city="Os',
        "mistral-v11": '[TOOL_CALLS]find_train[ARGS]{"city": "Ro',
        "mistral-v3": "[TOOL_CALLS]",
    }.items():
        answer = read(FORMATS[name], text)
        assert [call.status for call in answer.calls] == ["unclosed"], name
        assert answer.calls[0].raw == text


def test_words_that_hold_the_marks_of_a_call() -> None:
    answer = read(FORMATS["hermes"], "A </tool_call> B")
    assert answer.content == "A </tool_call> B"
    assert [(call.status, call.raw) for call in answer.calls] == [("malformed", "</tool_call> B")]
    assert read(FORMATS["plain"], "A </tool_call> B").calls == ()


def test_too_many_calls() -> None:
    answer = FORMATS["hermes"].parse(HERMES * (MAX_CALLS + 2))
    assert [call.status for call in answer.calls] == ["ok"] * MAX_CALLS + ["too_many"] * 2
    assert answer.calls[-1].arguments is None
    listed = (
        "<tool_calls>["
        + ", ".join(['{"name": "book", "arguments": {}}'] * (MAX_CALLS + 1))
        + "]</tool_calls>"
    )
    assert FORMATS["minimax-m1"].parse(listed).calls[-1].status == "too_many"


@pytest.mark.parametrize(
    ("name", "text", "status"),
    [
        ("qwen-xml", "<tool_call>\n</tool_call>", "missing_name"),
        ("qwen-xml", "<tool_call>\n<function= >\n</function>\n</tool_call>", "missing_name"),
        (
            "qwen-xml",
            XML.replace("</function>", "<parameter=city>\nOslo\n</parameter>\n</function>"),
            "malformed",
        ),
        ("qwen-xml", XML.replace("</function>", "<parameter=code>\n</function>"), "malformed"),
        ("qwen-xml", XML.replace("<parameter", "text <parameter"), "malformed"),
        ("qwen-xml", XML.replace("Rome", "Rome\n<parameter=code>\n7"), "malformed"),
        ("qwen-xml", XML.replace("city", "seats"), "mistyped"),
        ("qwen-xml", XML.replace("find_train", "fly"), "unknown_tool"),
        (
            "deepseek-v3",
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>book\n{}<｜tool▁call▁end｜>",
            "malformed",
        ),
        ("deepseek-v31", "<｜tool▁call▁begin｜>book<｜tool▁sep｜><｜tool▁call▁end｜>", "invalid_json"),
        ("deepseek-v32", DSML.replace('"true">Rome', '"false">Rome'), "invalid_json"),
        ("apertus", "<|tools_prefix|>[{}]<|tools_suffix|>", "malformed"),
        ("minimax-m3", f'{M3}<invoke name="book">{M3}<train>{M3}</invoke>', "malformed"),
        ("minimax-m3", f'{M3}<invoke name="book">{M3}</train>{M3}</invoke>', "malformed"),
        ("minimax-m3", f'{M3}<invoke name="book">a{M3}</invoke>', "malformed"),
        ("minimax-m3", f'{M3}<invoke name="book">{M3}<a>x{M3}<b>{M3}</b>{M3}</a>{M3}</invoke>', "malformed"),
        ("minimax-m3", f'{M3}<invoke name="book">{M3}<a>{M3}</a>{M3}<a>{M3}</a>{M3}</invoke>', "malformed"),
        ("minimax-m3", f'{M3}<invoke name="book">{f"{M3}<a>" * 40}{M3}</invoke>', "malformed"),
        ("minimax-m3", f'{M3}<invoke name="find_train">{M3}<seats>two{M3}</seats>{M3}</invoke>', "mistyped"),
        ("lfm2", "<|tool_call_start|>find_train<|tool_call_end|>", "invalid_json"),
        ("lfm2", "<|tool_call_start|>[]<|tool_call_end|>", "malformed"),
    ],
)
def test_broken_calls_of_other_families(name: str, text: str, status: str) -> None:
    answer = read(FORMATS[name], text)
    assert [call.status for call in answer.calls] == [status]
    assert answer.calls[0].problem


def test_nested_elements_are_objects_and_lists() -> None:
    spec = ToolSpec(
        name="plan",
        description="",
        parameters={
            "properties": {
                "where": {"type": "object", "properties": {"seats": {"type": "integer"}}},
                "days": {"type": "array", "items": {"type": "integer"}},
            }
        },
    )
    text = (
        f'{M3}<invoke name="plan">{M3}<where>{M3}<seats>2{M3}</seats>{M3}<other>x{M3}</other>{M3}</where>'
        f"{M3}<days>{M3}<item>1{M3}</item>{M3}<item>2{M3}</item>{M3}</days>{M3}</invoke>"
    )
    answer = read(FORMATS["minimax-m3"], text, tools=(spec,))
    assert calls_of(answer) == [("plan", {"where": {"seats": 2, "other": "x"}, "days": [1, 2]}, "ok")]


def test_keys_with_signs_that_are_escaped() -> None:
    text = '<|open|>call tool="book" index="1"<|sep|><|open|>argument key="q&amp;a" type="number"<|sep|>2<|close|>argument<|sep|><|close|>call<|sep|>'
    assert read(FORMATS["kimi-k3"], text).calls[0].arguments == {"q&a": 2}


def test_several_objects_of_a_llama() -> None:
    one = '{"name": "book", "parameters": {"train": "IC {9}"}}'
    for text in (f"{one}; {one}", f"[{one}, {one}]", f"\n<|python_tag|>{one}\n{one}"):
        assert [call.status for call in read(FORMATS["llama"], text).calls] == ["ok", "ok"], text
    assert read(FORMATS["llama"], f"{one} and {one}").calls[0].status == "invalid_json"
    assert read(FORMATS["llama"], f"See {one}") == Answer(content=f"See {one}")
    assert read(FORMATS["llama"], '{"answer": 4}') == Answer(content='{"answer": 4}')
    assert read(FORMATS["llama"], "  \n") == Answer()
    assert read(FORMATS["llama4"], "[see](there)") == Answer(content="[see](there)")


def test_a_tool_that_the_prompt_began_to_write() -> None:
    prompt = 'Q<|im_start|>assistant\nOf course.<tool_call>{"name": "book", '
    answer = read(FORMATS["hermes"], '"arguments": {}}</tool_call>A', prompt)
    assert calls_of(answer) == [("book", {}, "ok")]
    assert (answer.content, answer.calls[0].span[1]) == ("A", len('"arguments": {}}</tool_call>'))
    assert answer.calls[0].span[0] < 0


SIGNS = ('"', "}", "\n", "<", " ", "[", "</think>", "<think>", "[/THINK]")


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"plain"}))
def test_mixtures_of_answers_and_marks(name: str) -> None:
    form, chosen = FORMATS[name], random.Random(name)
    known = [(prompt, written) for of, prompt, written in ANSWERS.values() if of == name]
    known = known or [("", "".join(WITHOUT_THOUGHTS[name])), ("", WITHOUT_THOUGHTS[name][1])]
    for _ in range(8):
        prompt, text = chosen.choice(known)[0], ""
        for _ in range(chosen.randint(1, 4)):
            written = chosen.choice(known)[1]
            start = chosen.randrange(len(written))
            cut = written[start : chosen.randint(start, len(written))]
            text += chosen.choice((written, cut, written[:start], chosen.choice((*SIGNS, *form.marks))))
        prefix = chosen.choice(("", prompt))
        is_seen = not form.thought_end or form.thought_end not in text
        answer = read(form, text, prefix) if is_seen else form.parse(text, prefix=prefix)
        for call in answer.calls:
            assert (call.status == "ok") == (not call.problem)
            assert call.span[0] < 0 or text[slice(*call.span)] == call.raw


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("hermes", "word "),
        ("hermes", "<"),
        ("hermes", " "),
        ("hermes", HERMES),
        ("hermes", "<tool_call>"),
        ("hermes", "</tool_call>"),
        ("hermes", '<tool_call>{"'),
        ("hermes", '<tool_call>{"</tool_call>'),
        ("hermes", "<think>x"),
        ("hermes", "x</think>"),
        ("qwen-xml", "<tool_call><function=f><parameter=a>"),
        ("qwen-xml", "<function="),
        ("glm", "<tool_call>a<arg_key>b</arg_key><arg_value>"),
        ("harmony", "<|start|>assistant to=functions."),
        ("harmony", "<|channel|>"),
        ("gemma4", '<|tool_call>call:f{a:<|"|>'),
        ("lfm2", "<|tool_call_start|>[f(a='"),
        ("minimax-m3", f'{M3}<invoke name="f">{M3}<a>'),
        ("mistral-v11", "[TOOL_CALLS]f[ARGS]{}"),
        ("functionary-v32", ">>>"),
        ("minicpm5", '<function name="f"><param name="a"><![CDATA['),
    ],
)
def test_time_grows_with_the_text(name: str, unit: str) -> None:
    form = FORMATS[name]
    assert growth(lambda size: unit * (size // len(unit)), form.parse, 24_000) < STEADY
    assert growth(lambda size: unit * (size // len(unit)), lambda text: stream(form, text, 7), 8_000) < STEADY


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["word ", "<think>x</think>1 < 2", HERMES])
def test_time_grows_with_a_text_of_200_000_characters(unit: str) -> None:
    form = FORMATS["hermes"]
    assert growth(lambda size: unit * (size // len(unit)), form.parse, 200_000) < STEADY
    assert (
        growth(lambda size: unit * (size // len(unit)), lambda text: stream(form, text, 4), 200_000) < STEADY
    )


def test_a_long_answer_keeps_its_places() -> None:
    text = "<think>R</think>" + "1 < 2, " * 1_200 + HERMES + "B"
    answer = read(FORMATS["hermes"], text)
    assert answer.content == ("1 < 2, " * 1_200).rstrip() + " " + "B"
    assert text[slice(*answer.calls[0].span)] == HERMES


OWN: dict[str, Any] = {
    "start_anchor": "<go>",
    "fields": {
        "reasoning_content": {
            "open_pattern": r"(?=[\s\S]*?</t>)",
            "close_pattern": r"</t>\s*",
            "content": "text",
        },
        "tool_calls": {
            "open_pattern": r"<call>(?P<name>\w+)",
            "close_pattern": r"</call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {"close_pattern": r"<end>\s*|$", "content": "text"},
    },
}


def test_the_table_of_a_model_folder() -> None:
    form = own_format(OWN)
    answer = form.parse('R</t>A<call>book{"train": "IC 9"}</call><end>', prefix="Q<go>", tools=PROBE_TOOLS)
    assert (answer.reasoning, answer.content) == ("R", "A")
    assert calls_of(answer) == [("book", {"train": "IC 9"}, "ok")]
    still = json.loads(json.dumps(OWN))
    still["fields"]["reasoning_content"] |= {"open_pattern": "(?=a)", "close_pattern": "(?=a)"}
    both = own_format(still).parse("baab")  # marks of no length that open and close each other
    assert sorted(both.content + both.reasoning) == list("aabb")
    fields = still["fields"]
    fields["reasoning_content"] = {"open": ["<t>", "<think>", "<t>x"], "close": "</t>"}
    assert own_format(still).parse("<t>xR</t>A") == Answer(content="A", reasoning="R")
    assert stream(own_format(still), "<t>xR</t>A", 1)[0] == Answer(content="A", reasoning="R")
    fields["tool_calls"] |= {
        "content": "xml-inline",
        "content_args": {"tag_pattern": r"<(?P<key>\w+)>(?P<value>.*?)</\w+>"},
    }
    assert calls_of(own_format(still).parse("<call>book<train>9</train></call>", tools=PROBE_TOOLS)) == [
        ("book", {"train": "9"}, "ok")
    ]
    fields["tool_calls"] |= {
        "content": "json",
        "content_args": {"unquoted_keys": True, "string_delims": [["~", "~"]]},
    }
    assert calls_of(own_format(still).parse("<call>book{train:~9~}</call>")) == [
        ("book", {"train": "9"}, "ok")
    ]


def test_marks_of_others_that_never_end() -> None:
    table = json.loads(json.dumps(OWN))
    table["fields"]["reasoning_content"] = {"open_pattern": "<t>.*?<u>", "close": "</t>", "content": "text"}
    text = "<t>" + "a" * LONGEST_MARK + "<u>R</t>A"
    answer = own_format(table).parse(text)
    assert answer == Answer(content=text)
    assert stream(own_format(table), text, 700)[0] == answer
    assert own_format(table).parse("<t>a<u>R</t>A") == Answer(content="A", reasoning="R")
    table["fields"]["reasoning_content"] = {
        "open_pattern": "(?<=a)",
        "close_pattern": "(?<=a)",
        "content": "text",
    }
    back = own_format(table).parse("baca")
    assert sorted((back.content + back.reasoning).replace("\n", "")) == sorted("baca")
    table["fields"]["reasoning_content"] = {"open_pattern": "(?<=a)b", "close": "c", "content": "text"}
    assert own_format(table).parse("x" * 9_000 + "abRcA") == Answer(content="x" * 9_000 + "aA", reasoning="R")


@pytest.mark.parametrize(
    "change",
    [
        {"fields": {}},
        {"fields": 3},
        {"start_anchor": 3},
        {"start_anchor_pattern": "("},
        {"fields": {"tool_calls": {"open": "<c>", "content": "kv-lines"}}},
        {"fields": {"tool_calls": {"open": "<c>", "content": "xml-inline"}}},
    ],
)
def test_a_table_that_cannot_be_read_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="response_template of the model: got one that cannot be read"):
        own_format({**OWN, **change})
    with pytest.raises(DataError, match="response_template"):
        own_format({})


def sample(
    written: str, *calls: Any, text: str = "", thought: str = "", prompt: str = "Q<|im_start|>assistant\n"
) -> FormatSample:
    return FormatSample(say(text, *calls, thought=thought), prompt, written, PROBE_TOOLS)


def test_the_format_that_reads_the_samples_is_chosen() -> None:
    plain = sample("A", text="A")
    thought = sample("<think>\nR\n</think>\n\nA", text="A", thought="R")
    choice = choose_format([plain, thought, sample(HERMES, FIND)])
    assert choice.format is FORMATS["hermes"] and choice.is_read == (True, True, True)
    assert choose_format([plain, sample(XML, FIND)]).format is FORMATS["qwen-xml"]
    assert choose_format([plain, thought]).format is FORMATS["plain"]
    dropped = choose_format([plain, sample("", FIND)])
    assert dropped.format is FORMATS["plain"] and dropped.is_read == (True, False)
    framed = choose_format([sample("A<|END_RESPONSE|>", text="A", prompt="<|START_RESPONSE|>")])
    assert framed.format is FORMATS["command"]
    listed = ANSWERS["mistral-v3"][2].partition("A[")[2]
    assert choose_format([sample(f"[{listed}", FIND, prompt="[/INST]")]).format is FORMATS["mistral-v3"]
    section = ANSWERS["minimax-m1"][2].partition("A<")[2]
    assert choose_format([sample(f"<{section}", FIND)]).format is FORMATS["minimax-m1"]
    unknown = choose_format([plain, sample("!find_train Rome", FIND)])
    assert unknown.format is None and unknown.is_read == (False, False)
    own = choose_format([sample('<call>find_train{"city": "Rome"}</call>', FIND, prompt="<go>")], OWN)
    assert own.format is not None and own.format.name == "own"


def test_what_a_template_leaves_out_is_not_asked_for() -> None:
    hermes = FORMATS["hermes"]
    other = type(FIND)(name="find_train", arguments={"city": "Oslo"})
    assert is_read_back(hermes, sample(HERMES, FIND, other, text="dropped", thought="dropped, too"))
    assert not is_read_back(hermes, sample(HERMES + "Oslo", FIND, other))
    assert not is_read_back(hermes, sample(HERMES, other))
    assert not is_read_back(hermes, sample("B", text="A"))
    assert not is_read_back(hermes, sample(HERMES.replace("find_train", "fly"), FIND))
    channel = "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant to=functions.find_train<|channel|>commentary json"
    written = channel + '<|message|>{"city": "Rome"}'
    assert is_read_back(FORMATS["harmony"], sample(written, FIND, text="Look.", prompt="<|start|>assistant"))


def test_the_table_goes_with_the_model() -> None:
    tokenizer = SimpleNamespace()
    attach_table(tokenizer, FORMATS["hermes"])
    assert tokenizer.response_template == FORMATS["hermes"].table


def test_every_name_of_a_field_is_known() -> None:
    assert {NAMES[name] for form in FORMATS.values() for name in form.table["fields"]} == {
        "content",
        "thinking",
        "tool_calls",
    }


def test_the_page_names_every_format() -> None:
    page = (Path(__file__).parents[2] / "docs" / "answer-formats.md").read_text(encoding="utf-8")
    missing = [name for name, form in FORMATS.items() if f"| `{name}` | {form.families} |" not in page]
    assert not missing and f"reads {len(FORMATS)} of them" in page
