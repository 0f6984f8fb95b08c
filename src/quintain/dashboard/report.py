"""The report of a run: one HTML file without scripts, to open, keep and send.

It shows how success grew, what the policy does now and did before, and the configuration. It is made of the run folder
alone, so it can be made again at any time.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from quintain.dashboard.curve import learning_curve_svg, reward_model_svg
from quintain.dashboard.funnel import funnel_html, funnels, pairs_html, render_trained
from quintain.dashboard.page import escape, page, table
from quintain.dashboard.series import Rows, points, success
from quintain.dashboard.transcript import Decode, transcript_html
from quintain.errors import DataError
from quintain.store import files
from quintain.store.run import Run
from quintain.types import Failure, Trajectory

REPORT = "report.html"
LOOKED_AT = 64
"""Episodes among which the examples of a step are chosen."""


def write_report(run: Run, decode: Callable[[Sequence[int]], str] | None) -> Path:
    """Write ``report.html`` into the folder of `run` and return its path.

    `decode` turns token ids into text; without it transcripts show observations and actions. Raises
    `StoreError` when the disk fails.
    """
    file = run.folder / REPORT
    content = page(f"{run.name} · {run.recipe}", report_body(run, decode)).encode("utf-8", "replace")
    try:
        files.replace_file(file, content)
    except OSError as error:
        raise files.disk_error("writing the report", file, error) from error
    return file


def report_body(run: Run, decode: Decode | None) -> str:
    """Return the inside of the page."""
    rows = run.metrics()
    examples = "".join(
        transcript_html(trajectory, decode, heading=heading, is_open=i == 0)
        for i, (heading, trajectory) in enumerate(_examples(run, rows))
    )
    parts = [
        f'<h1>{escape(run.name)}</h1><p class="soft">{escape(run.recipe)} · {escape(run.status)}</p>',
        _tiles(rows),
        _curve(rows),
        _notices(run),
        _reward_model(rows),
        _environments(rows),
        _forgetting(rows),
        _data(run, rows),
        _pairs(run, rows, decode),
        f"<h2>Episodes</h2>{_LEGEND}{examples}" if examples else "",
        f"<h2>Configuration</h2>{table(_flat(run.config))}",
        _latest(rows),
        _events(run),
    ]
    return "\n".join(part for part in parts if part)


_LEGEND = (
    '<p class="soft">Grey was given to the model, <span class="sampled">yellow was sampled</span> by it; '
    'the less likely a token was, the stronger it is <span class="p3">underlined</span>.</p>'
)


def _tiles(rows: Rows) -> str:
    found = success(rows)
    tiles: list[tuple[str, str]] = []
    if found.held_out:
        band = {step: (low, high) for step, low, high in found.band}
        for name, (step, value) in (
            ("held out, first", found.held_out[0]),
            ("held out, last", found.held_out[-1]),
        ):
            low, high = band.get(step, (value, value))
            tiles.append((f"{name} ({100 * low:.0f} to {100 * high:.0f} %)", f"{100 * value:.1f} %"))
        for _, value in points(rows, "eval/worst_success")[-1:]:
            tiles.append(("worst environment, last", f"{100 * value:.1f} %"))
    elif found.training:
        tiles.append(("success in training", f"{100 * found.training[-1][1]:.1f} %"))
    if rows:
        tiles.append(("steps", str(max(int(row["step"]) for row in rows))))
    for name, seconds in points(rows, "time/seconds")[-1:]:
        tiles.append((f"up to step {name}", f"{seconds / 60:.1f} min"))
    return '<div class="tiles">' + "".join(_tile(name, value) for name, value in tiles) + "</div>"


def _tile(name: str, value: str) -> str:
    return f'<div class="tile"><b>{escape(value)}</b><span class="soft">{escape(name)}</span></div>'


def _curve(rows: Rows) -> str:
    if not success(rows).main:
        return '<p class="soft">No success was recorded yet.</p>'
    return f'<div role="img" aria-label="Success over steps">{learning_curve_svg(rows)}</div>'


def _notices(run: Run) -> str:
    """Return what is to be known before the curve is believed: files that changed, a journal that lacks rows."""
    shown: list[tuple[str, object]] = [(str(event["kind"]), event["message"]) for event in run.notices()]
    return f"<h2>To be known of this curve</h2>{table(shown)}" if shown else ""


def _reward_model(rows: Rows) -> str:
    """Return what a reward model said beside what the environment paid, where the run has both."""
    picture = reward_model_svg(rows)
    told = "The reward model's score and the environment's reward over steps"
    return f'<h2>Reward model</h2><div role="img" aria-label="{told}">{picture}</div>' if picture else ""


def _environments(rows: Rows) -> str:
    """Return success and share of the gradient of each environment of a mixture, the worst first."""
    held = next((row for row in reversed(rows) if row.get("eval/worst_success") is not None), None)
    if held is None:
        return ""
    names = [
        name.removeprefix("eval/task/").removesuffix("/success")
        for name in held
        if name.startswith("eval/task/") and name.endswith("/success")
    ]
    solved = {name: float(held[f"eval/task/{name}/success"]) for name in names}
    shown: list[tuple[str, object]] = []
    for name in sorted(solved, key=lambda each: (solved[each], each)):
        shares = [
            float(share) for row in rows if (share := row.get(f"task/{name}/gradient_share")) is not None
        ]
        share = f", {sum(shares) / len(shares):.0%} of the gradient where it was drawn" if shares else ""
        shown.append((name, f"{solved[name]:.1%} held out{share}"))
    return f"<h2>Environments, the worst first</h2>{table(shown)}"


def _forgetting(rows: Rows) -> str:
    """Return how much of what was demonstrated was known after each stage, where the run looks at that."""
    shown: list[tuple[str, object]] = []
    for row in rows:
        if (start := row.get("forgetting/start")) is None:
            continue
        if not shown:
            shown.append(("at the start", f"{start:.1%}"))
        after = (("RL", row.get("forgetting/rl")), ("imitation", row.get("forgetting/known")))
        told = [f"{start - lost:.1%} after {stage}" for stage, lost in after if lost is not None]
        shown.append((f"step {row['step']}", ", ".join(told)))
    return f"<h2>Success on demonstrated tasks</h2>{table(shown)}" if shown else ""


def _data(run: Run, rows: Rows) -> str:
    """Return the data funnel, and which episodes its last step learned from."""
    found = funnels(rows)
    return funnel_html(rows) + render_trained([use for _, use in run.uses(found[-1].step)]) if found else ""


def _pairs(run: Run, rows: Rows, decode: Decode | None) -> str:
    """Return the pairs that the last step compared."""

    def find(name: str) -> Trajectory | None:
        try:
            return run.episode(name)
        except DataError:
            return None

    return pairs_html([use for _, use in run.uses(int(rows[-1]["step"]))], find, decode) if rows else ""


def _latest(rows: Rows) -> str:
    if not rows:
        return ""
    shown = [(name, _short(value)) for name, value in rows[-1].items()]
    return f"<h2>Metrics of the last step</h2>{table(shown)}"


def _events(run: Run) -> str:
    shown: list[tuple[str, object]] = [(str(each["kind"]), each["message"]) for each in run.events()[-50:]]
    return f"<h2>Events</h2>{table(shown)}" if shown else ""


def _short(value: object) -> object:
    return f"{value:.4g}" if isinstance(value, float) else "not finite" if value is None else value


def _flat(config: dict[str, Any]) -> list[tuple[str, object]]:
    return [
        (name, json.dumps(value) if isinstance(value, (dict, list)) else value)
        for name, value in config.items()
    ]


def _examples(run: Run, rows: Rows) -> Iterator[tuple[str, Trajectory]]:
    """Yield headings and a few episodes of the last and the first evaluation, or of the last step."""
    evaluated = [step for step, _ in points(rows, "eval/success")]
    if not evaluated:
        if rows:
            step = int(rows[-1]["step"])
            yield from ((f"Step {step}", each) for each in _choose_examples(run.trajectories(step)))
        return
    yield from (
        (f"After step {evaluated[-1]}", each)
        for each in _choose_examples(run.trajectories(evaluated[-1], "eval"))
    )
    if len(evaluated) > 1:
        yield from (
            (f"After step {evaluated[0]}", each)
            for each in _choose_examples(run.trajectories(evaluated[0], "eval"))
        )


def _choose_examples(trajectories: Iterator[Trajectory]) -> list[Trajectory]:
    """Return two solved episodes, two that were not, and a failure, where there are such."""
    looked_at = list(islice(trajectories, LOOKED_AT))
    failures = [each for each in looked_at if isinstance(each.outcome, Failure)]
    solved = [each for each in looked_at if each.is_success]
    unsolved = [each for each in looked_at if not isinstance(each.outcome, Failure) and not each.is_success]
    return [*solved[:2], *unsolved[:2], *failures[:1]]
