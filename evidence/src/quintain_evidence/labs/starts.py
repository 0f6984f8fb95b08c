"""Policies that experiments start from, each made once and kept in the user's cache by what it is made of.

A start imitates the teacher until it solves `enough` of its training tasks (`quintain_evidence.start`). What makes
it, `enough` included, names its folder, so another setting is another start; one that was broken off is made anew.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from quintain.errors import DataError
from quintain.learning.saved import START
from quintain.learning.train_config import TrainConfig
from quintain.models.cpu.native import cache_folder
from quintain.rollout.progress import Display
from quintain.store.run import Run
from quintain_evidence.start import imitated
from quintain_evidence.trials import MAKES_START, digest


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedStart:
    """A policy to start from: ``CachedStart(folder=Path("…/start"), success=0.44, config=config)``."""

    folder: Path
    """model and tokenizer"""
    success: float
    """on training tasks, when imitation ended"""
    config: TrainConfig


def cached_start(
    config: TrainConfig, *, enough: float, most: float = 1.0, root: Path | None = None
) -> CachedStart:
    """Return the start that `config` describes, imitated until its success on training tasks is `enough` or more.

    Args:
        config: environment, model, seed, demonstrations, mistakes, rate and epochs of imitation, agent, temperature.
        enough: success at which imitation ends.
        most: success above which the start is refused, because it leaves nothing to learn.
        root: folder of the cache; None: ``~/.cache/quintain/starts``.

    Raises:
        DataError: it ended below `enough` or above `most`.
    """
    folder = (cache_folder() / "starts" if root is None else root) / start_name(config, enough)
    if not (folder / START / "config.json").exists():
        part = folder.with_name(f"{folder.name}.part-{os.getpid()}")
        shutil.rmtree(part, ignore_errors=True)
        with (
            Run.create(part, recipe="start", config=asdict(config)) as run,
            Display(folder.name, 1) as display,
        ):
            run.event("start", "imitated", success=imitated(config, run, display, enough=enough))
            run.finish("done")
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    with Run.open(folder, writable=False) as run:
        success = next(float(event["data"]["success"]) for event in run.events() if event["kind"] == "start")
    if not enough <= success <= most:
        raise DataError(
            f"start {folder.name}: got success {success:.2f} where {enough:.2f} to {most:.2f} was asked; change "
            "demonstrations, mistakes or epochs of imitation"
        )
    return CachedStart(folder=folder / START, success=success, config=config)


def start_name(config: TrainConfig, enough: float) -> str:
    """Return the name of the folder of a start: its seed, and a digest of what makes it."""
    made_of = {key: getattr(config, key) for key in MAKES_START}
    return f"start-{config.seed}-{digest({**made_of, 'enough': enough})}"
