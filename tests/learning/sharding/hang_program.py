"""A rank that does not go on where the others wait for it, of torchrun or of `Ranks`; see test_heartbeats."""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from quintain.learning.sharding import heartbeats
from quintain.learning.sharding.host import Host, main
from quintain.learning.sharding.torchrun import driving, join_torchrun

LIMIT = 8.0
"""Seconds after which one hangs here."""


def hang(which: int, how: str) -> None:
    """Have rank `which` sleep, or be stopped, where the gradient is clipped."""

    def clip(host: Host, name: str) -> None:
        dist.all_reduce(torch.ones(1))
        if dist.get_rank() == which:
            if how == "stops":
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(600)
        dist.all_reduce(torch.ones(1))

    Host.on_clip = clip  # pyright: ignore[reportAttributeAccessIssue]


def serve_rank() -> None:
    """Be a rank of `Ranks`, of which the second sleeps."""
    hang(1, "sleeps")
    main()


if __name__ == "__main__":
    folder, rank, how = sys.argv[1:]  # noqa: TID251 - it is a program
    heartbeats.SILENCE = heartbeats.STILL = LIMIT
    hang(int(rank), how)
    with driving({"program": "hang"}, "cpu") as is_driver:
        ranks = join_torchrun()
        if is_driver and ranks is not None:
            ranks.open(Path(folder)).ask("clip", "policy")
