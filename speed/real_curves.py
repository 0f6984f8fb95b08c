"""Held-out success of several runs of an environment, as a picture and a table.

    python speed/real_curves.py docs/images/real.png FrozenLake=runs/lake-0,runs/lake-1,runs/lake-2 ...

Each run is a thin line, their mean a thick one. A mixed run shows its environments.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

COLORS = ("#2a6fdb", "#d1495b", "#2e8b57")


def curves(run: Path) -> dict[str, dict[int, float]]:
    """Return name → step → success in percent; a run of one environment has the name ""."""
    found: dict[str, dict[int, float]] = {}
    for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        parts = {
            key: value
            for key, value in row.items()
            if key.startswith("eval/task/") and key.endswith("/success")
        }
        named = {
            key.removeprefix("eval/task/").removesuffix("/success"): value for key, value in parts.items()
        }
        if not named and "eval/success" in row:
            named = {"": row["eval/success"]}
        for name, value in named.items():
            found.setdefault(name, {})[int(row["step"])] = 100 * value
    return found


def minutes(run: Path) -> float:
    """Return how long the run trained."""
    rows = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return max(json.loads(line).get("time/seconds", 0.0) for line in rows) / 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", type=Path)
    parser.add_argument("groups", nargs="+", help="TITLE=RUN,RUN,...")
    arguments = parser.parse_args()
    groups = [group.split("=", 1) for group in arguments.groups]
    figure: Any = Figure(figsize=(4 * len(groups), 3.4), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    for number, (title, names) in enumerate(groups):
        axes: Any = figure.add_subplot(1, len(groups), number + 1)
        runs = [Path(name) for name in names.split(",")]
        found = [curves(run) for run in runs]
        for place, name in enumerate(sorted({name for each in found for name in each})):
            lines = [each[name] for each in found if name in each]
            steps = sorted(set.intersection(*(set(line) for line in lines)))
            means = [sum(line[step] for line in lines) / len(lines) for step in steps]
            for line in lines:
                axes.plot(
                    sorted(line),
                    [line[step] for step in sorted(line)],
                    color=COLORS[place],
                    alpha=0.35,
                    linewidth=1,
                )
            axes.plot(
                steps, means, color=COLORS[place], linewidth=2.4, marker="o", markersize=4, label=name or None
            )
            print(
                f"| {title} {name} | {len(lines)} | "
                + ", ".join(f"{line[steps[0]]:.1f} → {line[steps[-1]]:.1f}" for line in lines)
                + f" | {means[0]:.1f} | {means[-1]:.1f} | {', '.join(f'{minutes(run):.1f}' for run in runs)} |"
            )
            if name:
                axes.legend(frameon=False, fontsize=8)
        axes.set(title=title, xlabel="step of GRPO", ylabel="held-out success (%)", ylim=(0, 105))
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(arguments.picture, metadata={"Software": "quintain"})


if __name__ == "__main__":
    main()
