"""The runs that a viewer shows: each open for reading, with its index, and read on in the background.

A run is opened when it is first asked for. One thread takes in what the journals have more, so that no page waits for
it; what a page shows of counts is never older than `FRESH` seconds.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from quintain.agents.catalog import AUTO
from quintain.config.trust import RECIPE, admit
from quintain.dashboard.viewer.index import Index, cache_folder, try_update
from quintain.errors import ConfigError, QuintainError, UsageError, suggestion
from quintain.store import Run, RunInfo, runs_in
from quintain.store.creation import CONFIG, JOURNAL
from quintain.types.rows import plain

FRESH = 0.5
"""Seconds for which what was read of a journal's end is taken as it is."""
LIST_FRESH = 3.0
"""The same for the list of runs in a folder."""
PAUSE = 0.5
"""Seconds that the reader in the background rests when it has nothing to read."""
Decode = Callable[[Sequence[int]], str]


class ViewedRun:
    """A run that is shown: ``ViewedRun(Path("runs/a"), cache=None)``; may be used from several threads."""

    def __init__(self, folder: Path, cache: Path | None) -> None:
        """Open it.

        Raises:
            UsageError: it is no run. StoreError: it cannot be read, or a newer release wrote it.
        """
        self.folder = folder
        self.run = Run.open(folder, writable=False)
        self.created = self.run.created
        try:
            self.index = Index(folder, cache)
        except BaseException:
            self.run.close()
            raise
        self._mutex = threading.Lock()
        self._ends: tuple[float, dict[str, int]] = (0.0, {})
        self._rows: tuple[tuple[int, int], list[dict[str, Any]]] = ((-1, -1), [])
        self._decode: Decode | None = None
        self._has_looked = False
        self._loading = threading.Lock()
        self.problem = ""
        """What kept the index from the newest episodes; empty where nothing did."""
        self.num_left = 1
        """Episodes whose words were not read yet."""

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.run.name

    def read_ends(self) -> dict[str, int]:
        """Return where the journal ends; it is asked at most every `FRESH` seconds, and the index follows."""
        with self._mutex:
            at, ends = self._ends
            if time.monotonic() - at < FRESH and ends:
                return ends
            ends = self.run.read_ends()
            if ends != self._ends[1]:
                self.problem = try_update(self.index, self.run)
                self.num_left = max(self.num_left, 1)
            self._ends = (time.monotonic(), ends)
            return ends

    def rows(self) -> list[dict[str, Any]]:
        """Return the curve; it is read anew only when there is more of it."""
        ends = self.read_ends()
        mark = (ends["steps"], ends["events"])
        with self._mutex:
            if self._rows[0] != mark:
                self._rows = (mark, self.run.metrics())
            return self._rows[1]

    def decode(self) -> Decode | None:
        """Return what turns ids into text; None for a run without a tokenizer, or one that cannot be loaded."""
        with self._loading:
            if not self._has_looked:
                self._decode, self._has_looked = find_decoder(self.folder), True
            return self._decode

    def read_on(self) -> bool:
        """Read some more records for search, and return whether there are more."""
        if self.num_left:
            with suppress(QuintainError, sqlite3.Error):
                self.read_ends()
                self.num_left = self.index.read_records(self.run)
                return self.num_left > 0
            self.num_left = 0
        return False

    def close(self) -> None:
        """Close the run and its index."""
        self.index.close()
        self.run.close()


class Viewer:
    """What `quintain view` shows: one run, or all runs of a folder; ``Viewer(Path("runs"))``."""

    def __init__(self, place: Path, *, cache: Path | None = None, is_trusted: bool = False) -> None:
        """Show `place`, a run or a folder of runs; indexes are kept in `cache`.

        `is_trusted` lets what runs of others name be used, where an episode is replayed.

        Raises:
            UsageError: there is no run. StoreError: the one that is named cannot be read.
        """
        self.place, self.cache, self.is_trusted = place, cache, is_trusted
        self.is_single = (place / CONFIG).is_file() and (place / JOURNAL).is_file()
        self._known: dict[str, ViewedRun] = {}
        self._list: tuple[float, list[RunInfo]] = (0.0, [])
        self._mutex = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._read, name="quintain-viewer", daemon=True)
        if self.is_single:
            Run.open(place, writable=False).close()
        elif not self.list_runs():
            raise UsageError(f"quintain view: got {place}, in which there is no run; train one first")

    def start(self) -> Viewer:
        """Begin to read in the background, and return this viewer."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop reading, and close what was opened."""
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join(10)
        with self._mutex:
            for each in self._known.values():
                each.close()
            self._known.clear()

    def list_runs(self) -> list[RunInfo]:
        """Return the runs that can be shown, the newest first."""
        at, known = self._list
        if time.monotonic() - at < LIST_FRESH and known:
            return known
        found = runs_in(self.place.parent if self.is_single else self.place)
        if self.is_single:
            found = [info for info in found if info.folder.name == self.place.name]
        self._list = (time.monotonic(), found)
        return found

    def get(self, name: str) -> ViewedRun:
        """Return the run `name`, opened.

        Raises:
            UsageError: there is none of that name. StoreError: it cannot be read.
        """
        if not any(info.name == name for info in self.list_runs()):
            self._list = (0.0, [])
        infos = {info.name: info for info in self.list_runs()}
        if name not in infos:
            raise UsageError(f"run: got {name!r:.80}; {suggestion(name, infos)}")
        info = infos[name]
        with self._mutex:
            known = self._known.get(name)
            if known is not None and info.status != "damaged" and known.created != info.created:
                known.close()  # another one was begun under its name
                known = None
            if known is None:
                known = self._known[name] = ViewedRun(info.folder, self.cache)
            return known

    def _read(self) -> None:
        """Load what decodes the newest run, so that no page waits for it; then read on in all opened runs."""
        with suppress(QuintainError):
            viewed = self.get(self.list_runs()[0].name)
            viewed.decode()
            read_options(viewed.run)
        while not self._end.is_set():
            with self._mutex:
                opened = list(self._known.values())
            is_more = [each.read_on() for each in opened]
            self._end.wait(0.001 if any(is_more) else PAUSE)


def find_viewer(place: Path, *, is_trusted: bool = False) -> Viewer:
    """Return what shows `place`, with indexes in the user's cache."""
    return Viewer(place, cache=cache_folder(), is_trusted=is_trusted)


def find_decoder(folder: Path) -> Decode | None:
    """Return what turns the ids of the run `folder` into text; None where it has no tokenizer that can be loaded."""
    from quintain.text.chat import Chat
    from quintain.warm_start.demonstrations import TOKENIZERS, tokenizer_of

    if not any((folder / name).is_dir() for name in TOKENIZERS):
        return None
    try:
        return Chat(tokenizer_of(folder)).text
    except (QuintainError, OSError, ValueError):
        return None


def find_agent(run: Run, *, is_trusted: bool = False) -> str:
    """Return the name of the harness of `run`; the usual one where it is somebody else's code and not to be trusted."""
    try:
        found = admit(run, is_trusted=is_trusted, to="replaying", fields=("agent",))
    except ConfigError:
        return AUTO
    return str(found.get("agent") or AUTO)


def read_options(run: Run) -> dict[str, tuple[object, bool]]:
    """Return each option of `run`, and whether it differs from the method's default.

    Of a method that is not quintain's own nothing is imported, and nothing is known to differ.
    """
    defaults = _find_defaults(run)
    return {name: (value, name in defaults and defaults[name] != value) for name, value in run.config.items()}


def _find_defaults(run: Run) -> dict[str, Any]:
    from quintain.config.trust import find_names
    from quintain.methods.find import find_method

    if list(find_names({RECIPE: run.recipe})):
        return {}
    try:
        made = find_method(run.recipe).config_class()
        found = {name: getattr(made, name) for name in run.config if hasattr(made, name)}
        text = json.dumps(found, default=plain)
    except (QuintainError, TypeError, ValueError):  # a recipe of an older release, or one that needs options
        return {}
    return json.loads(text)
