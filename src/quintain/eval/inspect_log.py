"""Logs of inspect-ai, the framework of the UK AI Security Institute: ours as theirs, and theirs as episodes.

A sample is a task, an epoch one of its trials. A sample with an error is an episode that broke, and in no rate. Of what
a scorer says, C is 1, P a half, I and N are 0; a number is itself; solved is what scores 1 or more. For the logs of
inspect-ai 0.3 (version 2), as JSON.
"""

import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from quintain.errors import DataError
from quintain.eval.evaluate import evaluate
from quintain.types import (
    Action,
    Completion,
    Failure,
    Score,
    Stop,
    Task,
    Text,
    Trajectory,
    Turn,
    as_text,
    derive_seed,
)
from quintain.types.json_text import load_json

VERSION = 2
SUCCESS, RETURN = "success", "return"
"""Scorers of a log that was written here."""
LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
MOST_BYTES = 1 << 30


def write_log(trajectories: Sequence[Trajectory], place: Path, *, model: str, created: str) -> None:
    """Write `trajectories` as the log of an evaluation of `model`, begun at `created` (ISO 8601 with its zone).

    Raises:
        DataError: there are none.
    """
    if not trajectories:
        raise DataError("inspect log: got no episode; write a run that has been evaluated")
    scored = [t for t in trajectories if isinstance(t.outcome, Score)]
    found = evaluate(trajectories).success if scored else 0.0
    worlds = list(dict.fromkeys(t.task.environment for t in trajectories))
    ids = list(dict.fromkeys(t.task.id for t in trajectories))
    scorers = [{"name": name, "metrics": [{"name": "accuracy", "options": {}}]} for name in (SUCCESS, RETURN)]
    means = {SUCCESS: found, RETURN: sum(_value(t) for t in scored) / max(1, len(scored))}
    log = {
        "version": VERSION,
        "status": "success",
        "eval": {
            "created": created,
            "task": ", ".join(worlds),
            "task_id": f"{derive_seed(created, *ids):x}",
            "run_id": f"{derive_seed(created, model):x}",
            "task_version": 0,
            "dataset": {"name": worlds[0], "samples": len(ids), "sample_ids": ids, "shuffled": False},
            "model": model,
            "config": {"epochs": max(t.index for t in trajectories) + 1},
            "packages": {},
            "scorers": scorers,
        },
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": {
            "total_samples": len(trajectories),
            "completed_samples": len(scored),
            "scores": [
                {
                    "name": name, "scorer": name, "params": {},
                    "metrics": {"accuracy": {"name": "accuracy", "value": value, "params": {}}},
                }
                for name, value in means.items()
            ],
        },
        "stats": {"started_at": created, "completed_at": created, "model_usage": {}},
        "samples": [_sample(t, model, number) for t, number in _with_epochs(trajectories)],
    }  # fmt: skip
    place.write_text(json.dumps(log, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read_log(place: Path, *, scorer: str = "") -> list[Trajectory]:
    """Return the episodes of the log `place`, each without its tokens; solved is what `scorer`, or the first one, says.

    Raises:
        DataError: it is no such log, of another version, holds no samples, or has no scorer of that name.
    """
    header, samples = _load(place)
    if header.get("version") != VERSION:
        raise DataError(
            f"inspect log {place}: got version {header.get('version')!r}; write it with inspect-ai 0.3 "
            f"(version {VERSION})"
        )
    if not samples:
        raise DataError(f"inspect log {place}: got no samples; evaluate with --log-samples")
    said = header.get("eval")
    about = cast("Mapping[str, Any]", said) if isinstance(said, dict) else {}
    try:
        return [
            _episode(sample, str(about.get("task", "")), str(about.get("model", "")), scorer)
            for sample in samples
        ]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, DataError):
            raise DataError(f"inspect log {place}: {error}") from error
        raise DataError(
            f"inspect log {place}: got a sample of another form ({error!r}); write it anew"
        ) from error


def _load(place: Path) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """Return what the log `place` says of itself, and its samples."""
    try:
        if place.stat().st_size > MOST_BYTES:
            raise DataError(f"inspect log {place}: got more than {MOST_BYTES >> 20} MiB; filter its samples")
        if zipfile.is_zipfile(place):
            raise DataError(
                f"inspect log {place}: got the form .eval; inspect log convert {place} --to json --output-dir FOLDER"
            )
        loaded: object = load_json(place.read_text("utf-8"))
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"inspect log {place}: got a file that cannot be read: {error}") from error
    if not isinstance(loaded, dict):
        raise DataError(f"inspect log {place}: got no object; name a log that inspect-ai wrote")
    header = cast("Mapping[str, Any]", loaded)
    found = header.get("samples")
    return header, cast("list[Mapping[str, Any]]", found) if isinstance(found, list) else []


def _with_epochs(trajectories: Sequence[Trajectory]) -> Iterable[tuple[Trajectory, int]]:
    """Yield each episode with which one of its task it is, from 1 on."""
    counts: dict[str, int] = {}
    for trajectory in trajectories:
        counts[trajectory.task.id] = counts.get(trajectory.task.id, 0) + 1
        yield trajectory, counts[trajectory.task.id]


def _value(trajectory: Trajectory) -> float:
    """Return what a scored episode was worth."""
    assert isinstance(trajectory.outcome, Score), "scored ones alone are asked for"
    return trajectory.outcome.value


def _sample(trajectory: Trajectory, model: str, epoch: int) -> dict[str, Any]:
    """Return an episode as a sample."""
    messages = [
        message for number, turn in enumerate(trajectory.turns) for message in _messages(turn, number)
    ]
    said = messages[-1] if messages else {"role": "assistant", "content": ""}
    sampled, read = trajectory.num_sampled, sum(len(turn.prompt_ids) for turn in trajectory.turns)
    usage = {"input_tokens": read, "output_tokens": sampled, "total_tokens": read + sampled}
    outcome = trajectory.outcome
    sample = {
        "id": trajectory.task.id,
        "epoch": epoch,
        "input": as_text(trajectory.turns[0].observation) if trajectory.turns else "",
        "target": "",
        "messages": messages,
        "output": {"model": model, "choices": [{"message": said, "stop_reason": "stop"}], "usage": usage},
        "scores": {},
        "metadata": {
            "environment": trajectory.task.environment,
            "split": trajectory.task.split,
            "seed": trajectory.task.seed,
            "tags": sorted(trajectory.task.tags),
            "data": dict(trajectory.task.data),
            "stop": trajectory.stop.value,
        },
        "model_usage": {model: usage},
        "total_time": trajectory.seconds,
        "uuid": trajectory.id or f"{derive_seed(trajectory.task.id, epoch):x}",
    }
    if isinstance(outcome, Failure):
        text = f"{outcome.owner}/{outcome.kind}: {outcome.message}"
        return {**sample, "error": {"message": text, "traceback": text, "traceback_ansi": text}}
    scores = {SUCCESS: {"value": int(outcome.is_success)}, RETURN: {"value": outcome.value}}
    return {**sample, "scores": scores}


def _messages(turn: Turn, number: int) -> list[dict[str, Any]]:
    """Return a turn as what was shown and what was said."""
    calls = [
        {
            "id": f"{number}-{place}",
            "type": "function",
            "function": call.name,
            "arguments": dict(call.arguments),
        }
        for place, call in enumerate(turn.action.tool_calls)
    ]
    said: dict[str, Any] = {"role": "assistant", "content": turn.action.text}
    return [
        {"role": "user", "content": as_text(turn.observation)},
        {**said, **({"tool_calls": calls} if calls else {})},
    ]


def _episode(sample: Mapping[str, Any], world: str, model: str, scorer: str) -> Trajectory:
    """Return a sample as an episode: one turn without tokens, its outcome, its time."""
    about = sample.get("metadata") or {}
    own = about if {"environment", "split", "seed", "tags", "data"} <= about.keys() else {}
    name = str(sample["id"])
    task = Task(
        id=name if own else f"{world}/{name}",
        environment=own.get("environment", world),
        seed=int(own.get("seed", derive_seed(world, name))),
        split="eval",
        data=own.get("data", {}),
        tags=frozenset(own.get("tags", ())),
    )
    words = (
        sample["input"]
        if isinstance(sample["input"], str)
        else json.dumps(sample["input"], ensure_ascii=False)
    )
    choices = (sample.get("output") or {}).get("choices") or [{}]
    said = (choices[0].get("message") or {}).get("content", "")
    turn = Turn(
        observation=(Text(text=words),),
        prompt_ids=(),
        completion=Completion(token_ids=(), logprobs=(), stop="stop", policy=model),
        action=Action(text=said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)),
    )
    error = sample.get("error")
    return Trajectory(
        task=task,
        turns=(turn,),
        outcome=Failure(owner="environment", kind="inspect", message=str(error["message"])[:400])
        if error
        else _outcome(sample.get("scores") or {}, name, scorer),
        stop=Stop.FAILURE if error else Stop.TERMINATED,
        seed=0,
        group=task.id,
        index=int(sample["epoch"]) - 1,
        seconds=float(sample.get("total_time") or 0.0),
    )


def _outcome(scores: Mapping[str, Any], name: str, scorer: str) -> Score:
    """Return what the `scorer`, or the first one, says of the sample `name`."""
    if not scores or (scorer and scorer not in scores):
        raise DataError(
            f"sample {name}: got scores by {', '.join(scores) or 'nobody'}; score it, or name one of them"
        )
    value = scores[scorer or next(iter(scores))]["value"]
    number = LETTERS.get(value) if isinstance(value, str) else value
    if not isinstance(number, (int, float)):
        raise DataError(
            f"sample {name}: got the score {value!r:.60}; take a scorer that gives C, I, P, N or a number"
        )
    total = scores.get(RETURN, {}).get("value") if SUCCESS in scores else number
    return Score(value=float(number if total is None else total), is_success=number >= 1)
