"""What torchrun starts in the tests: a step of each kind in its ranks, compared with one in the first process."""

import sys
from pathlib import Path

from tests.learning.sharding.cases import CASES, check_case

from quintain.learning.sharding.torchrun import driving, join_torchrun

if __name__ == "__main__":
    folder, start = map(Path, sys.argv[1:])  # noqa: TID251 - it is a program
    with driving({"program": "gradients"}, "cpu") as is_driver:
        ranks = join_torchrun()
        if is_driver and ranks is not None:
            ranks.open(folder)
            for name in CASES:
                check_case(ranks, start, name)
            print(f"the gradient of one process in {ranks.count} ranks")
