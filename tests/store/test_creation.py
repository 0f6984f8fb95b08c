import enum
import json
from pathlib import Path
from typing import Any

import pytest

from quintain.errors import ConfigError, StoreError, UsageError
from quintain.store import faults
from quintain.store.creation import create_folder, read_settings
from quintain.store.run import Run


class Color(enum.Enum):
    RED = "red"


def create(folder: Path, replace: bool = False, **config: Any) -> None:
    create_folder(folder, recipe="rl/grpo", config=config, replace=replace).release()


def test_a_run_has_its_effective_configuration(folder: Path) -> None:
    create(folder, a=1, path=Path("x/y"), color=Color.RED, names={"b", "a"}, nested={"c": (1, 2)})
    assert sorted(entry.name for entry in folder.iterdir()) == [
        "checkpoints", "config.json", "metrics.jsonl", "run.db", "run.lock",
    ]  # fmt: skip
    settings = read_settings(folder)
    assert settings["recipe"] == "rl/grpo"
    assert settings["config"] == {
        "a": 1,
        "path": "x/y",
        "color": "red",
        "names": ["a", "b"],
        "nested": {"c": [1, 2]},
    }
    assert [entry.name for entry in folder.parent.iterdir()] == ["one"]


@pytest.mark.parametrize("value", [float("nan"), object(), b"x"])
def test_a_configuration_that_json_cannot_hold_leaves_nothing(folder: Path, value: Any) -> None:
    with pytest.raises(ConfigError, match=r"configuration of the run one: got .*; use JSON"):
        create(folder, a=value)
    assert not folder.parent.exists()


@pytest.mark.parametrize("name", ["..", "a b", "nul"])
def test_a_bad_name_leaves_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"run name"):
        create(tmp_path / "runs" / name)
    assert not (tmp_path / "runs").exists()


def test_an_existing_run_is_refused_with_what_to_do(folder: Path) -> None:
    create(folder, a=1)
    with pytest.raises(UsageError, match=r"quintain resume one`, start it anew with --replace"):
        create(folder, a=2)
    assert read_settings(folder)["config"] == {"a": 1}


def test_a_run_can_be_replaced(folder: Path) -> None:
    create(folder, a=1)
    (folder / "checkpoints" / "x").touch()
    create(folder, replace=True, a=2)
    assert read_settings(folder)["config"] == {"a": 2}
    assert list((folder / "checkpoints").iterdir()) == []
    assert [entry.name for entry in folder.parent.iterdir()] == ["one"]


def test_a_run_that_is_written_is_not_replaced(folder: Path) -> None:
    with Run.create(folder, recipe="r", config={"a": 1}), pytest.raises(StoreError, match=r"is writing"):
        create(folder, replace=True, a=2)
    assert read_settings(folder)["config"] == {"a": 1}
    assert [entry.name for entry in folder.parent.iterdir()] == ["one"]


@pytest.mark.parametrize("replace", [False, True])
def test_what_is_no_run_is_never_touched(folder: Path, replace: bool) -> None:
    folder.mkdir(parents=True)
    (folder / "thesis.tex").touch()
    with pytest.raises(UsageError, match=r"no run; choose another name"):
        create(folder, replace)
    (folder.parent / "two").touch()
    with pytest.raises(UsageError, match=r"no run; choose another name"):
        create(folder.parent / "two", replace)
    assert (folder / "thesis.tex").exists()


def test_an_empty_folder_is_taken(folder: Path) -> None:
    folder.mkdir(parents=True)
    create(folder, a=1)
    assert read_settings(folder)["config"] == {"a": 1}


def test_a_symbolic_link_is_refused(folder: Path, tmp_path: Path) -> None:
    create(folder)
    link = tmp_path / "link"
    link.symlink_to(folder)
    with pytest.raises(UsageError, match=r"symbolic link"):
        create(link, replace=True)


def test_a_parent_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    with pytest.raises(StoreError, match=rf"creating a run in {tmp_path}.*bytes free"):
        create(tmp_path / "runs" / "one")


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.slow
def test_a_disk_that_fails_at_any_operation_leaves_no_half_run(folder: Path, replace: bool) -> None:
    with faults.inject("io:0:EIO") as count:
        if replace:
            create(folder, a=0)
            count.calls.clear()
        create(folder, replace=replace, a=0)
    for number in range(1, len(count.calls) + 1):
        target = folder.with_name(f"run{number}")
        if replace:
            create(target, a=0)
        with faults.inject(f"io:{number}:ENOSPC"), pytest.raises(StoreError, match=r"in /.*bytes free"):
            create(target, replace=replace, a=1)
        names = {entry.name for entry in folder.parent.iterdir() if "replaced" not in entry.name}
        assert names <= {"one", *(f"run{n}" for n in range(1, number + 1))}
        if replace or target.exists():
            assert read_settings(target)["config"]["a"] in (0, 1)
        create(target, replace=True, a=2)
        assert read_settings(target)["config"] == {"a": 2}
        assert f".{target.name}" not in " ".join(entry.name for entry in folder.parent.iterdir())


def test_leftovers_of_a_killed_creation_are_removed(folder: Path) -> None:
    leftover = folder.parent / ".one.creating-1"
    leftover.mkdir(parents=True)
    neighbour = folder.parent / ".one.b.creating-1"
    neighbour.mkdir()
    create(folder)
    assert not leftover.exists() and neighbour.exists()


def test_another_writer_may_be_creating_the_same_run(folder: Path) -> None:
    other = Run.create(folder.with_name("other"), recipe="r", config={})
    hidden = folder.parent / ".one.creating-1"
    other.folder.rename(hidden)
    create(folder)
    assert hidden.exists()
    other.close()


def test_a_folder_that_is_no_run_is_explained(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(
        UsageError, match=r"got .*/nothing, which is no folder; start one with `quintain train`"
    ):
        read_settings(tmp_path / "nothing")
    create(folder)
    (folder.parent / "empty").mkdir()
    with pytest.raises(UsageError, match=r"which holds no run; the runs in .*/runs are one"):
        read_settings(folder.parent / "empty")


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b'{"schema": 1}', b'{"schema": "x"}'])
def test_a_broken_configuration_is_an_error_of_the_store(folder: Path, content: bytes) -> None:
    create(folder)
    (folder / "config.json").write_bytes(content)
    with pytest.raises(StoreError, match=r"config.json: got a broken file .*restore"):
        read_settings(folder)


def test_a_newer_configuration_asks_for_an_upgrade(folder: Path) -> None:
    create(folder)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "schema": 2}))
    with pytest.raises(StoreError, match=r"schema 2; upgrade quintain"):
        read_settings(folder)
