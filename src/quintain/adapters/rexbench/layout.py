"""What a folder of research extensions holds (RExBench, arXiv 2506.22598): instructions, repositories, targets.

``instructions/TASK/instructions.md``, with hints at its end, is what a checkout of RExBench has. The rest is handed out
apart and is laid beside it: ``tasks/TASK``, the repository as it is found; ``targets/TASK.json``, how it is run and
where its numbers have to lie; ``gold/TASK.patch``, the extension by those who made the task; ``hidden/TASK``, files
that take the place of the repository's when it is judged. The files of targets name no code but the command.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from quintain.errors import DataError, UsageError, suggestion

HINTS = ("### Hints", "### More detailed hints")
"""Headings under which the hints of level 1, and those of level 2, stand."""
MOST_HINTS = len(HINTS)
MOST_FILES, MOST_BYTES = 4_000, 32 << 20
"""Of a repository."""


class Target(BaseModel):
    """A number and its range: what follows `label`, which stands once, or `column` in the last row of a table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    low: float
    high: float
    label: str = ""
    column: str = ""
    file: str = ""
    """path of the file that it stands in; empty: what the command prints"""

    @model_validator(mode="after")
    def check(self) -> "Target":
        """Refuse a target that no number meets, or that says nothing of where it stands."""
        if not self.low <= self.high or bool(self.label) == bool(self.column):
            raise ValueError("needs low <= high, and either a label or a column")
        return self


class Trial(BaseModel):
    """A run by which a patch is judged: ``{"files": {"data.csv": "3/data.csv"}, "targets": […]}``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    targets: Annotated[tuple[Target, ...], Field(min_length=1)]
    files: dict[str, str] = {}
    """path in the repository → path below ``hidden/TASK``"""


class Judging(BaseModel):
    """What ``targets/TASK.json`` says: ``{"command": ["bash", "run_final.sh"], "trials": […]}``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    trials: Annotated[tuple[Trial, ...], Field(min_length=1)]
    command: Annotated[tuple[str, ...], Field(min_length=1)] = ("bash", "run_final.sh")
    """what the agent's extension is run by, in the root of the repository"""
    seconds: Annotated[float, Field(gt=0)] = 60.0
    mebibytes: Annotated[int, Field(ge=64)] = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """A task: ``Extension(name="cogs", instructions="…", repository={"run.py": "…"}, judging=…, …)``."""

    name: str
    instructions: str
    """whole, with all hints"""
    repository: Mapping[str, str]
    """path → text, as the agent finds it"""
    judging: Judging
    hidden: Mapping[str, str]
    """path below ``hidden/TASK`` → text"""
    gold: str
    """a unified diff; empty where there is none"""


def read_tasks(folder: Path) -> dict[str, str]:
    """Return the instructions of each task of the checkout `folder`, whole.

    Raises:
        DataError: there are none, or not as text.
    """
    found = {
        file.parent.name: _read_text(file) for file in sorted(folder.glob("instructions/*/instructions.md"))
    }
    if not found:
        raise DataError(
            f"rexbench: got {folder}, which has no instructions/TASK/instructions.md; name a checkout of RExBench"
        )
    return found


def read_extensions(folder: Path) -> tuple[Extension, ...]:
    """Return the tasks of `folder` that can be judged: those that have a repository and targets, by name.

    Raises:
        DataError: there is none, or what is there cannot be read.
    """
    told = read_tasks(folder)
    names = [name for name in told if (folder / "targets" / f"{name}.json").is_file()]
    if not names:
        raise DataError(
            f"rexbench: got {folder}, which has instructions of {', '.join(told)} and targets/TASK.json of none; lay "
            "what is handed out beside them: tasks/TASK, targets/TASK.json, gold/TASK.patch, hidden/TASK"
        )
    return tuple(_read_extension(folder, name, told[name]) for name in names)


def _read_extension(folder: Path, name: str, instructions: str) -> Extension:
    """Return the task `name` of `folder`."""
    file = folder / "targets" / f"{name}.json"
    try:
        judging = Judging.model_validate_json(_read_text(file))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "all"
        raise DataError(f"rexbench: got {file}, of which {where} is wrong: {first['msg']}") from error
    repository, hidden = read_files(folder / "tasks" / name), read_files(folder / "hidden" / name)
    if not repository:
        raise DataError(f"rexbench: got no repository of {name}; put it into {folder / 'tasks' / name}")
    lacking = [path for trial in judging.trials for path in trial.files.values() if path not in hidden]
    outside = [
        path for trial in judging.trials for path in (*trial.files, *(t.file for t in trial.targets)) if path
    ]
    if lacking or not all(map(is_inside, outside)):
        raise DataError(
            f"rexbench: got {file}, which names {lacking or outside}; files are hidden/{name}/… and paths in the "
            "repository"
        )
    patch = folder / "gold" / f"{name}.patch"
    gold = _read_text(patch) if patch.is_file() else ""
    return Extension(
        name=name, instructions=instructions, repository=repository, judging=judging, hidden=hidden, gold=gold
    )


def is_inside(path: str) -> bool:
    """Return whether `path` is one of a file below the folder that it is looked up in."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\0" not in path


def read_files(folder: Path) -> dict[str, str]:
    """Return the text files below `folder` by path; what is no text, such as a picture, is not one of them.

    Raises:
        DataError: there are too many, or one cannot be read.
    """
    found: dict[str, str] = {}
    size = 0
    for file in sorted(folder.rglob("*")):
        if not file.is_file() or ".git" in file.relative_to(folder).parts:
            continue
        try:
            text = file.read_bytes().decode()
        except UnicodeDecodeError:
            continue
        except OSError as error:
            raise DataError(f"rexbench: got {file}, which cannot be read: {error}") from error
        found[file.relative_to(folder).as_posix()] = text
        size += len(text)
        if len(found) > MOST_FILES or size > MOST_BYTES:
            raise DataError(
                f"rexbench: got {folder}, which has more than {MOST_FILES} files or {MOST_BYTES} letters; take out "
                "what the experiment does not read"
            )
    return found


def choose_task(tasks: Mapping[str, str], name: str) -> str:
    """Return the instructions of the task `name`.

    Raises:
        UsageError: there is no such task.
    """
    if name not in tasks:
        raise UsageError(f"task of rexbench: got {name!r}; {suggestion(name, tasks)}")
    return tasks[name]


def cut_hints(text: str, level: int, headings: Sequence[str] = HINTS) -> str:
    """Return the instructions `text` with hints up to `level`: 0 without any, 2 with all.

    Raises:
        UsageError: there is no such level.
    """
    if not 0 <= level <= len(headings):
        raise UsageError(f"hints: got {level}; give 0 for none to {len(headings)} for all")
    lines = text.splitlines()
    ends = [number for number, line in enumerate(lines) if line.strip() in headings[level:]]
    return "\n".join(lines[: ends[0]] if ends else lines).rstrip() + "\n"


def _read_text(file: Path) -> str:
    """Return the text of `file`."""
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"rexbench: got {file}, which cannot be read: {error}") from error
