"""Policies that runs kept: ``RUN`` is its newest, ``RUN@best`` and ``RUN@75`` are of a step; one resolver for all.

A step is named wherever a run or a model folder is. Kept are the newest checkpoints, the one that did best on what is
held out, and the start (step 0). A step that is not kept is refused with those that are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from quintain.config.trust import admit
from quintain.errors import ModelError, StoreError, UsageError
from quintain.learning.policies import load_main
from quintain.models.adapters import plain
from quintain.models.cpu.native import Unavailable, cache_folder
from quintain.models.gguf import SMOLLM2
from quintain.models.heads import ValueHead
from quintain.models.load import LoadedModel, find_folder, load
from quintain.models.precision import DTYPES
from quintain.models.save import save
from quintain.models.tiny import SIZES
from quintain.store.checkpoints import MANIFEST, damage
from quintain.store.creation import JOURNAL
from quintain.store.names import split_step
from quintain.store.run import Run
from quintain.types.terminal import spell_out_line, write_command, write_line

MODEL, START = "model", "start"
"""Folders of a run that hold the policy it ended with, and the one it began with."""
OUR_MODELS = frozenset([*SIZES, "auto", SMOLLM2])
"""Models that are no folder, no run and no id of the hub."""
BEST = "best"
"""The mark of the step that did best on what is held out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPolicy:
    """A policy of a run: ``SavedPolicy(run=Path("runs/a"), step=75, checkpoint=Path("…/step-000075"))``."""

    run: Path
    step: int
    checkpoint: Path | None
    """what holds its weights; None: the start of the run does"""

    @property
    def name(self) -> str:
        """Its name, with an absolute path, as it is written into a configuration."""
        return f"{self.run.absolute()}@{self.step}"


def run_in(text: str, root: Path | None = None) -> Path | None:
    """Return the folder of the run that `text` names, by path or by its name under `root`; None where there is none."""
    if not text:
        return None
    places = (Path(text).expanduser(), *([root / text] if root is not None else []))
    return next((place for place in places if (place / JOURNAL).is_file()), None)


def run_of(target: str | Path) -> Path | None:
    """Return the folder of the run that `target` is, or names a step of; None where it is none."""
    return run_in(split_step(str(target))[0])


def admit_run(
    target: str | Path, *, is_trusted: bool, to: str, fields: Collection[str] | None = None
) -> Mapping[str, Any]:
    """Return the configuration of the run that `target` is or names a step of, to use its `fields`; {} of what is none.

    Whoever acts on what a run names gets it here, or from `quintain.config.trust.admit` itself.

    Raises:
        ConfigError: see `quintain.config.trust.admit`.
    """
    folder = run_of(target)
    if folder is None:
        return {}
    with Run.open(folder, writable=False) as run:
        return admit(run, is_trusted=is_trusted, to=to, fields=fields)


def check_files(target: str | Path, *, accepts_changes: bool, to: str, is_all: bool = False) -> None:
    """Refuse files of the run that `target` is, or names a step of, that are not what it wrote, or say which they are.

    Raises:
        StoreError: there are some, and they are not accepted.
    """
    folder = run_of(target)
    if folder is None:
        return
    with Run.open(folder, writable=False) as run:
        changes = run.check_files(to, is_all=is_all, accepts_changes=accepts_changes)
    if changes:
        note = f"{to} {target} with files that are not what it wrote: {changes}"
        write_line(f"quintain: note: {spell_out_line(note)}", is_error=True)


def find_saved(text: str, root: Path | None = None) -> SavedPolicy | None:
    """Return the policy of a step that `text` names, as ``RUN@best`` or ``RUN@75``; None where it names no step.

    Raises:
        UsageError: there is no such run, or the mark is neither a step nor ``best``.
        ModelError: the step is not kept, or nothing of the run was held out.
        StoreError: its checkpoint is damaged.
    """
    base, mark = split_step(text)
    if not mark:
        return None
    folder = run_in(base, root)
    if folder is None:
        raise UsageError(f"model {text!r}: got {base!r}, which is no run; a step after @ is one of a run")
    with Run.open(folder, writable=False) as run:
        return find_step(run, mark)


def find_step(run: Run, mark: str) -> SavedPolicy:
    """Return the policy of the step `mark` of `run`: a number, or `BEST`; raises as `find_saved`."""
    asked = f"{run.folder}@{mark}"
    best = run.best_step
    if mark != BEST and not (mark.isascii() and mark.isdigit() and len(mark) < 20):
        raise UsageError(
            f"model {asked!r}: got the step {mark!r}; {describe_steps(run)}, as in {run.name}@{BEST}"
        )
    if mark == BEST and best is None:
        raise ModelError(
            f"model {asked!r}: got a run in which nothing was held out, so that none is the best; {describe_steps(run)}"
        )
    step = best if mark == BEST and best is not None else int(mark)
    found = {each.step: each.folder for each in run.checkpoints()}
    if step == 0 and (run.folder / START / "config.json").is_file():
        return SavedPolicy(run=run.folder, step=0, checkpoint=None)
    if step not in found:
        raise ModelError(f"model {asked!r}: got step {step}, which is not kept; {describe_steps(run)}")
    if (reason := damage(found[step])) is not None:
        raise StoreError(
            f"model {asked!r}: got a checkpoint that cannot be used: {reason}; {describe_steps(run)}"
        )
    return SavedPolicy(run=run.folder, step=step, checkpoint=found[step])


def list_steps(run: Run) -> list[int]:
    """Return the steps of `run` whose policies are kept, first to last."""
    start = {0} if (run.folder / START / "config.json").is_file() else set[int]()
    return sorted(start.union(each.step for each in run.checkpoints()))


def describe_steps(run: Run) -> str:
    """Return which steps of `run` are kept, in words for an error."""
    steps = list_steps(run)
    if not steps:
        return "no step of it is kept"
    best = run.best_step
    listed = ", ".join(f"{step} ({BEST})" if step == best else str(step) for step in steps)
    return f"the steps that are kept: {listed}"


def load_policy(name: str, *, dtype: str = "float32") -> LoadedModel:
    """Load what `name` names: a run (its newest policy), a step of one, a model folder or a hub id.

    It is of the precision `dtype`; what checkpoints keep is put together in float32 first.

    Raises:
        ModelError: there is no such model, or a run that has none.
    """
    saved = find_saved(name)
    folder = Path(name).expanduser() if saved is None else saved.run
    if not (folder / JOURNAL).is_file():
        return load(name, dtype=dtype)
    if saved is None:
        if (folder / MODEL).is_dir():
            return load(str(folder / MODEL), dtype=dtype)
        if not (folder / START).is_dir():
            raise ModelError(f"model of the run {folder}: got a run without one; name a run that was trained")
        saved = newest(folder)
    found = load_saved(saved)[0]
    if dtype != "float32":
        found = replace(found, model=cast(Any, plain(found.model)).to(DTYPES[dtype]))
    return found


def newest(folder: Path) -> SavedPolicy:
    """Return the policy of the newest intact checkpoint of the run `folder`, or of its start."""
    with Run.open(folder, writable=False) as run:
        checkpoint = run.latest_checkpoint()
    if checkpoint is None:
        return SavedPolicy(run=folder, step=0, checkpoint=None)
    return SavedPolicy(run=folder, step=checkpoint.step, checkpoint=Path(checkpoint.folder))


def load_saved(saved: SavedPolicy) -> tuple[LoadedModel, ValueHead | None]:
    """Return the policy `saved` and the value head beside it, where it has one."""
    found = load(str(saved.run / START))
    if saved.checkpoint is None:
        return found, None
    with Run.open(saved.run, writable=False) as run:
        config = run.config
    return found, load_main(found.model, config, saved.checkpoint)


def find_model(name: str, root: Path | None = None) -> str:
    """Return the folder of the model that `name` is: a run's, of a step of it, or a folder itself.

    A run is named by its folder or its name under `root`. The policy of a step is written into the user's cache, from
    where engines and other processes load it; that of the start, and the one that a run ended with, have folders.

    Raises:
        ModelError: it is a run whose training is not finished, or a step that is not kept.
        StoreError: there is no place to write it to.
    """
    saved = find_saved(name, root)
    if saved is not None:
        return str(
            (saved.run / START).absolute() if saved.checkpoint is None else write_saved(saved).absolute()
        )
    if (folder := run_in(name, root)) is not None:
        if not (folder / MODEL).is_dir():
            with Run.open(folder, writable=False) as run:
                kept = describe_steps(run)
            command = write_command("quintain", "resume", folder)
            raise ModelError(
                f"model of the run {folder}: got one that is not finished; {command}, or name a step as in"
                f" {folder.name}@{BEST} ({kept})"
            )
        return str((folder / MODEL).absolute())
    place = Path(name).expanduser()
    return str(place.absolute()) if place.is_dir() else name


def tokenizer_folder(name: str, root: Path | None = None) -> Path:
    """Return a folder with tokenizer and configuration of the model `name`: of a run, or a step of one, its start."""
    if not is_of_run(name, root):
        return find_folder(name)
    saved = find_saved(name, root)
    folder = run_in(name, root) if saved is None else saved.run
    assert folder is not None, "it is of a run"
    return folder / START


def write_saved(saved: SavedPolicy) -> Path:
    """Write the policy `saved` as a model folder into the user's cache, if it is not there, and return the folder."""
    assert saved.checkpoint is not None, "the start has a folder of its own"
    try:
        cache = cache_folder()
    except Unavailable as reason:
        raise StoreError(f"model {saved.name!r}: got no place to write it to, {reason}") from reason
    digest = hashlib.sha256((saved.checkpoint / MANIFEST).read_bytes()).hexdigest()
    target = cache / "models" / f"{saved.run.name}@{saved.step}-{digest[:16]}"
    if target.is_dir():
        return target
    found, head = load_saved(saved)
    return save(found.model, found.tokenizer, target, head)


def is_of_run(name: str, root: Path | None = None) -> bool:
    """Whether the model `name` is a run, or a step of one; models that we name come before runs of their names."""
    if name.partition("?")[0] in OUR_MODELS:
        return False
    return bool(split_step(name)[1]) or run_in(name, root) is not None


def place_name(name: str, root: Path | None = None) -> str:
    """Return the model `name` as it holds wherever a run is continued: of a run the folder, of its step ``/RUN@75``.

    What is neither is returned as it is.
    """
    saved = find_saved(name, root)
    if saved is not None:
        return saved.name
    return find_model(name, root) if is_of_run(name, root) else name
