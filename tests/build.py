"""Nouns that tests are made of, each with what most tests do not care about, and the corpus that they shorten."""

from collections.abc import Sequence
from typing import Any

import pytest

from quintain.types import (
    Action,
    Completion,
    Group,
    Observation,
    Outcome,
    Score,
    Stop,
    Task,
    Trajectory,
    Turn,
    as_content,
)

SOLVED = Score(value=1.0, is_success=True)


def make_turn(
    sampled: Sequence[int] = (2,),
    *,
    prompt: Sequence[int] = (1,),
    logprob: float | None = -0.5,
    shows: Observation = (),
    text: str = "",
    **fields: Any,
) -> Turn:
    """Return a turn in which `sampled` follows `prompt`, each token with the same `logprob`; None: none is known."""
    logprobs = () if logprob is None else (logprob,) * len(sampled)
    given: dict[str, Any] = {
        "completion": Completion(token_ids=tuple(sampled), logprobs=logprobs, stop="stop"),
        "action": Action(text=text),
        **fields,
    }
    return Turn(observation=as_content(shows), prompt_ids=tuple(prompt), **given)


def make_episode(
    *turns: Turn,
    task: Task | str = "t",
    outcome: Outcome = SOLVED,
    stop: Stop = Stop.TERMINATED,
    group: str = "g",
    index: int = 0,
    seed: int = 0,
    **fields: Any,
) -> Trajectory:
    """Return an episode of `turns`, of the task with that name or of the one that is given."""
    return Trajectory(
        task=task if isinstance(task, Task) else Task(id=task, environment="e", seed=0),
        turns=turns,
        outcome=outcome,
        stop=stop,
        group=group,
        index=index,
        seed=seed,
        **fields,
    )


def make_group(*episodes: Trajectory) -> Group:
    """Return the group of `episodes`, which are of one task."""
    return Group(task=episodes[0].task, trajectories=episodes)


def make_path(task: str, ways: Sequence[int], *, stop: Stop = Stop.CUT, index: int = 0) -> Trajectory:
    """Return an episode that takes `ways`, whose states show the ways to them; one that terminated is solved."""
    turns = tuple(
        make_turn((way,), logprob=-1.0, shows="".join(map(str, ways[:number])), text=str(way))
        for number, way in enumerate(ways)
    )
    is_solved = stop is Stop.TERMINATED
    return make_episode(
        *turns,
        task=Task(id=task, environment="sokoban", seed=0),
        outcome=Score(value=float(is_solved), is_success=is_solved),
        stop=stop,
        group=f"0:{task}",
        index=index,
        final_observation=as_content("".join(map(str, ways))),
    )


def shorten_corpus(monkeypatch: pytest.MonkeyPatch, num_episodes: int = 4) -> None:
    """Let tiny tokenizers be trained on what `num_episodes` episodes write."""
    monkeypatch.setattr("quintain.warm_start.corpus.NUM_EPISODES", num_episodes)
