"""A conversation as plain text, and where the answers stand in it."""

from quintain.data.files import FileValue
from quintain.data.records import read_record
from quintain.pipelines.likelihood import plain


def test_answers_stand_where_the_plain_text_says() -> None:
    call = {"type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "4"},
        {"role": "assistant", "content": "4"},
    ]
    record = read_record({"messages": messages}, FileValue(file="f", line=1, value=None))
    text, spans = plain(record, [1, 3])
    assert text.startswith("User: 2 + 2?\nAssistant: {") and text.endswith("Tool: 4\nAssistant: 4\n")
    assert [text[begin:end] for begin, end in spans] == [
        ' {"name": "add", "arguments": "{\\"a\\": 1}"}\n',
        " 4\n",
    ]
    assert plain(record, [3])[1] == spans[1:]
