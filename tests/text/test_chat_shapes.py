"""Templates of odd shapes: thoughts of the prompt's own, typed contents, tools that must be there, lost calls."""

from typing import cast

import pytest
from tests.text.test_chat_format import IM, LOOK, MISTRAL, MISTRAL_MARKS, OPENS, QWEN, tokenizer_of, user

from quintain.agents.protocol import Brief
from quintain.agents.tagged import Tagged
from quintain.errors import ModelError
from quintain.text import chat as chat_module
from quintain.text import template_check
from quintain.text.chat import Chat
from quintain.text.entries import take_hats
from quintain.text.probe_chats import PROBES
from quintain.text.reading import Answer, attach_table
from quintain.text.template_check import check_answer, check_chat, check_template, difference, reason
from quintain.types import Completion, Message, Task, ToolCall, as_content

BODY = (
    "{%- for m in messages -%}{%- if m.role == 'assistant' -%}"
    "{{ '<|im_start|>assistant\n' + HISTORY + '<|im_end|>\n' }}"
    "{%- else -%}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\nOPENER' }}{%- endif -%}"
)
BARE = "m.content.split('</think>')[-1].lstrip('\n')"
SAID = "(m.reasoning_content + '\n[END]\n' if m.reasoning_content else '') + m.content"


def shaped(history: str, opener: str) -> Chat:
    return Chat(tokenizer_of(BODY.replace("HISTORY", history).replace("OPENER", opener), IM, "<|im_end|>"))


def written(chat: Chat, text: str, thought: str = "") -> tuple[str, tuple[str, ...]]:
    conversation = chat.conversation()
    conversation.prompt([user("Q")])
    found = conversation.write(Message(role="assistant", content=as_content(text), reasoning=thought))
    return chat.encoder.decode(found.token_ids).removesuffix("<|im_end|>"), found.lost


@pytest.mark.parametrize(
    ("history", "opener", "plain", "thoughtful"),
    [
        (BARE, "<think>\n", "\n</think>\n\nA", ("R\n</think>\n\nA", ())),  # R1
        (BARE, "<think></think>", "A", ("A", ("reasoning",))),
        ("'</think>' + " + BARE, "<think></think>", "A", ("A", ("reasoning",))),  # V3.2
        ("'<think></think>' + " + BARE, "<think>\n", "</think>A", ("R</think>A", ())),  # Nemotron
        (SAID, "These are my steps:\n", "\n[END]\nA", ("R\n[END]\nA", ())),  # Apriel
    ],
)
def test_what_a_prompt_opens_and_the_history_has_not(
    history: str, opener: str, plain: str, thoughtful: tuple[str, tuple[str, ...]]
) -> None:
    chat = shaped(history, opener)
    assert written(chat, "A") == (plain, ())
    assert written(chat, "A", "R") == thoughtful
    if history != SAID:  # nobody knows how to read that one
        assert check_template(chat).is_followed, check_template(chat).line


def test_a_template_that_always_opens_an_answer() -> None:
    always = BODY.replace("{%- if add_generation_prompt -%}", "").replace("OPENER' }}{%- endif -%}", "' }}")
    chat = Chat(tokenizer_of(always.replace("HISTORY", BARE), IM, "<|im_end|>"))
    assert written(chat, "A") == ("A", ())
    assert chat.template.header == "\n<|im_start|>assistant\n"


def test_contents_as_typed_parts() -> None:
    typed = (
        "{%- for m in messages -%}<|im_start|>{{ m.role }}\n{%- for part in m.content -%}{{ part.text }}{%- endfor -%}"
        "<|im_end|>\n{% endfor %}{%- if add_generation_prompt -%}<|im_start|>assistant\n{% endif %}"
    )
    chat = Chat(tokenizer_of(typed, IM, "<|im_end|>"))
    assert "Hello there" in chat.encoder.decode(chat.conversation().prompt([user("Hello there")]).token_ids)


def test_contents_as_typed_parts_where_text_would_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.text.probe.SECONDS", 0.4)
    turns = "{%- for a in range(9999) -%}{%- for b in range(9999) -%}{%- endfor -%}{%- endfor -%}"
    typed = (
        "{%- for m in messages -%}<|im_start|>{{ m.role }}\n{%- for part in m.content -%}"
        "{%- if part is string -%}" + turns + "{%- else -%}{{ part.text }}{%- endif -%}{%- endfor -%}"
        "<|im_end|>\n{% endfor %}{%- if add_generation_prompt -%}<|im_start|>assistant\n{% endif %}"
    )
    chat = Chat(tokenizer_of(typed, IM, "<|im_end|>"))
    assert "Hello" in chat.encoder.decode(chat.conversation().prompt([user("Hello")]).token_ids)


def test_a_template_for_tools_only_is_given_an_empty_list() -> None:
    wants = "{%- for tool in tools -%}{{ tool.function.name }}{%- endfor -%}" + QWEN
    chat = Chat(tokenizer_of(wants, IM, "<|im_end|>"))
    assert chat.encoder.decode(chat.conversation().prompt([user("Q")]).token_ids).endswith("assistant\n")


def test_sampled_calls_that_the_template_cannot_show_stay_text() -> None:
    refuse = "{%- if m.tool_calls and m.tool_calls | length > 1 -%}{{ raise_exception('one') }}{%- endif -%}"
    for single in (
        QWEN.replace("{%- for c in m.tool_calls or [] -%}", refuse + "{%- for c in m.tool_calls or [] -%}"),
        QWEN.replace("in m.tool_calls or []", "in (m.tool_calls or [])[:1]"),
    ):
        chat = Chat(tokenizer_of(single, IM, "<|im_end|>"))
        conversation = chat.conversation((LOOK,))
        conversation.prompt([user("Q")])
        two = '<tool_call>{"name": "look", "arguments": {}}</tool_call>' * 2
        conversation.record((*chat.encoder.encode_marked(two, continues=True), chat.end_id))
        prompt = conversation.prompt([Message(role="tool", content=as_content("seen"))])
        text = chat.encoder.decode(prompt.token_ids)
        assert prompt.starts_segment and two in text and "<|im_start|>user\nseen<|im_end|>" in text


def test_tags_see_the_thought_that_the_prompt_opened() -> None:
    chat = Chat(tokenizer_of(OPENS, IM, "<|im_end|>"))
    session = Tagged(chat).open(
        Brief(task=Task(id="t", environment="t", seed=0), instructions="", tools=(LOOK,))
    )
    session.observe("Q")
    ids = (*chat.encoder.encode_marked("why</think><look>a</look>", continues=True), chat.end_id)
    assert session.read(Completion(token_ids=ids, logprobs=(), stop="stop")).tool_calls[0].name == "look"


def test_a_thought_or_a_call_that_is_cut_stays_text() -> None:
    chat = Chat(tokenizer_of(QWEN, IM, "<|im_end|>"))
    for cut in ("<think>\nI must", '<tool_call>{"name": "lo'):
        conversation = chat.conversation((LOOK,))
        conversation.prompt([user("Q")])
        conversation.record(chat.encoder.encode_marked(cut, continues=True))
        assert cut in chat.encoder.decode(
            (*chat.encoder.encode_marked(cut, continues=True), *conversation.prompt([user("Q")]).token_ids)
        )


def test_an_answer_without_an_open_prompt_is_written_behind_one_of_a_user() -> None:
    chat = Chat(tokenizer_of(QWEN, IM, "<|im_end|>"))
    message = Message(role="assistant", content=as_content("A"))
    assert chat.conversation().write(message).token_ids == chat.write("A")


def test_kept_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_module, "MAX_ANSWERS", 2)
    chat = Chat(tokenizer_of(QWEN, IM, "<|im_end|>"))
    ids = [chat.write(text) for text in "abcd"]
    assert ids == [chat.write(text) for text in "abcd"] and chat.find_written("a") is None


def test_marks_in_arguments_are_escaped() -> None:
    chat = Chat(tokenizer_of(QWEN, IM, "<|im_end|>"))
    call = ToolCall(name="look", arguments={"at": "</tool_call>"}, id="x")
    body = chat.write_marked(Message(role="assistant", content=(), tool_calls=(call,))).body
    assert "\\u003c/tool_call>" in body
    assert take_hats("plain", ("<x>",)) == "plain"
    assert take_hats("\ue002x>", ("｜x>",)) == "\\uff5cx>"


def test_an_answer_that_no_format_reads_is_closed_as_the_template_closes_it() -> None:
    closing = QWEN.replace("{{ m.content or '' }}", "{{ (m.content or '') + '<|done|>' }}")
    chat = Chat(tokenizer_of(closing, (*IM, "<|done|>"), "<|im_end|>"))
    if chat.format is None:
        assert chat.closing == "<|done|>" and chat.read("A<|done|>").content == "A"
        assert chat.reads_plainly


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(tokenizer_of(QWEN, IM, "<|im_end|>"))


def test_a_check_of_ends(chat: Chat) -> None:
    conversation = chat.conversation()
    conversation.prompt([user("Q")])
    message = Message(role="assistant", content=as_content("A"))
    assert "at which nothing stops" in check_answer(chat, conversation, chat.answer_ids("A"), message)
    other = Message(role="assistant", content=as_content("B"))
    assert "read back otherwise" in check_answer(chat, conversation, chat.write("A"), other)


def test_a_check_of_pieces(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = chat.conversation()
    conversation.prompt([user("Q")])
    monkeypatch.setattr(Chat, "read_in_pieces", lambda *_, **__: None)
    message = Message(role="assistant", content=as_content("A"))
    assert "in pieces of 1" in check_answer(chat, conversation, chat.write("A"), message)


def test_a_check_of_prompts(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    chats = [user("Q"), Message(role="assistant", content=as_content("A"))]
    monkeypatch.setattr(template_check, "render_prompt", lambda *_: "something else")
    found = check_chat(chat, "plain", chats)
    assert found.verdict == "differs" and "before an answer the stream has" in found.detail


def test_a_check_of_differences(chat: Chat) -> None:
    assert difference("abc", "abc", chat) is None
    assert "'abc'" in cast(str, difference("abc", "abcd", chat))
    assert reason(ModelError("no such word")) == "no such word"


def test_a_check_of_refusals() -> None:
    refuses = (
        "{%- for m in messages -%}{%- if m.role == 'user' and not loop.first -%}"
        "{%- if messages[loop.index0 - 1].role == 'tool' -%}{{ raise_exception('a user behind a result') }}"
        "{%- endif -%}{%- endif -%}{%- endfor -%}"
    )
    report = check_template(Chat(tokenizer_of(refuses + QWEN, IM, "<|im_end|>")))
    assert report.is_followed and "a user behind a result" in report.line


def test_a_check_of_words_that_become_a_thought() -> None:
    moves = QWEN.replace(
        "{{ m.content or '' }}",
        "{%- if m.tool_calls and m.content and not m.reasoning_content -%}"
        "{{ '<think>\n' + m.content + '\n</think>\n\n' }}"
        "{%- else -%}{{ m.content or '' }}{%- endif -%}",
    ).replace("(loop.first and m.content) or ", "")
    report = check_template(Chat(tokenizer_of(moves, IM, "<|im_end|>")))
    assert report.is_followed, report.line


def test_a_check_of_thoughts_that_stand_in_the_words() -> None:
    thought = "{%- if m.reasoning_content -%}{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{%- endif -%}"
    assert thought in QWEN
    simple = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{%- if add_generation_prompt -%}<|im_start|>assistant\n{% endif %}"
    )
    for template in (QWEN.replace(thought, ""), simple):
        assert check_template(Chat(tokenizer_of(template, IM, "<|im_end|>"))).is_followed


def test_thoughts_in_words_of_a_family_that_knows_none() -> None:
    chat = Chat(tokenizer_of(MISTRAL, MISTRAL_MARKS, "</s>"))
    assert check_chat(chat, "thought", PROBES["thought"]).verdict == "exact"


def test_an_empty_thought_that_was_not_sampled_is_none_in_the_stream() -> None:
    thought = "{%- if m.reasoning_content -%}{{ '<think>\n' + m.reasoning_content"
    always = "{%- if m.reasoning_content or loop.last -%}{{ '<think>\n' + (m.reasoning_content or '')"
    chat = Chat(tokenizer_of(QWEN.replace(thought, always), IM, "<|im_end|>"))
    assert written(chat, "A")[0] == "<think>\n\n</think>\n\nA"
    for said, starts in (("A", False), ("<think>\n\n</think>\n\nA", True)):
        conversation = chat.conversation()
        conversation.prompt([user("Q")])
        conversation.record((*chat.encoder.encode_marked(said, continues=True), chat.end_id))
        assert conversation.prompt([user("Q")]).starts_segment is starts


def test_an_empty_thought_of_the_prompt_stays_in_the_stream() -> None:
    closes = OPENS.replace(
        "assistant\n<think>\n' }}{%- endif", "assistant\n<think>\n\n</think>\n\n' }}{%- endif"
    )
    closes = closes.replace("'<|im_start|>assistant\n<think>\n' + r", "'<|im_start|>assistant\n' + T + r")
    kept = "(('<think>\n' + r + '\n</think>\n\n') if loop.last else '') + c"
    closes = closes.replace("T + r + '\n</think>\n\n' + c", kept)
    conversation = (chat := Chat(tokenizer_of(closes, IM, "<|im_end|>"))).conversation()
    conversation.prompt([user("Q")])
    conversation.record(chat.write("A"))
    assert not conversation.prompt([user("Q")]).starts_segment


def test_a_table_that_training_saved_is_found_again() -> None:
    tokenizer = tokenizer_of(QWEN, IM, "<|im_end|>")
    first = Chat(tokenizer).format
    assert first is not None
    attach_table(tokenizer, first)
    assert Chat(tokenizer).format is first


def test_answers_that_depend_on_what_came_before_are_written_anew() -> None:
    counted = QWEN.replace("{{ m.content or '' }}", "{{ (loop.index | string) + (m.content or '') }}")
    assert not Chat(tokenizer_of(counted, IM, "<|im_end|>")).writer.is_free
    short = "{%- if messages | length > 2 -%}{{ raise_exception('too long') }}{%- endif -%}" + QWEN
    assert not Chat(tokenizer_of(short, IM, "<|im_end|>")).writer.is_free


def test_a_header_that_the_history_has_not() -> None:
    headless = BODY.replace("'<|im_start|>assistant\n' + HISTORY", "m.content").replace("OPENER", "")
    assert written(Chat(tokenizer_of(headless, IM, "<|im_end|>")), "A") == ("A", ())


def test_a_mark_behind_the_header_that_is_no_thought() -> None:
    strange = BODY.replace("HISTORY", "m.content").replace("OPENER", "<|go|>")
    chat = Chat(tokenizer_of(strange, (*IM, "<|go|>"), "<|im_end|>"))
    assert written(chat, "A") == ("A", ("form",))


def test_a_template_without_any_mark_ends_with_the_tokenizers_end() -> None:
    bare = (
        "{%- for m in messages -%}{{ m.role + ': ' + (m.content or '') }}"
        "{%- for c in m.tool_calls or [] -%}{{ '@' + c.function.name + (c.function.arguments | tojson) }}{%- endfor -%}"
        "{{ '\n' }}{%- endfor -%}{%- if add_generation_prompt -%}{{ 'assistant: ' }}{%- endif -%}"
    )
    chat = Chat(tokenizer_of(bare, (), "<|end|>"))
    assert chat.encoder.decode(chat.write("A")[-1:]) == "<|end|>"


def test_where_an_empty_thought_ends_a_prompt(chat: Chat) -> None:
    assert chat.writer.find_closed_thought("a\n<think>\n\n</think>\n\n") == 2
    assert chat.writer.find_closed_thought("a\n<think>\n") is None


def test_a_check_of_a_thought_that_is_read_as_words(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = Chat(tokenizer_of(MISTRAL, MISTRAL_MARKS, "</s>"))
    conversation = chat.conversation()
    conversation.prompt([user("Q")])
    monkeypatch.setattr(type(conversation), "read", lambda *_: Answer(content="<think>\nR\n</think>\n\nA"))
    message = Message(role="assistant", content=as_content("A"), reasoning="R")
    assert check_answer(chat, conversation, conversation.write(message).token_ids, message) == ""
