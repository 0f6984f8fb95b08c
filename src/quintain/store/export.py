"""The journal as a Parquet file, for notebooks and other frameworks.

One row per trajectory with its turns as a list column: ids int32, log-probs float64, free-form mappings as JSON text.
Where whoever exports can write an episode as chat messages, these and the tools stand beside, as JSON text, too.
The file appears under its name when it is complete.
"""

import importlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from quintain.errors import MissingExtra, QuintainError
from quintain.store import files
from quintain.store.rows import Recorded
from quintain.store.run import Run
from quintain.types import Failure, Image, Trajectory, Turn, as_text
from quintain.types.rows import plain

ROWS_PER_GROUP = 1000


def export_parquet(
    run: Run, file: Path, *, chat: Callable[[Trajectory], Mapping[str, Any]] = lambda _: {}
) -> int:
    """Write the trajectories of `run` to `file` and return how many there are.

    `chat` gives the messages and tools of an episode, if it has them.
    Superseded and unreadable rows are left out. Raises `MissingExtra` without pyarrow, `StoreError` when the
    disk fails.
    """
    arrow, parquet = _package("pyarrow"), _package("pyarrow.parquet")
    schema = _schema(arrow)
    temporary = file.with_name(f".{file.name}.writing")
    count = 0
    try:
        with parquet.ParquetWriter(temporary, schema) as writer:
            recorded = run.read_rows()
            while chunk := [
                {**_row(each), **_chat(chat(each.trajectory))} for each in islice(recorded, ROWS_PER_GROUP)
            ]:
                writer.write_table(arrow.Table.from_pylist(chunk, schema=schema))
                count += len(chunk)
        files.sync_file(temporary)
        temporary.replace(file)
    except OSError as error:
        if isinstance(error, QuintainError):
            raise
        raise files.disk_error("exporting", file, error) from error
    finally:
        temporary.unlink(missing_ok=True)
    return count


def write_table(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Write `rows`, whose values are plain, to the Parquet file `file`, which appears when it is complete.

    Raises `MissingExtra` without pyarrow.
    """
    arrow, parquet = _package("pyarrow"), _package("pyarrow.parquet")
    temporary = file.with_name(f".{file.name}.writing")
    try:
        parquet.write_table(arrow.Table.from_pylist(list(rows)), temporary)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtra.for_package("pyarrow", "data", "export to Parquet") from error


def _schema(arrow: Any) -> Any:
    text, flag, whole, real = arrow.string(), arrow.bool_(), arrow.int64(), arrow.float64()
    turn: dict[str, Any] = {
        "seat": text,
        "observation": text,
        "images": arrow.list_(arrow.binary()),
        "prompt_ids": arrow.list_(arrow.int32()),
        "token_ids": arrow.list_(arrow.int32()),
        "logprobs": arrow.list_(real),
        "completion_stop": text,
        "policy": text,
        "policy_version": whole,
        "action": text,
        "tool_calls": text,
        "error": text,
        "reward": real,
        "rewards": text,
        "reward_terms": text,
        "state_key": text,
        "is_valid": flag,
        "starts_segment": flag,
    }
    row: dict[str, Any] = {
        "row": whole,
        "id": text,
        "parent": text,
        "parent_turn": whole,
        "step": whole,
        "phase": text,
        "task": text,
        "environment": text,
        "split": text,
        "prompt": text,
        "data": text,
        "tags": arrow.list_(text),
        "group": text,
        "index": whole,
        "seed": whole,
        "value": real,
        "is_success": flag,
        "failure_owner": text,
        "failure_kind": text,
        "failure_message": text,
        "stop": text,
        "seconds": real,
        "final_observation": text,
        "messages": text,
        "tools": text,
        "turns": arrow.list_(arrow.struct(list(turn.items()))),
    }
    return arrow.schema(list(row.items()))


def _chat(record: Mapping[str, Any]) -> dict[str, str]:
    return {key: _json(record[key]) for key in ("messages", "tools") if key in record}


def _row(recorded: Recorded) -> dict[str, Any]:
    trajectory, task = recorded.trajectory, recorded.trajectory.task
    return {
        "row": recorded.row,
        "id": trajectory.id,
        "parent": trajectory.parent and trajectory.parent.episode,
        "parent_turn": trajectory.parent and trajectory.parent.turn,
        "step": recorded.step,
        "phase": recorded.phase,
        "task": task.id,
        "environment": task.environment,
        "split": task.split,
        "prompt": _utf8(task.prompt),
        "data": _json(task.data),
        "tags": sorted(task.tags),
        "group": trajectory.group,
        "index": trajectory.index,
        "seed": trajectory.seed,
        **_outcome(recorded),
        "stop": trajectory.stop.value,
        "seconds": trajectory.seconds,
        "final_observation": _utf8(as_text(trajectory.final_observation)),
        "turns": [_turn(turn) for turn in trajectory.turns],
    }


def _outcome(recorded: Recorded) -> dict[str, Any]:
    outcome = recorded.trajectory.outcome
    if isinstance(outcome, Failure):
        owner, kind, message = outcome.owner, outcome.kind, _utf8(outcome.message)
        return {"failure_owner": owner, "failure_kind": kind, "failure_message": message}
    return {"value": outcome.value, "is_success": outcome.is_success}


def _turn(turn: Turn) -> dict[str, Any]:
    completion = turn.completion
    return {
        "seat": turn.seat,
        "observation": _utf8(as_text(turn.observation)),
        "images": [part.data for part in turn.observation if isinstance(part, Image)],
        "prompt_ids": turn.prompt_ids,
        "token_ids": completion.token_ids,
        "logprobs": completion.logprobs,
        "completion_stop": completion.stop,
        "policy": completion.policy,
        "policy_version": completion.policy_version,
        "action": _utf8(turn.action.text),
        "tool_calls": _json(
            [{"name": call.name, "arguments": call.arguments} for call in turn.action.tool_calls]
        ),
        "error": turn.action.error and _utf8(turn.action.error),
        "reward": turn.reward,
        "rewards": _json(turn.rewards),
        "reward_terms": _json(turn.reward_terms),
        "state_key": turn.state_key,
        "is_valid": turn.is_valid,
        "starts_segment": turn.starts_segment,
    }


def _json(value: Mapping[str, Any] | Iterable[Any]) -> str:
    return json.dumps(value, default=plain)


def _utf8(text: str) -> str:
    """Return `text` with half surrogate pairs, which UTF-8 cannot hold, replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")
