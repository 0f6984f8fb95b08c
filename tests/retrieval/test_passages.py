import gzip
from pathlib import Path

import pytest

from quintain.errors import DataError
from quintain.retrieval.passages import Passage, fingerprint, read_passages

CONTROL = """Package: bc
Version: 1.0
Description: GNU bc arbitrary precision calculator
 GNU bc is an interactive calculator.
 .
 It has a language of its own.

Package: bc
Description: told twice

Package: nothing
"""


def test_debian_descriptions(tmp_path: Path) -> None:
    (tmp_path / "status").write_text(CONTROL)
    text = "GNU bc arbitrary precision calculator GNU bc is an interactive calculator. It has a language of its own."
    assert read_passages(tmp_path / "status") == (Passage(id="bc", title="bc", text=text),)
    (tmp_path / "packages.gz").write_bytes(gzip.compress(CONTROL.encode()))
    assert read_passages(tmp_path / "packages.gz")[0].text == text


def test_a_folder_is_cut_at_blank_lines(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.md").write_text("one two\n\nthree\n\n" + "word " * 99 + "\n\n" + "long " * 250)
    (tmp_path / "picture.png").write_bytes(b"\xff")
    found = read_passages(tmp_path)
    assert [(p.id, p.title, len(p.text.split())) for p in found] == [
        ("a/b#0", "a/b", 3), ("a/b#1", "a/b", 99), ("a/b#2", "a/b", 100), ("a/b#3", "a/b", 150),
    ]  # fmt: skip
    (tmp_path / "one.txt").write_text("only this")
    assert read_passages(tmp_path / "one.txt") == (Passage(id="one#0", title="one", text="only this"),)


def test_json_lines_as_search_r1_has_them(tmp_path: Path) -> None:
    file = tmp_path / "corpus.jsonl"
    file.write_text(
        '{"id": "7", "contents": "\\"Rome\\"\\nThe mayor of Rome is Ben."}\n\n{"text": "x"}\n'
        '{"contents": "all of it"}\n'
    )
    assert read_passages(file) == (
        Passage(id="7", title="Rome", text="The mayor of Rome is Ben."),
        Passage(id="2", title="", text="x"),
        Passage(id="3", title="", text="all of it"),
    )


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("empty.txt", b"", "got no passage"),
        ("bad.jsonl", b'{"text": "x"}\n<html>', "got line 2, which is no passage"),
        ("list.jsonl", b"[1]", "a passage must be an object, not list"),
        ("no.jsonl", b'{"id": 1}', "it has neither contents nor text"),
        ("number.jsonl", b'{"text": 1}', "title and text must be texts"),
        ("latin.txt", b"caf\xe9", "UnicodeDecodeError"),
        ("cut.xz", b"abc", "LZMAError"),
        (
            "bomb.jsonl.gz",
            gzip.compress(b'{"text": "%s"}' % (b"a" * (1 << 25)), mtime=0),
            "bytes that become more than",
        ),
        ("cut.gz", gzip.compress(b"Package: a" * 1000, mtime=0)[:40], "EOFError"),
    ],
)
def test_what_is_no_corpus_is_one_line(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=r"corpus '.*: got") as found:
        read_passages(tmp_path / name)
    assert said in str(found.value) and "\n" not in str(found.value)
    with pytest.raises(DataError, match="got nothing there; give a folder"):
        read_passages(tmp_path / "missing")


def test_the_fingerprint_is_of_what_is_said_and_its_order() -> None:
    a, b = Passage(id="0", title="x", text="y"), Passage(id="1", title="x", text="z")
    assert fingerprint([a, b]) == fingerprint([a, b]) != fingerprint([b, a])


def test_halves_of_surrogate_pairs_are_made_whole(tmp_path: Path) -> None:
    file = tmp_path / "corpus.jsonl"
    file.write_text('{"id": "\\ud800", "title": "\\udfff", "text": "a \\ud83d\\ude00 \\ud800"}\n')
    (found,) = read_passages(file)
    assert found == Passage(id="\ufffd", title="\ufffd", text="a \U0001f600 \ufffd")
    assert fingerprint([found])


def test_a_long_paragraph_is_cut_in_time_that_its_length_bounds(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text(" ".join(map(str, range(250))) + "\n\n" + "word " * 1_000_000)
    found = read_passages(tmp_path / "long.txt")
    assert [len(each.text.split()) for each in found[:3]] == [100, 150, 100]
    assert sum(len(each.text.split()) for each in found) == 1_000_250


def test_a_link_that_leads_out_of_a_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "own.txt").write_text("of the folder")
    (folder / "again.txt").symlink_to("own.txt")
    assert len(read_passages(folder)) == 2
    (tmp_path / "key.txt").write_text("of the user")
    (folder / "key.txt").symlink_to(tmp_path / "key.txt")
    with pytest.raises(DataError, match="a link that leads out of the folder"):
        read_passages(folder)
