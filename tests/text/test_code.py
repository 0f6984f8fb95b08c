import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quintain.errors import DataError
from quintain.text.code import Style, parse_code, write_code
from quintain.text.parse import LONGEST_READ


def test_blocks_are_read_by_value() -> None:
    assert parse_code("I look.\n```python\nx = 1\n\nprint(x)\n```\nthen").text == "x = 1\n\nprint(x)"
    assert parse_code("```py\na\n```\nand\n```\n  b\n```").text == "a\n  b"
    assert parse_code("<execute>\na = 1\n</execute> <execute>print(a)</execute>").text == "a = 1\nprint(a)"
    assert parse_code("x <execute>a</execute> y\n```python\nb\n```").text == "a\nb"
    assert parse_code("```python\ns = '```'\n```").text == "s = '```'"


@pytest.mark.parametrize(
    ("text", "style", "error"),
    [
        ("I think.", "fence", "there is no code: got 'I think.'; write ```python CODE ```"),
        ("", "tag", "there is no code: got ''; write <execute> CODE </execute>"),
        ("```python\nx = 1", "fence", "a block of code is not closed; write ```python CODE ```"),
        ("<execute>x", "tag", "a block of code is not closed; write <execute> CODE </execute>"),
        ("```python\n\n  \n```", "fence", "the block of code is empty; write ```python CODE ```"),
        ("x" * (LONGEST_READ + 1), "fence", f"the answer is {LONGEST_READ + 1} characters long"),
    ],
)
def test_what_cannot_be_read_is_told(text: str, style: Style, error: str) -> None:
    action = parse_code(text, style)
    assert action.error is not None and action.error.startswith(error) and not action.tool_calls


def test_what_is_written_is_read_back() -> None:
    for style in ("fence", "tag"):
        for code in ("print(1)", "def f(x):\n    return x\n\nf(2)", "s = 'CODE'"):
            assert parse_code(f"So.\n{write_code(code, style)}", style).text == code
    assert write_code("x") == "```python\nx\n```" and write_code("x", "tag") == "<execute>\nx\n</execute>"
    with pytest.raises(DataError, match="writing code as a fence block: got "):
        write_code("s = '''\n```\n'''")
    assert parse_code(write_code("s = '''\n```\n'''", "tag")).text == "s = '''\n```\n'''"


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="`<>/executpython \n\tab=", max_size=60))
def test_any_text_is_read(text: str) -> None:
    action = parse_code(text)
    assert action.error is None or action.error
