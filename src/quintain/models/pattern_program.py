"""A program of a process of its own: encode short texts with a tokenizer of strangers, in bounded time and memory.

``python -P pattern_program.py`` reads ``["tokenizer.json", seconds, letters]`` from its standard input, writes `LOADED`
when it has the tokenizer, and ends with 0 where that read every text. The kernel ends it after so many seconds of the
processor, however busy the machine is.
"""

import json
import os
import resource
import sys
from collections.abc import Iterator
from itertools import pairwise

RUNS = (24, 400, 4_000)
"""Lengths of runs: what doubles with each letter shows in the first, what grows with its cube in the last."""
MAX_BYTES = 4 << 30
LOADED = b"loaded"


def texts(letters: str) -> Iterator[str]:
    """Yield runs of each of `letters`, and of each two that stand side by side, with an end that breaks a match."""
    pairs = [one + other for one, other in pairwise(letters)]
    for length in RUNS:
        for part in (*letters, *(pairs if length < RUNS[-1] else ())):
            yield part * (length // len(part)) + "\x00"


def main(file: str, seconds: int, letters: str) -> None:
    """Encode the texts."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(file)
    os.write(1, LOADED)
    for text in texts(letters):
        tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids)


if __name__ == "__main__":
    main(*json.load(sys.stdin))
