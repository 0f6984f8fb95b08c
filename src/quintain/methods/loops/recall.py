"""What a method remembers, told again from the journal, in the order in which the run told it."""

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from quintain.methods.method import CombinedState, State
from quintain.runs.collector import read_groups
from quintain.store.run import Run
from quintain.types import Group


def remember(run: Run, state: State) -> None:
    """Tell `state` of every step that is done; the journal is not read for one that remembers nothing."""
    if isinstance(state, CombinedState) and not state.parts:
        return
    for _ in recall(run, state):
        pass


def recall(run: Run, state: State) -> Iterator[tuple[int, Sequence[Group]]]:
    """Tell `state` of every step that is done, and yield the step and its episodes in between.

    Episodes come first, then whatever the loop does with them, then the metrics of the step: as in the step itself.
    Step 0, which is evaluated only, is not told.
    """
    rows = {int(row["step"]): row for row in run.metrics()}
    for step in range(1, run.next_step):
        groups = read_groups(run, step)
        state.update(groups)
        yield step, groups
        tell(state, step, rows[step])


def tell(state: State, step: int, row: Mapping[str, Any]) -> None:
    """Let `state` observe the metrics of `step`: those that the journal gives back just so to a resumed run.

    They are the finite numbers, without what depends on how fast the machine is.
    """
    known = {
        name: float(value)
        for name, value in row.items()
        if isinstance(value, int | float) and isfinite(value) and not is_clock(name)
    }
    state.observe({**known, "step": float(step)})


def is_clock(name: str) -> bool:
    """Return whether the metric `name` depends on how fast the machine is."""
    return name.startswith(("time/", "machine/")) or name == "tokens_per_second"
