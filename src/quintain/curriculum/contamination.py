"""Training tasks are apart from those of the evaluation: by what they are, not by their name.

A task is what its environment, seed, prompt and data make it. A task that is held out is never trained on, whatever a
curriculum or an environment hands over.
"""

import json
from collections.abc import Mapping, Sequence
from typing import cast

from quintain.errors import DataError
from quintain.types import Task


def content_of(task: Task) -> str:
    """Return what makes `task` the task that it is, as text; equal for tasks that differ in name or tags only."""
    return json.dumps([task.environment, task.seed, task.prompt, task.data], sort_keys=True, default=_plain)


class HeldOutTasks:
    """The tasks that are held out, which no training task may be: ``HeldOutTasks(held_out).check(tasks)``."""

    def __init__(self, held_out: Sequence[Task]) -> None:
        self._contents = frozenset(map(content_of, held_out))

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise where one of the training `tasks` is held out.

        Raises:
            DataError: it is of the evaluation split, or its content is that of a held-out task.
        """
        bad = [task.id for task in tasks if task.is_held_out or content_of(task) in self._contents]
        if bad:
            raise DataError(
                f"training tasks that are not held out: got {len(bad)} of {len(tasks)} that are, the first "
                f"{bad[0]!r}; let task(split, index) use other seeds or rows for each split"
            )


def _plain(value: object) -> object:
    """Return `value` as JSON can hold it."""
    return dict(cast(Mapping[str, object], value)) if isinstance(value, Mapping) else repr(value)
