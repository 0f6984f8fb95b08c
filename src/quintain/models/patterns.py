"""Patterns by which a tokenizer of strangers splits texts: whether they take very long on a short text.

A pattern that can match in many ways may try all of them, and nothing ends it from within. So patterns that are not
known are tried on runs of the letters that they name, in a process that the kernel ends. What is found is what takes
long on such runs, by far the usual way; a pattern that is slow on one odd text alone is not found, and there the
library gives up a single match after ten million steps, which is an error of that text.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

from quintain.models.pattern_program import LOADED

SECONDS = 10
"""Seconds of the processor that all texts may take; patterns of published models take less than one."""
DEADLINE = 600.0
USUAL = "aA0 \n-.'\"_<é中"
"""Letters of every kind that patterns tell apart."""
MAX_LETTERS = 40
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)"
    r"|\s+"
)
QWEN_2 = LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}")
OURS = (
    r" ?\p{L}+(?: \p{L}+){0,3}| ?\d+(?: \p{L}+)?| ?[^\s\p{L}\d]+|\s+",
    r" ?\p{L}+| ?\d+| ?[^\s\p{L}\d]+|\s+",
    r"\p{L}+|\d+|[^\p{L}\d]+",
)
"""Those of `quintain.text.tokenizer.SPANS`."""
KNOWN = frozenset([*OURS, LLAMA_3, QWEN_2])
"""Patterns that take a time in proportion to the text, and need not be tried."""


def find_patterns(part: object) -> Iterator[str]:
    """Yield the patterns in a `part` of a tokenizer's description."""
    if isinstance(part, dict):
        for name, inner in cast("dict[str, object]", part).items():
            if name == "Regex" and isinstance(inner, str):
                yield inner
            else:
                yield from find_patterns(inner)
    elif isinstance(part, list):
        for inner in cast("list[object]", part):
            yield from find_patterns(inner)


def find_fault(file: Path, description: dict[str, Any]) -> str:
    """Return what is wrong with the patterns of the tokenizer in `file`, whose `description` it is; empty: nothing."""
    parts = [description.get(name) for name in ("normalizer", "pre_tokenizer", "decoder")]
    patterns = sorted({*find_patterns(parts)} - KNOWN)
    if not patterns:
        return ""
    letters = "".join(dict.fromkeys(USUAL + "".join(filter(str.isprintable, "".join(patterns)))))
    return _try(str(file.absolute()), json.dumps(parts), letters[:MAX_LETTERS])


@cache
def _try(file: str, parts: str, letters: str) -> str:
    """Return how a process that encodes with the tokenizer in `file` ended badly; once for each `parts` of it."""
    program = Path(__file__).with_name("pattern_program.py")
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(program)],
            input=json.dumps([file, SECONDS, letters]).encode(),
            capture_output=True,
            timeout=DEADLINE,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"patterns that could not be tried ({type(error).__name__})"
    if done.returncode == 0 or done.stdout != LOADED:  # one that cannot be loaded is told of where it is
        return ""
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"patterns that take more than {SECONDS} s of the processor on short texts"
    return "patterns that give up on short texts"
