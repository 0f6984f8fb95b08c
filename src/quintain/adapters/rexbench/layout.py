"""What a checkout of RExBench holds (arXiv 2506.22598): ``instructions/TASK/instructions.md``, with hints at its end.

Code and gold solutions of its twelve tasks are handed out apart, and run on a machine with a large GPU; neither is
here.
"""

from collections.abc import Sequence
from pathlib import Path

from quintain.errors import DataError, UsageError, suggestion

HINTS = ("### Hints", "### More detailed hints")
"""Headings under which the hints of level 1, and those of level 2, stand."""
MOST_HINTS = len(HINTS)


def read_tasks(folder: Path) -> dict[str, str]:
    """Return the instructions of each task of the checkout `folder`, whole.

    Raises:
        DataError: there are none, or not as text.
    """
    try:
        found = {
            file.parent.name: file.read_text("utf-8")
            for file in sorted(folder.glob("instructions/*/instructions.md"))
        }
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"rexbench: got {folder}, which cannot be read: {error}") from error
    if not found:
        raise DataError(
            f"rexbench: got {folder}, which has no instructions/TASK/instructions.md; name a checkout of RExBench"
        )
    return found


def choose_task(tasks: dict[str, str], name: str) -> str:
    """Return the instructions of the task `name`.

    Raises:
        UsageError: there is no such task.
    """
    if name not in tasks:
        raise UsageError(f"task of rexbench: got {name!r}; {suggestion(name, tasks)}")
    return tasks[name]


def cut_hints(text: str, level: int, headings: Sequence[str] = HINTS) -> str:
    """Return the instructions `text` with hints up to `level`: 0 without any, 2 with all.

    Raises:
        UsageError: there is no such level.
    """
    if not 0 <= level <= len(headings):
        raise UsageError(f"hints: got {level}; give 0 for none to {len(headings)} for all")
    lines = text.splitlines()
    ends = [number for number, line in enumerate(lines) if line.strip() in headings[level:]]
    return "\n".join(lines[: ends[0]] if ends else lines).rstrip() + "\n"
