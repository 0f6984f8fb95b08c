"""Which of two episodes is better: the questions that people are asked of a run, drawn from what it recorded.

Two scored episodes of the same training task are a question, or the turn in which they part. Whoever compares is not
told what an episode was worth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from quintain.data import messages
from quintain.data.labels import Query, draw_pairs
from quintain.data.samples import num_shared
from quintain.data.seats import speakers
from quintain.errors import DataError
from quintain.store import Run
from quintain.store.schema import FACTS
from quintain.text.chat import Chat
from quintain.types import Content, Pair, Trajectory, as_text
from quintain.warm_start.demonstrations import TOKENIZERS, openings_in, tokenizer_of

AT_ONCE = 5_000
"""Episodes whose facts are read at once."""
Names = tuple[str, str]
Sides = Callable[[Names], list[Trajectory]]
"""names of two episodes → both, as far as they are compared; none where that cannot be"""
Order = Callable[[Iterator[Names], Sides], Iterator[Names]]
"""puts pairs into the order in which they are asked"""


def run_questions(run: Run, level: str, seed: int, *, order: Order | None = None) -> Iterator[Query]:
    """Yield questions about the scored episodes of training tasks of `run`, drawn by `seed`.

    `level` is one of `quintain.data.labels.LEVELS`.

    Raises:
        DataError: several seats played, or the run has no tokenizer.
    """
    tasks = comparable_episodes(run)
    write = chat_writer(run, is_compared=True)
    pairs = draw_pairs(list(tasks.values()), seed=seed)

    def sides_of(names: Names) -> list[Trajectory]:
        sides = [refuse_seats(run, run.episode(name)) for name in names]
        return until_parted(*sides) if level == "step" else sides

    if (first := next(chain.from_iterable(tasks.values()), None)) is not None:
        refuse_seats(run, run.episode(first))
    for names in pairs if order is None else order(pairs, sides_of):
        sides = sides_of(names)
        records = [hide_judgement(write(side), as_text(side.final_observation)) for side in sides]
        if records and records[0]["messages"] != records[1]["messages"]:
            yield Query.of(records[0], records[1], names)


def comparable_episodes(run: Run) -> dict[tuple[str, str], list[str]]:
    """Return the ids of the scored episodes of `run` by environment and training task, in order of arrival."""
    found: dict[tuple[str, str], list[str]] = {}
    superseded, last = set(run.read_superseded()), 0
    while rows := run.read_facts(last, AT_ONCE):
        last = rows[-1][0]
        for row in rows:
            fact = dict(zip(FACTS, row, strict=True))
            is_kept = fact["split"] == "train" and fact["failure"] is None and fact["num_turns"]
            if is_kept and fact["row"] not in superseded and type(fact["id"]) is bytes:
                found.setdefault((fact["environment"], fact["task"]), []).append(fact["id"].hex())
    return found


def refuse_seats(run: Run, trajectory: Trajectory) -> Trajectory:
    """Return an episode that one seat played.

    Raises:
        DataError: several did.
    """
    if len(speakers(trajectory)) != 1:
        raise DataError(
            f"episodes of {run.folder}: got {trajectory.id} with several seats; compare runs of one seat"
        )
    return trajectory


def until_parted(one: Trajectory, other: Trajectory) -> list[Trajectory]:
    """Return both episodes up to the turn in which they part; none where they were shown different things there."""
    turn = num_shared(Pair(chosen=one, rejected=other, level="turn"))
    sides = [
        replace(side, turns=side.turns[: turn + 1], final_observation=find_seen(side, turn))
        for side in (one, other)
    ]
    shown = [side.turns[turn].prompt_ids if turn < len(side.turns) else None for side in sides]
    return sides if shown[0] is not None and shown[0] == shown[1] else []


def find_seen(side: Trajectory, turn: int) -> tuple[Content, ...]:
    """Return what was seen after `turn` of `side`."""
    return side.turns[turn + 1].observation if turn + 1 < len(side.turns) else side.final_observation


def hide_judgement(record: Mapping[str, Any], end: str = "") -> dict[str, Any]:
    """Return a conversation with its `end`, without what it was worth, which whoever compares is not to know.

    Raises:
        DataError: the run has no tokenizer, so that its episodes cannot be read.
    """
    if not record:
        raise DataError(
            "episodes to compare: got a run without a tokenizer; give one that was trained or collected"
        )
    found = {key: record[key] for key in ("messages", "tools", "task") if key in record}
    return {**found, **({"end": end} if end else {})}


def chat_writer(
    run: Run, *, is_compared: bool = False, environment: str = ""
) -> Callable[[Trajectory], Mapping[str, Any]]:
    """Return what writes an episode of `run` as messages; {} of several seats, and of a run without a tokenizer.

    `environment` is that of a run that did not record what it tells; see `openings_in`.

    `is_compared` as `quintain.data.messages.to_record` has it.
    """
    if not any((run.folder / name).is_dir() for name in TOKENIZERS):
        return lambda _: {}
    decode, told = Chat(tokenizer_of(run.folder)).text, openings_in(run, environment)

    def write(trajectory: Trajectory) -> Mapping[str, Any]:
        if len(speakers(trajectory)) != 1:
            return {}
        found = None if is_compared else messages.find_conversation(trajectory)
        if found is not None:
            return found[0]
        return messages.to_record(trajectory, decode, told=told(trajectory), is_compared=is_compared)

    return write
