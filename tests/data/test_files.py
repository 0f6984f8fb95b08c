import json
import sys
from pathlib import Path

import pytest

from quintain.data.files import data_files, digest, is_data, read_objects
from quintain.errors import DataError, MissingExtra

pa, ipc, pq = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.ipc", "pyarrow.parquet"))
GOOD = '{"a": 1}'


def values(source: Path) -> list[tuple[str, object]]:
    return [(found.place, found.value) for found in read_objects(source)]


def test_lines_arrays_and_single_objects(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(f"\ufeff{GOOD}\r\n\n{GOOD}", encoding="utf-8")
    (tmp_path / "b.json").write_text('\n[\n {"a":\n 1},\n\n {"a": 2}]')
    (tmp_path / "c.json").write_text('{\n"a": 3}')
    (tmp_path / "d.json").write_text('{"a": 4}\n{"a": 5}')
    (tmp_path / ".hidden.jsonl").write_text("{")
    name = tmp_path.name
    assert values(tmp_path) == [
        (f"{name}/a.jsonl line 1", {"a": 1}),
        (f"{name}/a.jsonl line 3", {"a": 1}),
        (f"{name}/b.json line 3", {"a": 1}),
        (f"{name}/b.json line 6", {"a": 2}),
        (f"{name}/c.json line 1", {"a": 3}),
        (f"{name}/d.json line 1", {"a": 4}),
        (f"{name}/d.json line 2", {"a": 5}),
    ]
    assert values(tmp_path / "c.json") == [("c.json line 1", {"a": 3})]


def test_a_separator_of_lines_within_a_text_is_none_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps({"a": "\u2028"}, ensure_ascii=False) + "\n" + GOOD, encoding="utf-8")
    assert [place for place, _ in values(file)] == ["a.jsonl line 1", "a.jsonl line 2"]


@pytest.mark.parametrize(
    ("name", "raw", "error"),
    [
        ("a.jsonl", b"", "a.jsonl: got no record"),
        ("a.jsonl", b" \n\n", "a.jsonl: got no record"),
        ("a.json", b"[]", "a.json: got no record"),
        ("a.json", b"[{},\n{]", "a.json line 2: got no JSON"),
        ("a.json", b'[{}\n,{"a": 1}', "a.json line 2: got no JSON"),
        (
            "a.jsonl",
            GOOD.encode() + b'\n{"a": "caf\xe9"}',
            "a.jsonl line 2: got the byte 0xe9.*iconv -f LATIN1",
        ),
        ("a.jsonl", GOOD.encode("utf-16"), "a.jsonl line 1: got UTF-16.*iconv -f UTF-16"),
        ("a.jsonl", GOOD.encode("utf-16-le"), "a.jsonl line 1: got UTF-16"),
        ("a.parquet", b"PAR1", "a.parquet: got a table that cannot be read"),
        ("a.arrow", b"nonsense", "a.arrow: got a table that cannot be read"),
        ("a.csv", b"x", "kind .csv; give .jsonl"),
    ],
)
def test_what_cannot_be_read_is_one_line_with_the_cure(
    tmp_path: Path, name: str, raw: bytes, error: str
) -> None:
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(DataError, match=error) as raised:
        values(tmp_path / name)
    assert "\n" not in str(raised.value)


def test_a_broken_line_is_an_error_for_whoever_uses_it(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(f"{GOOD}\n{{\n{GOOD}\n{'[' * 100_000}")
    found = [value for _, value in values(tmp_path / "a.jsonl")]
    assert found[0] == found[2] == {"a": 1}
    assert [str(error)[:29] for error in (found[1], found[3])] == [
        "a.jsonl line 2: got no JSON (",
        "a.jsonl line 4: got no JSON (",
    ]


def test_tables_and_folders_of_datasets(tmp_path: Path) -> None:
    table = pa.table({"messages": [[{"role": "user", "x": None}], [{"role": None, "x": 1}]], "n": [None, 2]})
    pq.write_table(table, tmp_path / "a.parquet")
    expected = [{"messages": [{"role": "user"}]}, {"messages": [{"x": 1}], "n": 2}]
    assert values(tmp_path / "a.parquet") == [
        ("a.parquet row 1", expected[0]),
        ("a.parquet row 2", expected[1]),
    ]
    saved = tmp_path / "saved"
    for split in ("train", "test"):
        (saved / split).mkdir(parents=True)
        with ipc.new_stream(str(saved / split / "data-00000-of-00001.arrow"), table.schema) as stream:
            stream.write_table(table)
        (saved / split / "state.json").write_text("{}")
        (saved / split / "dataset_info.json").write_text("{}")
    (saved / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert [value for _, value in values(saved)] == expected
    assert [file.parent.name for file in data_files(saved)] == ["train"]
    with ipc.new_file(str(tmp_path / "b.arrow"), table.schema) as file:
        file.write_table(table)
    assert [value for _, value in values(tmp_path / "b.arrow")] == expected


def test_a_table_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"x")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pip install -e .\.\[data\]"):
        values(tmp_path / "a.parquet")


def test_what_is_data(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(GOOD)
    (tmp_path / "empty").mkdir()
    assert is_data(tmp_path) and is_data(tmp_path / "a.jsonl")
    assert not is_data(tmp_path / "empty") and not is_data(tmp_path / "none")
    with pytest.raises(DataError, match=r"folder without \.jsonl"):
        data_files(tmp_path / "empty")
    with pytest.raises(DataError, match="no such file or folder"):
        data_files(tmp_path / "none")
    (tmp_path / "config.json").write_text("{}")
    assert not is_data(tmp_path)


def test_a_digest_is_that_of_names_and_contents(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(GOOD)
    first = digest(file)
    assert digest(file) == first and len(first) == 64
    file.write_text(GOOD + "\n")
    assert digest(file) != first
    assert digest(tmp_path) != digest(file)
