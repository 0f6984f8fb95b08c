"""The inner side of a process that we started: its standard streams become the way to talk to whoever started it."""

import io
import os
import sys
from typing import cast

from quintain.processes.keeper import kept


def take_streams() -> tuple[int, int]:
    """Have this process kept, and return descriptors of what were its standard input and output.

    What it reads from then on is empty, and what it prints goes to the error stream.
    """
    kept()
    streams = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    cast(io.TextIOWrapper, sys.stdout).reconfigure(line_buffering=True)  # what it said before a kill is read
    return streams
