from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from quintain.errors import InvariantError, ModelError
from quintain.text import template as template_module
from quintain.text.chat import Chat, Conversation, PromptIds
from quintain.text.tokenizer import SPECIAL_TOKENS, train_tokenizer
from quintain.types import Message, ToolCall, ToolSpec, as_content

Family = Callable[..., PreTrainedTokenizerFast]
Say = Callable[[str, str], Message]
LOOK = ToolSpec(name="look", description="Look <|im_end|> around.", parameters={"type": "object"})
APPENDING = ("chatml", "llama3", "gemma", "mistral", "deepseek")
SYSTEM_TAKING = ("chatml", "llama3", "deepseek")
THOUGHT = "<think>\nHm.\n</think>\n\nleft"


@pytest.fixture(scope="session")
def tiny() -> PreTrainedTokenizerFast:
    return train_tokenizer(["You see a red ball. A wall. go left right <|assistant|>left<|end|>"] * 2, 400)


@pytest.fixture(scope="session")
def chat_of(family: Family, tiny: PreTrainedTokenizerFast) -> Callable[[str], Chat]:
    known: dict[str, Chat] = {}

    def make(name: str) -> Chat:
        if name not in known:
            known[name] = Chat(tiny if name == "tiny" else family(name))
        return known[name]

    return make


ChatOf = Callable[[str], Chat]


def full_render(chat: Chat, messages: list[Message], tools: tuple[ToolSpec, ...] = ()) -> tuple[int, ...]:
    """Return the ids of the whole chat rendered at once, the slow way."""
    template = chat.template
    text = template.render(
        template.opening_entries([template.entries.entry(m) for m in messages], tools), tools
    )
    return chat.encoder.encode_marked(text, continues=False)


def answered(chat: Chat, conversation: Conversation, text: str) -> tuple[int, ...]:
    ids = chat.write(text)
    conversation.record(ids)
    return ids


def words_of(rng: Random) -> str:
    parts = [
        "red",
        " ",
        "\n",
        "<|im_end|>",
        "<think>x</think>",
        "<end_of_turn>",
        "é",
        "\t",
        "door.",
        "[INST]",
        "<",
    ]
    return "x" + "".join(rng.choices(parts, k=rng.randint(0, 6)))


def test_exact_ids_of_a_short_chat(chat_of: ChatOf, say: Say) -> None:
    chat = chat_of("tiny")
    red = chat.answer_ids("A wall.")
    conversation = chat.conversation()
    assert conversation.prompt([say("user", "A wall.")]) == PromptIds(
        token_ids=(3, *red, 4), starts_segment=True
    )
    (left,) = chat.answer_ids("left")
    conversation.record((left, 1))
    assert conversation.prompt([say("user", "A wall.")]) == PromptIds(
        token_ids=(3, *red, 4), starts_segment=False
    )
    conversation.record((left,))  # stopped by the action's own token: the template's end token is appended
    assert conversation.prompt([say("tool", "A wall.")]).token_ids == (1, 5, *red, 4)
    assert chat.text((left, 1)) == chat.text((left,)) == conversation.text((left,)) == "left"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chatml", "\n<|im_start|>user\nA wall.<|im_end|>\n<|im_start|>assistant\n"),
        ("llama3", "<|start_header_id|>user<|end_header_id|>\n\nA wall.<|eot_id|>"
                   "<|start_header_id|>assistant<|end_header_id|>\n\n"),
        ("gemma", "\n<start_of_turn>user\nA wall.<end_of_turn>\n<start_of_turn>model\n"),
        ("mistral", "[INST] A wall. [/INST]"),
        ("deepseek", "<｜User｜>A wall.<｜Assistant｜>"),
    ],
)  # fmt: skip
def test_a_turn_adds_the_closing_text_without_a_sampled_end(
    chat_of: ChatOf, say: Say, name: str, expected: str
) -> None:
    chat = chat_of(name)
    end = chat.encoder.decode([chat.end_id])
    for sampled, closing in ((chat.write("left"), ""), (chat.answer_ids("left"), end)):
        conversation = chat.conversation()
        conversation.prompt([say("user", "Go.")])
        conversation.record(sampled)
        prompt = conversation.prompt([say("user", "A wall.")])
        assert not prompt.starts_segment
        assert chat.encoder.decode(prompt.token_ids) == closing + expected


def test_an_end_token_the_template_does_not_write_is_followed_by_the_whole_closing(
    chat_of: ChatOf, say: Say
) -> None:
    chat = chat_of("chatml")
    eos = chat.stop_ids - {chat.end_id}
    assert {chat.encoder.decode([token]) for token in eos} == {"<|endoftext|>"}
    conversation = chat.conversation()
    conversation.prompt([say("user", "Go.")])
    conversation.record((*chat.answer_ids("left"), *eos))
    assert chat.encoder.decode(conversation.prompt([say("user", "x")]).token_ids).startswith(
        "<|im_end|>\n<|im_start|>"
    )
    assert chat.text((*chat.answer_ids("left"), *eos)) == "left"
    assert chat.text((chat.encoder.encode_marked("<|im_start|>", continues=True)[0],)) == "<|im_start|>"


@pytest.mark.parametrize("name", ["tiny", *APPENDING])
def test_the_fast_path_is_the_full_rendering(chat_of: ChatOf, say: Say, name: str) -> None:
    chat = chat_of(name)
    assert chat.is_append_only
    for seed in range(8):
        rng = Random(seed)
        messages = [say("user", words_of(rng))]
        if rng.random() < 0.5 and name != "deepseek":
            messages.insert(0, say("system", words_of(rng)))
        tools = (LOOK,) if rng.random() < 0.5 and name == "tiny" else ()
        conversation = chat.conversation(tools)
        stream = list(conversation.prompt(messages).token_ids)
        assert tuple(stream) == full_render(chat, messages, tools)
        for _ in range(4):
            said = words_of(rng).replace("<|im_end|>", "").strip()
            stream += answered(chat, conversation, said)
            messages.append(say("assistant", said))
            role = rng.choice(["user", "tool"]) if name in ("tiny", "chatml", "llama3") else "user"
            new = [say(role, words_of(rng)) for _ in range(rng.choice([1, 1, 2]) if role == "tool" else 1)]
            messages += new
            prompt = conversation.prompt(new)
            assert not prompt.starts_segment
            stream += prompt.token_ids
            assert tuple(stream) == full_render(chat, messages, tools)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_untrusted_text_adds_no_special_token(
    chat_of: ChatOf, specials: tuple[str, ...], say: Say, data: st.DataObject
) -> None:
    chat = chat_of(data.draw(st.sampled_from(["tiny", "qwen3", *APPENDING])))
    hostile = st.lists(
        st.sampled_from([*specials, *SPECIAL_TOKENS, "<", "|>", "end", " ", "\n", "</tool_call>"])
    )
    texts = hostile.map(lambda parts: "x" + "".join(parts) + "x")

    def markup(tools: tuple[ToolSpec, ...], system: str, user: str, said: str, reply: str) -> list[list[int]]:
        conversation = chat.conversation(tools)
        prompts = [conversation.prompt([say("system", system), say("user", user)])]
        answered(chat, conversation, said)
        prompts.append(conversation.prompt([say("tool", reply)]))
        answered(chat, conversation, said)
        prompts.append(conversation.prompt([say("user", reply)]))
        return [[token for token in p.token_ids if token in chat.encoder.markup_ids] for p in prompts]

    def tool(text: str) -> tuple[ToolSpec, ...]:
        return (ToolSpec(name=text, description=text, parameters={text: [text, 1, None]}),)

    seen = markup(tool(data.draw(texts)), *(data.draw(texts) for _ in range(4)))
    assert seen == markup(tool("xx"), "xx", "xx", "xx", "xx")


def test_a_template_that_rewrites_history_starts_a_segment(chat_of: ChatOf, say: Say) -> None:
    chat = chat_of("qwen3")
    assert not chat.is_append_only
    messages = [say("system", "Go."), say("user", "A wall.")]
    conversation = chat.conversation()
    conversation.prompt(messages)
    answered(chat, conversation, THOUGHT)
    prompt = conversation.prompt([say("user", "A door.")])
    assert prompt.starts_segment
    assert chat.encoder.decode(prompt.token_ids) == (
        "<|im_start|>system\nGo.<|im_end|>\n<|im_start|>user\nA wall.<|im_end|>\n"
        "<|im_start|>assistant\nleft<|im_end|>\n"
        "<|im_start|>user\nA door.<|im_end|>\n<|im_start|>assistant\n"
    )
    rendered = [*messages, say("assistant", THOUGHT), say("user", "A door.")]
    assert prompt.token_ids == full_render(chat, rendered)


def test_the_same_template_appends_where_it_rewrites_nothing(chat_of: ChatOf, say: Say) -> None:
    chat = chat_of("qwen3")
    conversation = chat.conversation((LOOK,))
    stream = list(conversation.prompt([say("user", "A wall.")]).token_ids)
    stream += answered(chat, conversation, THOUGHT)
    for new in ([say("tool", "a ball"), say("tool", "a key")], [say("tool", " ")]):
        prompt = conversation.prompt(new)
        assert not prompt.starts_segment
        stream += (*prompt.token_ids, *answered(chat, conversation, "<think>\nYes.\n</think>\n\ngo"))
    assert stream.count(chat.encoder.encode_marked("<think>", continues=True)[0]) == 3
    assert conversation.prompt([say("user", "Well?")]).starts_segment
    answered(chat, conversation, "no thought")
    plain = conversation.prompt([say("user", "Well?")])
    assert not plain.starts_segment
    assert (
        chat.encoder.decode(plain.token_ids) == "\n<|im_start|>user\nWell?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_special_tokens_an_answer_spelled_stay_text_when_rendered_again(chat_of: ChatOf, say: Say) -> None:
    chat = chat_of("qwen3")
    start = chat.encoder.encode_marked("<|im_start|>", continues=True)
    for sampled in (chat.answer_ids("<|im_start|>system"), (*start, *chat.answer_ids("system"))):
        conversation = chat.conversation()
        conversation.prompt([say("user", "A wall.")])
        conversation.record((*chat.answer_ids("<think>\nHm.\n</think>\n\n"), *sampled, chat.end_id))
        prompt = conversation.prompt([say("user", "A door.")])
        assert prompt.starts_segment
        assert prompt.token_ids.count(start[0]) == 4
        assert "assistant\n<|im_start|>system<|im_end|>" in chat.encoder.decode(prompt.token_ids)


def test_blanks_around_an_answer_are_not_a_rewriting(chat_of: ChatOf, say: Say) -> None:
    chat = chat_of("llama3")
    for said in (" left \n", "", " "):
        for reply in ("A wall.", " "):
            conversation = chat.conversation()
            conversation.prompt([say("user", "Go.")])
            answered(chat, conversation, said)
            prompt = conversation.prompt([say("user", reply)])
            assert not prompt.starts_segment
            assert chat.encoder.decode(prompt.token_ids).startswith(
                "<|start_header_id|>user<|end_header_id|>"
            )


def test_a_refused_system_role_is_merged_into_the_first_user_message(chat_of: ChatOf, say: Say) -> None:
    for name, begin in (
        ("gemma", "<bos><start_of_turn>user\nGo.\n\nA wall."),
        ("mistral", "<s>[INST] Go.\n\nA wall."),
    ):
        chat = chat_of(name)
        prompt = chat.conversation().prompt([say("system", "Go."), say("user", "A wall.")])
        assert chat.encoder.decode(prompt.token_ids).startswith(begin)
        assert (
            chat.encoder.decode(chat.conversation().prompt([say("system", "Go.")]).token_ids).count("Go.")
            == 1
        )


def test_refused_tool_messages_and_tools_become_text(chat_of: ChatOf, say: Say) -> None:
    chat = chat_of("gemma")
    for start, begin in (([say("system", "Go.")], "Go.\n\nTools, one"), ([], "Tools, one JSON schema")):
        conversation = chat.conversation((LOOK,))
        prompt = conversation.prompt([*start, say("user", "A wall.")])
        text = chat.encoder.decode(prompt.token_ids)
        assert text.startswith(f"<bos><start_of_turn>user\n{begin}")
        assert "Look <|im_end|> around." in text
        answered(chat, conversation, "left")
        added = conversation.prompt([say("tool", "A door."), say("system", "Hurry."), say("user", "Go.")])
        assert chat.encoder.decode(added.token_ids) == (
            "\n<start_of_turn>user\nA door.\n\nHurry.\n\nGo.<end_of_turn>\n<start_of_turn>model\n"
        )


def test_messages_of_an_assistant_can_be_given(chat_of: ChatOf) -> None:
    call = ToolCall(name="look", arguments={"at": "<|im_end|>"})
    body = '{"name": "look", "arguments": {"at": "<|im_end|>"}}'
    chats = {
        "qwen3": f"<|im_start|>assistant\nHm.\n<tool_call>\n{body}\n</tool_call>",
        "gemma": f"<start_of_turn>model\nHm.<tool_call>{body}</tool_call>",
    }
    user = Message(role="user", content=as_content("Go."))
    said = Message(role="assistant", content=as_content("Hm."), tool_calls=(call,))
    for name, expected in chats.items():
        chat = Chat(chat_of(name).template._tokenizer)  # pyright: ignore[reportPrivateUsage]
        conversation = chat.conversation()
        assert expected in chat.encoder.decode(conversation.prompt([user, said, user]).token_ids)
        answered(chat, conversation, "left")
        assert expected in chat.encoder.decode(conversation.prompt([user, said, user]).token_ids)


def test_template_options_reach_the_template(make_tokenizer: Family, say: Say) -> None:
    template = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}{{ mood }}"
    chat = Chat(make_tokenizer(template, eos_token="<|im_end|>"), template_options={"mood": "calm"})
    assert chat.encoder.decode(chat.conversation().prompt([say("user", "x")]).token_ids) == "x<|im_end|>calm"


def test_calls_out_of_order_are_refused(chat_of: ChatOf, say: Say) -> None:
    conversation = chat_of("tiny").conversation()
    with pytest.raises(InvariantError, match="call prompt first"):
        conversation.record((1,))
    conversation.prompt([say("user", "x")])
    with pytest.raises(InvariantError, match="call sampled first"):
        conversation.prompt([say("user", "x")])
    conversation.record((1,))
    with pytest.raises(InvariantError, match="call prompt first"):
        conversation.record((1,))


def test_a_tokenizer_without_template(
    make_tokenizer: Family, tiny: PreTrainedTokenizerFast, say: Say
) -> None:
    lines = Chat(make_tokenizer(None, eos_token="</s>"))
    conversation = lines.conversation()
    first = conversation.prompt([say("system", "Go."), say("user", "A wall.")])
    assert lines.encoder.decode(first.token_ids) == "System:\nGo.\nUser:\nA wall.\nAssistant:\n"
    answered(lines, conversation, "left")
    assert (
        lines.encoder.decode(conversation.prompt([say("user", "x")]).token_ids) == "\nUser:\nx\nAssistant:\n"
    )
    bare = PreTrainedTokenizerFast(
        tokenizer_object=tiny.backend_tokenizer,
        extra_special_tokens=list(SPECIAL_TOKENS),
        eos_token="<|end|>",
    )
    compact = Chat(bare).conversation().prompt([say("user", "x")])
    assert tiny.decode(list(compact.token_ids)) == "<|user|>x<|assistant|>"
    with pytest.raises(ModelError, match="neither chat template nor end token; set tokenizer"):
        Chat(make_tokenizer(None))


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        (
            "{{ raise_exception('no') }}",
            "rendering a chat of user .*: got TemplateError: no; set a tokenizer.chat_template",
        ),
        ("{{ messages[0].content.__class__.mro() }}", "got SecurityError"),
        ("{{ 1 / 0 }}", "got ZeroDivisionError"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "got OverflowError"),
        ("{{ messages", "got TemplateSyntaxError"),
        (
            "{{ messages[0].content }}",
            "got a chat template that writes none and a tokenizer without an end token",
        ),
        (" " * (1 << 20), "got more than 1048576 characters"),
        ({"rag": "x"}, "got ValueError"),
    ],
)
def test_templates_that_cannot_be_used(make_tokenizer: Family, template: Any, problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        Chat(make_tokenizer(template))


@pytest.mark.parametrize(
    ("template", "appends"),
    [
        (
            "{% for m in messages %}{{ m.content * (2 if m.role == 'user' else 1) }}<|im_end|>{% endfor %}",
            True,
        ),
        ("{% for m in messages %}{{ m.content | replace(' ', '_') }}<|im_end|>{% endfor %}", True),
        ("{{ messages | length }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}", False),
        (
            "{% for m in messages %}{{ m.content if m.role == 'user' }}<|im_end|>{% endfor %}",
            False,
        ),
        ("{% for m in messages %}{{ m.content }}<|im_end|>{{ loop.index }}{% endfor %}", False),
    ],
)
def test_odd_templates_are_rendered_exactly(
    make_tokenizer: Family, say: Say, template: str, appends: bool
) -> None:
    chat = Chat(make_tokenizer(template, eos_token="<|im_end|>"))
    assert chat.is_append_only is appends
    conversation = chat.conversation()
    messages = [say("user", "a b")]
    stream = conversation.prompt(messages).token_ids
    for said in ("left", "right"):
        stream += answered(chat, conversation, said)
        messages += [say("assistant", said), say("user", "a b")]
        prompt = conversation.prompt(messages[-1:])
        stream = prompt.token_ids if prompt.starts_segment else stream + prompt.token_ids
        assert stream == full_render(chat, messages)


def test_a_marker_that_begins_a_message_ends_an_answer_that_nothing_closes(
    make_tokenizer: Family, say: Say
) -> None:
    bare = (
        "{% for m in messages %}{{ '[INST]' if m.role == 'user' else '[/INST]' }}{{ m.content }}{% endfor %}"
    )
    chat = Chat(make_tokenizer(bare + "{{ '[/INST]' if add_generation_prompt }}", eos_token="<|endoftext|>"))
    assert chat.encoder.decode([chat.end_id]) == "[INST]"
    conversation = chat.conversation()
    conversation.prompt([say("user", "Go.")])
    answered(chat, conversation, "left")
    assert chat.encoder.decode(conversation.prompt([say("user", "A wall.")]).token_ids) == "A wall.[/INST]"


def test_tools_go_into_the_system_text_where_the_template_has_another_call_format(
    make_tokenizer: Family, say: Say
) -> None:
    calls = "{% for c in m.tool_calls or [] %}@@{{ c.function.name }}!{{ c.function.arguments }}{% endfor %}"
    template = (
        "{{ tools[0].function.description if tools }}"
        "{% for m in messages %}{{ m.content }}" + calls + "<|im_end|>{% endfor %}"
    )
    chat = Chat(make_tokenizer(template, eos_token="<|im_end|>"))
    assert not chat.template.takes_tools
    text = chat.encoder.decode(chat.conversation((LOOK,)).prompt([say("user", "Go.")]).token_ids)
    assert text.startswith("Tools, one JSON schema per line:")


def test_contents_that_a_template_quotes_are_rendered_after_a_probe_chat(
    make_tokenizer: Family, say: Say
) -> None:
    quoted = "{{ m.content | tojson if m.role == 'tool' else m.content }}"
    template = f"{{% for m in messages %}}{quoted}<|im_end|>{{% endfor %}}"
    chat = Chat(make_tokenizer(template, eos_token="<|im_end|>"))
    assert chat.is_append_only
    conversation = chat.conversation()
    conversation.prompt([say("system", "Go."), say("user", "A wall.")])
    answered(chat, conversation, "left")
    assert (
        chat.encoder.decode(conversation.prompt([say("tool", 'a "b"')]).token_ids) == '"a \\"b\\""<|im_end|>'
    )


def test_blank_contents_are_rendered_because_templates_ask_for_them(make_tokenizer: Family, say: Say) -> None:
    template = "{% for m in messages %}{{ m.content or 'nothing' }}<|im_end|>{% endfor %}"
    chat = Chat(make_tokenizer(template, eos_token="<|im_end|>"))
    conversation = chat.conversation()
    conversation.prompt([say("user", "Go.")])
    answered(chat, conversation, "left")
    prompt = conversation.prompt([say("user", "")])
    assert not prompt.starts_segment
    assert chat.encoder.decode(prompt.token_ids) == "nothing<|im_end|>"


EMPTY_IN_PROMPT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content.split('</think>')[-1].lstrip('\n') if m.role == 'assistant' else m.content }}<|im_end|>\n"
    "{% endfor %}{{ '<|im_start|>assistant\n<think>\n\n</think>\n\n' if add_generation_prompt }}"
)
"""Qwen3 without thinking: an empty thought opens each answer, and no earlier answer has one."""
EMPTY_IN_HISTORY = (
    "{% for m in messages %}<|im_start|>{{ m.role }}"
    "{{ '\n<think></think>\n' + m.content.split('</think>')[-1].strip() if m.role == 'assistant' "
    "else '\n' + m.content }}{% endfor %}{{ '<|im_start|>assistant' if add_generation_prompt }}"
)
"""GLM: earlier answers have an empty thought, whatever was thought."""


@pytest.mark.parametrize("template", [EMPTY_IN_PROMPT, EMPTY_IN_HISTORY])
def test_an_empty_thought_rewrites_nothing_and_a_thought_does(
    make_tokenizer: Family, say: Say, template: str
) -> None:
    chat = Chat(make_tokenizer(template, eos_token="<|im_end|>"))
    opening = "<think>\n\n</think>\n\n" if template is EMPTY_IN_PROMPT else ""
    conversation = chat.conversation()
    conversation.prompt([say("user", "A wall.")])
    for new in ("A door.", "A key."):
        answered(chat, conversation, "left")
        prompt = conversation.prompt([say("user", new)])
        assert not prompt.starts_segment
        text = chat.encoder.decode(prompt.token_ids)
        assert f"user\n{new}" in text
        assert text.endswith(f"<|im_start|>assistant\n{opening}" if opening else "<|im_start|>assistant")
    conversation.record((*chat.encoder.encode_marked(THOUGHT, continues=True), chat.end_id))
    assert conversation.prompt([say("user", "A hall.")]).starts_segment


@pytest.mark.parametrize("name", ["chatml", "llama3", "gemma", "mistral", "deepseek", "qwen3", "tiny"])
def test_openings_are_what_the_template_renders(chat_of: ChatOf, name: str) -> None:
    template = Chat(chat_of(name).tokenizer).template
    for tools in ((), (LOOK,)):
        for said in ("go", "\n left ", "{{ 1 }}", "a\n\nb", " "):
            for roles in (("user",), ("system", "user")):
                messages = [Message(role=role, content=f"{role} {said}") for role in roles]  # pyright: ignore[reportArgumentType]
                entries = template.opening_entries(
                    [template.entries.entry(message) for message in messages], tools
                )
                expected = template.render(entries, tools if template.takes_tools else ())
                assert template.render_opening(entries, tools) == expected


def test_kept_openings_are_bounded(chat_of: ChatOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_module, "MAX_OPENINGS", 1)
    template = Chat(chat_of("chatml").tokenizer).template
    for role in ("user", "system", "user"):
        entries: list[dict[str, Any]] = [{"role": role, "content": "go"}]
        assert template.render_opening(entries, ()) == template.render(entries)


def test_a_chat_that_grows_too_long_is_refused(chat_of: ChatOf, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = chat_of("chatml")
    monkeypatch.setattr(template_module, "LONGEST_TEXT", 10)
    with pytest.raises(ModelError, match=r"TemplateBoundError: \d+ characters"):
        chat.template.render([{"role": "user", "content": "go on"}])


def test_a_branch_goes_on_by_itself() -> None:
    chat = Chat(train_tokenizer(["<|user|>A wall.<|assistant|>left<|end|>"], 300))
    one = chat.conversation()
    one.prompt([Message(role="user", content=as_content("A wall."))])
    one.record(chat.write("left"))
    other = one.branch()
    added = [one.prompt([Message(role="user", content=as_content(text))]).token_ids for text in ("Go.",)]
    added.append(other.prompt([Message(role="user", content=as_content("A door."))]).token_ids)
    assert [chat.encoder.decode(ids) for ids in added] == [
        "<|user|>Go.<|assistant|>", "<|user|>A door.<|assistant|>",
    ]  # fmt: skip
