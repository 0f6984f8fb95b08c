"""Tool calls of three families: read back as written, any string is read, and templates say which it is."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.text.pace import STEADY, growth
from transformers import PreTrainedTokenizerFast

from quintain.errors import DataError, UsageError
from quintain.text.chat import Chat
from quintain.text.parse import LONGEST_READ, MAX_CALLS
from quintain.text.tool_formats import (
    FORMATS,
    PYTHON_TAG,
    format_named,
    json_objects,
    parse_llama_calls,
    parse_mistral_calls,
    write_llama_calls,
    write_mistral_calls,
    write_named_calls,
)
from quintain.types import Action, ToolCall, ToolSpec, as_content
from quintain.types import Message as ChatMessage

Family = Callable[..., PreTrainedTokenizerFast]
LOOK = ToolCall(name="look", arguments={"at": "a door"})
GUESS = ToolCall(name="guess", arguments={"number": 3})
TOOL = ToolSpec(name="look", description="Look around.", parameters={"type": "object"})

LLAMA31 = r"""{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system_message = '' %}{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\n\n' }}{{- system_message }}{{- '<|eot_id|>' }}
{%- if tools %}
    {%- set first = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\nReturn {"name": function name, "parameters": object}.\n\n' }}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- '\n\n' }}{%- endfor %}
    {{- first + '<|eot_id|>' }}
{%- endif %}
{%- for m in messages %}
    {%- if not (m.role == 'ipython' or m.role == 'tool' or 'tool_calls' in m) %}
        {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in m %}
        {%- if not m.tool_calls | length == 1 %}{{- raise_exception('one tool call at once') }}{%- endif %}
        {%- set call = m.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
        {{- '{"name": "' + call.name + '", "parameters": ' }}{{- call.arguments | tojson }}{{- '}<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\n\n' }}
        {%- if m.content is mapping or m.content is iterable %}{{- m.content | tojson }}
        {%- else %}{{- m.content }}{%- endif %}
        {{- '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"""
MISTRAL3 = r"""{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content %}{%- set loop_messages = messages[1:] %}
{%- else %}{%- set loop_messages = messages %}{%- endif %}
{%- set users = loop_messages | selectattr('role', 'equalto', 'user') | list %}
{%- set ns = namespace(index=0) %}
{%- for m in loop_messages %}
    {%- if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}
        {%- if (m.role == 'user') != (ns.index % 2 == 0) %}
            {{- raise_exception('roles must alternate user/assistant') }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for m in loop_messages %}
    {%- if m.role == 'user' %}
        {%- if tools and m == users[-1] %}
            {{- '[AVAILABLE_TOOLS][' }}{%- for t in tools %}{{- t | tojson }}{%- endfor %}{{- '][/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {{- '[INST]' + (system + '\n\n' if loop.last and system else '') + m.content + '[/INST]' }}
    {%- elif m.tool_calls %}
        {{- '[TOOL_CALLS][' }}
        {%- for call in m.tool_calls %}
            {%- set out = call.function | tojson %}{{- out[:-1] }}
            {%- if call.id | length != 9 %}{{- raise_exception('ids have nine characters') }}{%- endif %}
            {{- ', "id": "' + call.id + '"}' }}
            {%- if not loop.last %}{{- ', ' }}{%- else %}{{- ']' + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif m.role == 'assistant' %}{{- m.content + eos_token }}
    {%- elif m.role == 'tool' %}
        {%- if m.tool_call_id | length != 9 %}{{- raise_exception('ids have nine characters') }}{%- endif %}
        {{- '[TOOL_RESULTS]' + m.content + '[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}"""
NAMED = MISTRAL3.replace(
    "{{- '[TOOL_CALLS][' }}", ""
).replace(
    "{%- set out = call.function | tojson %}{{- out[:-1] }}",
    "{{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' }}{{- call.function.arguments | tojson }}",
).replace("{{- ', \"id\": \"' + call.id + '\"}' }}", "").replace(
    "{%- if not loop.last %}{{- ', ' }}{%- else %}{{- ']' + eos_token }}{%- endif %}",
    "{%- if loop.last %}{{- eos_token }}{%- endif %}",
)  # fmt: skip
LLAMA_NAMES = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
MISTRAL_NAMES = {"bos_token": "<s>", "eos_token": "</s>"}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    [PYTHON_TAG, "[TOOL_CALLS]", "[ARGS]", "</tool_call>"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
calls = st.lists(
    st.builds(
        ToolCall,
        name=st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,8}", fullmatch=True),
        arguments=st.dictionaries(texts, values, max_size=3),
    ),
    min_size=1,
    max_size=3,
)


PADDINGS = {"hermes": "\n", "llama": PYTHON_TAG, "mistral": " "}
"""What templates of a family put around calls."""


@settings(max_examples=40, deadline=None)
@given(written=calls)
def test_calls_are_read_back_as_they_were_written(written: list[ToolCall]) -> None:
    for form in FORMATS.values():
        for padding in (PADDINGS.get(form.name, ""), ""):
            action = form.parse(form.write(written, padding))
            assert (action.tool_calls, action.error) == (tuple(written), None)


def test_how_each_family_writes() -> None:
    both = (LOOK, GUESS)
    assert write_llama_calls(both) == (
        '{"name": "look", "parameters": {"at": "a door"}}; {"name": "guess", "parameters": {"number": 3}}'
    )
    assert write_llama_calls((GUESS,), PYTHON_TAG) == (
        '<|python_tag|>{"name": "guess", "parameters": {"number": 3}}'
    )
    assert write_mistral_calls(both, " ") == (
        '[TOOL_CALLS] [{"name": "look", "arguments": {"at": "a door"}}, '
        '{"name": "guess", "arguments": {"number": 3}}]'
    )
    assert (
        write_named_calls(both)
        == '[TOOL_CALLS]look[ARGS]{"at": "a door"}[TOOL_CALLS]guess[ARGS]{"number": 3}'
    )
    marked = ToolCall(name="say", arguments={"words": "[TOOL_CALLS] <|python_tag|>"})
    assert "[TOOL_CALLS]" not in write_mistral_calls((marked,))[12:]
    assert PYTHON_TAG not in write_llama_calls((marked,))
    with pytest.raises(DataError, match="writing a tool call: got the name 'a b'; use letters and digits"):
        write_named_calls((ToolCall(name="a b"),))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"name": "guess", "parameters": {"number": 3}}', (GUESS,)),
        ('Hm.<|python_tag|>{"name": "guess", "parameters": {"number": 3}}', (GUESS,)),
        ('[{"name": "guess", "parameters": {"number": 3}},\n {"name": "look"}]', (GUESS, ToolCall(name="look"))),
        (
            '{"name": "look", "parameters": {"at": "a } \\" { door"}} ;',
            (ToolCall(name="look", arguments={"at": 'a } " { door'}),),
        ),
    ],
)  # fmt: skip
def test_llama_reads(text: str, expected: tuple[ToolCall, ...]) -> None:
    assert parse_llama_calls(text).tool_calls == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('Hm. [TOOL_CALLS] [{"name": "guess", "arguments": {"number": 3}, "id": "quintain1"}]', (GUESS,)),
        ('[TOOL_CALLS][{"name": "look"}][TOOL_CALLS][{"name": "look"}]', (ToolCall(name="look"),) * 2),
        ('[TOOL_CALLS]guess[ARGS]{"number": 3}', (GUESS,)),
        ('[TOOL_CALLS]guess[CALL_ID]a1[ARGS] {"number": 3}', (GUESS,)),
    ],
)
def test_mistral_reads(text: str, expected: tuple[ToolCall, ...]) -> None:
    assert parse_mistral_calls(text).tool_calls == expected


def test_what_is_no_call_is_text() -> None:
    for parse in (parse_llama_calls, parse_mistral_calls):
        assert parse(" [12] click {\n") == Action(text="[12] click {")
        assert parse("") == Action()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"name": "a"', "tool call 1 is not a whole JSON object: got '{\"name\": \"a\"'"),
        ('{"name": "a"} then {"name": "b"}', "tool call 2 has text before it: got 'then'"),
        ('{"name": "a"} done', "tool call 2 is not a whole JSON object: got 'done'"),
        ('{"name": "a", "arguments": {}}', "1 has the unknown key 'arguments'; its keys are name and parameters"),
        ('{"name": "a", "parameters": []}', "tool call 1 needs parameters that are a JSON object: got a list"),
        ('{"name": "a", "name": "b"}', "tool call 1 has the key 'name' twice"),
        ("{'name': 'a'}", "tool call 1 is not valid JSON"),
        ("<|python_tag|>", "there is no tool call after the marker"),
        ("{" * LONGEST_READ + "}", f"the tool calls are {LONGEST_READ + 1} characters long"),
        ('{"name": "a"}' * (MAX_CALLS + 1), "there are more than 64 tool calls; make fewer at once"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_llama_call_is_said(text: str, problem: str) -> None:
    action = parse_llama_calls(text)
    assert action.tool_calls == ()
    assert action.error is not None
    assert problem in action.error


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[TOOL_CALLS]", "tool call 1 is not valid JSON"),
        ("[TOOL_CALLS][]", "there is no tool call after the marker; write [TOOL_CALLS][{"),
        ('[TOOL_CALLS]{"name": "a"}', "tool call 1 must stand in a JSON list; write [TOOL_CALLS][{"),
        ('[TOOL_CALLS][{"name": "a"}, 3]', "tool call 2 must be a JSON object: got a number"),
        ("[TOOL_CALLS]a[ARGS][1]", "tool call 1 needs arguments that are a JSON object: got a list"),
    ],
)
def test_what_is_wrong_with_a_mistral_call_is_said(text: str, problem: str) -> None:
    action = parse_mistral_calls(text)
    assert action.tool_calls == ()
    assert action.error is not None
    assert problem in action.error


def mutated(rng: random.Random, text: str) -> str:
    """Return `text` after a few cuts, doublings and insertions."""
    stuff = (
        PYTHON_TAG,
        "[TOOL_CALLS]",
        "[ARGS]",
        "{",
        "}",
        '"',
        "\\",
        "\\ud83d",
        "NaN",
        "1e999",
        "[" * 50,
        ",",
        ";",
    )
    for _ in range(rng.randint(1, 5)):
        start, end = sorted(rng.choices(range(len(text) + 1), k=2))
        kind = rng.randrange(3)
        if kind == 0:
            text = text[:start] + text[end:]
        elif kind == 1:
            text = text[:start] + rng.choice(stuff) + text[start:]
        else:
            text += text[start:end]
    return text


def test_ten_thousand_malformed_calls_raise_nothing() -> None:
    rng = random.Random(0)
    starts = [form.write((LOOK, GUESS), PADDINGS.get(form.name, "")) for form in FORMATS.values()]
    errors = 0
    for index in range(10_000):
        text = mutated(rng, starts[index % len(starts)])
        for parse in (parse_llama_calls, parse_mistral_calls):
            action = parse(text)
            errors += action.error is not None
            assert not (action.error and action.tool_calls)
    assert errors > 5_000


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1 << 20, lambda n: "{" * n),
        (16_000, lambda n: '{"' + '\\"' * n),
        (2_700, lambda n: "[TOOL_CALLS]" * n),
        (10_000, lambda n: "[TOOL_CALLS][" + "{}," * n + "{}]"),
        (16_000, lambda n: "{}" * n),
        (30_000, lambda n: "[" * n),
    ],
)  # fmt: skip
def test_long_texts_are_read_in_proportion_to_their_length(size: int, text: Callable[[int], str]) -> None:
    for parse in (parse_llama_calls, parse_mistral_calls):
        assert growth(text, parse, size) < STEADY


def test_outermost_objects_are_found() -> None:
    text = 'a {"x": "}{"} } {"y": {"z": "\\\\"}} {'
    assert [text[start:end] for start, end in json_objects(text)] == ['{"x": "}{"}', '{"y": {"z": "\\\\"}}']


def test_a_format_by_name() -> None:
    assert format_named("llama") is FORMATS["llama"]
    with pytest.raises(UsageError, match="format of tool calls: got 'lama'; did you mean 'llama'"):
        format_named("lama")


@pytest.mark.parametrize(
    ("template", "names", "form", "padding"),
    [
        (LLAMA31, LLAMA_NAMES, "llama", ""),
        (LLAMA31.replace("{{- '{\"name", "{{- '<|python_tag|>{\"name"), LLAMA_NAMES, "llama", PYTHON_TAG),
        (MISTRAL3, MISTRAL_NAMES, "mistral", ""),
        (MISTRAL3.replace("[TOOL_CALLS][", "[TOOL_CALLS] ["), MISTRAL_NAMES, "mistral", " "),
        (NAMED, MISTRAL_NAMES, "mistral-named", ""),
    ],
)  # fmt: skip
def test_the_template_says_which_format_it_is(
    make_tokenizer: Family, template: str, names: dict[str, str], form: str, padding: str
) -> None:
    chat = Chat(make_tokenizer(template, **names))
    assert chat.template.takes_tools and chat.format is not None
    written = chat.write_marked(ChatMessage(role="assistant", content=(), tool_calls=(LOOK,))).body
    assert FORMATS[form].opening in written and padding in written
    assert [(call.name, call.arguments) for call in chat.read(written).calls] == [(LOOK.name, LOOK.arguments)]
    prompt = chat.conversation((TOOL,)).prompt([ChatMessage(role="user", content=as_content("A wall."))])
    assert "Look around." in chat.encoder.decode(prompt.token_ids)


def test_the_marker_of_a_call_is_one_token(make_tokenizer: Family) -> None:
    tokenizer = make_tokenizer(MISTRAL3, **MISTRAL_NAMES)
    tokenizer.add_special_tokens({"additional_special_tokens": ["[TOOL_CALLS]"]})
    chat = Chat(tokenizer)
    marker: Any = tokenizer.convert_tokens_to_ids("[TOOL_CALLS]")
    ids = chat.write(write_mistral_calls((GUESS,)))
    assert ids[0] == marker
    assert parse_mistral_calls(chat.text(ids)).tool_calls == (GUESS,)
    assert marker not in chat.encoder.plain(json.dumps("[TOOL_CALLS]"))


def test_llama_may_end_a_call_with_its_own_token(make_tokenizer: Family) -> None:
    tokenizer = make_tokenizer(LLAMA31, **LLAMA_NAMES)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|eom_id|>"]})
    chat = Chat(tokenizer)
    end: Any = tokenizer.convert_tokens_to_ids("<|eom_id|>")
    assert chat.stop_ids == {chat.end_id, end}
    assert chat.text((*chat.answer_ids("left"), end)) == "left"


def test_thoughts_hold_no_calls() -> None:
    llama, mistral = FORMATS["llama"].parse, FORMATS["mistral"].parse
    call = '{"type": "function", "name": "x", "parameters": {}}'
    assert llama(f"<think>{call}</think>{call}").tool_calls == (ToolCall(name="x"),)
    assert llama(f"<think>{call}</think>Done.").tool_calls == ()
    listed = '[TOOL_CALLS][{"name": "x", "arguments": {}}]'
    assert mistral(f"[THINK]{listed}[/THINK]Done.") == Action(text="Done.")
    assert mistral(f"<think>{listed}</think>{listed}").tool_calls == (ToolCall(name="x"),)
