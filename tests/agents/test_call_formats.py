"""Tool calls the way other families write them, in a chat whose template says nothing of them."""

import pytest

from quintain.agents.harness import JsonTools
from quintain.agents.protocol import Brief
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.text.tool_formats import FORMATS
from quintain.types import Action, Completion, Task, ToolCall, ToolSpec

GUESS = ToolSpec(name="guess", description="Guess.", parameters={"type": "object"})
CALL = ToolCall(name="guess", arguments={"number": 16})
LISTED = '{"name": "guess", "description": "Guess.", "parameters": {"type": "object"}}'
WRITTEN = {
    "llama": '{"name": "guess", "parameters": {"number": 16}}; {"name": "guess", "parameters": {"number": 16}}',
    "mistral": (
        '[TOOL_CALLS][{"name": "guess", "arguments": {"number": 16}}, '
        '{"name": "guess", "arguments": {"number": 16}}]'
    ),
    "mistral-named": '[TOOL_CALLS]guess[ARGS]{"number": 16}[TOOL_CALLS]guess[ARGS]{"number": 16}',
}


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(train_tokenizer(["<|user|>A wall.<|assistant|>left<|end|>", "higher"], 280))


@pytest.mark.parametrize("calls", sorted(WRITTEN))
def test_golden_ids_of_other_formats(chat: Chat, calls: str) -> None:
    task = Task(id="t/train/0", environment="t", seed=0)
    session = JsonTools(chat, calls=calls).open(Brief(task=task, instructions="Go.", tools=(GUESS,)))
    told = (
        f"<|system|>Go.\n\nTools, one JSON schema per line:\n{LISTED}\n"
        f"To call a tool, write {FORMATS[calls].form}<|user|>A wall.<|assistant|>"
    )
    assert session.observe("A wall.").token_ids == chat.encoder.encode_marked(told, continues=False)
    ids = session.write(Action(tool_calls=(CALL, CALL)))
    assert ids == (*chat.encoder.plain(WRITTEN[calls]), chat.end_id)
    action = session.read(Completion(token_ids=ids, logprobs=(), stop="stop"))
    assert (action.tool_calls, action.error) == ((CALL, CALL), None)
    reply = session.observe("higher")
    assert chat.encoder.decode(reply.token_ids) == "<|tool|>higher<|assistant|>"
    assert not reply.starts_segment
    assert session.write(Action(text="left")) == chat.write("left")


def test_a_format_that_nobody_knows_is_refused(chat: Chat) -> None:
    task = Task(id="t/train/0", environment="t", seed=0)
    with pytest.raises(UsageError, match="format of tool calls: got 'qwen'"):
        JsonTools(chat, calls="qwen").open(Brief(task=task, instructions="Go.", tools=(GUESS,)))
