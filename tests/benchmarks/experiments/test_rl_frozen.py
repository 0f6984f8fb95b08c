"""Experiments on starts that rest: controls keep magnitudes, and null worlds are null."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from quintain.benchmarks.experiments.rl import coso, mt_grpo
from quintain.benchmarks.experiments.rl.frozen import frozen, of_turns
from quintain.credit.turn_group import turn_group_relative
from quintain.errors import DataError
from quintain.training.job import Job
from quintain.types import Action, Completion, Credit, Group, Score, Stop, Task, Trajectory, Turn, scored

JOB: dict[str, Any] = {"enough": 0.0, "most": 1.0, "imitation_epochs": 3}
MOVES = "sokoban?size=3&walls=0"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch.set_num_threads(1)
    monkeypatch.setattr("quintain.training.corpus.NUM_EPISODES", 2)
    monkeypatch.setattr("quintain.training.probe.NUM_PROBED", 6)
    yield


def episode(rewards: tuple[float, ...], index: int = 0, tokens: int = 2) -> Trajectory:
    """Return an episode whose turns were paid `rewards`, with ever more tokens."""
    turns = tuple(
        Turn(
            observation=(),
            prompt_ids=(1,),
            completion=Completion(
                token_ids=(7,) * (tokens + k), logprobs=(-0.5,) * (tokens + k), stop="stop"
            ),
            action=Action(text="x"),
            reward=reward,
        )
        for k, reward in enumerate(rewards)
    )
    return Trajectory(
        task=Task(id="t", environment="e", seed=0),
        turns=turns,
        outcome=Score(value=sum(rewards), is_success=rewards[-1] > 0),
        stop=Stop.TERMINATED,
        seed=index,
        group="g",
        index=index,
    )


def group(*episodes: Trajectory) -> Group:
    return Group(task=episodes[0].task, trajectories=episodes)


def firsts(credit: Credit) -> list[list[float]]:
    return [[float(array[0]) for array in arrays] for arrays in credit.advantages]


def test_what_a_search_earns_moves_to_the_answer() -> None:
    played = [group(episode((0.5, 0.5)), episode((0.0, 0.5), 1), episode((0.5, 0.0), 2), episode((0.0,), 3))]
    both, moved = firsts(turn_group_relative(played)), firsts(mt_grpo.misplaced(played))
    plain = firsts(turn_group_relative(played, weight=0.0))
    for own, other, outcome in zip(both[:3], moved[:3], plain[:3], strict=True):
        assert other[0] == pytest.approx(outcome[0]) and own[1] == pytest.approx(outcome[1])
        assert other[1] - outcome[1] == pytest.approx(own[0] - outcome[0])
    assert moved[3] == both[3], "an episode without a search has nothing to move"
    free = [mt_grpo.without_hits(played[0])]
    assert firsts(turn_group_relative(free)) == firsts(mt_grpo.misplaced(free))
    assert [t.outcome.value for t in scored(free)] == [0.5, 0.5, 0.0, 0.0]  # type: ignore[union-attr] # pyright: ignore


def test_episodes_of_more_turns_are_left_out() -> None:
    kept = of_turns([group(episode((0.0, 1.0)), episode((0.0, 0.0, 1.0), 1))], 2)
    assert [len(t.turns) for t in scored(kept)] == [2]
    assert of_turns([group(episode((0.0, 0.0, 1.0)))], 2) == []


def test_a_step_is_as_long_as_asked_and_is_taken_back(tmp_path: Path) -> None:
    job = Job(environment=MOVES, model="micro", demonstrations=16, imitation_epochs=3)
    with frozen(job, 1, enough=0.0, most=1.0, root=tmp_path) as start:
        (groups,) = start.batches(1, tasks=4, size=2)
        before = [p.detach().clone() for p in start.lab.parameters]
        way = torch.randn(start.lab.size, generator=torch.Generator().manual_seed(0))
        with coso.stepped(start.lab, way, groups, 0.01) as moved_by:
            assert moved_by == pytest.approx(0.01, rel=0.05)
        assert all(torch.equal(p, old) for p, old in zip(start.lab.parameters, before, strict=True))
        asked = coso.ask(groups, start, count=3)
        entropy, other = asked.entropy(start.lab)
        assert 0 < entropy <= np.log(len(asked.tails) + 1) and 0 <= other < 1
        unread = [
            replace(
                g,
                trajectories=tuple(
                    replace(t, turns=tuple(replace(u, action=Action(error="no")) for u in t.turns))
                    for t in g.scored
                ),
            )
            for g in groups
        ]
        with pytest.raises(DataError, match="got none that can be read"):
            coso.ask(unread, start, count=3)


def test_one_token_has_nowhere_to_give_its_weight(tmp_path: Path) -> None:
    options = {
        **JOB,
        "world": MOVES,
        "root": str(tmp_path),
        "demonstrations": 16,
        "contexts": 4,
        "tasks": 2,
        "known": 6,
    }
    (row,) = coso.arms(options, 2, coso.SHORT, 1)
    assert row["method"] == row["control"]
    assert row["extra.method_divergence"] == pytest.approx(0.01, rel=0.1)


def test_without_pay_for_searches_the_arms_are_the_same(tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    options = {
        **JOB,
        "world": "hopqa?hops=1&least_hops=1&distractors=1&hits=0.5",
        "root": str(tmp_path),
        "demonstrations": 24,
        "imitation_epochs": 10,
        "tasks": 2,
        "size": 3,
        "seeds": 2,
    }
    rows = mt_grpo.measure(options, 1)
    assert len(rows) == 2
    assert all(row["null_method"] == row["null_control"] for row in rows)
    assert all(-1 <= row[name] <= 1 for row in rows for name in ("method", "control"))
