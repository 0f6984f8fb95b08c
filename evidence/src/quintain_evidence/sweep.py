"""What benchmarks that run for minutes share: processes side by side, settings from a flag, results that are whole."""

import importlib
import json
import multiprocessing
import multiprocessing.connection
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from quintain.errors import UsageError
from quintain.store.files import replace_file


def overrides(text: str) -> dict[str, Any]:
    """Return the settings in the JSON object `text`."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"--set: got {text!r}, which is no JSON; write '{{\"steps\": 4}}'") from error
    if not isinstance(found, dict):
        raise UsageError(f"--set: got {text!r}; write a JSON object such as '{{\"steps\": 4}}'")
    return found  # pyright: ignore[reportUnknownVariableType]


def workers(jobs: int) -> ProcessPoolExecutor:
    """Return `jobs` processes that train side by side, one thread each, and end with this one."""
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_single)


def _single() -> None:
    """Let this process use one thread, for the processes share the machine, and end with the one that started it."""
    importlib.import_module("torch").set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True, name="quintain-parent").start()


def _end_with_parent() -> None:
    """Wait for the end of the process that started this one, and leave; what was begun goes on with the next call."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def store(file: Path, name: str, row: Mapping[str, Any]) -> None:
    """Put `row` into the JSON object in `file` under `name`; the file is whole at any time."""
    known: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    known[name] = dict(row)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, (json.dumps(dict(sorted(known.items())), indent=2) + "\n").encode())
