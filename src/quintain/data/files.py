"""Files of records in, one object at a time with its line: JSON lines, JSON arrays, Parquet, folders of `datasets`.

What cannot be read is one error with the file, the line and the cure. Nothing is fetched, and no code that lies beside
the data is run.
"""

import hashlib
import importlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from quintain.errors import DataError, MissingExtra
from quintain.types.json_text import load_json
from quintain.types.unicode import valid_text

TEXTS, TABLES = (".jsonl", ".ndjson", ".json"), (".parquet", ".arrow")
SPLITS = "dataset_dict.json"
"""Lists the splits of a folder that `datasets` saved."""
TRAIN = "train"
BESIDE = frozenset({"dataset_info.json", "dataset_infos.json", "state.json", SPLITS})
"""Files of `datasets` that hold no record."""
BLOCK = 1 << 20
HALVES = re.compile(r"\\u[dD][89a-fA-F]")
"""How JSON spells half of a surrogate pair, alone or beside the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileValue:
    """A value of a file: ``FileValue(file="chats.jsonl", line=3, value={"messages": […]})``."""

    file: str
    """name of the file, below the folder that was named"""
    line: int
    """line on which it begins, from 1; in a table its row"""
    value: object
    """a `DataError` where the line is no JSON: whoever uses the value raises it"""
    is_row: bool = False
    is_mended: bool = False
    """whether a text in it had half of a surrogate pair, which is U+FFFD now"""

    @property
    def place(self) -> str:
        """Where it stands, for errors: ``chats.jsonl line 3``."""
        return f"{self.file} {'row' if self.is_row else 'line'} {self.line}"


def data_files(source: Path) -> list[Path]:
    """Return the files with records that `source` is, or that are in it and its folders, in order of their names.

    Of a folder that `datasets` saved with several splits, those of ``train``.

    Raises:
        DataError: there are none, or there is no such place.
    """
    if source.is_file():
        if source.suffix in (*TEXTS, *TABLES):
            return [source]
        raise DataError(
            f"data {source}: got a file of the kind {source.suffix or 'without an ending'}; give "
            f"{', '.join((*TEXTS, *TABLES))} or a folder of them"
        )
    if not source.is_dir():
        raise DataError(f"data {source}: got no such file or folder; check the path")
    root = source / TRAIN if (source / SPLITS).is_file() else source
    found = sorted(
        file
        for file in root.rglob("*")
        if file.suffix in (*TEXTS, *TABLES)
        and file.name not in BESIDE
        and not any(part.startswith(".") for part in file.relative_to(root).parts)
    )
    if not found:
        raise DataError(
            f"data {source}: got a folder without {', '.join((*TEXTS, *TABLES))}; give one that holds records"
        )
    return found


def is_data(path: Path) -> bool:
    """Whether `path` looks like records rather than a model or a run: a file of a known ending, or a folder of them."""
    if path.is_file():
        return path.suffix in (*TEXTS, *TABLES)
    if not path.is_dir() or any((path / name).exists() for name in ("config.json", "run.db")):
        return False
    try:
        return bool(data_files(path))
    except DataError:
        return False


def digest(source: Path) -> str:
    """Return the SHA-256 of names and contents of the files of `source`, in hexadecimal digits."""
    total = hashlib.sha256()
    for file in data_files(source):
        own = hashlib.sha256()
        with open(file, "rb") as stream:
            while block := stream.read(BLOCK):
                own.update(block)
        total.update(f"{name_of(file, source)}\0{own.hexdigest()}\n".encode())
    return total.hexdigest()


def read_objects(source: Path) -> Iterator[FileValue]:
    """Yield every value of the files of `source` in order, blank lines left out.

    Raises:
        DataError: a file that is empty, in another encoding than UTF-8, or broken: with the line and the cure.
        MissingExtra: a table, without pyarrow.
    """
    for file in data_files(source):
        name = name_of(file, source)
        count = 0
        for found in read_table(file, name) if file.suffix in TABLES else read_text(file, name):
            count += 1
            yield found
        if not count:
            raise DataError(f"{name}: got no record; write one JSON object a line, or leave the file out")


def name_of(file: Path, source: Path) -> str:
    """Return what `file` of `source` is called in errors and in the journal."""
    return file.name if file == source else f"{source.name}/{file.relative_to(source).as_posix()}"


def read_text(file: Path, name: str) -> Iterator[FileValue]:
    """Yield the values of a text file: one a line, or those of one array."""
    text = decode(file.read_bytes(), name)
    start = text.lstrip()[:1]
    if file.suffix == ".json" and start == "[":
        yield from read_array(text, name)
    elif file.suffix == ".json" and (whole := single_object(text)) is not None:
        whole, is_mended = mend_texts(whole, text)
        yield FileValue(file=name, line=1, value=whole, is_mended=is_mended)
    else:
        yield from read_lines(text.split("\n"), name)


def decode(raw: bytes, name: str) -> str:
    """Return the text of `raw`, which is UTF-8, with a byte order mark or without.

    Raises:
        DataError: it is not, or begins as UTF-16 does.
    """
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in raw[:64]:
        raise DataError(
            f"{name} line 1: got UTF-16 (or a file that is no text); save it as UTF-8: "
            f"iconv -f UTF-16 -t UTF-8 {name} > new.jsonl"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{name} line {line}: got the byte 0x{raw[error.start]:02x}, which is not UTF-8 (Latin-1, perhaps); save "
            f"the file as UTF-8: iconv -f LATIN1 -t UTF-8 {name} > new.jsonl"
        ) from error


def read_lines(lines: Iterable[str], name: str) -> Iterator[FileValue]:
    """Yield the value of each line that is not blank; what is no JSON is its error."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        is_mended = False
        try:
            value, is_mended = mend_texts(json.loads(line), line)
        except (ValueError, RecursionError) as error:  # a number of 5,000 digits is no JSONDecodeError
            value = DataError(f"{name} line {number}: got no JSON ({error}); write one object per line")
        yield FileValue(file=name, line=number, value=value, is_mended=is_mended)


def read_array(text: str, name: str) -> Iterator[FileValue]:
    """Yield the members of the JSON array `text`, each with the line that it begins on."""
    decoder = json.JSONDecoder()
    at, line, counted = text.index("[") + 1, 1, 0
    while True:
        while at < len(text) and (text[at].isspace() or text[at] == ","):
            at += 1
        line, counted = line + text.count("\n", counted, at), at
        if text[at : at + 1] == "]":
            return
        try:
            value, end = decoder.raw_decode(text, at)
            value, is_mended = mend_texts(value, text[at:end])
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{name} line {line}: got no JSON ({str(error).partition(':')[0]}); mend the array, or write one "
                "object per line"
            ) from None
        yield FileValue(file=name, line=line, value=value, is_mended=is_mended)
        at = end


def mend_texts(value: object, written: str) -> tuple[object, bool]:
    """Return `value`, which `written` spells, with every text valid (`valid_text`), and whether one was not."""
    if HALVES.search(written) is None:
        return value, False
    made = map_texts(valid_text, value)
    return made, made != value


def map_texts(change: Callable[[str], str], value: object) -> object:
    """Return JSON data with every text and key changed by `change`."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [map_texts(change, each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        cells = cast("dict[str, object]", value)
        return {change(key): map_texts(change, cell) for key, cell in cells.items()}
    return value


def single_object(text: str) -> object | None:
    """Return the object that the whole of `text` is; None where it is not one."""
    try:
        value: object = load_json(text)
    except ValueError:
        return None
    return cast(object, value) if isinstance(value, dict) else None


def read_table(file: Path, name: str) -> Iterator[FileValue]:
    """Yield the rows of a Parquet or Arrow file; cells without a value are left out of a row."""
    pyarrow = package("pyarrow", name)
    try:
        for batch in batches_of(file, name):
            for number, row in batch:
                value = {key: bare(cell) for key, cell in row.items() if cell is not None}
                yield FileValue(file=name, line=number, value=value, is_row=True)
    except (pyarrow.ArrowException, OSError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{name}: got a table that cannot be read ({first}); write it again") from error


def batches_of(file: Path, name: str) -> Iterator[Iterator[tuple[int, dict[str, Any]]]]:
    """Yield the numbered rows of `file`, some at a time."""
    if file.suffix == ".parquet":
        batches = package("pyarrow.parquet", name).ParquetFile(file).iter_batches(1000)
    else:
        ipc = package("pyarrow.ipc", name)
        mapped = package("pyarrow", name).memory_map(str(file))
        if mapped.read(6) == b"ARROW1":
            reader = ipc.open_file(mapped)
            batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
        else:
            mapped.seek(0)
            batches = iter(ipc.open_stream(mapped))
    first = 1
    for batch in batches:
        yield enumerate(batch.to_pylist(), first)
        first += batch.num_rows


def bare(value: object) -> object:
    """Return `value` of a table as JSON would have it: columns of a struct that a row does not use are left out."""
    if isinstance(value, dict):
        cells = cast("dict[str, object]", value)
        return {key: bare(cell) for key, cell in cells.items() if cell is not None}
    if isinstance(value, list):
        return [bare(cell) for cell in cast("list[object]", value)]
    return value


def package(module: str, name: str) -> Any:
    """Return the imported `module` of pyarrow."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra.for_package("pyarrow", "data", f"reading the table {name}") from error
