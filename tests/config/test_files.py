"""Configuration files: what is read, and the one line about what cannot be."""

import json
from pathlib import Path

import pytest

from quintain.config import read_file
from quintain.errors import ConfigError, QuintainError, StoreError, UsageError

TABLE = {"steps": 3, "policies": {"critic": {"learning_rate": 0.001}}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_tables_of_toml_and_json() -> None:
    Path("c.toml").write_text("steps = 3\n[policies.critic]\nlearning_rate = 1e-3\n")
    Path("c.json").write_text(json.dumps(TABLE))
    assert read_file(Path("c.toml")) == read_file(Path("c.json")) == TABLE


@pytest.mark.parametrize(("name", "text"), [("c.toml", 'a = "ä"'), ("c.json", '{"a": "ä"}')])
def test_a_byte_order_mark_is_no_part_of_the_text(name: str, text: str) -> None:
    Path(name).write_text(text, encoding="utf-8-sig")
    assert read_file(Path(name)) == {"a": "ä"}


@pytest.mark.parametrize(
    ("name", "content", "kind", "line"),
    [
        ("c.yaml", b"a: 1", UsageError, "configuration file: got 'c.yaml'; give a .json or a .toml file"),
        ("c.jsonl", b"{}", UsageError, "configuration file: got 'c.jsonl', which holds rows of data, not a "
         "configuration; give a .json or a .toml file"),
        ("c.toml", "a = 'ä'".encode("latin-1"), ConfigError, "configuration file c.toml: got byte 5, which is not "
         "UTF-8; save as UTF-8"),
        ("c.json", '{"a": 1}'.encode("utf-16"), ConfigError, "configuration file c.json: got byte 0, which is not "
         "UTF-8; save as UTF-8"),
        ("c.json", b"[1]", ConfigError, "configuration file c.json must hold a table: got [1]; use {"),
        ("c.json", b'{"a": {"b": 1, "b": 2}}', ConfigError, "configuration file c.json: got the key 'b' twice; "
         "correct it"),
        ("c.toml", b"a = 1\na = 2", ConfigError, "configuration file c.toml: got Cannot overwrite a value"),
        ("c.json", b"[" * 100_000, ConfigError, "configuration file c.json: got maximum recursion depth exceeded"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_one_line(
    name: str, content: bytes, kind: type[Exception], line: str
) -> None:
    Path(name).write_bytes(content)
    with pytest.raises(kind) as caught:
        read_file(Path(name))
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_names_its_neighbour() -> None:
    with pytest.raises(UsageError, match=r"got 'long.toml', which is no file; check the path$"):
        read_file(Path("long.toml"))
    Path("loong.json").write_text("{}")
    with pytest.raises(UsageError, match=r"which is no file; did you mean 'loong.json'\?$"):
        read_file(Path("long.toml"))
    Path("folder.toml").mkdir()
    with pytest.raises(UsageError, match=r"'folder.toml', which is no file"):
        read_file(Path("folder.toml"))


def test_a_file_that_the_system_withholds(monkeypatch: pytest.MonkeyPatch) -> None:
    def withheld(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    Path("c.toml").write_text("")
    monkeypatch.setattr(Path, "read_text", withheld)
    with pytest.raises(
        StoreError, match=r"^configuration file c.toml: got Permission denied; check its permissions$"
    ):
        read_file(Path("c.toml"))
    assert issubclass(StoreError, QuintainError)
