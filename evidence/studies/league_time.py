"""What the league of a family takes on this machine: one run of each arm is timed, and counted as often as it was run.

Run it with ``python evidence/studies/league_time.py --family rl`` on a machine that does nothing else. The results tell
which runs a verdict needed, but many of them were timed beside other work. Here each arm's first seed is run anew, and
so is the policy that it starts from; the sum over all recorded runs of the newest versions, and over their starts, is
what the whole league would take of one core. Runs for learning rates are not recorded and not in it. Rows are printed
as they are done, the longest last.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import as_completed
from pathlib import Path

from quintain_evidence.layers.league import BASELINE, METHOD, TUNING, Entry, entries, known
from quintain_evidence.layers.records import RESULTS
from quintain_evidence.layers.spec import signatures
from quintain_evidence.sweep import workers
from quintain_evidence.trials import Trial, perform, warm


def arms_of(entry: Entry, results: Path) -> dict[str, Trial]:
    """Return the run of each arm at the first seed and the recorded rate; the baseline's stands for its repeats."""
    lines = known(entry, results)
    return {
        arm: entry.trial(arm, 0, lines[arm, 1.0, 0]["rate"])
        for arm in (METHOD, BASELINE)
        if (arm, 1.0, 0) in lines
    }


def timed(chosen: Trial, root: Path) -> tuple[str, float, float]:
    """Return the name of `chosen` with the seconds of the processor that its start and its own run took."""
    began = time.process_time()
    warm(chosen, root)
    started = time.process_time()
    perform(chosen, root)
    return chosen.name, started - began, time.process_time() - started


def main(argv: Sequence[str] | None = None) -> None:
    """Time the arms, and print what the league takes, row by row and in all."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--family", default="rl", help="family of methods (default rl)")
    parser.add_argument(
        "--jobs", type=int, default=2, help="processes side by side, one thread each (default 2)"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of results")
    options = parser.parse_args(argv)
    chosen = entries(options.family, signatures())
    plans = {entry.row: (entry, arms_of(entry, options.results)) for entry in chosen}
    every = {trial.name: trial for _, arms in plans.values() for trial in arms.values()}
    took: dict[str, tuple[float, float]] = {}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, workers(options.jobs) as pool:
        # Each has a folder of its own, for starts that two share are to be timed with both.
        waiting = [pool.submit(timed, trial, Path(folder) / name) for name, trial in every.items()]
        for number, future in enumerate(as_completed(waiting), 1):
            name, start, run = future.result(timeout=0)
            took[name] = start, run
            print(f"{name}: {number}/{len(every)}, start {start:.1f} s, run {run:.1f} s", flush=True)
    runs, starts, rows = dict[str, float](), dict[tuple[str, int], float](), dict[str, float]()
    for row, (entry, arms) in plans.items():
        own: dict[str, float] = {}
        for (arm, _, seed), line in known(entry, options.results).items():
            first = arms.get(METHOD if arm == METHOD else BASELINE)
            if first is not None:
                own[line["run"]] = took[first.name][1]
                starts[first.start, TUNING.index(seed) if seed in TUNING else seed] = took[first.name][0]
        runs |= own
        rows[row] = sum(own.values())
    for row, seconds in sorted(rows.items(), key=lambda found: found[1]):
        print(f"{row:22} {seconds / 60:6.1f} min of one core")
    trained, begun = sum(runs.values()) / 60, sum(starts.values()) / 60
    whole = trained + begun
    print(f"{len(runs)} runs {trained:.0f} min, {len(starts)} starts {begun:.0f} min of one core")
    print(f"in all {whole:.0f} min of one core, {whole / options.jobs:.0f} on {options.jobs}")
    print(f"measured in {(time.monotonic() - began) / 60:.1f} min")


if __name__ == "__main__":
    main()
