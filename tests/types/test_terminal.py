"""Other people's text does nothing to a terminal, and a command can be copied."""

import shlex

import pytest

from quintain.types.terminal import INVISIBLE, spell_out, spell_out_line, write_command, write_line

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b1m\r\x08ok\u202etxt.exe\u200b\ud800\U000e0041"


def test_what_moves_a_cursor_or_is_not_seen_is_spelled_out() -> None:
    assert spell_out(HOSTILE) == (
        "\\u001b]0;owned\\u0007\\u001b[2J\\u009b1m\\u000d\\u0008ok\\u202etxt.exe\\u200b\\ud800\\U000e0041"
    )
    assert spell_out("a\tb\nc é ⣀ 漢") == "a\tb\nc é ⣀ 漢"
    assert spell_out_line("a\n b\x1b") == "a b\\u001b"


@pytest.mark.parametrize("code", [*range(32), *range(127, 160)])
def test_every_control_character_is_but_line_feeds_and_tabs(code: int) -> None:
    assert bool(INVISIBLE.search(chr(code))) == (chr(code) not in "\n\t")


def test_every_word_of_a_command_is_quoted() -> None:
    words = ("quintain", "train", "x; touch y", "$(id)", "a'b", "runs/a@best", "guess?rooms=3&x=1", "")
    assert shlex.split(write_command(*words)) == list(words)
    assert (
        write_command("quintain", "eval", "runs/a", "--episodes", 512)
        == "quintain eval runs/a --episodes 512"
    )
    assert write_command("a\nb\x1b") == "'a\\nb\\u001b'"


def test_a_line_is_printed_where_it_belongs(capsys: pytest.CaptureFixture[str]) -> None:
    write_line("\x1b[31m")
    write_line()
    write_line(3, is_error=True)
    assert capsys.readouterr() == ("\\u001b[31m\n\n", "3\n")
