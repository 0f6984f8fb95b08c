"""What the pages show of runs, as JSON: the list, the curve, what happens now, lists of episodes, data and pairs.

Everything is made of the journal and the index; nothing is written, imported or started.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from quintain.dashboard.funnel import funnels
from quintain.dashboard.viewer.index import EXACT, Query
from quintain.dashboard.viewer.labels import show_labels
from quintain.dashboard.viewer.viewed import ViewedRun, Viewer, read_options
from quintain.errors import DataError, UsageError
from quintain.store.best import best_step
from quintain.store.rows import MAX_STEPS

MAX_POINTS = 800
"""Points of a curve; of more, means of neighbours are drawn, and a band says how far they were apart."""
EVENTS = 200
"""Events that are shown, the newest."""
LAST_ROWS = 10
"""Steps whose mean says how long one takes."""


def list_runs(viewer: Viewer) -> dict[str, Any]:
    """Return the runs that can be shown."""
    found = [
        {
            "name": info.name,
            "recipe": info.recipe,
            "status": info.status,
            "created": info.created,
            "last_step": info.last_step,
        }
        for info in viewer.list_runs()
    ]
    return {"place": viewer.place.name, "runs": found}


def show_run(viewed: ViewedRun) -> dict[str, Any]:
    """Return what there is to know of a run as a whole: state, events, steps and phases."""
    run, rows = viewed.run, viewed.rows()
    events = run.events()
    num_read, num_episodes = viewed.index.num_read
    return {
        "name": run.name,
        "recipe": run.recipe,
        "status": run.status,
        "created": run.created,
        "now": describe_now(viewed),
        "tiles": _tiles(rows),
        "best": best_step(rows),
        "checkpoints": [each.step for each in run.checkpoints()],
        "notices": [str(event["message"]) for event in run.notices()],
        "events": [_event(event) for event in events[-EVENTS:]],
        "num_events": len(events),
        "failures": viewed.index.count_failures(),
        "metrics": sorted({name for row in rows for name in row if name not in ("step", "phase")}),
        "num_episodes": num_episodes,
        "num_read": num_read,
        "problem": viewed.problem,
        "quarantined": run.num_quarantined,
    }


def show_options(viewed: ViewedRun) -> dict[str, Any]:
    """Return the options of a run, and which differ from its method's defaults, which are loaded with the method."""
    return {
        "options": [
            {"name": name, "value": value, "differs": differs}
            for name, (value, differs) in read_options(viewed.run).items()
        ]
    }


def describe_now(viewed: ViewedRun) -> dict[str, Any]:
    """Return what a run is doing, by what it has written: how far it is, and how long the rest takes."""
    run, rows = viewed.run, viewed.rows()
    ends = viewed.read_ends()
    last = max((int(row["step"]) for row in rows), default=None)
    wanted = run.config.get("steps")
    total = wanted if isinstance(wanted, int) and not isinstance(wanted, bool) else None
    seconds = [float(row["time/step"]) for row in rows[-LAST_ROWS:] if row.get("time/step") is not None]
    mean = sum(seconds) / len(seconds) if seconds else None
    is_on = run.status == "running"
    left = None if not is_on or mean is None or total is None or last is None else mean * max(0, total - last)
    return {
        "status": run.status,
        "last_step": last,
        "total_steps": total,
        "collected": viewed.index.count_after(-1 if last is None else last),
        "expected": _count_expected(run.config),
        "step_seconds": mean,
        "seconds_left": left,
        "quiet_seconds": _quiet(viewed) if is_on else None,
        "ends": ends,
    }


def _count_expected(config: Mapping[str, Any]) -> int | None:
    """Return how many episodes a step collects, where the method has a number of tasks and of episodes of each."""
    tasks, size = config.get("tasks"), config.get("group_size")
    return tasks * size if isinstance(tasks, int) and isinstance(size, int) else None


def _quiet(viewed: ViewedRun) -> float | None:
    """Return the seconds since the journal was last written."""
    times: list[float] = []
    for name in ("run.db", "run.db-wal"):
        try:
            times.append((viewed.folder / name).stat().st_mtime)
        except OSError:
            continue
    return max(0.0, time.time() - max(times)) if times else None


def _event(event: Mapping[str, Any]) -> dict[str, Any]:
    data = event["data"]
    step = data.get("step")
    return {
        "time": event["time"],
        "kind": event["kind"],
        "message": event["message"],
        "step": step if isinstance(step, int) else None,
        "name": str(data.get("name", "")),
        "subject": str(data.get("subject", "")),
    }


def _tiles(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the few numbers that say most of a run, each with its interval where it has one."""
    found: list[dict[str, Any]] = []
    held = [row for row in rows if row.get("eval/success") is not None]
    for name, row in [("held out, first", held[0]), ("held out, last", held[-1])] if held else []:
        found.append(
            {
                "name": name,
                "value": row["eval/success"],
                "low": row.get("eval/low"),
                "high": row.get("eval/high"),
                "step": row["step"],
                "unit": "share",
            }
        )
    training = [row for row in rows if row.get("train/success") is not None]
    if training:
        found.append(
            {
                "name": "in training, last step",
                "value": training[-1]["train/success"],
                "step": training[-1]["step"],
                "unit": "share",
            }
        )
    wanted = (
        ("sampled tokens", "total/tokens", "count"),
        ("time", "time/seconds", "seconds"),
        ("tokens a second", "tokens_per_second", "count"),
    )
    for name, metric, unit in wanted:
        value = next((row[metric] for row in reversed(rows) if row.get(metric) is not None), None)
        if value is not None:
            found.append({"name": name, "value": value, "unit": unit})
    return found


def show_metrics(viewed: ViewedRun, names: Sequence[str], axis: str) -> dict[str, Any]:
    """Return curves of metrics, by names: points of (place on the axis, value), of at most `MAX_POINTS`.

    `axis` is step, tokens or seconds.

    Raises:
        UsageError: it is another.
    """
    axes = {"step": "step", "tokens": "total/tokens", "seconds": "time/seconds"}
    if axis not in axes:
        raise UsageError(f"axis: got {axis!r:.40}; use one of {', '.join(axes)}")
    rows = viewed.rows()
    curves: dict[str, Any] = {}
    for name in names:
        points = [
            (float(row[axes[axis]]), float(row[name]), int(row["step"]))
            for row in rows
            if row.get(name) is not None and row.get(axes[axis]) is not None
        ]
        points.sort()
        curves[name] = thin(points)
    places = {int(row["step"]): row.get(axes[axis]) for row in rows}
    return {"run": viewed.name, "axis": axis, "curves": curves, "alarms": _alarms(viewed, places)}


def thin(points: Sequence[tuple[float, float, int]]) -> dict[str, list[float]]:
    """Return `points` as columns: x, y, the step, and where several became one, the least and greatest of them."""
    size = math.ceil(len(points) / MAX_POINTS) or 1
    chunks = [points[at : at + size] for at in range(0, len(points), size)]
    found: dict[str, list[float]] = {
        "x": [chunk[-1][0] for chunk in chunks],
        "y": [sum(each[1] for each in chunk) / len(chunk) for chunk in chunks],
        "step": [chunk[-1][2] for chunk in chunks],
    }
    if size > 1:
        found["low"] = [min(each[1] for each in chunk) for chunk in chunks]
        found["high"] = [max(each[1] for each in chunk) for chunk in chunks]
    return found


def _alarms(viewed: ViewedRun, places: Mapping[int, Any]) -> list[dict[str, Any]]:
    """Return the alarms of a run with their places on the axis, a repeated one once for each time that it began."""
    found: list[dict[str, Any]] = []
    for event in viewed.run.events():
        step = event["data"].get("step")
        if event["kind"] in ("alarm", "note") and isinstance(step, int) and places.get(step) is not None:
            found.append({**_event(event), "x": float(places[step])})
    return found


def query_of(asked: Mapping[str, str]) -> Query:
    """Return which episodes a page asks for.

    Raises:
        UsageError: a number is none.
    """
    first, _, last = asked.get("step", "").partition("-")
    sort = asked.get("sort", "order")
    return Query(
        equal={name: asked[name] for name in EXACT if asked.get(name)},
        outcome=asked.get("outcome", ""),
        first_step=_whole(first, "step", 0),
        last_step=_whole(last or first, "step", MAX_STEPS),
        seat=asked.get("seat", ""),
        tool=asked.get("tool", ""),
        term=asked.get("term", ""),
        words=asked.get("words", ""),
        sort=sort.removeprefix("-"),
        is_descending=sort.startswith("-"),
        offset=_whole(asked.get("offset", ""), "offset", 0),
        limit=_whole(asked.get("limit", ""), "limit", 50),
    )


def _whole(text: str, name: str, usual: int) -> int:
    if not text:
        return usual
    if not (text.isascii() and text.isdigit() and len(text) < 11):
        raise UsageError(f"{name}: got {text!r:.40}; give a whole number, or two with a hyphen between")
    return int(text)


def list_episodes(viewed: ViewedRun, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return a page of the list of episodes."""
    viewed.read_ends()
    rows, total = viewed.index.find(query_of(asked))
    num_read, num_episodes = viewed.index.num_read
    return {
        "episodes": [brief(row) for row in rows],
        "total": total,
        "num_read": num_read,
        "num_episodes": num_episodes,
        "has_words": viewed.index.has_words,
    }


def brief(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an episode as lists show it."""
    names = (
        "id", "phase", "step", "group", "place", "task", "environment", "split", "value", "success", "owner", "kind",
        "stop", "turns", "tokens", "seconds", "policy", "version",
    )  # fmt: skip
    return {
        **{name: row[name] for name in names},
        "terms": row.get("terms", {}),
        "is_branch": row["parent"] is not None,
    }


def show_facets(viewed: ViewedRun) -> dict[str, Any]:
    """Return what episodes can be filtered by."""
    viewed.read_ends()
    return {name: [[value, num] for value, num in found] for name, found in viewed.index.facets().items()}


def show_data(viewed: ViewedRun, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return the funnel of each step that has one, which steps compared episodes, pairs of one, and labels."""
    rows = viewed.rows()
    found = funnels(rows)
    with_pairs = viewed.index.steps_with_pairs()
    step = _whole(asked.get("step", ""), "step", with_pairs[-1] if with_pairs else 0)
    return {
        "funnels": [
            {"step": each.step, "when": each.when, "counts": [*map(list, each.counts)], "tokens": each.tokens}
            for each in [*found[:1], *found[-20:]]
        ] if found else [],
        "num_funnels": len(found),
        "steps_with_pairs": with_pairs,
        "step": step,
        "pairs": [list(pair) for pair in viewed.index.pairs(step)] if with_pairs else [],
        "labels": show_labels(viewed),
    }  # fmt: skip


def compare_runs(one: ViewedRun, other: ViewedRun, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return the paired comparison of two evaluations, task by task, those first that differ most.

    ``first`` and ``second`` of `asked` are steps; the newest evaluation of each unless they are given.

    Raises:
        DataError: one has no evaluation.
    """
    from quintain.eval.compare import compare_pairs, differences
    from quintain.types import Score

    sides: list[tuple[ViewedRun, int, dict[str, list[dict[str, Any]]]]] = []
    for viewed, key in ((one, "first"), (other, "second")):
        viewed.read_ends()
        most = _whole(asked.get(key, ""), key, MAX_STEPS)
        step = max((step for step in viewed.index.evaluations() if step <= most), default=None)
        if step is None:
            raise DataError(
                f"comparing {viewed.name}: got a run without an evaluation; train it past its first one"
            )
        sides.append((viewed, step, viewed.index.by_task(step)))
    (_, _, first), (_, _, second) = sides

    def scores(tasks: Mapping[str, Iterable[Mapping[str, Any]]]) -> dict[str, list[Score]]:
        kept = {
            task: [
                Score(value=float(e["value"] or 0.0), is_success=bool(e["success"]))
                for e in rows
                if not e["owner"]
            ]
            for task, rows in tasks.items()
        }
        return {task: own for task, own in kept.items() if own}

    before, after = scores(first), scores(second)
    found = compare_pairs(before, after, 0)
    tasks: list[dict[str, Any]] = []
    for task in sorted(before.keys() & after.keys()):
        rates = [sum(s.is_success for s in side[task]) / len(side[task]) for side in (before, after)]
        values = [sum(s.value for s in side[task]) / len(side[task]) for side in (before, after)]
        tasks.append(
            {
                "task": task,
                "success": rates,
                "value": values,
                "difference": rates[1] - rates[0],
                "value_difference": values[1] - values[0],
                "episodes": [[brief(row) for row in side[task][:8]] for side in (first, second)],
            }
        )
    tasks.sort(key=lambda row: (-abs(row["difference"]), -abs(row["value_difference"]), row["task"]))
    names = [f"{viewed.name}@{step}" for viewed, step, _ in sides]
    settings = dict(zip(names, (viewed.run.config for viewed, _, _ in sides), strict=True))
    return {
        "names": names,
        "runs": [viewed.name for viewed, _, _ in sides],
        "steps": [step for _, step, _ in sides],
        "evaluations": [viewed.index.evaluations() for viewed, _, _ in sides],
        "num": [sum(map(len, side.values())) for side in (first, second)],
        "rates": [_mean(side.values()) for side in (before, after)],
        "difference": None
        if found is None
        else {"mean": found[0].mean, "low": found[0].low, "high": found[0].high, "num": found[0].num, "p": found[1]},
        "counts": {
            "better": sum(row["difference"] > 0 for row in tasks),
            "worse": sum(row["difference"] < 0 for row in tasks),
            "same": sum(row["difference"] == 0 for row in tasks),
        },
        "notes": list(differences(settings)),
        "tasks": tasks[:200],
        "num_tasks": len(tasks),
    }  # fmt: skip


def _mean(scores: Iterable[Sequence[Any]]) -> float | None:
    rates = [sum(score.is_success for score in own) / len(own) for own in scores]
    return sum(rates) / len(rates) if rates else None
