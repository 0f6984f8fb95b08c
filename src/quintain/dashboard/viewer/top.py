"""A run in a terminal: what it does now, its figures, small curves, alarms and failures, as lines of text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quintain.dashboard.viewer import payloads
from quintain.dashboard.viewer.viewed import ViewedRun
from quintain.types.terminal import spell_out

BLOCKS = "▁▂▃▄▅▆▇█"
CURVES: tuple[tuple[str, str], ...] = (
    ("held out", "eval/success"),
    ("success", "train/success"),
    ("reward", "train/reward"),
    ("loss", "train/loss"),
    ("gradient", "train/grad_norm"),
    ("entropy", "policy/entropy"),
    ("KL", "policy/approx_kl"),
    ("tokens", "train/tokens"),
    ("turns", "train/turns"),
    ("unreadable", "monitor/unreadable"),
    ("failures", "train/failures"),
    ("tokens/s", "tokens_per_second"),
)
"""What is drawn of a run, as far as it has it."""
MAX_ALARMS, MAX_FAILURES = 5, 5
NARROWEST = 48


def write_run(viewed: ViewedRun, width: int) -> list[str]:
    """Return the lines that say how a run goes, none longer than `width`."""
    found = payloads.show_run(viewed)
    names = [metric for _, metric in CURVES if metric in found["metrics"]]
    curves = payloads.show_metrics(viewed, names, "step")["curves"]
    size = max(NARROWEST, width)
    return [
        spell_out(line.replace("\n", " ").replace("\t", " "))[:size] for line in _lines(found, curves, size)
    ]


def _lines(found: Mapping[str, Any], curves: Mapping[str, Any], width: int) -> Iterator[str]:
    now = found["now"]
    yield f"{found['name']} · {found['recipe']} · {now['status']}"
    yield describe_progress(now, width)
    figures = [
        f"{tile['name']} {_write(tile['value'], tile['unit'])}{_interval(tile)}" for tile in found["tiles"]
    ]
    yield from textwrap.wrap(" · ".join(figures), width)
    yield ""
    room = max(8, width - 36)
    for name, metric in CURVES:
        if metric in curves and curves[metric]["y"]:
            values = curves[metric]["y"]
            yield f"{name:<11} {draw(values, room)} {values[-1]:.4g}"
    alarms = [event for event in found["events"] if event["kind"] == "alarm"][-MAX_ALARMS:]
    if alarms:
        yield ""
        for event in alarms:
            step = "" if event["step"] is None else f" at step {event['step']}"
            yield f"! {event['name'] or 'alarm'}{step}: {event['message']}"
    counts: dict[str, int] = {}
    for each in found["failures"]:
        key = f"{each['owner']}: {each['kind']}"
        counts[key] = counts.get(key, 0) + each["num"]
    if counts:
        yield ""
        worst = sorted(counts.items(), key=lambda pair: -pair[1])[:MAX_FAILURES]
        yield "failed  " + " · ".join(f"{name} {num}" for name, num in worst)
    if found["problem"]:
        yield f"! {found['problem']}"


def describe_progress(now: Mapping[str, Any], width: int) -> str:
    """Return the step that a run is at as a bar and in words."""
    last, total = now["last_step"], now["total_steps"]
    words = ["no step yet" if last is None else f"step {last}" + (f" of {total}" if total else "")]
    if now["status"] == "running":
        words += [f"{num} episodes of {phase} collected" for phase, num in now["collected"].items()]
        if now["seconds_left"] is not None:
            words.append(f"about {_write(now['seconds_left'], 'seconds')} left")
    if not total or last is None:
        return " · ".join(words)
    size = max(10, width // 4)
    full = round(size * min(1.0, last / total))
    return f"{'█' * full}{'░' * (size - full)}  {' · '.join(words)}"


def draw(values: Sequence[float], width: int) -> str:
    """Return a curve as a line of blocks: means of neighbours where there are more values than room."""
    size = -(-len(values) // width)
    means = [sum(part) / len(part) for at in range(0, len(values), size) if (part := values[at : at + size])]
    low, high = min(means), max(means)
    span = high - low
    if span <= 1e-12 * max(1.0, abs(low), abs(high)):
        return BLOCKS[0] * len(means)
    return "".join(BLOCKS[min(7, int(8 * (value - low) / span))] for value in means)


def _write(value: float, unit: str) -> str:
    if unit == "share":
        return f"{100 * value:.1f} %"
    if unit == "seconds":
        return (
            f"{value:.0f} s"
            if value < 90
            else f"{value / 60:.0f} min"
            if value < 5400
            else f"{value / 3600:.1f} h"
        )
    return f"{value:,.0f}"


def _interval(tile: Mapping[str, Any]) -> str:
    low, high = tile.get("low"), tile.get("high")
    return "" if low is None or high is None else f" [{100 * low:.0f}, {100 * high:.0f}]"
