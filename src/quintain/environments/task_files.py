"""Tasks of a file, for an agent that lives outside or for an environment that takes them.

``tasks:@tickets.jsonl`` is an environment of these tasks alone, for an agent that is scored by its own grader;
``tasks:shop.py:Shop@tickets.jsonl`` is that environment, nothing lost, with the tasks of the file in the place of its
own: its `reset` reads ``task.prompt`` and ``task.data``. A file is JSON lines, a JSON array, CSV or Parquet.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeGuard, cast

from quintain.config.trust import TASKS
from quintain.data.files import TABLES, TEXTS, FileValue, decode, mend_texts, read_objects
from quintain.environments.protocol import SEED_BITS, Environment, Factory, begin
from quintain.errors import DataError, EnvironmentFault, UsageError
from quintain.types import Action, Observation, Split, StepResult, Task, derive_seed

ENDINGS = (*TEXTS, ".csv", *TABLES)
HELD_OUT = 5
"""One task of so many is held out where the file does not say which, by its id."""
SPLITS: Mapping[str, Split] = {
    "train": "train",
    "training": "train",
    "eval": "eval",
    "evaluation": "eval",
    "test": "eval",
    "validation": "eval",
    "valid": "eval",
    "val": "eval",
    "dev": "eval",
}
LOOKED_AT = 64
"""Tasks that an environment is begun with before anything is written, to see whether it takes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFile:
    """The tasks of a file: ``read_tasks("tickets.jsonl")``."""

    path: Path
    train: tuple[Task, ...]
    eval: tuple[Task, ...]
    places: Mapping[str, str]
    """id of a task → where it stands: ``tickets.jsonl line 3``"""
    is_drawn: bool
    """whether the held-out tasks were chosen by their ids, as the file does not say which they are"""

    def of(self, split: Split) -> tuple[Task, ...]:
        """Return the tasks of `split`, in their order."""
        return self.train if split == "train" else self.eval

    def task(self, split: Split, index: int) -> Task:
        """Return task number `index` of `split`: in the file's order, and each pass over those of training anew."""
        tasks = self.of(split)
        turn, place = divmod(index, len(tasks))
        if split == "train" and turn:
            order = list(range(len(tasks)))
            random.Random(derive_seed("tasks", len(tasks), turn)).shuffle(order)
            place = order[place]
        return replace(tasks[place])

    def __str__(self) -> str:
        """Return it in words."""
        how = f"; one in {HELD_OUT}, chosen by id" if self.is_drawn else ""
        return f"tasks {self.path.name}: {len(self.train):,} to train on, {len(self.eval):,} held out{how}"


class FileTasks(Environment):
    """Tasks for an agent that acts by itself: what it is asked is shown, and nothing can be done here."""

    max_turns = 64

    def __init__(self, path: str) -> None:
        """Take the tasks of the file at `path`."""
        self._tasks = read_tasks(path)
        self.name = self._tasks.path.name

    def instructions(self) -> str:
        """Return no instruction: the agent has its own."""
        return ""

    def task(self, split: Split, index: int) -> Task:
        """Return task number `index` of `split`."""
        return self._tasks.task(split, index)

    def num_tasks(self, split: Split) -> int:
        """Return how many tasks of `split` there are."""
        return len(self._tasks.of(split))

    def reset(self, task: Task) -> Observation:
        """Show the prompt of the task."""
        return task.prompt

    def step(self, action: Action) -> StepResult:
        """End: whoever plays these tasks acts elsewhere."""
        return StepResult(observation="", is_terminated=True)


def tasks_spec(environment: str, path: str | Path) -> str:
    """Return the name of `environment` (none: "") with the tasks of the file at `path`.

    Raises:
        UsageError: it is no file of tasks, or cannot be named.
    """
    file = Path(path)
    if file.suffix not in ENDINGS:
        raise UsageError(
            f"tasks: got {str(path)!r}; give a number, or a file that ends in {', '.join(ENDINGS)}"
        )
    if not file.is_file():
        raise UsageError(f"tasks: got {str(path)!r}, and there is no such file; check the path")
    if "@" in str(file.resolve()):
        raise UsageError(f"tasks: got {str(file.resolve())!r}; name file and folders without @")
    read_tasks(file)
    return f"{TASKS}{split_spec(environment)[0]}@{file.resolve()}"


def split_spec(spec: str) -> tuple[str, str]:
    """Return the environment and the file that `spec` names; `spec` and nothing where it names no file of tasks."""
    if not spec.startswith(TASKS):
        return spec, ""
    inner, at, path = spec.removeprefix(TASKS).rpartition("@")
    if not at or not path:
        raise UsageError(f"environment: got {spec!r}; write it as {TASKS}@FILE or {TASKS}ENVIRONMENT@FILE")
    return inner, path


def refuse_overlap(training: str, evaluation: str) -> None:
    """Raise where a task of the file of `training` is held out by another file, that of `evaluation`; specs of both.

    Raises:
        DataError: as said, with both lines.
    """
    files = split_spec(training)[1], split_spec(evaluation)[1]
    if not all(files) or Path(files[0]).resolve() == Path(files[1]).resolve():
        return
    own, other = map(read_tasks, files)
    known = {_content(task): own.places[task.id] for task in own.train}
    both = [(other.places[task.id], known[_content(task)]) for task in other.eval if _content(task) in known]
    if both:
        raise DataError(
            f"{both[0][0]}: got a held-out task that {both[0][1]} trains on ({len(both)} such of {len(other.eval)}); "
            "leave it out of one of the two files"
        )


def read_held_out_prompts(*environments: str) -> dict[str, str]:
    """Return the prompts, and the ids, of the held-out tasks of files that `environments` name, and where each stands.

    A prompt that training has, too, tells no task from another.
    """
    found: dict[str, str] = {}
    for path in filter(None, (split_spec(each)[1] for each in environments)):
        tasks = read_tasks(path)
        shared = {task.prompt.strip() for task in tasks.train} | {""}
        for task in tasks.eval:
            found[task.id] = tasks.places[task.id]
            if (prompt := task.prompt.strip()) not in shared:
                found[prompt] = tasks.places[task.id]
    return found


def is_tasks_file(given: object) -> TypeGuard[str | Path]:
    """Whether what was given as ``tasks`` is to be a file, and no number of tasks."""
    return isinstance(given, (str, Path)) and not str(given).strip().lstrip("+-").isdigit()


def with_tasks(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` of a configuration in which a file given as ``tasks`` is a part of the environment.

    A number stays what it is, the tasks of a step.

    Raises:
        UsageError: it is no number and no file of tasks.
    """
    found = dict(values)
    given = found.get("tasks")
    if not is_tasks_file(given):
        return found
    del found["tasks"]
    found["environment"] = tasks_spec(str(found.get("environment") or ""), given)
    return found


def build_with_tasks(inner: Factory, path: str) -> Environment:
    """Return an environment of `inner` whose tasks are those of the file at `path`; all that it can do it still can."""
    tasks = read_tasks(path)
    environment = inner()
    environment.name = tasks.path.name
    vars(environment).update(task=tasks.task, num_tasks=lambda split: len(tasks.of(split)))
    return environment


def refuse_untaken(environment: Environment, path: str) -> None:
    """Raise where `environment` does not take the tasks of the file at `path`: it breaks on one, or sees no difference.

    Raises:
        UsageError: as said, with the first such line.
    """
    tasks = read_tasks(path)
    name = type(environment).__name__
    seen: set[str] = set()
    looked = [*tasks.train, *tasks.eval][:LOOKED_AT]
    for task in looked:
        try:
            seen.add(repr(begin(environment, replace(task, seed=0))))
        except (EnvironmentFault, UsageError):
            raise
        except Exception as error:
            raise UsageError(
                f"{tasks.places[task.id]}: got a task that environment {name} does not take ({type(error).__name__}: "
                f"{error}); mend the line, or its reset(self, task), which reads task.prompt and task.data"
            ) from error
    if len(seen) == 1 and len(looked) > 1:
        raise UsageError(
            f"tasks {tasks.path.name}: got {len(looked)} tasks of which environment {name} shows nothing; let its "
            "reset(self, task) read task.prompt and task.data, or leave --tasks out"
        )


@lru_cache(maxsize=16)
def _read(path: Path, _version: tuple[int, int]) -> TaskFile:
    rows = [
        (found.place, _row(found)) for found in (_csv(path) if path.suffix == ".csv" else read_objects(path))
    ]
    tasks: list[tuple[Task, Split | None]] = []
    places: dict[str, str] = {}
    for number, (place, row) in enumerate(rows):
        task, split = _task(path.name, row, place, number)
        if task.id in places:
            raise DataError(
                f"{place}: got the id {task.id.partition('/')[2]!r} of {places[task.id]}; give each its own"
            )
        places[task.id] = place
        tasks.append((task, split))
    is_drawn = all(split is None for _, split in tasks)
    if not is_drawn and (missing := next((places[t.id] for t, split in tasks if split is None), None)):
        raise DataError(
            f"{missing}: got no split, which other tasks have; say train or eval of each, or of none"
        )
    if is_drawn:
        _, held_out = _split_tasks([task for task, _ in tasks])
    else:
        held_out = {task.id for task, split in tasks if split == "eval"}
    train = tuple(_with_seed(task, "train") for task, _ in tasks if task.id not in held_out)
    evaluated = tuple(_with_seed(task, "eval") for task, _ in tasks if task.id in held_out)
    if not train or not evaluated:
        what = "none to hold out" if train else "none to train on"
        raise DataError(
            f"tasks {path.name}: got {len(tasks)} tasks, {what}; give two that differ, with split train and eval, or "
            "leave the column split out"
        )
    known = {_content(task): places[task.id] for task in train}
    for task in evaluated:
        if (same := known.get(_content(task))) is not None:
            raise DataError(
                f"{places[task.id]}: got a held-out task that is {same} of training, too; leave one of the two out"
            )
    return TaskFile(path=path, train=train, eval=evaluated, places=places, is_drawn=is_drawn)


def read_tasks(path: str | Path) -> TaskFile:
    """Return the tasks of the file at `path`.

    Raises:
        DataError: it cannot be read, a task is none, an id comes twice, or a task is in both splits: with the line.
        UsageError: there is no such file.
    """
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"tasks: got {str(path)!r}, and there is no such file; check the path")
    found = file.stat()
    return _read(file.resolve(), (found.st_mtime_ns, found.st_size))


def _csv(path: Path) -> Iterator[FileValue]:
    """Yield the rows of a CSV file with a head."""
    rows = csv.DictReader(io.StringIO(decode(path.read_bytes(), path.name), newline=""), strict=True)
    try:
        for row in rows:
            if None in row or None in row.values():
                raise DataError(
                    f"{path.name} line {rows.line_num}: got more or fewer cells than the head; quote the text"
                )
            yield FileValue(
                file=path.name, line=rows.line_num, value={k: v for k, v in row.items() if v != ""}
            )
    except csv.Error as error:
        raise DataError(
            f"{path.name} line {rows.line_num}: got no CSV ({error}); quote texts as spreadsheets do"
        ) from error


def _row(found: FileValue) -> dict[str, Any]:
    if isinstance(found.value, DataError):
        raise found.value
    if not isinstance(found.value, dict):
        raise DataError(f'{found.place}: got no JSON object; write one task a line, as {{"prompt": "…"}}')
    value = cast("dict[str, Any]", found.value)
    return {key: each for key, each in value.items() if each is not None}


def _task(file: str, row: dict[str, Any], place: str, number: int) -> tuple[Task, Split | None]:
    """Return the task that `row` is, and its split where it has one."""
    rest = dict(row)
    name, said, prompt = rest.pop("id", number), rest.pop("split", ""), rest.pop("prompt", "")
    data: object = rest.pop("data", {})
    if isinstance(data, str):
        try:
            data, _ = mend_texts(json.loads(data), data)
        except (ValueError, RecursionError):
            data = None
    if not isinstance(data, dict):
        raise DataError(f"{place}: got data {row['data']!r:.60}; give an object, or its JSON text")
    fields = cast("dict[str, Any]", data)
    if twice := sorted(rest.keys() & fields):
        raise DataError(f"{place}: got {twice[0]!r} in data and beside it; give it once")
    if not prompt and "messages" in rest:
        prompt = rest.pop("messages")
    if isinstance(prompt, list):
        rest["messages"] = prompt
        prompt = read_prompt(cast("list[Any]", prompt), place)
    if not isinstance(prompt, str):
        raise DataError(
            f"{place}: got the prompt {prompt!r:.60}; give a text, and what else there is as data"
        )
    if not prompt.strip() and not (fields or rest):
        raise DataError(f"{place}: got a task without prompt and data; say what is to be done")
    if isinstance(name, bool) or not isinstance(name, (str, int)) or not str(name).strip():
        raise DataError(f"{place}: got the id {name!r:.60}; give a text or a whole number")
    split = SPLITS.get(str(said).strip().lower())
    if said != "" and split is None:
        raise DataError(f"{place}: got the split {said!r:.40}; say train or eval")
    task = Task(id=f"{file}/{name}", environment=file, seed=0, prompt=prompt, data={**fields, **rest})
    return task, split


def read_prompt(messages: list[Any], place: str) -> str:
    """Return what messages ask, as verl's and TRL's data sets have prompts: what the system says, and the user.

    An answer at the end is left out: it is what is to be said.

    Raises:
        DataError: they are no messages of texts, or a talk in which the assistant spoke before the last word.
    """
    rows = [cast("dict[str, Any]", each) if isinstance(each, dict) else {} for each in messages]
    if rows and rows[-1].get("role") == "assistant":
        rows = rows[:-1]
    told = [row["content"] for row in rows if row.get("role") in ("system", "user")]
    if len(told) != len(rows) or not all(isinstance(each, str) for each in told) or not told:
        raise DataError(
            f"{place}: got the prompt {messages!r:.60}; give a text, or messages of system and user that are texts"
        )
    return "\n\n".join(told)


def _split_tasks(tasks: Sequence[Task]) -> tuple[set[str], set[str]]:
    """Return the ids of the tasks to train on and of those held out; tasks that say the same go together."""
    owners: dict[str, str] = {}
    for task in tasks:
        owners.setdefault(_content(task), task.id)
    marks = {owner: derive_seed("held out", owner) for owner in owners.values()}
    held_out = {owner for owner, mark in marks.items() if mark % HELD_OUT == 0}
    ranked = sorted(marks, key=lambda owner: marks[owner])
    if len(ranked) > 1 and not held_out:
        held_out = {ranked[0]}
    if len(ranked) > 1 and len(held_out) == len(ranked):
        held_out.discard(ranked[0])
    out = {task.id for task in tasks if owners[_content(task)] in held_out}
    return {task.id for task in tasks} - out, out


def _content(task: Task) -> str:
    """Return what names the prompt and data of `task`."""
    text = json.dumps([task.prompt, dict(task.data)], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _with_seed(task: Task, split: Split) -> Task:
    """Return `task` in `split`, with the seed that its id gives; seeds of the two splits differ in their lowest bit."""
    seed = derive_seed("task", task.id) % (1 << SEED_BITS) << 1 | (split == "eval")
    return replace(task, split=split, seed=seed)
