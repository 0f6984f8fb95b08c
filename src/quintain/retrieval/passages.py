"""Texts that are searched: passages, out of folders, JSON lines or Debian's descriptions of packages.

A folder's text files are cut at blank lines into passages of about `WORDS` words. JSON lines have ``contents`` (whose
first line is the title, as in Search-R1's corpora), or ``title`` and ``text``.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from quintain.errors import DataError
from quintain.types.unicode import valid_text

WORDS = 100
MAX_GROWTH, MIN_UNPACKED = 100, 1 << 24
"""Bytes that one byte of a packed file may become, and those that any file may: texts become 3 to 20 times as long."""
TEXT_FILES = frozenset({".txt", ".md", ".rst", ".text"})
FIELD = re.compile(r"^(\w[\w-]*):[ \t]*(.*(?:\n[ \t].*)*)", re.MULTILINE)
"""A field of a control file, with the lines that continue it."""
PACKED = {".gz": gzip.open, ".xz": lzma.open}


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A text that can be found: ``Passage(id="7", title="Rome", text="The mayor of Rome is Ben.")``."""

    id: str
    title: str
    text: str

    @property
    def contents(self) -> str:
        """The title and the text, a line each."""
        return f"{self.title}\n{self.text}"


@runtime_checkable
class HasPassages(Protocol):
    """An environment whose texts a server can search in its place."""

    def passages(self) -> Sequence[Passage]:
        """Return the texts."""
        ...


def fingerprint(passages: Sequence[Passage]) -> str:
    """Return a digest of `passages` and their order."""
    digest = hashlib.blake2b(digest_size=8)
    for passage in passages:
        digest.update(f"{passage.id}\x1f{passage.contents}\x1e".encode())
    return digest.hexdigest()


def read_passages(path: str | Path) -> tuple[Passage, ...]:
    """Return the passages in the folder or file at `path`; ``.gz`` and ``.xz`` files are unpacked.

    Raises:
        DataError: there is none, or a file cannot be read.
    """
    place = Path(path)
    asked = f"corpus {str(path)!r}: got"
    try:
        found = tuple(_of_folder(place) if place.is_dir() else _of_file(place))
    except FileNotFoundError as error:
        raise DataError(
            f"{asked} nothing there; give a folder of texts, or a file (docs/retrieval.md)"
        ) from error
    except (OSError, EOFError, UnicodeDecodeError, lzma.LZMAError) as error:
        raise DataError(f"{asked} {type(error).__name__}: {error}; give text in UTF-8") from error
    except ValueError as error:
        raise DataError(f"{asked} {error}") from error
    if not found:
        advice = f"give {', '.join(sorted(TEXT_FILES))} files, JSON lines, or a Debian control file"
        raise DataError(f"{asked} no passage; {advice}")
    return found


def _of_folder(folder: Path) -> Iterator[Passage]:
    for file in sorted(folder.rglob("*")):
        if file.suffix.lower() in TEXT_FILES and file.is_file():
            if not file.resolve().is_relative_to(folder.resolve()):
                raise ValueError(f"{file}, a link that leads out of the folder; put the file itself there")
            title = file.relative_to(folder).with_suffix("").as_posix()
            for number, text in enumerate(_pieces(file.read_text(encoding="utf-8"))):
                yield Passage(id=f"{title}#{number}", title=title, text=text)


def _of_file(file: Path) -> Iterator[Passage]:
    most = MIN_UNPACKED + MAX_GROWTH * file.stat().st_size
    with PACKED.get(file.suffix.lower(), open)(file, "rb") as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise ValueError(
            f"{file.stat().st_size:,} bytes that become more than {most:,}; unpack the file first"
        )
    text = content.decode().replace("\r\n", "\n").replace("\r", "\n")
    kind = file.with_suffix("").suffix if file.suffix.lower() in PACKED else file.suffix
    if kind.lower() in (".jsonl", ".json"):
        return _of_lines(text)
    if re.match(r"Package: ", text):
        return _of_packages(text)
    return (
        Passage(id=f"{file.stem}#{number}", title=file.stem, text=piece)
        for number, piece in enumerate(_pieces(text))
    )


def _of_lines(text: str) -> Iterator[Passage]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield passage_of(json.loads(line), str(number - 1))
        except (ValueError, TypeError, RecursionError) as error:
            advice = 'write {"id": "7", "title": "Rome", "text": "…"} on each line'
            raise ValueError(f"line {number}, which is no passage ({error}); {advice}") from error


def passage_of(row: Any, number: str) -> Passage:
    """Return the passage in `row`, the object of a corpus or of a server's answer; without an id it has `number`.

    Raises:
        TypeError: it is no object, or a field is no text.
        ValueError: it has neither contents nor text.
    """
    if not isinstance(row, Mapping):
        raise TypeError(f"a passage must be an object, not {type(row).__name__}")
    found = cast("Mapping[str, object]", row)
    contents = found.get("contents")
    title, text = found.get("title"), found.get("text")
    if isinstance(contents, str):
        first, line, rest = contents.partition("\n")
        if text is None:
            text = rest if line else contents
        if title is None:
            title = first.strip().strip('"') if line else ""
    if text is None:
        raise ValueError("it has neither contents nor text")
    if not isinstance(text, str) or not isinstance(title or "", str):
        raise TypeError("title and text must be texts")
    return Passage(
        id=valid_text(str(found.get("id", number))), title=valid_text(str(title or "")), text=valid_text(text)
    )


def _of_packages(text: str) -> Iterator[Passage]:
    """Yield what the paragraphs of a control file describe; ``Description`` and its lines are the text."""
    seen: set[str] = set()
    for paragraph in re.split(r"\n\s*\n", text):
        fields = dict(FIELD.findall(paragraph))
        name, told = fields.get("Package", ""), fields.get("Description") or fields.get("Description-en", "")
        if name and told and name not in seen:
            seen.add(name)
            lines = (" ".join(line.split()) for line in told.splitlines())
            yield Passage(id=name, title=name, text=" ".join(line for line in lines if line not in ("", ".")))


def _pieces(text: str) -> Iterator[str]:
    """Cut `text` at blank lines into pieces of about `WORDS` words; a long paragraph is cut within."""
    words: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        own = paragraph.split()
        if words and len(words) + len(own) > WORDS:
            yield " ".join(words)
            words = []
        words += own
        done = 0
        while len(words) - done > 2 * WORDS:
            yield " ".join(words[done : done + WORDS])
            done += WORDS
        words = words[done:]
    if words:
        yield " ".join(words)
