"""Spares the garbage collector what was there before a rollout.

Episodes make many small objects, so it comes often, and each time it would look at all that torch and transformers hold
as well. Whoever set objects aside already keeps them there.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def spared() -> Generator[None]:
    """Let the collector look at nothing that is older than the block."""
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
