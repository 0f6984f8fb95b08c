"""examples/tools.jinja, for other servers, writes what a model whose template has no tools was trained on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.text.families import as_row, as_tools
from transformers import PreTrainedTokenizerFast

from quintain.text.chat import Chat
from quintain.types import Message, ToolCall, ToolSpec, as_content

SOURCE = (Path(__file__).resolve().parents[2] / "examples" / "tools.jinja").read_text(encoding="utf-8")
TOOLS = (
    ToolSpec(
        name="find",
        description='Find an "order" & more — 日本.',
        parameters={"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]},
    ),
    ToolSpec(name="submit", description="", parameters={"type": "object", "properties": {}}),
)
CALL = ToolCall(name="find", arguments={"order": 'A"4\n', "deep": {"b": [1, None, True], "a": 0.5}})
CHAT = [
    Message(role="system", content=as_content("Help.")),
    Message(role="user", content=as_content("Where is A4?")),
    Message(role="assistant", content=as_content(""), tool_calls=(CALL,)),
    Message(role="tool", content=as_content("<lost>"), name="find"),
    Message(role="assistant", content=as_content("It is lost.")),
    Message(role="user", content=as_content("Thanks.")),
]


@pytest.mark.parametrize("tools", [TOOLS, ()])
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("length", [2, 3, 4, 5, 6])
def test_it_writes_what_was_trained_on(
    family: Callable[..., PreTrainedTokenizerFast], tools: tuple[ToolSpec, ...], start: int, length: int
) -> None:
    tokenizer = family("chatml")
    chat = Chat(tokenizer)
    messages = [m for m in CHAT[start:length] if tools or not (m.tool_calls or m.role == "tool")]
    template = chat.template
    rendered = template.render(
        template.opening_entries([template.entries.entry(m) for m in messages], tools), tools
    )
    trained = "".join(part for part, _ in chat.encoder.parts(rendered))
    text = tokenizer.apply_chat_template(  # pyright: ignore[reportUnknownMemberType]
        [as_row(m) for m in messages],
        tools=list[Any](as_tools(tools)) if tools else None,
        chat_template=SOURCE,
        tokenize=False,
        add_generation_prompt=True,
    )
    assert text == trained
