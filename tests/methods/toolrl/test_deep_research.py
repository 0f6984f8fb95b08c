"""Agent models: rates by hand on scripted episodes, what a look costs, plans that are edited, and the experiment."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.build import shorten_corpus

from quintain.environments.protocol import advance, begin
from quintain.methods.toolrl import deep_research
from quintain.store.run import Run
from quintain.types import Action, Completion, Group, Score, Stop, Trajectory, Turn
from quintain.worlds.stream.game import Stream

Script = Callable[[Stream, int], str]


def scripted(script: Script, *, count: int = 200) -> tuple[list[Trajectory], list[bool]]:
    """Return episodes of `script` (world, turn → text), and which of their questions were told with the answer."""
    world = Stream(facts=1, closed_book=0.5, decoys=1)
    found: list[Trajectory] = []
    closed: list[bool] = []
    for index in range(count):
        task = world.task("train", index)
        begin(world, task)
        closed.append(not world.needs_reading())
        turns: list[Turn] = []
        is_over = is_success = False
        while not is_over:
            action = Action(text=script(world, len(turns)))
            result = advance(world, action)
            is_over, is_success = result.is_terminated, bool(result.is_success)
            turns.append(
                Turn(
                    observation=(), prompt_ids=(1,), action=action, reward=result.reward,
                    completion=Completion(token_ids=(2,), logprobs=(0.0,), stop="stop"),
                    reward_terms=dict(result.reward_terms),
                )
            )  # fmt: skip
        found.append(
            Trajectory(
                task=task, turns=tuple(turns), stop=Stop.TERMINATED, seed=0, group=task.id, index=0,
                outcome=Score(value=sum(turn.reward for turn in turns), is_success=is_success),
            )
        )  # fmt: skip
    return found, closed


def expert(world: Stream, _turn: int) -> str:
    return world.expert_action().text


def test_who_looks_where_it_must_has_no_needless_and_no_missed_look() -> None:
    episodes, closed = scripted(expert)
    found = deep_research.boundary(episodes)
    assert found["boundary/needless"] == found["boundary/missed"] == 0
    pages = sum(len(t.turns) - 1 for t in episodes)
    assert found["productivity/looks"] == pytest.approx(pages / 200)
    assert found["productivity/per_look"] == pytest.approx((200 - sum(closed)) / pages)


def test_who_always_looks_once_more_is_needless_wherever_it_was_told() -> None:
    episodes, closed = scripted(lambda world, turn: "read" if not turn else expert(world, turn))
    found = deep_research.boundary(episodes)
    assert 60 < sum(closed) < 140
    assert found["boundary/needless"] == 1 and found["boundary/missed"] == 0


def test_who_never_looks_misses_what_is_open() -> None:
    episodes, closed = scripted(
        lambda world, _: expert(world, 0) if not world.needs_reading() else "answer -1"
    )
    found = deep_research.boundary(episodes)
    assert found["boundary/needless"] == 0 and found["boundary/missed"] == 1
    assert found["productivity/looks"] == found["productivity/per_look"] == 0
    half = episodes[: closed.index(False)]
    assert deep_research.boundary(half)["boundary/missed"] == 0 and deep_research.boundary([]) == {}


def test_a_look_costs_what_is_said() -> None:
    episode = next(t for t in scripted(expert, count=30)[0] if len(t.turns) == 3 and t.is_success)
    groups = [Group(task=episode.task, trajectories=(episode,))]
    paid = [
        deep_research.method(deep_research.Config(look_cost=cost)).reward(groups)[0].trajectories[0].outcome
        for cost in (0.0, 0.1)
    ]
    assert [round(o.value, 6) for o in paid if isinstance(o, Score)] == [0.96, 0.76]


def test_a_short_run_on_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_corpus(monkeypatch)
    torch.set_num_threads(1)
    settings: dict[str, Any] = {
        "environment": "research?depth=1&kinds=1&asked=1&known=0.5", "model": "micro", "demonstrations": 8, "steps": 2,
        "eval_every": 2, "eval_episodes": 2, "tasks": 2, "group_size": 2, "max_turn_tokens": 24, "look_cost": 0.01,
    }  # fmt: skip
    config = deep_research.Config(**settings)
    with Run.create(tmp_path / "run", recipe="deep_research", config=asdict(config)) as run:
        deep_research.method(config).train(run, config)
        rows = run.metrics()
    assert {"boundary/needless", "boundary/missed", "productivity/looks", "reward/looking"} <= rows[-1].keys()
