"""Lets the garbage collector leave out what was there before a rollout.

Episodes make many small objects, so it comes often, and each time it would look at all that torch and transformers hold
as well, and at the turns that were recorded so far. Whoever set objects aside already keeps them there.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager

RARELY = 5_000
"""The collector comes when so many more objects are there than when it came last; as a rule when 700 are."""
AT_START = gc.get_freeze_count()
"""Objects that were set aside before anybody asked for it: Python 3.12 begins with some of its own."""


@contextmanager
def gc_frozen() -> Generator[None]:
    """Let the collector look at nothing that is older than the block, and come less often; not where it is off."""
    if gc.get_freeze_count() > AT_START:
        yield
        return
    often, *others = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(max(often, RARELY) if often else 0, *others)
    try:
        yield
    finally:
        gc.set_threshold(often, *others)
        gc.unfreeze()
