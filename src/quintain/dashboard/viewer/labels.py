"""What people say of episodes, in the viewer: answers go into the file in which `quintain label` writes them.

That file is all that a viewer writes. Each labeller of each run is one session, whatever number of pages is open, so
that nobody answers a question twice; several labellers add to the same file.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from quintain.dashboard.viewer.viewed import ViewedRun, Viewer
from quintain.data.labels import LEVELS, USUAL_COUNT, agreements, read_labels
from quintain.errors import QuintainError, UsageError
from quintain.learning.labelling import FILE, Session

NAME = re.compile(r"[\w@+-][\w.@+ -]{0,59}")
"""A labeller's name, which is a part of an address."""
MOST = 1_000
"""Questions that a file may ask."""
NUM_LABELS = 50
"""Answers that a page shows, the newest."""


class Labellings:
    """The labellers that pages have open: ``Labellings(viewer).begin({"run": "a", "labeller": "ann"})``."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self._sessions: dict[tuple[str, str], Session] = {}
        self._mutex = threading.Lock()

    def find(self, run: str, labeller: str) -> Session:
        """Return what `labeller` answers of the run `run`.

        Raises:
            UsageError: there is no such run, or that is no name. StoreError: the run cannot be read.
        """
        if not NAME.fullmatch(labeller):
            raise UsageError(
                f"labeller: got {labeller!r:.80}; give a name of letters, digits and . @ + - _, 60 at most"
            )
        file = self._viewer.get(run).folder / FILE
        with self._mutex:
            return self._sessions.setdefault((str(file), labeller), Session(file, labeller))

    def begin(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Let the file of a run ask as many questions as are `asked` for, and return where they are answered.

        Raises:
            UsageError: a name, a number or a level that cannot be. DataError: nothing can be compared.
            StoreError: the file cannot be written.
        """
        run, labeller = str(asked.get("run", "")), str(asked.get("labeller", "")).strip()
        level, count = str(asked.get("level", "") or LEVELS[0]), int(asked.get("count", 0) or 0)
        if level not in LEVELS or not 0 <= count <= MOST:
            raise UsageError(
                f"questions: got {count} of {level!r:.40}; ask 0 to {MOST}, of {' or '.join(LEVELS)}"
            )
        session, viewed = self.find(run, labeller), self._viewer.get(run)
        from quintain.pipelines.questions import run_questions  # which loads torch

        with self._mutex:
            wanted = count or (0 if session.labels.queries else USUAL_COUNT)
            session.ask_until(wanted, run_questions(viewed.run, level, 0), of=f"{level}s of {run}")
        return {"address": f"label/{quote(run, safe='')}/{quote(labeller, safe='')}/"}


def show_labels(viewed: ViewedRun) -> dict[str, Any]:
    """Return what people said in the run's file of labels, how far each has come, and how far they agree."""
    found: dict[str, Any] = {"queries": 0, "num_given": 0, "given": [], "labellers": [], "agreements": []}
    try:
        labels = read_labels(viewed.folder / FILE)
    except (QuintainError, OSError) as error:
        return {**found, "problem": str(error)}
    given = [
        {
            "query": label.query,
            "choice": label.choice,
            "labeller": label.labeller,
            "time": label.time,
            "sources": list(labels.queries[label.query].sources) if label.query in labels.queries else [],
        }
        for label in labels.given[-NUM_LABELS:]
    ]
    names = dict.fromkeys(label.labeller for label in labels.given)
    return {
        "queries": len(labels.queries),
        "num_given": len(labels.given),
        "given": given[::-1],
        "labellers": [{"name": name, "answered": len(labels.of(name))} for name in names],
        "num_opposite": len(labels.contradicting),
        "agreements": [
            {"labellers": list(each.labellers), "share": each.share, "num": each.num, "kappa": each.kappa}
            for each in agreements(labels)
        ],
        "problem": "",
    }
