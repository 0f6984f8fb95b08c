"""Runs registered claims: block by block, in processes, and what was measured before is not measured again.

A block is missing where no line has it for this claim and the code of this experiment and of the method's own file
without an error, so an interrupted run goes on, and a failed block is run again while its failure stays on record.
Training stops where its sequence may.
"""

import importlib
import importlib.util
import math
import re
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from os import _exit
from pathlib import Path
from typing import Any, Protocol

from quintain.errors import DataError
from quintain.methods.table import MODULES
from quintain_evidence.layers.inference import looks
from quintain_evidence.layers.records import Line, append, lines, provenance, version_of
from quintain_evidence.layers.spec import Signature, module_of
from quintain_evidence.layers.verdict import Verdict, judge
from quintain_evidence.renames import LAYER as RENAMES
from quintain_evidence.renames import digest_of, earlier_digests
from quintain_evidence.sweep import workers

LAYER = "signature"
PATIENCE, LEAST_SECONDS = 20.0, 600.0
"""A block may take this many times what its whole claim was said to take, and at least this many seconds."""

PLACES = re.compile(r'(?<=File ")/\S*/(?=(?:src/)?quintain|lib/python)')
"""Where a machine keeps sources: no part of what is recorded of an error."""

Measured = Sequence[Mapping[str, float]]


class Told(Protocol):
    """Where progress goes."""

    def total(self, num: int) -> None:
        """Say that `num` more blocks are to be run."""
        ...

    def advance(self, text: str) -> None:
        """Say that a block is done."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One block that is to be measured: ``Task(signature=…, block=0)``."""

    signature: Signature
    block: int

    @property
    def seconds(self) -> float:
        """Return how long it may take."""
        return max(LEAST_SECONDS, PATIENCE * 60 * self.signature.minutes)


def code_digest(signature: Signature) -> str:
    """Return a short digest of what the experiment's file computes: its syntax without docstrings and comments."""
    return digest_of(source_of(signature))


def method_digest(signature: Signature) -> str:
    """Return a short digest of what the method's own file computes; empty where it has none."""
    module = MODULES.get(signature.method)
    return "" if module is None else digest_of(source_at(module))


def source_of(signature: Signature) -> str:
    """Return the text of the experiment's file."""
    return source_at(module_of(signature))


def source_at(module: str) -> str:
    """Return the text of `module`, which is there."""
    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None, "what was read names a module that is there"
    return Path(found.origin).read_text(encoding="utf-8")


def measure(task: Task) -> dict[str, Any]:
    """Return what the block `task` measured, and the seconds that it took, of the clock and of the processor."""
    signature, started, began = task.signature, time.monotonic(), time.process_time()
    given = {
        **signature.options,
        "world": signature.world,
        "seeds": signature.seeds,
        "block": task.block,
    }
    function = importlib.import_module(module_of(signature)).measure
    found = checked(signature, function(given, signature.seed_of(task.block)))
    return {
        "measurements": found,
        "error": "",
        "seconds": round(time.monotonic() - started, 3),
        "processor_seconds": round(time.process_time() - began, 3),
    }


def measure_in_time(task: Task) -> dict[str, Any]:
    """Do what `measure` does in a process that ends itself where it takes too long: nobody else could stop it."""
    alarm = threading.Timer(task.seconds, _exit, (3,))
    alarm.daemon = True
    alarm.start()
    try:
        return measure(task)
    finally:
        alarm.cancel()


def checked(signature: Signature, measured: Measured) -> list[dict[str, float]]:
    """Return `measured` with its numbers as floats.

    Raises:
        DataError: nothing, or something that is no finite number, or fewer replications than are registered.
    """
    found = [{key: float(value) for key, value in part.items()} for part in measured]
    wanted = 1 if signature.kind in ("property", "training") else signature.seeds
    if len(found) < wanted:
        raise DataError(
            f"{signature.experiment}.measure: got {len(found)} replications; return {wanted} (seeds)"
        )
    for part in found:
        for key, value in part.items():
            if not math.isfinite(value):
                raise DataError(
                    f"{signature.experiment}.measure: got {value} for {key}; return finite numbers"
                )
    return found


@dataclass(frozen=True, kw_only=True)
class State:
    """What is known of a claim: its blocks so far, and what was recorded about it before."""

    signature: Signature
    version: int
    """which version of the claim this is, by its results"""
    blocks: Mapping[int, Measured]
    """measured by the claim and the experiment as they are"""
    num_failed: int
    """blocks whose last try failed"""
    num_lines: int
    """lines of all versions, tries and failures"""
    commands: tuple[str, ...]
    seconds: float
    """that the blocks took: of the processor, or of the clock where that is all that is known"""
    is_stale: bool
    """whether there are results of this claim by other code of its experiment, or of the method, only"""

    @cached_property
    def verdict(self) -> Verdict:
        """Return what the blocks say, as far as they go without a gap."""
        whole: list[Measured] = []
        while len(whole) in self.blocks:
            whole.append(self.blocks[len(whole)])
        return judge(self.signature, whole)

    def word(self) -> str:
        """Return ``shown``, ``not shown``, ``failed`` (a block raised an error), ``unfinished`` or ``not run``."""
        if self.num_failed:
            return "failed"
        if not self.blocks:
            return "not run"
        verdict = self.verdict
        if not verdict.is_complete:
            return "unfinished"
        return "shown" if verdict.holds else "not shown"


def state_of(signature: Signature, folder: Path) -> State:
    """Return what the results in `folder` know of `signature`."""
    every = lines(folder, signature.row)
    known = [line for line in every if line.get("layer") == LAYER]
    spec, code = signature.digest(), code_digest(signature)
    renames = [line for line in every if line.get("layer") == RENAMES]
    codes, methods = earlier_digests(renames, code), earlier_digests(renames, method_digest(signature))
    own = [line for line in known if line["spec"] == spec]
    # Lines from before methods were part of what is recorded do not say which one they are of. They stand unless the
    # claim says that its method was changed since.
    is_outdated = bool(signature.outdated) and "signature" in signature.outdated_layers
    known_methods = methods if is_outdated else {"", *methods}
    current = {
        line["block"]: line
        for line in own
        if line["experiment"] in codes and line.get("method", "") in known_methods
    }
    good = {block: line for block, line in current.items() if not line["error"]}
    return State(
        signature=signature,
        version=version_of(known, spec),
        blocks={block: line["measurements"] for block, line in good.items()},
        num_failed=len(current) - len(good),
        num_lines=len(known),
        commands=tuple(dict.fromkeys(str(line["command"]) for line in good.values())),
        seconds=sum(float(line.get("processor_seconds", line["seconds"])) for line in good.values()),
        is_stale=bool(own) and not current,
    )


def wanted(state: State) -> list[int]:
    """Return the blocks that are to be measured next; none where the verdict is complete."""
    signature = state.signature
    if signature.kind != "training":
        return [block for block in range(signature.blocks) if block not in state.blocks]
    if state.verdict.is_complete:
        return []
    for look in looks(signature.blocks):
        missing = [block for block in range(look.num) if block not in state.blocks]
        if missing:
            return missing
    return []


def run(
    chosen: Sequence[Signature], folder: Path, jobs: int, command: Callable[[Signature], str], told: Told
) -> dict[str, State]:
    """Measure what is missing of the claims `chosen`, and return what is known of each then, by row.

    `command` gives the command line that measures a claim alone. A block that fails is recorded and not tried again
    before the next call.
    """
    states = {signature.row: state_of(signature, folder) for signature in chosen}
    tried: set[tuple[str, int]] = set()
    while True:
        tasks = [
            Task(signature=state.signature, block=block)
            for state in states.values()
            for block in wanted(state)
            if (state.signature.row, block) not in tried
        ]
        if not tasks:
            return states
        told.total(len(tasks))
        for task, found in performed(tasks, jobs):
            signature = task.signature
            tried.add((signature.row, task.block))
            append(folder, signature.row, line_of(states[signature.row], task, found, command(signature)))
            state = states[signature.row] = state_of(signature, folder)
            told.advance(
                f"{signature.row} block {task.block}: "
                + (
                    found["error"]
                    or f"{len(state.blocks)} of {signature.blocks} blocks, {found['seconds']:.1f} s"
                )
            )


def line_of(state: State, task: Task, found: Mapping[str, Any], command: str) -> Line:
    """Return the line that a block is recorded as."""
    signature = task.signature
    return {
        "layer": LAYER,
        "row": signature.row,
        "spec": signature.digest(),
        "version": state.version,
        "experiment": code_digest(signature),
        "method": method_digest(signature),
        "block": task.block,
        "seed": signature.seed_of(task.block),
        **provenance(command),
        **found,
    }


def performed(tasks: Sequence[Task], jobs: int) -> Iterator[tuple[Task, dict[str, Any]]]:
    """Yield every task with what it measured or how it failed, as they are done, in `jobs` processes; 1 is this one."""
    left = list(tasks)
    while left:
        jobs = min(jobs, len(left))
        with ThreadPoolExecutor(1) if jobs == 1 else workers(jobs) as pool:
            for task, found in _performed_in(pool, left, jobs):
                left.remove(task)
                yield task, found


def _performed_in(pool: Executor, tasks: Sequence[Task], jobs: int) -> Iterator[tuple[Task, dict[str, Any]]]:
    """Yield tasks as `pool` has done them; none after one of its processes has ended."""
    waiting, running = list(tasks), dict[Future[dict[str, Any]], Task]()
    function = measure if isinstance(pool, ThreadPoolExecutor) else measure_in_time
    is_broken = False
    while (waiting or running) and not is_broken:
        while waiting and len(running) < jobs:
            task = waiting.pop(0)
            running[pool.submit(function, task)] = task
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            task, error = running.pop(future), future.exception(timeout=0)
            is_broken = is_broken or isinstance(error, BrokenExecutor)
            yield task, future.result(timeout=0) if error is None else failure(task, error)


def failure(task: Task, error: BaseException) -> dict[str, Any]:
    """Return how a block that raised `error`, or whose process ended, is recorded."""
    if isinstance(error, BrokenExecutor):
        told, trace = f"the process that ran it ended, or took longer than {task.seconds:.0f} s", ""
    else:
        told = f"{type(error).__name__}: {error}"
        trace = PLACES.sub("", "".join(traceback.format_exception(error)))
    return {"measurements": [], "error": told, "trace": trace, "seconds": 0.0}
