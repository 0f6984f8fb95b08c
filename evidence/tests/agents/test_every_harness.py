"""Every harness solves a world with a scripted engine: what the expert's actions are written as acts as they did."""

from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest

from quintain.engines.protocol import Request
from quintain.engines.scripted import Scripted
from quintain.environments.catalog import find
from quintain.learning.train_config import TrainConfig
from quintain.rollout.collect import Rollout
from quintain.safety.isolation import find_fault
from quintain.types import Turn
from quintain.warm_start.start import harness, new_tokenizer, teacher
from quintain_evidence.world_trials import HARNESSES, World


@pytest.mark.parametrize("world", [pytest.param(world, id=world.name) for world in HARNESSES])
def test_it_solves_a_world(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    if world.name == "code" and (reason := find_fault()):
        pytest.skip(reason)
    monkeypatch.setattr("quintain.warm_start.corpus.NUM_EPISODES", 8)
    make = find(world.environment)
    tokenizer = new_tokenizer(make, seed=0)
    agent = harness(TrainConfig(agent=str(world.settings["agent"])), tokenizer, make)
    with closing(make()) as environment:
        tasks = [environment.task("eval", index) for index in range(3)]
    for task in tasks:
        with closing(Rollout(agent, make, None)) as rollout:
            ((shown,),) = (
                group.trajectories for group in rollout.demonstrations([task], teacher(make), seed=0)
            )
        turns = iter(shown.turns)
        engine = Scripted(partial(said, turns), tokenizer)
        with closing(Rollout(agent, make, engine)) as rollout:
            ((played,),) = (group.trajectories for group in rollout.groups([task], size=1, seed=0))
        assert next(turns, None) is None, "everything that was shown was asked for"
        assert played.is_success
        assert [(t.seat, t.prompt_ids, t.action) for t in played.turns] == [
            (t.seat, t.prompt_ids, t.action) for t in shown.turns
        ]


def said(turns: Iterator[Turn], request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
    """Return what was shown in answer to the same prompt."""
    turn = next(turns)
    assert request.prompt_ids == turn.prompt_ids
    assert stream[-len(turn.prompt_ids) :] == turn.prompt_ids
    return turn.completion.token_ids
