"""What an episode's Python costs: a box started for it beside a worker forked from an interpreter that waits.

Run it with ``python speed/interpreters.py``; on a machine with other work, read the processor time. Each episode
starts, runs one cell and ends; blocks of both kinds alternate. ``--pause .05`` leaves time between two episodes, as a
model that writes code does; an episode's time by the clock is without it. Processor time is ours, that of processes
that ended and that of the interpreters with their workers; what kernel threads do afterwards to clear namespaces away
is in the column of the whole machine alone.
"""

import argparse
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from quintain.processes.tree import below
from quintain.safety import warm
from quintain.safety.python import PythonProcess

TICKS = os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Return the processor time of this process, of those it has waited for, and of interpreters with their workers."""
    total = sum(os.times()[:4])
    for root in warm.waiting():
        for process in (root, *below(root)):
            with suppress(FileNotFoundError, ProcessLookupError):  # its parent has its time by now
                words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                total += sum(map(int, words[11:15])) / TICKS
    return total


def machine_seconds() -> float:
    """Return the processor time that the whole machine has spent on anything but waiting."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    numbers = list(map(int, words))
    return (sum(numbers[:8]) - numbers[3] - numbers[4]) / TICKS


@dataclass(frozen=True, slots=True)
class Block:
    """What the episodes of a block took, in milliseconds."""

    walls: Sequence[float]
    """By the clock, of each."""
    own: float
    """Of our processors, the mean."""
    whole: float
    """Of the machine's."""


def block(num: int, *, is_warm: bool, pause: float) -> Block:
    """Return what `num` episodes took, with `pause` seconds after each."""
    walls: list[float] = []
    before = own_seconds(), machine_seconds()
    for _ in range(num):
        start = time.perf_counter()
        with PythonProcess(is_warm=is_warm) as python:
            assert python.run("print(17 + 25)").output == "42\n"
        walls.append((time.perf_counter() - start) * 1e3)
        time.sleep(pause)
    after = own_seconds(), machine_seconds()
    own, whole = ((late - early) / num * 1e3 for late, early in zip(after, before, strict=True))
    return Block(walls=walls, own=own, whole=whole)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=40, help="of a block")
    parser.add_argument("--blocks", type=int, default=5, help="of each kind")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two episodes")
    options = parser.parse_args()
    assert warm.works(), "interpreters cannot wait on this machine"
    found: dict[bool, list[Block]] = {False: [], True: []}
    for _ in range(options.blocks):
        for is_warm, blocks in found.items():
            blocks.append(block(options.episodes, is_warm=is_warm, pause=options.pause))
    heads = ("by the clock", "of ten, nine in", "own processor", "whole machine")
    print(f"{'ms an episode, medians':26} {' '.join(f'{head:>15}' for head in heads)}")
    for is_warm, blocks in found.items():
        walls = [wall for one in blocks for wall in one.walls]
        figures = (
            median(walls),
            quantiles(walls, n=10)[-1],
            median(one.own for one in blocks),
            median(one.whole for one in blocks),
        )
        name = "forked from a waiting one" if is_warm else "a box of its own"
        print(f"{name:26} {' '.join(f'{figure:15.1f}' for figure in figures)}")
    for name, measure in (("by the clock", clock), ("own processor", processor)):
        ratios = [measure(one) / measure(other) for one, other in zip(found[False], found[True], strict=True)]
        print(f"{name}: {median(ratios):.1f} times as much ({min(ratios):.1f} to {max(ratios):.1f})")


def clock(found: Block) -> float:
    """Return the median of a block's episodes by the clock."""
    return median(found.walls)


def processor(found: Block) -> float:
    """Return a block's processor time."""
    return found.own


if __name__ == "__main__":
    main()
