"""Episodes to a place of their own: a run folder, or a file of chat messages.

An episode that failed is kept in a run and left out of messages, which are there to learn from.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from quintain.data import messages
from quintain.data.atif import to_atif
from quintain.data.neighbours import Neighbour, write_for
from quintain.data.seats import by_seat
from quintain.data.verifiers import to_rollout
from quintain.errors import DataError
from quintain.rollout.measures import call_metrics
from quintain.store import Run
from quintain.store.calls import CALLS
from quintain.store.export import write_table
from quintain.text.chat import Chat
from quintain.types import Score, Trajectory
from quintain.warm_start.demonstrations import COLLECT

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


Tells = Callable[[Trajectory], messages.OpeningPrompt]
"""What an episode was begun with: instructions and tools."""


def recover_recording(folder: Path) -> int:
    """Record what a server that was killed left of its episodes in the run `folder`, close it, and count them.

    Raises:
        StoreError: the run is written by another process, or what it left cannot be read.
    """
    from quintain.serve.recording import recover_calls

    with Run.open(folder) as run:
        run.take_back(lambda _: True, phase=COLLECT)
        known = {(each.group, each.index) for each in run.trajectories(phase=COLLECT)}
        found, num_broken = recover_calls(folder / CALLS, lambda name, index: (name, index) in known)
        if num_broken:
            run.event("calls lost", f"{num_broken} lines of {CALLS} cannot be read", lines=num_broken)
        run.append(found, step=0, phase=COLLECT)
        run.commit(0, call_metrics([*run.trajectories(phase=COLLECT)]), phase=COLLECT)
        run.event("calls recovered", f"{len(found)} episodes that were under way", episodes=len(found))
        run.finish()
        (folder / CALLS).unlink()
    return len(found)


def write_messages(
    trajectories: Iterable[Trajectory], tokenizer: PreTrainedTokenizerBase, file: Path, told: Tells
) -> int:
    """Write those of `trajectories` that did not fail to `file`, one a line, and return how many there are.

    The system message is the instruction of the environment, which `told` returns, with the task's prompt, and its
    tools stand beside the messages. The file appears under its name when it is complete.

    Raises:
        DataError: there is none.
    """
    kept = (t for t in trajectories if isinstance(t.outcome, Score) or t.outcome.kind == messages.NOT_SCORED)
    lines = messages.write_messages(kept, Chat(tokenizer).text, told=told)
    return write_lines(lines, file, nothing=f"messages for {file}: got no episode that ended")


def write_atif(
    trajectories: Iterable[Trajectory], tokenizer: PreTrainedTokenizerBase, file: Path, told: Tells
) -> int:
    """Write `trajectories` to `file` in the Agent Trajectory Interchange Format, failures too, and count them.

    There is one for each seat. What it was `told` and its tools stand in each.

    Raises:
        DataError: there is none.
    """
    decode = Chat(tokenizer).text
    parts = (part for trajectory in trajectories for part in by_seat(trajectory))
    lines = (json.dumps(to_atif(part, decode, told=told(part)), default=dict) + "\n" for part in parts)
    return write_lines(lines, file, nothing=f"ATIF for {file}: got no episode")


def write_verifiers(
    trajectories: Iterable[Trajectory], tokenizer: PreTrainedTokenizerBase, file: Path, told: Tells
) -> int:
    """Write the scored of `trajectories` to `file` as a ``results.jsonl`` of verifiers, and return how many rows.

    There is one for each seat.

    Raises:
        DataError: there is none.
    """
    decode = Chat(tokenizer).text
    examples: dict[str, int] = {}
    parts = (part for t in trajectories if isinstance(t.outcome, Score) for part in by_seat(t))
    rows = (
        to_rollout(part, decode, told=told(part), example=examples.setdefault(part.task.id, len(examples)))
        for part in parts
    )
    lines = (json.dumps(row, default=dict) + "\n" for row in rows)
    return write_lines(lines, file, nothing=f"rollouts for {file}: got no scored episode")


def write_rows(
    form: Neighbour,
    trajectories: Iterable[Trajectory],
    tokenizer: PreTrainedTokenizerBase,
    file: Path,
    told: Tells,
) -> tuple[int, int]:
    """Write those of `trajectories` that did not fail to `file` as the trainer `form` reads them.

    Returns:
        how many rows there are, and how many conversations were left out, see `write_for`.

    Raises:
        DataError: there is none.
        MissingExtra: it is a Parquet file, and pyarrow is not installed.
    """
    kept = (t for t in trajectories if isinstance(t.outcome, Score) or t.outcome.kind == messages.NOT_SCORED)
    lines = messages.write_messages(kept, Chat(tokenizer).text, told=told)
    found = [write_for(form, json.loads(line)) for line in lines]
    rows = [row for row in found if row is not None]
    nothing = f"rows for {file}: got no episode that ended, all of whose answers can be trained"
    if form == "verl" and rows:
        write_table(rows, file)
    else:
        write_lines((json.dumps(row, ensure_ascii=False) + "\n" for row in rows), file, nothing=nothing)
    return len(rows), len(found) - len(rows)


def write_lines(lines: Iterable[str], file: Path, *, nothing: str) -> int:
    """Write `lines` to `file`, which appears under its name when it is complete, and return how many there are.

    Raises:
        DataError: there is none, which `nothing` says.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    count = 0
    try:
        with open(temporary, "x", encoding="utf-8", errors="replace") as stream:
            for line in lines:
                stream.write(line)
                count += 1
        if not count:
            raise DataError(f"{nothing}; collect or train first")
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    return count
