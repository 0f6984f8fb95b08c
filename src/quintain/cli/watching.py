"""``quintain top [RUN]``: the figures of the viewer in a terminal, over SSH, until interrupted."""

import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from quintain.cli.arguments import Parser, positive
from quintain.cli.viewing import find_place
from quintain.types.terminal import spell_out, write_line

if TYPE_CHECKING:
    from quintain.dashboard.viewer.viewed import ViewedRun


def top(argv: Sequence[str]) -> int:
    """Show how a run goes in the terminal until interrupted; once, where it is not one."""
    parser = Parser(
        "top", "Show how a run goes, in the terminal: what it does now, its figures, curves and alarms."
    )
    parser.add_argument(
        "place",
        metavar="RUN|FOLDER",
        nargs="?",
        help="a run, its name, or a folder, of which the newest run is shown",
    )
    parser.flag("--runs", "folder that holds the runs (default runs)", "ROOT", "runs")
    parser.flag("--every", "seconds between two looks (default 2)", "SECONDS", "2")
    parser.switch("--once", "print it once and end")
    arguments = parser.read(argv)
    seconds = positive(arguments.every, "--every")
    place = find_place(arguments.place, arguments.runs)

    from quintain.dashboard.viewer.viewed import find_viewer

    viewer = find_viewer(place)
    try:
        viewed = viewer.get(viewer.list_runs()[0].name)
        if arguments.once or not sys.stdout.isatty():
            for line in read_lines(viewed):
                write_line(line)
        else:
            with suppress(KeyboardInterrupt):
                watch(viewed, seconds)
    finally:
        viewer.close()
    return 0


def read_lines(viewed: "ViewedRun") -> list[str]:
    """Return what is shown of the run, as wide as the terminal."""
    from quintain.dashboard.viewer.top import write_run

    return write_run(viewed, shutil.get_terminal_size().columns - 1)


def watch(viewed: "ViewedRun", seconds: float) -> None:
    """Draw the run anew every so many `seconds`, until it has ended."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(highlight=False), auto_refresh=False, vertical_overflow="crop") as screen:
        while True:
            screen.update(Text(spell_out("\n".join(read_lines(viewed)))), refresh=True)
            if viewed.run.status != "running":
                return
            time.sleep(seconds)
