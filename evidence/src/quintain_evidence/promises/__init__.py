"""What rows that train nothing do on real input, end to end: a file each.

``promises/<row>.py`` has ``MODEL``, the words for what it is tried on ("smollm2", "agentdojo 0.1.35"), and
``keep(runs)``, which does the row's job below the folder `runs` and returns its checks and figures. What a method that
trains does on a real model is in `quintain_evidence.real_model`, the same for all of them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from quintain_evidence.layers.verdict import Check
from quintain_evidence.real_model import Try

Kept = tuple[Sequence[Check], Mapping[str, float]]


def find_rows() -> list[str]:
    """Return the rows that have a file here, sorted."""
    return sorted(module.name for module in iter_modules(__path__))


def try_row(row: str, runs: Path) -> Try:
    """Return what came of the job of `row`, one of `find_rows`; its files are below `runs`.

    What stops the job is an error of the command, not a promise that was tried and broken.
    """
    module = import_module(f"{__name__}.{row}")
    keep: Callable[[Path], Kept] = module.keep
    folder = runs / f"promise-{row}"
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    checks, figures = keep(folder)
    return Try(
        command=f"quintain bench promise --only {row}",
        model=str(module.MODEL),
        checks=tuple(checks),
        figures=figures,
        seconds=round(time.monotonic() - started, 1),
    )
