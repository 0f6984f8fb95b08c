"""``quintain retrieve``: one search, and a server from the command line."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("bm25s")

from quintain.retrieval.retriever import Recorded, Remote
from quintain.serve.listener import Listener

Cli = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "rome.txt").write_text("The mayor of Rome is Ben.")
    (tmp_path / "texts" / "orbit.txt").write_text("The seat of Orbit is Rome.")
    return str(tmp_path / "texts")


def test_one_search_is_shown(cli: Cli, folder: str) -> None:
    found = cli("retrieve", folder, "--query", "mayor", "--top", "1")
    assert (
        found.status == 0
        and found.out.endswith("rome: The mayor of Rome is Ben.\n")
        and "orbit" not in found.out
    )
    facts = cli("retrieve", "hopqa?facts=120", "--query", "mayor", "--kind", "dense", "--top", "2")
    assert facts.status == 0 and facts.out.count("The ") == 2


def test_a_corpus_is_served_and_recorded(
    cli: Cli, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def ask(listener: Listener) -> None:
        with closing(Remote(listener.url)) as far:
            told.append(far.search("seat of Orbit", 1)[0].passage.text)

    monkeypatch.setattr(Listener, "run_until_closed", ask)
    found = cli("retrieve", folder, "--port", "0", "--record", str(tmp_path / "record"))
    assert found.status == 0 and told == ["The seat of Orbit is Rome."]
    assert found.out.startswith(f"2 passages of {folder} at http://127.0.0.1:")
    with closing(Recorded(None, tmp_path / "record")) as record:
        assert record.search("seat of Orbit", 1)[0].passage.text == told[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("missing",),
            "corpus 'missing': got nothing there; give a folder of texts, or a file (docs/retrieval.md)",
        ),
        (("guess",), "corpus: got the environment 'guess', which has no texts; try hopqa?facts=50000"),
        (("hopqa",), "texts of hopqa: got questions that have their own; give facts=50000, or corpus=PATH"),
        (("hopqa?facts=120", "--kind", "bm52"), "kind of retriever: got 'bm52'; did you mean 'bm25'?"),
        (("x", "--embedder", "e"), "--embedder: got 'e' with --kind bm25; give --kind dense"),
        (("x", "--top", "0"), "--top"),
    ],
)
def test_what_cannot_be_searched_is_one_line(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    found = cli("retrieve", *arguments, "--query", "x")
    assert found.status != 0 and found.line.startswith(said)
