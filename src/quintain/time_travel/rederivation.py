"""Makes steps of a run again in a folder of its own, from the episodes that were recorded.

The method trains as it did, on a copy of the run as it was before the first of these steps; what it asks to be played
is taken from the journal by its seed, and played where that has nothing. So whatever a method does in a step is made
again, whichever loop it has. The run itself is only read.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from quintain.config import build
from quintain.config.trust import admit
from quintain.errors import InvariantError, StoreError, UsageError
from quintain.learning.gap import skip_check
from quintain.learning.train_config import TrainConfig
from quintain.methods.find import find_method
from quintain.runs.summary import EXTENDED
from quintain.store.checkpoints import Checkpoint, damage
from quintain.store.creation import CHECKPOINTS, JOURNAL, METRICS
from quintain.store.files import disk_error
from quintain.store.machine import machine
from quintain.store.rows import Commit
from quintain.store.run import Run
from quintain.time_travel.differences import (
    Difference,
    DifferenceFound,
    compare_episodes,
    compare_metrics,
    compare_uses,
)
from quintain.types import Failure, Trajectory, Use

NOT_COPIED = re.compile(
    r"run\.db.*|metrics\.jsonl|checkpoints|model.*|adapter|engines|ranks|report\.html|.*\.png|\..*"
)
"""What of a run's folder no step is made of, or is made anew."""
OF_ENGINE = ("gap/",)
"""Beginnings of metrics that compare the engine that sampled with the learner."""
LEFT_OUT = "left_out"
"""Kind of the failure of an episode that is not to be learned from."""
RESUMED = re.compile(r"at step (\d+)")
THREADS = re.compile(r"(\d+) threads?\)")
Left = Collection[tuple[int, str, int]]
"""(step, group, index) of the episodes that are not learned from"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Steps that are made again in one go: ``Part(base=checkpoint of step 10, first=11, last=20)``."""

    base: Checkpoint | None
    """what they begin with; None: the start of the run"""
    first: int
    last: int


class RederivedRun(Run):
    """The copy in which steps of `original` are made again."""

    def set_up(
        self,
        original: Run,
        *,
        last: int,
        resamples: bool = False,
        left: Left = (),
        on_step: Callable[[RederivedRun, int], None] = lambda _, __: None,
    ) -> None:
        """Make the steps up to `last` of `original`, with its episodes unless it `resamples`; those `left` are out.

        `on_step` is called when a step is closed.
        """
        self.original, self.last_wanted, self._left, self._on_step = original, last, frozenset(left), on_step
        self._may_drift = False
        self.has_other_engine = False
        """whether what samples is not what sampled"""
        self.num_recalled = 0
        """episodes that were taken from the journal in place of being played"""
        self._doing, self._known = self.next_step, dict[int, dict[int, list[Trajectory]]]()
        if not resamples:
            self.find_recorded = self._find

    @property
    def leaves_out(self) -> bool:
        """Whether there are episodes that are not learned from."""
        return bool(self._left)

    def commit(
        self,
        step: int,
        metrics: Mapping[str, float],
        *,
        phase: str = "train",
        weights: str | None = None,
        policy_version: int | None = None,
        uses: Sequence[Use] | None = None,
    ) -> None:
        """Close `step` as any run does, and tell of it."""
        super().commit(step, metrics, phase=phase, weights=weights, policy_version=policy_version, uses=uses)
        self._doing = step + 1
        self._known.pop(step, None)
        self._on_step(self, step)

    def checkpoint(
        self, step: int, write: Callable[[Path], None], *, keep: int = 2, protect: Collection[int] = ()
    ) -> Path:
        """Save the state after `step`; none is deleted, for there are few."""
        return super().checkpoint(step, write, keep=keep, protect=range(step + 1))

    def _find(self, group: str, index: int, seed: int) -> Trajectory | None:
        """Return the episode of the step that is being made, or is played ahead, that was sampled from `seed`."""
        for step in range(self._doing, self._doing + 1 + int(self.config.get("max_staleness") or 0)):
            if step not in self._known:
                self._known[step] = {}
                for each in self.original.trajectories(step=step):
                    self._known[step].setdefault(each.seed, []).append(each)
            for each in self._known[step].get(seed, ()):
                if each.index == index and base_name(each.group) == base_name(group):
                    return self._take(step, each, group)
        return None

    def _take(self, step: int, found: Trajectory, group: str) -> Trajectory:
        """Return the recorded episode as if it had just been played, without an outcome where it is left out."""
        self.num_recalled += 1
        if (step, found.group, found.index) in self._left:
            told = Failure(owner="environment", kind=LEFT_OUT, message="left out to see what changes")
            found = replace(found, outcome=told)
        return replace(found, id="", group=group)


def base_name(group: str) -> str:
    """Return the name of `group` as an episode is asked for: without how often its task was sampled in the step."""
    return re.sub(r"\+\d+$", "", group.partition("@")[2] or group)


class Comparison:
    """Compares steps that are made again with those that were recorded: ``Comparison(run).compare(made, 7)``."""

    def __init__(self, original: Run) -> None:
        self.original, self.commits = original, original.commits()
        self.largest_rounding, self.num_steps, self.num_weights = 0.0, 0, 0
        self.machines: dict[str, None] = {}
        """other machines that computed some of the steps"""

    def is_exact(self, step: int) -> bool:
        """Whether `step` was computed by what computes here."""
        return self.commits[step].machine == machine()

    def compare(self, made: RederivedRun, step: int) -> None:
        """Compare `step`, which is closed in `made`.

        Raises:
            DifferenceFound: it does not follow.
        """
        known = self.commits.get(step)
        if known is None:
            raise self._make_difference(step, "metrics", "the journal has no such step, or it cannot be read")
        again, is_exact = made.commits()[step], self.is_exact(step)
        if not is_exact:
            self.machines[known.machine] = None
        self._compare_recorded(made, step)
        self._compare_used(made, step, again, known, is_exact=is_exact)
        what, text, largest = compare_metrics(
            again.metrics,
            known.metrics,
            is_exact=is_exact,
            leaves_out=OF_ENGINE if made.has_other_engine else (),
        )
        self.largest_rounding = max(self.largest_rounding, largest)
        if what:
            raise self._make_difference(step, what, text)
        if again.version != known.version:
            raise self._make_difference(
                step, "version", f"the policy has made {again.version} updates, recorded are {known.version}"
            )
        if is_exact and known.weights is not None and again.weights is not None:
            if again.weights != known.weights:
                text = f"they have the fingerprint {again.weights[:12]}, recorded is {known.weights[:12]}"
                raise self._make_difference(step, "weights", text)
            self.num_weights += 1
        self.num_steps += 1

    def compare_checkpoint(self, made: RederivedRun, step: int) -> float:
        """Compare the checkpoints of `step`, where both runs have one; return by how much weights differ, as a share.

        Raises:
            DifferenceFound: they differ by more than rounding.
        """
        folders = [
            each.folder for run in (made, self.original) for each in run.checkpoints() if each.step == step
        ]
        if len(folders) < 2:
            return 0.0
        if wrong := damage(folders[1]):
            raise self._make_difference(step, "checkpoint", f"the one of step {step} cannot be used: {wrong}")
        names = {file.relative_to(folders[1]).as_posix() for file in folders[1].rglob("*.safetensors")}
        largest = 0.0
        for name in sorted(names):
            if not (folders[0] / name).exists():
                continue  # that of ranks, of which there are none here
            own, other = load_file(folders[0] / name), load_file(folders[1] / name)
            for key in sorted(own.keys() | other.keys()):
                if key not in own or key not in other or own[key].shape != other[key].shape:
                    raise self._make_difference(
                        step, "checkpoint", f"{name} of step {step} holds another {key}"
                    )
                a, b = own[key].double(), other[key].double()
                apart = float((a - b).norm() / max(float(b.norm()), 1e-12))
                largest = max(largest, apart)
                if apart > (0.0 if self.is_exact(step) else 0.1):
                    text = f"{key} in {name} of step {step} is apart by {apart:.2g} of its norm"
                    raise self._make_difference(step, "checkpoint", text)
        return largest

    def _compare_recorded(self, made: RederivedRun, step: int) -> None:
        """Compare the episodes that were recorded in `step`."""
        own, other = made.digests(step), self.original.digests(step)
        readable = {each.id for each in self.original.trajectories(step=step)}
        for name in other.keys() - readable:
            raise self._make_difference(
                step, "episodes", f"episode {name} is not what was written: it cannot be read"
            )
        for name in own.keys() - other.keys():
            raise self._make_difference(
                step, "episodes", f"the journal has no episode {name}, which the step asks for"
            )
        for name, digest in other.items():
            if name not in own:
                if step == 0:
                    continue  # what the start was made of
                raise self._make_difference(
                    step, "episodes", f"episode {name} is recorded, and nothing asks for it"
                )
            if own[name] == digest:
                continue
            what, text = compare_episodes(made.episode(name), self.original.episode(name))
            if what:
                raise self._make_difference(step, what, text)

    def _compare_used(
        self, made: RederivedRun, step: int, again: Commit, known: Commit, *, is_exact: bool
    ) -> None:
        """Compare what `step` learned from."""
        if again.batch_hash == known.batch_hash:
            return
        uses = [[use for _, use in run.uses(step)] for run in (made, self.original)]
        what, text = compare_uses(*uses, is_exact=is_exact)
        has_signals = any(use.signals is not None for use in uses[1])
        if not what and (is_exact or not has_signals):
            what, text = "episodes", "they are not those that the step was committed with, by their hash"
        if what:
            raise self._make_difference(step, what, text)

    def _make_difference(self, step: int, what: str, text: str) -> DifferenceFound:
        return DifferenceFound(Difference(step=step, what=what, text=text))


def open_original(folder: Path, *, is_trusted: bool, to: str) -> Run:
    """Return the run in `folder`, open for reading, whose steps are to be made again; it must be closed.

    Raises:
        UsageError: it is no run of a method, or has no step. ConfigError: it is somebody else's, and not trusted.
    """
    run = Run.open(folder, writable=False)
    try:
        admit(run, is_trusted=is_trusted, to=to)
        if not (run.folder / "start").is_dir():
            raise UsageError(
                f"{to} {folder}: got a run that trained nothing ({run.recipe}); name one of `quintain train`"
            )
        if not run.last_step:
            raise UsageError(f"{to} {folder}: got a run without a step; train it first")
    except BaseException:
        run.close()
        raise
    return run


def find_base(run: Run, step: int) -> Checkpoint | None:
    """Return the newest intact checkpoint of `run` from before `step`; None: it begins with the start."""
    return next(
        (each for each in run.checkpoints() if each.step < step and damage(each.folder) is None), None
    )


def find_extents(run: Run) -> list[tuple[int, int]]:
    """Return the steps from which on `run` was to have so many steps in all, in order: schedules end with them."""
    found, at = [(0, int(run.config.get("steps") or 0))], 0
    for event in run.events():
        if event["kind"] == "resume" and (named := RESUMED.fullmatch(event["message"])):
            at = int(named[1])
        if event["kind"] == EXTENDED:
            found = [(first, steps) for first, steps in found if first < at or not first]
            found.append((at, int(event["data"]["steps"])))
    return found


def make_again(
    run: Run,
    part: Part,
    *,
    resamples: bool = False,
    left: Left = (),
    on_step: Callable[[RederivedRun, int], None] = lambda _, __: None,
    on_end: Callable[[RederivedRun], None] = lambda _: None,
    into: Path | None = None,
) -> None:
    """Make the steps of `part` again, of `run`, in a folder that is gone afterwards, unless `into` names one.

    A copy that lies in `into` already goes on from where it is.

    `on_end` is called with the copy when the last step is made and its state saved. Episodes that are `left` out are
    not learned from; what is sampled by other weights than are trained is then no error.

    Raises:
        DifferenceFound: `on_step` says so. StoreError: there is no room for a copy.
    """
    with contextlib.ExitStack() as stack:
        if into is None:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quintain-again-")))
            into = home / run.name
        if not into.exists():
            copy_run(run, part.base, into)
        for steps, last in split_extents(run, part):
            context = skip_check() if left else contextlib.nullcontext()
            opened = RederivedRun.open(into, accepts_changes=True)
            with silence(), set_threads(run, part.first), context, opened as made:
                made.set_up(run, last=last, resamples=resamples, left=left, on_step=on_step)
                _train(made, steps)
                if (done := made.last_step or 0) < last:
                    raise InvariantError(
                        f"making steps of {run.name} again: got to step {done} of {last}, where the method ended"
                    )
                if last == part.last:
                    on_end(made)


def split_extents(run: Run, part: Part) -> list[tuple[int, int]]:
    """Return how many steps `run` was to have in all, and the last step of `part` of which that is so, in order."""
    known = find_extents(run)
    ends = [min(first - 1, part.last) for first, _ in known[1:]] + [part.last]
    found = [(steps, end) for (_, steps), end in zip(known, ends, strict=True) if end >= part.first]
    return [each for place, each in enumerate(found) if not place or each[1] > found[place - 1][1]]


def _train(made: RederivedRun, steps: int) -> None:
    """Train `made` up to the step that is wanted; schedules are those of `steps`."""
    found = find_method(made.recipe)
    settings: TrainConfig = build(
        found.config_class, made.config, f"{made.folder}/config.json", is_stored=True
    )
    here = local_settings(settings)
    if made.leaves_out:
        here["monitors"] = ",".join([settings.monitors, "stop_failures=1"]).strip(",")
    made.has_other_engine = "engine" in here
    settings = replace(settings, steps=steps, **here)
    with found.blame_file():
        try:
            found.make(settings).train(made, settings)
        except KeyboardInterrupt:
            if (made.last_step or 0) < (made.last_wanted or 0):
                raise


def local_settings(config: TrainConfig) -> dict[str, Any]:
    """Return what is computed otherwise where steps are made again: here, by one process, tracked by nobody."""
    named: dict[str, Any] = {
        "track": "",
        "learner_ranks": 0,
        "context_ranks": 1,
        "cluster": "",
        "placement": "",
    }
    if config.engine.partition("?")[0] not in ("local", "process"):
        named["engine"] = "local"
    return {name: value for name, value in named.items() if getattr(config, name, value) != value}


def copy_run(run: Run, base: Checkpoint | None, into: Path) -> None:
    """Write `run` as it was after the checkpoint `base` to the new folder `into`: with it alone, and the journal.

    Raises:
        StoreError: there is no room for it.
    """
    try:
        into.mkdir(parents=True, mode=0o700)
        for entry in run.folder.iterdir():
            if NOT_COPIED.fullmatch(entry.name):
                continue
            if entry.is_dir():
                shutil.copytree(entry, into / entry.name)
            else:
                shutil.copyfile(entry, into / entry.name)
        (into / CHECKPOINTS).mkdir()
        if base is not None:
            shutil.copytree(base.folder, into / CHECKPOINTS / base.folder.name)
        (into / METRICS).touch()
        run.copy_journal(into / JOURNAL)
    except StoreError:
        raise
    except OSError as error:
        then = "name a folder with room for a copy of the run as TMPDIR"
        raise disk_error(f"copying the run {run.name}", into, error, then=then) from error


@contextlib.contextmanager
def silence() -> Generator[None]:
    """Within it nothing is shown of what a run shows while it trains; errors are errors still."""
    log = logging.getLogger("quintain")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        log.setLevel(before)


@contextlib.contextmanager
def set_threads(run: Run, step: int) -> Generator[None]:
    """Within it torch computes with as many threads as when `step` of `run` was computed: sums depend on them."""
    commit = run.commits().get(step)
    found = THREADS.search("" if commit is None else commit.machine)
    before = torch.get_num_threads()
    if found:
        torch.set_num_threads(int(found[1]))
    try:
        yield
    finally:
        torch.set_num_threads(before)
