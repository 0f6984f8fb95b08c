"""Tries a method on a real model: two small steps by LoRA on the world that its page names, resumed between them.

What is asked: both commands end well, the second goes on where the first ended, something was learned from, every
number of the run is finite, and the log-probs of engine and learner agree, where anything was sampled. A model that
solved nothing in two steps gives a group nothing to compare: the run is resumed once more, for up to six steps. A
world that sixteen demonstrations do not open to a model of this size takes a common start: supervised, all weights,
once for all rows of the world. A line of the layer ``promise`` in the results of the row keeps what came.
"""

import hashlib
import math
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from quintain.environments.catalog import find
from quintain.errors import QuintainError, UsageError
from quintain.methods.find import find_method
from quintain.methods.method import traits_of
from quintain.methods.reading import find_unread
from quintain.store.run import Run
from quintain_evidence.layers.promises import LAYER
from quintain_evidence.layers.records import append, provenance
from quintain_evidence.layers.verdict import Check

MODEL = "smollm2"
STEPS = 2
MOST_STEPS = 6
"""Steps of a run whose first two had nothing to learn from."""
GAP = 0.02
"""Most mean difference of the log-probs of engine and learner, in nats."""
GAPS = ("gap/mean", "gap/canary")
SECONDS = 600.0
"""What both commands may take together."""
START_SECONDS = 1800.0
"""What the supervised start of a world may take."""
TURNS = 3
"""Most turns of an episode, where the world can be told so."""
GIVEN: dict[str, Any] = {
    "model": MODEL, "lora_rank": 8, "steps": 1, "eval_episodes": 1, "eval_every": 1, "eval_start": "false",
    "max_turn_tokens": 64, "critic_explains": 0, "tokens_per_microbatch": 4096,
}  # fmt: skip
SMALL: dict[str, int] = {
    "demonstrations": 16, "tasks": 2, "group_size": 4, "episodes": 8, "batch_size": 2, "updates": 1, "num_epochs": 1,
    "num_minibatches": 1, "offline_tasks": 2, "critic_updates": 1, "actor_updates": 1, "critic_steps": 1,
    "feature_steps": 1, "candidates": 2, "branches": 2, "rollouts": 1, "samples": 4, "states": 2,
    "plans": 2, "executions": 1, "validation": 2, "expansions": 4, "num_labels": 4, "first_labels": 2, "answers": 2,
    "pool": 4, "chosen": 2, "critic_first": 0, "onward": 2, "expert_steps": 1, "first_updates": 1, "examples": 4,
    "judgements": 1, "reward_epochs": 1, "members": 1, "held_out": 2, "wanderings": 1, "probe_items": 0,
    "configurations": 2, "generated_steps": 1, "original_steps": 1, "phase_steps": 1, "test_tasks": 4,
}  # fmt: skip
"""Options that say how much, and what is enough to see that all parts of a method run; what is less already stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """What came of one try: ``Try(command="quintain train …", checks=(Check(…),), figures={"gap": 0.001}, …)``."""

    command: str
    checks: tuple[Check, ...]
    figures: Mapping[str, float]
    seconds: float
    model: str = MODEL
    """what it was tried on"""


def try_method(row: str, docs: Path, runs: Path, seconds: float = SECONDS, start: int = 0) -> Try:
    """Return what came of `row` on the real model; its run is below `runs` and is replaced if it is there.

    With a `start` of so many demonstrations the method begins with what `make_start` returns.
    """
    words = command_of(row, docs)
    if start:
        words = begin_with(words, make_start(words, runs, start), has_own_start(row))
    run = f"promise-{row}"
    shutil.rmtree(runs / run, ignore_errors=True)
    started = time.monotonic()
    first = perform([*words, "--run", run, "--runs", str(runs)], seconds)
    left = seconds - (time.monotonic() - started)
    second = perform(["resume", run, "--runs", str(runs), "--steps", str(STEPS)], left) if not first else ""
    checks = [
        Check(name="trains", has_passed=not first, detail=first or "1 step"),
        Check(
            name="resumes",
            has_passed=not first and not second,
            detail=second or ("1 step more" * (not first)),
        ),
    ]
    figures: dict[str, float] = {}
    if not first and not second:
        found, figures = read_and_judge(runs / run)
        if not next(each for each in found if each.name == "updates").has_passed:
            left = seconds - (time.monotonic() - started)
            third = perform(["resume", run, "--runs", str(runs), "--steps", str(MOST_STEPS)], left)
            checks.append(
                Check(
                    name="goes on", has_passed=not third, detail=third or f"{MOST_STEPS - STEPS} steps more"
                )
            )
            found, figures = read_and_judge(runs / run)
        checks += found
    return Try(
        command=shlex.join(["quintain", *words]),
        checks=tuple(checks),
        figures=figures,
        seconds=round(time.monotonic() - started, 1),
    )


def command_of(row: str, docs: Path) -> list[str]:
    """Return the command line of a small run of `row`: its page's world and harness, and amounts that are small.

    Raises:
        UsageError: it has no page, or trains nothing.
    """
    page = docs / "methods" / f"{row}.md"
    if not page.is_file():
        raise UsageError(
            f"--only: got {row!r}, but there is no {page}; name a method that has a page, or --docs"
        )
    method = find_method(row)
    usual_config = method.config_class()
    defaults: dict[str, Any] = {each.name: each.default for each in fields(usual_config)}
    unread = find_unread(method.make(usual_config), usual_config)
    values = {name: value for name, value in GIVEN.items() if name in defaults and name not in unread}
    for name, value in SMALL.items():
        usual = defaults.get(name, ...)
        if usual is None or (isinstance(usual, int) and not isinstance(usual, bool) and usual > value):
            values[name] = value
    lines = page.read_text(encoding="utf-8").splitlines()
    start = ["quintain", "train", row]
    command = next((line for line in lines if line.split()[:3] == start), "")
    told = shlex.split(command.rstrip("\\"))
    for flag in ("environment", "agent"):
        if f"--{flag}" in told:
            values[flag] = told[told.index(f"--{flag}") + 1]
    values["environment"] = shortened(str(values.get("environment", defaults["environment"])))
    words = ["train", row]
    for name, value in values.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def has_own_start(row: str) -> bool:
    """Return whether `row` imitates or reads demonstrations as a part of what it is."""
    method = find_method(row)
    traits = traits_of(method.make(method.config_class()))
    return traits.has_own_start or not traits.is_on_policy


def begin_with(words: Sequence[str], model: Path, keeps_demonstrations: bool) -> list[str]:
    """Return the command `words` with `model` to begin with, and without demonstrations that it needs no more."""
    changed = list(words)
    changed[changed.index("--model") + 1] = str(model)
    if "--demonstrations" in changed:
        place = changed.index("--demonstrations") + 1
        if keeps_demonstrations:
            changed += ["--imitation-epochs", "1"]
        else:
            changed[place] = "0"
    return changed


def make_start(words: Sequence[str], runs: Path, demonstrations: int) -> Path:
    """Return the model of a supervised run on the world of the command `words`, trained if it is not there yet.

    Raises:
        UsageError: that run fails.
    """
    given = dict(zip(words[2::2], words[3::2], strict=True))
    world = [f for name in ("--environment", "--agent") if name in given for f in (name, given[name])]
    digest = hashlib.sha256(repr((world, demonstrations)).encode()).hexdigest()[:8]
    folder = runs / f"start-{digest}"
    if not (folder / "model").is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        failed = perform(
            ["train", "sft", "--model", MODEL, *world, "--demonstrations", str(demonstrations),
             "--batch-size", "4", "--steps", str(demonstrations // 2), "--eval-every", str(demonstrations),
             "--eval-episodes", "8", "--eval-start", "false", "--max-turn-tokens", "64", "--held-out", "0",
             "--run", folder.name, "--runs", str(runs)],
            START_SECONDS,
        )  # fmt: skip
        if failed:
            raise UsageError(
                f"--start {demonstrations}: got a supervised run that did not end well: {failed}"
            )
    return folder / "model"


def shortened(environment: str) -> str:
    """Return the spec of the same world with few turns, where it has such a parameter; else `environment`."""
    if "max_turns" in environment or environment.startswith("mix:"):
        return environment
    shorter = f"{environment}{'&' if '?' in environment else '?'}max_turns={TURNS}"
    try:
        find(shorter)().close()
    except (QuintainError, TypeError):
        return environment
    return shorter


def perform(words: Sequence[str], seconds: float) -> str:
    """Run ``quintain`` with `words` and return what went wrong, in a line; empty where nothing did."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "quintain", *words],
            capture_output=True, text=True, check=False, timeout=max(seconds, 1.0),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"took longer than the {seconds:.0f} s that were left"
    if done.returncode == 0:
        return ""
    told = [
        line for line in done.stderr.splitlines() if line.startswith("error:")
    ] or done.stderr.splitlines()
    return f"exit status {done.returncode}: {told[-1] if told else 'nothing was said'}"


def perform_in_two(folder: Path, words: Sequence[str], *, steps: int, seconds: float) -> str:
    """Run ``quintain train`` with `words` for a step into `folder`, resume it to `steps`, and return what went wrong.

    That is a line, empty where nothing did. What lay in `folder` is removed before; each of the two may take `seconds`.
    """
    shutil.rmtree(folder, ignore_errors=True)
    runs = ["--runs", str(folder.parent)]
    failed = perform(["train", *words, "--steps", "1", "--run", folder.name, *runs], seconds)
    return failed or perform(["resume", folder.name, *runs, "--steps", str(steps)], seconds)


def read_and_judge(folder: Path) -> tuple[list[Check], dict[str, float]]:
    """Return what the metrics of the run in `folder` must pass, and the figures that are kept."""
    with Run.open(folder, writable=False) as done:
        return judge(done.metrics())


def judge(rows: Sequence[Mapping[str, Any]]) -> tuple[list[Check], dict[str, float]]:
    """Return what the metrics of the run must pass, and the figures that are kept."""
    last = max((int(row["step"]) for row in rows if "step" in row), default=0)
    numbers = [value for row in rows for value in row.values() if isinstance(value, float)]
    gaps = [float(row[name]) for row in rows for name in GAPS if row.get(name) is not None]
    largest = max(gaps, default=math.nan)
    updates = sum(row.get("train/grad_norm") is not None for row in rows)
    turns = [float(row["total/turns"]) for row in rows if row.get("total/turns") is not None]
    sampled = any(turns) or not turns
    checks = [
        Check(name="steps", has_passed=last >= STEPS, detail=f"{last} of {max(last, STEPS)}"),
        Check(
            name="updates",
            has_passed=updates > 0,
            detail=f"{updates} of {max(last, STEPS)} steps learned from something",
        ),
        Check(
            name="numbers",
            has_passed=all(map(math.isfinite, numbers)),
            detail=f"{sum(map(math.isfinite, numbers))} of {len(numbers)} are finite",
        ),
        Check(
            name="gap",
            has_passed=largest <= GAP if gaps else not sampled,
            detail=f"{largest:.2g} nats between engine and learner, to be at most {GAP:g}"
            if gaps
            else "not measured"
            if sampled
            else "nothing was sampled",
        ),
    ]
    figures = {"steps": float(last), **({"gap": largest} if gaps else {})}
    for name in ("train/loss", "total/tokens", "total/turns", "eval/success"):
        if (
            value := next((row[name] for row in reversed(rows) if row.get(name) is not None), None)
        ) is not None:
            figures[name] = float(value)
    return checks, figures


def record(folder: Path, row: str, found: Try) -> None:
    """Append what came of a try to the results of `row`."""
    line = {
        "layer": LAYER,
        "row": row,
        "model": found.model,
        "command": found.command,
        "checks": [
            {"name": each["name"], "passed": each["has_passed"], "detail": each["detail"]}
            for each in map(asdict, found.checks)
        ],
        "figures": dict(found.figures),
        "seconds": found.seconds,
    }
    append(folder, row, {**provenance(f"quintain bench promise --only {row}"), **line})
