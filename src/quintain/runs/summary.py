"""What a finished run shows: success before and after, the curve, where things lie, what to type next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quintain.agents.catalog import is_outside
from quintain.environments.session import MAIN, is_of_session
from quintain.environments.task_files import split_spec
from quintain.errors import StoreError
from quintain.models.embedder import EMBEDDER
from quintain.runs.empty_rounds import describe_rounds
from quintain.runs.outcome import best_line, is_all_warmup, outcome, warmup_line
from quintain.store.run import Run
from quintain.types.terminal import spell_out, write_command
from quintain.warm_start.untrained import UNTRAINED

MAX_NOTES = 5
"""Of what is to be known before the numbers of a run are believed, the newest that are said."""
EXTENDED = "extended"
"""The event of a run that says for how many steps in all it goes on."""


def count_planned(run: Run) -> int:
    """Return how many steps `run` is to have in all: those of its configuration, or as many as it was extended to.

    Raises:
        StoreError: what is stored of it is no whole number.
    """
    known = [event["data"].get("steps") for event in run.events() if event["kind"] == EXTENDED]
    found: object = known[-1] if known else run.config.get("steps", 0)
    if type(found) is not int:
        raise StoreError(
            f"the steps of {run.folder}: got {found!r:.60}, which is no whole number; restore config.json and run.db "
            "from a copy"
        )
    return found


def evaluations(run: Run) -> list[dict[str, Any]]:
    """Return the rows of the run's curve that hold an evaluation."""
    return [row for row in run.metrics() if row.get("eval/success") is not None]


def losses(run: Run) -> list[dict[str, Any]]:
    """Return the rows of the run's curve that hold the loss of data which is held out."""
    return [row for row in run.metrics() if row.get("eval/loss") is not None]


def rate(row: Mapping[str, Any]) -> str:
    """Return the held-out success of `row` with its interval: ``51.2 % [45.1, 57.2]``."""
    success, low, high = (100 * float(row[f"eval/{name}"]) for name in ("success", "low", "high"))
    return f"{success:.1f} % [{low:.1f}, {high:.1f}]"


def summary(run: Run) -> str:
    """Return the lines printed at the end of a run."""
    rows = evaluations(run)
    measured = losses(run)
    if not rows and not measured:
        return f"run {run.name}: no evaluation was made"
    untrained = [event["data"] for event in run.events() if event["kind"] == UNTRAINED]
    lines = [
        f"untrained model   {rate(each)}   (the same tasks, before the demonstrations)"
        for each in untrained[-1:]
    ]
    if rows:
        lines.append(
            f"held-out success  before {rate(rows[0])}   after {rate(rows[-1])}   (95 % intervals, "
            f"{int(rows[-1]['eval/episodes'])} unseen tasks)"
        )
    if measured:
        before, after = (float(row["eval/loss"]) for row in (measured[0], measured[-1]))
        lines.append(
            f"held-out loss     before {before:.3f}   after {after:.3f}   (of data that was not trained on)"
        )
    if without := describe_rounds(run.metrics()):
        lines.append(f"nothing to learn  {without}")
    found = outcome(run.metrics())
    assert found is not None, "something was held out"
    model = f"{run.folder}@best" if found.is_worse else f"{run.folder}/model"
    seconds = float((rows or measured)[-1]["time/seconds"])
    kept = "metrics.jsonl, model/"
    if run.status != "done":
        state = "still running" if run.status == "running" else run.status
        lines.append(
            f"{state:<18}at step {run.last_step} of {count_planned(run)}: {quintain('resume', run.folder)}"
        )
        kept = "curve.png, report.html, metrics.jsonl, checkpoints/"
        follow = [quintain("resume", run.folder), quintain("eval", run.folder)]
    elif not rows:
        kept = f"report.html, {kept}"
        follow = [
            quintain("view", run.folder),
            quintain("eval", run.folder, "--environment", "NAME"),
            quintain("train", "grpo", "--model", model, "--environment", "NAME"),
        ]
    elif (run.folder / EMBEDDER).is_dir():
        spec = str(run.config["environment"])
        spec += f"{'&' if '?' in spec else '?'}retriever={run.folder}"
        kept = f"curve.png, report.html, metrics.jsonl, {EMBEDDER}/"
        follow = [quintain("view", run.folder), quintain("play", spec)]
    elif is_of_session(spec := str(run.config["environment"])):
        kind = spec.removeprefix(f"{MAIN}:")
        kept = f"curve.png, report.html, {kept}"
        follow = [
            quintain("view", run.folder),
            f"quintain.evaluate({str(run.folder)!r}, {kind}, episodes=512)   (in Python, where {kind} is)",
            f"quintain.train({run.recipe!r}, environment={kind}, model={model!r})",
        ]
    else:
        kept = f"curve.png, report.html, {kept}"
        follow = [
            quintain("view", run.folder),
            quintain("eval", run.folder, "--episodes", 512),
            quintain("train", run.recipe, *what_is_played(run), "--model", model),
        ]
    lines += [
        f"time              {seconds:.0f} s of training",
        f"run               {run.folder}   ({kept})",
        *(f"{'' if number else 'next':<18}{command}" for number, command in enumerate(follow)),
    ]
    if is_all_warmup(run.metrics()):
        lines.append(f"warm-up           {warmup_line(run.metrics())}")
    if verdict := str(found):
        lines.append(f"outcome           {verdict}")
    if not (run.folder / EMBEDDER).is_dir():
        lines.append(f"best              {best_line(found, run.folder)}")
    lines += [f"{'note':<18}{event['kind']}: {event['message']}" for event in run.notices()[-MAX_NOTES:]]
    return "\n".join(map(spell_out, lines))


def quintain(*words: object) -> str:
    """Return the command of `words`, to be copied."""
    return write_command("quintain", *words)


def what_is_played(run: Run) -> list[str]:
    """Return the flags that name the tasks of `run` and, where it is one of the user's own, its agent."""
    environment, path = split_spec(str(run.config["environment"]))
    agent = str(run.config.get("agent", ""))
    given = (
        ("--environment", environment),
        ("--tasks", path),
        ("--agent", agent if is_outside(agent) else ""),
    )
    return [word for flag, value in given if value for word in (flag, value)]
