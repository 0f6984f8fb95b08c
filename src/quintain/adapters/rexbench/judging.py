"""How a patch of a research extension is judged: it is run again, and its numbers have to lie in the target's ranges.

A patch is worth what it computes where nobody showed it: results that it brings along are taken away, files that the
task hides take the place of those that the agent saw, and the command runs in a box without a network. Three measures:
final success (every number of every trial in its range), execution (every command ended well), and file recall (the
share of the files that the gold patch changes which were changed).
"""

import io
import math
import re
import secrets
import statistics
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quintain.adapters.rexbench.layout import Extension, Target, Trial
from quintain.safety.isolation import find_interpreter
from quintain.safety.limits import Finished, Limits
from quintain.safety.sandbox import run
from quintain.text.patch import apply_patch

NUMBER = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")
SCRIPT = """tar xf .repository && rm .repository || exit 1
mark=$1 count=$2; shift 2
files=(.said "${@:1:count}"); shift "$count"
"$@" > .said 2>&1
code=$?
for file in "${files[@]}"; do printf '\\n%s\\n' "$mark"; cat -- "$file" 2>/dev/null; done
exit $code"""
"""Unpacks the repository, runs a command, then shows what it printed and what is asked for, each behind a mark."""
LONGEST = 4_000
"""Letters of what a command printed that are told, the last ones."""
LEVEL = 0.9999
"""Of a range that is measured, so that a right extension hardly ever falls out of several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What became of a command: ``Ran(has_ended_well=True, files={"": "accuracy: .9"})``."""

    has_ended_well: bool
    files: Mapping[str, str]
    """path → text of each file that was asked for; "" is what was printed"""
    reason: str = ""
    """the limit that was passed"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is found of a patch: ``Verdict(has_executed=True, file_recall=1.0, numbers=(0.91,), is_success=True)``."""

    has_executed: bool
    file_recall: float
    numbers: tuple[float | None, ...]
    """of every target of every trial; None where it does not stand there"""
    is_success: bool


def run_command(extension: Extension, files: Mapping[str, str], asked: Sequence[str] = ()) -> Ran:
    """Return what became of the command of `extension` in a box with `files`, and the files that are `asked` for.

    Raises:
        SandboxError: isolation is missing or does not work; nothing was run.
    """
    judging, mark = extension.judging, secrets.token_hex(16)
    python, mounts = find_interpreter()
    command = [python if word == "python3" and not mounts else word for word in judging.command]
    limits = Limits(
        seconds=judging.seconds,
        memory_bytes=judging.mebibytes << 20,
        scratch_bytes=128 << 20,
        scratch_files=8_000,
    )
    line = ["bash", "-c", SCRIPT, "run", mark, str(len(asked)), *asked, *command]
    return _read_ran(run(line, {".repository": pack_files(files)}, limits), mark, ["", *asked])


def pack_files(files: Mapping[str, str]) -> bytes:
    """Return `files`, path → text, as one archive: a box takes a hundred files, a repository has thousands."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, text in files.items():
            content = text.encode()
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def _read_ran(found: Finished, mark: str, names: Sequence[str]) -> Ran:
    """Return what a box wrote, by file."""
    parts = found.stdout.split(f"\n{mark}\n")[1:]
    files = dict(zip(names, [*parts, *[""] * len(names)], strict=False))
    return Ran(has_ended_well=found.exit_code == 0, files=files, reason=found.reason)


def judge(extension: Extension, files: Mapping[str, str]) -> Verdict:
    """Return what is found of the repository as an agent left it, `files`.

    Raises:
        SandboxError: isolation is missing or does not work.
    """
    numbers: list[float | None] = []
    is_success = has_executed = True
    for trial in extension.judging.trials:
        ran = run_trial(extension, files, trial)
        found = [read_number(ran.files.get(target.file, ""), target) for target in trial.targets]
        numbers += found
        has_executed &= ran.has_ended_well
        is_success &= ran.has_ended_well and all(map(is_within, found, trial.targets))
    return Verdict(
        has_executed=has_executed,
        file_recall=recall_files(
            find_changed(extension, files), find_changed(extension, gold_files(extension))
        ),
        numbers=tuple(numbers),
        is_success=is_success,
    )


def run_trial(extension: Extension, files: Mapping[str, str], trial: Trial) -> Ran:
    """Return what became of `files` with what the trial hides, and without results that they bring along."""
    asked = list(dict.fromkeys(target.file for target in trial.targets if target.file))
    hidden = {path: extension.hidden[place] for path, place in trial.files.items()}
    kept = {path: text for path, text in files.items() if path not in asked}
    return run_command(extension, {**kept, **hidden}, asked)


def gold_files(extension: Extension) -> dict[str, str]:
    """Return the repository with the gold patch; without one it is as it was found."""
    before = dict(extension.repository)
    return apply_patch(before, extension.gold) if extension.gold else before


def find_changed(extension: Extension, files: Mapping[str, str]) -> frozenset[str]:
    """Return the paths that differ from the repository as it was found."""
    before = extension.repository
    return frozenset(path for path in {**before, **files} if before.get(path) != files.get(path))


def recall_files(changed: frozenset[str], gold: frozenset[str]) -> float:
    """Return the share of the files `gold` that were changed; 0 where no gold patch says which."""
    return len(changed & gold) / len(gold) if gold else 0.0


def read_number(text: str, target: Target) -> float | None:
    """Return the number of `target` in `text`; None where it does not stand there, or its label several times."""
    if target.label:
        parts = text.split(target.label)
        match = NUMBER.match(parts[1]) if len(parts) == 2 else None
        return float(match[1]) if match else None
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]
    if len(rows) < 2 or rows[0].count(target.column) != 1 or len(rows[-1]) != len(rows[0]):
        return None
    match = NUMBER.fullmatch(rows[-1][rows[0].index(target.column)])
    return float(match[1]) if match else None


def is_within(number: float | None, target: Target) -> bool:
    """Return whether `number` lies in the range of `target`, ends included."""
    return number is not None and target.low <= number <= target.high


def predict_range(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Return where one more value lies with probability `level`, by the `values` of gold runs: mean ± t·s·√(1 + 1/n).

    t is the quantile of Student's distribution with n - 1 degrees of freedom. Example: of 1, 2, 3, at a half, 2 ± .943.
    """
    num, mean, spread = len(values), statistics.fmean(values), statistics.stdev(values)
    half = student_quantile((1 + level) / 2, num - 1) * spread * math.sqrt(1 + 1 / num)
    return mean - half, mean + half


def student_quantile(share: float, freedom: int) -> float:
    """Return the value below which `share` of Student's t with `freedom` degrees lies."""
    from scipy.stats import t

    return float(t.ppf(share, freedom))
