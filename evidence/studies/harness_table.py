"""What harnesses bring and cost on five worlds: a script, a tiny model and SmolLM2 through each of them.

    python evidence/studies/harness_table.py [--runs FOLDER] [--minds expert tiny smollm2] [--table]

The script is the expert of a world, who fills in whatever a harness asks for. The tiny model imitates the expert of all
five worlds at once, anew through each harness that asks for words of its own (`TAUGHT`); behind the others acts the one
that was taught through `text`, the prompts of which they keep. SmolLM2 imitates the expert through `text` alone. Told
are success on the same held-out tasks, sampled at temperature 1, with Wilson's 95 % interval, and of a task the calls
of the model, the tokens read and sampled, and the seconds of the processor, which a busy machine hardly changes. What
is done is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import quintain
from quintain.eval.report import make_report
from quintain.eval.statistics import wilson

WORLDS = (
    "keydoor?rooms=1",
    "craft?depth=1&places=2",
    "collab",
    "web?popups=0&irreversible=false",
    "house?kind=put&things=1",
)
HARNESSES = (
    "text",
    "choice",
    "react",
    "window?turns=2+text",
    "plan?max_tokens=24+text",
    "rci?max_tokens=16+text",
    "guided?size=2+text",
    "backtracked+text",
    "searched?size=2&steps=20+text",
)
TEXT = "text"
TAUGHT = (TEXT, "react", "plan?max_tokens=24+text", "rci?max_tokens=16+text")
"""harnesses through which the tiny model imitates"""
TRAINING: Mapping[str, Mapping[str, object]] = {
    "tiny": {
        "model": "mini?tokens=words", "demonstrations": 1500, "steps": 150, "batch_size": 16, "learning_rate": 3e-3,
    },
    "smollm2": {
        "model": "smollm2", "demonstrations": 60, "steps": 15, "batch_size": 8, "learning_rate": 8.5e-5,
        "precision": "bf16",
    },
}  # fmt: skip
TASKS = {"expert": 16, "tiny": 16, "smollm2": 3}
"""held-out tasks of a world"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What came of the tasks of a world: ``Cell(num=3, solved=2, calls=12, read=800, sampled=40, seconds=1.5)``."""

    num: int
    solved: int
    calls: int
    read: int
    sampled: int
    seconds: float


def add_up(cells: Sequence[Cell]) -> Cell:
    """Return all of `cells` as one."""
    rows = [asdict(cell) for cell in cells]
    return Cell(**{name: sum(row[name] for row in rows) for name in rows[0]})


def train(runs: Path, mind: str, harness: str) -> Path:
    """Return the run of a model that imitates the expert of all worlds through `harness`; make it if need be."""
    name = "".join(c if c.isalnum() else "-" for c in f"{mind}-{harness}")
    settings = {
        **TRAINING[mind], "environment": f"mix:{','.join(WORLDS)}", "agent": harness, "runs": runs, "run": name,
        "eval_start": "false", "eval_every": 10_000, "eval_episodes": 1, "max_turn_tokens": 24,
    }  # fmt: skip
    if not (runs / name / "model").is_dir():
        options = [
            word for key, value in settings.items() for word in (f"--{key.replace('_', '-')}", str(value))
        ]
        threads = {**os.environ, "OMP_NUM_THREADS": "1"}  # noqa: TID251 - a child like this
        command = [sys.executable, "-m", "quintain.cli", "train", "sft", *options, "--replace"]
        subprocess.run(command, env=threads, check=True, stdout=subprocess.DEVNULL)
    return runs / name


def play(target: str, world: str, harness: str, num: int) -> Cell:
    """Return what comes of `num` held-out tasks of `world` where `target` acts through `harness`."""
    begun = time.process_time()
    _, episodes = quintain.evaluate(target, world, agent=harness, episodes=num)
    cost = make_report(episodes).cost
    return Cell(
        num=num, solved=sum(t.is_success for t in episodes), calls=cost.model_calls, read=cost.prompt_tokens,
        sampled=cost.sampled_tokens, seconds=time.process_time() - begun,
    )  # fmt: skip


def measure(runs: Path, minds: Sequence[str]) -> None:
    """Play all that is not done, and write it down."""
    known = read_cells(runs)
    play("expert", WORLDS[0], TEXT, 1)  # what is imported at the first time counts for nobody
    for mind in minds:
        for harness in HARNESSES:
            for world in WORLDS:
                if (mind, harness, world) in known:
                    continue
                taught = harness if mind == "tiny" and harness in TAUGHT else TEXT
                target = mind if mind == "expert" else str(train(runs, mind, taught))
                cell = play(target, world, harness, TASKS[mind])
                with (runs / "cells.jsonl").open("a", encoding="utf-8") as file:
                    file.write(json.dumps([mind, harness, world, asdict(cell)]) + "\n")


def read_cells(runs: Path) -> dict[tuple[str, str, str], Cell]:
    """Return what is known of mind, harness and world."""
    file = runs / "cells.jsonl"
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines()) if file.is_file() else ()
    return {(mind, harness, world): Cell(**cell) for mind, harness, world, cell in rows}


def write_table(known: Mapping[tuple[str, str, str], Cell], mind: str) -> str:
    """Return the table of a mind: a row for each harness that is done in all worlds."""
    names = [world.partition("?")[0] for world in WORLDS]
    lines = [
        f"| harness | success [95 %] | {' | '.join(names)} | calls | tokens read | sampled | seconds |",
        f"|{'---|' * (len(names) + 6)}",
    ]
    for harness in HARNESSES:
        cells = [known[mind, harness, world] for world in WORLDS if (mind, harness, world) in known]
        if len(cells) < len(WORLDS):
            continue
        all_, by_world = add_up(cells), " | ".join(f"{cell.solved}/{cell.num}" for cell in cells)
        low, high = wilson(all_.solved, all_.num)
        lines.append(
            f"| `{harness}` | {100 * all_.solved / all_.num:.0f} % [{100 * low:.0f}, {100 * high:.0f}] | {by_world} | "
            f"{all_.calls / all_.num:.1f} | {all_.read / all_.num:,.0f} | {all_.sampled / all_.num:,.0f} | "
            f"{all_.seconds / all_.num:.2g} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure what is not done, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, default=Path("runs/harness-table"))
    parser.add_argument("--minds", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--table", action="store_true", help="run nothing: tables of what is done")
    given = parser.parse_args()
    given.runs.mkdir(parents=True, exist_ok=True)
    if not given.table:
        measure(given.runs, given.minds)
    for mind in given.minds:
        print(f"\n{mind}\n\n{write_table(read_cells(given.runs), mind)}")


if __name__ == "__main__":
    main()
