"""Side by side with the peer on this machine: python speed/compare.py [--pairs 3] [--json FILE]

The peer is TRL in a virtual environment of its own, which this script makes. Both get the same model folder,
world and sampling; each pair runs one side directly after the other, the order changing from pair to pair, and
the ratio of a pair is what counts: a machine's speed drifts, but not within a pair.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import venv
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent / "side_by_side"
PEER = Path(__file__).parents[1] / ".venv-peer"
TEMPLATE = "chat_templates/qwen3.jinja"
Result = dict[str, Any]

WORK = {
    "grpo": ("a whole GRPO step, 64 episodes", "episodes/s", 64, 10.0),
    "decode": ("decoding, 64 rows after 256 tokens", "tokens/s", None, 3.0),
    "batching": ("the same against its continuous batching", "tokens/s", None, 30.0),
    "sft": ("supervised training, 50 to 600 tokens", "tokens/s", None, 3.0),
}
"""name: (what it is, unit, how much of it a step does where the sides do not say, the ratio that is aimed at)"""


def peer_python() -> Path:
    """Return the interpreter of the peer, in a virtual environment that is made where it is missing."""
    python = PEER / "bin" / "python"
    stamp, wanted = PEER / "requirements.txt", (HERE / "requirements.txt").read_text(encoding="utf-8")
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        print(f"installing the peer into {PEER} (a few minutes the first time)", flush=True)
        venv.create(PEER, with_pip=True)
        subprocess.run(
            [
                python,
                "-m",
                "pip",
                "install",
                "-q",
                "--disable-pip-version-check",
                "-r",
                HERE / "requirements.txt",
            ],
            check=True,
        )
        stamp.write_text(wanted, encoding="utf-8")
    return python


def model_folder(python: Path, folder: Path, *options: str) -> Path:
    """Return `folder` with a model of the comparison, made with `options` if it is not there."""
    if not (folder / "config.json").exists():
        print(f"making a model of the comparison in {folder}", flush=True)
        found = subprocess.run(
            [python, "-c", "import trl, pathlib; print(pathlib.Path(trl.__file__).parent)"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        template = Path(found.stdout.strip().splitlines()[-1]) / TEMPLATE
        subprocess.run([sys.executable, HERE / "prepare.py", template, folder, *options], check=True)
    return folder


def run(python: Path | str, script: str, what: str, folder: Path, *options: str) -> Result:
    """Return what `script` says of `what`."""
    done = subprocess.run(
        [python, HERE / script, what, folder, *options],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
    )
    if done.returncode:
        raise SystemExit(f"{script} {what}: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def compare(what: str, python: Path, folder: Path, pairs: int, *options: str) -> Result:
    """Return the rates of both sides, each run with `options`, and their ratio over `pairs` pairs."""
    _, unit, amount, target = WORK[what]
    own = "decode" if what == "batching" else what
    rates: dict[str, list[float]] = {"peer": [], "ours": []}
    last: dict[str, Result] = {}
    for pair in range(pairs):
        sides = [("peer", python, "peer.py", what), ("ours", sys.executable, "ours.py", own)]
        for side, interpreter, script, name in sides if pair % 2 == 0 else reversed(sides):
            last[side] = run(interpreter, script, name, folder, *options)
            rates[side].append((amount or last[side]["tokens"]) / last[side]["seconds"])
            print(" ".join([f"{what}: {side} {rates[side][-1]:,.1f} {unit}", *options]), flush=True)
    ratios = [ours / peer for ours, peer in zip(rates["ours"], rates["peer"], strict=True)]
    return {
        "what": what,
        "unit": unit,
        "ours": statistics.median(rates["ours"]),
        "peer": statistics.median(rates["peer"]),
        "ratio": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "target": target,
        "pairs": pairs,
        "details": last,
    }


def growth(python: Path, folder: Path) -> Result:
    """Return, for both sides, seconds of a step of 16 episodes by turns, and the exponent of a fit.

    Ours is given twice: as it is, and without computing once what episodes share, which the peer does not.
    """
    grown: Result = {}
    for side, interpreter in (("peer", python), ("ours", sys.executable)):
        found = run(interpreter, f"{side}.py", "turns", folder)
        for name in ("rows", "unshared"):
            if name in found:
                rows: list[Result] = found[name]
                turns, seconds = (np.log([row[key] for row in rows]) for key in ("turns", "seconds"))
                key = side if name == "rows" else f"{side} {name}"
                grown[key] = {"rows": rows, "exponent": float(np.polyfit(turns, seconds, 1)[0])}
                said = ", ".join(f"{row['turns']} turns {row['seconds']:.2f} s" for row in rows)
                print(
                    f"{key}, a step of 16 episodes: {said}; exponent {grown[key]['exponent']:.2f}", flush=True
                )
    return grown


def larger(size: str, python: Path, folder: Path, pairs: int) -> list[Result]:
    """Return the comparisons of decoding and supervised training for a model of `size`, which is made in `folder`."""
    option = ("--size", size)
    made = model_folder(python, folder, *option)
    found = [compare(what, python, made, pairs, *option) for what in ("decode", "sft")]
    return [{**each, "size": size} for each in found]


def show(results: list[Result]) -> None:
    """Print the table."""
    versions = results[0]["details"]["peer"]["versions"]
    table = Table(
        "what", "unit", "peer", "ours", "ratio", "of the pairs", "target",
        title=f"against TRL {versions['trl']}, transformers {versions['transformers']}, torch {versions['torch']}",
    )  # fmt: skip
    for result in results:
        table.add_row(
            f"{result['size']}: {result['what']}" if "size" in result else WORK[result["what"]][0],
            result["unit"],
            f"{result['peer']:,.1f}",
            f"{result['ours']:,.1f}",
            f"{result['ratio']:.1f}",
            f"{result['lowest']:.1f} to {result['highest']:.1f}",
            f"{result['target']:g}",
        )
    Console(width=120).print(table)


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3, help="times that each side is run")
    parser.add_argument("--only", choices=sorted(WORK), nargs="*", help="which comparisons (all)")
    parser.add_argument(
        "--growth", action="store_true", help="also the growth of both sides in turns (minutes)"
    )
    parser.add_argument(
        "--sizes",
        nargs="*",
        default=[],
        choices=("30M", "135M"),
        help="also decode and train larger models (minutes)",
    )
    parser.add_argument("--model", type=Path, help="model folder to use or to make (a temporary one)")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    arguments = parser.parse_args()
    python = peer_python()
    with tempfile.TemporaryDirectory() as place:
        folder = model_folder(python, (arguments.model or Path(place) / "model").resolve())
        chosen = [what for what in WORK if not arguments.only or what in arguments.only]
        results = [compare(what, python, folder, arguments.pairs) for what in chosen]
        grown: Result | None = None
        if arguments.growth:
            grown = growth(python, model_folder(python, folder.with_name(f"{folder.name}-long"), "--long"))
        for size in arguments.sizes:
            results += larger(size, python, folder.with_name(f"{folder.name}-{size}"), arguments.pairs)
    show(results)
    if arguments.json:
        about = {"date": date.today().isoformat(), "machine": platform.platform()}
        arguments.json.write_text(
            json.dumps(about | {"comparisons": results, "growth": grown}, indent=2), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
