"""The tables of README, documentation and navigation are those of what is shown."""

import io
import runpy
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from quintain.methods.table import PURPOSES
from quintain_evidence.layers import standing
from quintain_evidence.layers.records import RESULTS
from quintain_evidence.layers.spec import signatures
from quintain_evidence.layers.standing import standings

ROOT = Path(__file__).resolve().parents[2]


def run_tables(root: Path, *argv: str) -> tuple[int, str, str]:
    """Run docs/tables.py as it stands in the folder `root`; return its exit status and what it prints."""
    program, out, told = str(root / "docs" / "tables.py"), io.StringIO(), io.StringIO()
    status = 0
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(out), redirect_stderr(told):
        patched.setattr(sys, "argv", [program, *argv])
        try:
            runpy.run_path(program, run_name="__main__")
        except SystemExit as ending:
            status = int(ending.code or 0)
    return status, out.getvalue(), told.getvalue()


def test_the_tables_of_methods_are_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is stale is named, and written anew only when that is asked for."""
    known = standings(signatures(), RESULTS)  # computed once
    monkeypatch.setattr(standing, "standings", lambda *_: known)
    assert run_tables(ROOT, "--check")[0] == 0, "run python docs/tables.py"
    (tmp_path / "docs" / "methods").mkdir(parents=True)
    (tmp_path / "src" / "quintain" / "methods").mkdir(parents=True)
    columns = "src/quintain/methods/columns.json"
    gigpo = "docs/methods/gigpo.md"
    pages = (
        "docs/methods/index.md",
        "docs/which-method.md",
        "docs/data.md",
        "docs/pretrained.md",
        "docs/machines.md",
        gigpo,
    )
    names = ("README.md", *pages, "docs/configuration.md", "mkdocs.yml", columns, "docs/tables.py")
    for name in names:
        shutil.copy(ROOT / name, tmp_path / name)
    readme, index = tmp_path / "README.md", tmp_path / "docs" / "methods" / "index.md"
    index.write_text(
        index.read_text(encoding="utf-8").replace("[`gigpo`](gigpo.md)", "gigpo"), encoding="utf-8"
    )
    readme.write_text(readme.read_text(encoding="utf-8") + "More.\n", encoding="utf-8")
    page = tmp_path / gigpo
    changed = page.read_text(encoding="utf-8").replace("| `--std` | unbiased |", "| `--std` | none |")
    page.write_text(changed, encoding="utf-8")
    stale = index.read_text(encoding="utf-8")
    stale_tables = f"stale tables in docs/methods/index.md, {gigpo}: run python docs/tables.py\n"
    assert run_tables(tmp_path, "--check") == (1, "", stale_tables)
    assert index.read_text(encoding="utf-8") == stale, "a check writes nothing"
    status, _, told = run_tables(tmp_path)
    assert status == 0 and "docs/methods/dpo.md: begun; say there what the method is for" in told
    begun = (tmp_path / "docs" / "methods" / "dpo.md").read_text(encoding="utf-8")
    assert ": `dpo`\n" in begun and "| `--beta` |" in begun and "quintain train dpo" in begun
    for name in names[1:]:
        assert (tmp_path / name).read_bytes() == (ROOT / name).read_bytes()
    assert readme.read_text(encoding="utf-8").endswith("More.\n"), "only what is between the marks is written"
    assert run_tables(tmp_path, "--check")[0] == 0


def test_a_method_without_a_purpose_is_named_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "standings", lambda *_: {})
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "tables.py", tmp_path / "docs")
    (purpose, names), *_ = PURPOSES.items()
    monkeypatch.setitem(PURPOSES, purpose, (*names[1:], "grpo", "grpi"))
    status, _, told = run_tables(tmp_path)
    place = "places in PURPOSES (methods/table.py); give it"
    assert (status, told.splitlines()) == (
        1,
        [
            f"grpi: got 1 {place} 0, since it has no page",
            f"grpo: got 2 {place} 1, since it has a page",
            f"{names[0]}: got 0 {place} 1, since it has a page",
        ],
    )
    assert [each.name for each in (tmp_path / "docs").iterdir()] == ["tables.py"]
