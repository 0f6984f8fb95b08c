"""What an episode's Python costs: a box started for it beside a worker forked from an interpreter that waits.

Run it with ``python benchmarks/interpreters.py``; on a machine with other work, read the processor time. Each episode
starts, runs one cell and ends; blocks of both kinds alternate. Processor time is ours, that of processes that ended and
that of the interpreters with their workers; what kernel threads do afterwards to clear namespaces away is in the line
of the whole machine alone.
"""

import argparse
import os
import time
from pathlib import Path
from statistics import median

from quintain.processes.tree import below
from quintain.safety import warm
from quintain.safety.python import PythonProcess

TICKS = os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Return the processor time of this process, of those it has waited for, and of interpreters with their workers."""
    total = sum(os.times()[:4])
    for root in warm.waiting():
        for process in (root, *below(root)):
            words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, words[11:15])) / TICKS
    return total


def machine_seconds() -> float:
    """Return the processor time that the whole machine has spent on anything but waiting."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    numbers = list(map(int, words))
    return (sum(numbers[:8]) - numbers[3] - numbers[4]) / TICKS


def block(num: int, *, is_warm: bool) -> tuple[float, float, float]:
    """Return milliseconds of an episode: by the clock, of our processors, of the machine's."""
    before = time.perf_counter(), own_seconds(), machine_seconds()
    for _ in range(num):
        with PythonProcess(is_warm=is_warm) as python:
            assert python.run("print(17 + 25)").output == "42\n"
    after = time.perf_counter(), own_seconds(), machine_seconds()
    wall, own, whole = ((late - early) / num * 1e3 for late, early in zip(after, before, strict=True))
    return wall, own, whole


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=40, help="of a block")
    parser.add_argument("--blocks", type=int, default=5, help="of each kind")
    options = parser.parse_args()
    assert warm.works(), "interpreters cannot wait on this machine"
    found: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
    for _ in range(options.blocks):
        for is_warm, blocks in found.items():
            blocks.append(block(options.episodes, is_warm=is_warm))
    print(f"{'ms an episode':24} {'by the clock':>14} {'own processor':>14} {'whole machine':>14}")
    for is_warm, blocks in found.items():
        figures = (f"{median(column):14.1f}" for column in zip(*blocks, strict=True))
        print(f"{'forked from a waiting one' if is_warm else 'a box of its own':24} {' '.join(figures)}")
    for name, place in (("by the clock", 0), ("own processor", 1)):
        ratios = [one[place] / other[place] for one, other in zip(found[False], found[True], strict=True)]
        print(f"{name}: {median(ratios):.1f} times as much ({min(ratios):.1f} to {max(ratios):.1f})")


if __name__ == "__main__":
    main()
