"""What a run is made of has hashes in its journal: what changed is refused, or accepted and told."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.conftest import trajectory

from quintain.errors import StoreError
from quintain.store.manifest import hash_files, in_words, read_manifest
from quintain.store.run import CHANGED, UNKNOWN, Run


def touch(file: Path) -> None:
    """Make `file`."""
    file.touch()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with a start and a file of tasks elsewhere."""
    tasks, code = tmp_path / "tasks.jsonl", tmp_path / "shop.py"
    tasks.write_text("{}")
    code.write_text("x = 1")
    with Run.create(tmp_path / "run", recipe="r", config={"rate": 0.1}) as run:
        (run.folder / "start" / "inner").mkdir(parents=True)
        (run.folder / "start" / "model.safetensors").write_bytes(b"numbers")
        (run.folder / "start" / "inner" / "more.json").write_text("{}")
        run.record_files("start", tasks, code)
        run.append([trajectory(0)], step=0)
        run.commit(0, {"a": 0.0})
        run.checkpoint(0, lambda place: touch(place / "x"))
    return tmp_path / "run"


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "weights": (
        lambda f: (f / "start/model.safetensors").write_bytes(b"Numbers"),
        "start/model.safetensors (changed)",
    ),
    "missing": (lambda f: (f / "start/inner/more.json").unlink(), "start/inner/more.json (missing)"),
    "new": (lambda f: (f / "start/adapter_config.json").write_text("{}"), "start/adapter_config.json (new)"),
    "configuration": (
        lambda f: (f / "config.json").write_text((f / "config.json").read_text().replace("0.1", "0.5")),
        "config.json (changed)",
    ),
    "tasks": (lambda f: (f.parent / "tasks.jsonl").write_text("[]"), "tasks.jsonl (changed)"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changed_is_refused_or_accepted_once_and_told(folder: Path, name: str) -> None:
    change, said = CHANGES[name]
    change(folder)
    with pytest.raises(StoreError, match=r"resuming .*--accept-changes") as refused:
        Run.open(folder)
    assert said in str(refused.value)
    with Run.open(folder, writable=False) as run:
        assert run.notices() == []
        assert len(run.find_changes()) == 1
    with Run.open(folder, accepts_changes=True) as run:
        (notice,) = run.notices()
        assert notice["kind"] == CHANGED and said in notice["message"]
    with Run.open(folder) as run:  # they are the run's own from now on
        assert run.find_changes() == {}


def test_what_did_not_change_is_taken_up_without_a_word(folder: Path) -> None:
    with Run.open(folder) as run:
        assert run.find_changes() == {} and run.notices() == []


def test_code_that_was_mended_is_told_and_files_elsewhere_may_be_gone(folder: Path) -> None:
    (folder.parent / "tasks.jsonl").unlink()
    (folder.parent / "shop.py").write_text("x = 2")
    with Run.open(folder) as run:
        assert [notice["message"] for notice in run.notices()] == [
            f"from step 1 on: {folder.parent / 'shop.py'} (changed)"
        ]


@pytest.mark.parametrize("name", CHANGES)
def test_what_changed_is_refused_where_a_run_is_used_or_accepted(folder: Path, name: str) -> None:
    change, said = CHANGES[name]
    change(folder)
    with Run.open(folder, writable=False) as run:
        with pytest.raises(StoreError, match=r"^evaluating .*--accept-changes") as refused:
            run.check_files("evaluating", is_all=True, accepts_changes=False)
        assert said in str(refused.value)
        assert said in run.check_files("evaluating", is_all=True, accepts_changes=True)
        if name == "tasks":
            assert run.check_files("serving", is_all=False, accepts_changes=False) == ""
        else:
            with pytest.raises(StoreError):
                run.check_files("serving", is_all=False, accepts_changes=False)


def test_ones_own_python_may_change_where_a_run_is_used(folder: Path) -> None:
    (folder.parent / "shop.py").write_text("x = 2")
    with Run.open(folder, writable=False) as run:
        assert run.check_files("evaluating", is_all=True, accepts_changes=False) == ""


def test_the_model_that_a_run_ended_with_is_no_part_of_what_it_goes_on_from(folder: Path) -> None:
    for place in ("model", "model-critic"):
        (folder / place).mkdir()
        (folder / place / "x").touch()
        with Run.open(folder) as run:
            run.record_files(place)
        (folder / place / "x").write_text("half of another")
        with (
            Run.open(folder, writable=False) as run,
            pytest.raises(StoreError, match=rf"{place}/x \(changed\)"),
        ):
            run.check_files("serving", is_all=False, accepts_changes=False)
        with Run.open(folder) as run:
            assert run.notices() == [] and run.find_changes() == {}


def test_what_is_recorded_anew_replaces_what_was(folder: Path) -> None:
    with Run.open(folder) as run:
        (folder / "start" / "inner" / "more.json").unlink()
        (folder / "start" / "other.json").write_text("{}")
        run.record_files("start")
        assert run.find_changes() == {}
        known = read_manifest(run.fact("files"))
    assert known is not None and sorted(name for name in known if name.startswith("start/")) == [
        "start/model.safetensors",
        "start/other.json",
    ]


@pytest.mark.parametrize("stored", ["", "{", "[]"])
def test_a_run_without_hashes_says_so_and_has_them_from_then_on(folder: Path, stored: str) -> None:
    connection = sqlite3.connect(folder / "run.db")
    connection.execute("UPDATE meta SET value = ? WHERE key = 'files'", (stored,))
    connection.commit()
    connection.close()
    with Run.open(folder) as run:
        assert [notice["kind"] for notice in run.notices()] == [UNKNOWN]
    (folder / "start" / "model.safetensors").write_bytes(b"Numbers")
    with pytest.raises(StoreError, match=r"start/model\.safetensors"):
        Run.open(folder)


def test_a_journal_that_is_behind_its_checkpoint_is_a_notice(folder: Path) -> None:
    connection = sqlite3.connect(folder / "run.db")
    connection.execute("DELETE FROM episodes")
    connection.commit()
    connection.close()
    with Run.open(folder) as run:
        assert [notice["kind"] for notice in run.notices()] == ["journal behind"]


def test_many_changes_are_counted() -> None:
    assert (
        in_words({str(n): "new" for n in range(7)})
        == "0 (new), 1 (new), 2 (new), 3 (new), 4 (new) and 2 more"
    )


def test_a_place_that_is_not_there_has_no_hash(tmp_path: Path) -> None:
    assert hash_files(tmp_path, ["nothing"]) == {}


def test_files_of_a_run_are_their_owners_alone(folder: Path) -> None:
    with Run.open(folder) as run:
        run.commit(1, {"a": 1.0})
        open_ones = [file.name for file in folder.iterdir() if file.is_file() and file.stat().st_mode & 0o077]
    assert open_ones == []
    assert folder.stat().st_mode & 0o077 == 0
    assert json.loads((folder / "config.json").read_text())["config"] == {"rate": 0.1}


def test_what_libraries_write_into_a_run_is_closed_with_it(folder: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("shared")
    mine.chmod(0o644)
    with Run.open(folder) as run:
        inner = run.folder / "model" / "inner"
        inner.mkdir(parents=True, mode=0o755)
        (inner / "config.json").write_text("{}")
        (inner / "config.json").chmod(0o644)
        (run.folder / "script.sh").touch(0o755)
        (run.folder / "elsewhere").symlink_to(mine)
    rights = {str(each.relative_to(folder)): each.lstat().st_mode & 0o777 for each in folder.rglob("*")}
    assert rights.pop("elsewhere") == 0o777 and mine.stat().st_mode & 0o777 == 0o644, "links are not followed"
    assert rights["model/inner/config.json"] == 0o600
    assert rights["model/inner"] == rights["script.sh"] == 0o700
    assert not [name for name, mode in rights.items() if mode & 0o077]


def test_an_open_folder_of_a_run_is_closed_when_it_is_resumed_and_left_when_it_is_read(folder: Path) -> None:
    folder.chmod(0o755)
    (folder / "config.json").chmod(0o644)
    with Run.open(folder, writable=False):
        pass
    assert folder.stat().st_mode & 0o777 == 0o755
    with Run.open(folder):
        rights = {each.stat().st_mode & 0o077 for each in (folder, *folder.rglob("*"))}
    assert rights == {0}
