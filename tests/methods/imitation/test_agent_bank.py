"""AgentBank: what is forced, what counts, what is said too early, and how far difficulties are apart."""

import random
from collections.abc import Callable
from dataclasses import replace
from math import log
from typing import Any

import pytest

from quintain.data.pipeline import as_example
from quintain.errors import DataError
from quintain.methods.imitation import agent_bank
from quintain.types import Trajectory

Make = Callable[..., Trajectory]


def test_only_what_was_never_solved_is_forced(trajectory: Make) -> None:
    tried = [trajectory([((1,), (2,))], value=v, task=t) for t, v in (("a", 0.0), ("a", 1.0), ("b", 0.0))]
    shown = [trajectory([((1,), (3,))], task=t) for t in ("a", "b", "c")]
    assert [t.task.id for t in agent_bank.needed(tried, shown)] == ["b", "c"]


def test_teachers_are_told_apart_by_their_index(trajectory: Make, shows: Any) -> None:
    solved, failed = (trajectory([((1,), (2,))], ["x"], value=v, task=str(v)) for v in (1.0, 0.0))
    forced = [replace(trajectory([((1,), (3,))], ["x"], task=t), index=2) for t in ("1.0", "0.0")]
    collector = shows([solved, replace(failed, index=1), *forced])
    config = agent_bank.Config(tries=2)
    made = agent_bank.method(config).data(collector)
    assert [e.trajectory for e in made.examples] == [solved, forced[1]]  # type: ignore[union-attr]
    assert [len(teachers) for teachers in collector.teachers] == [3]
    plain = shows([solved, failed])
    agent_bank.method(replace(config, demonstrations="chats.jsonl")).data(plain)
    assert plain.teachers == [()]


def test_turns_that_the_expert_would_not_have_taken_do_not_count(trajectory: Make) -> None:
    made = trajectory([((1,), (2, 3)), ((4,), (5,))])
    (example,) = agent_bank.pipeline(lambda _: [0.0, 1.0], lambda _: False).run([as_example(made)]).examples
    assert example.weights is not None
    assert [w.tolist() for w in example.weights] == [[0.0, 0.0], [1.0]]
    assert not agent_bank.pipeline(lambda _: [1.0, 1.0], lambda _: True).run([as_example(made)]).examples


def test_planted_leaks_are_found_and_nothing_else() -> None:
    rng = random.Random(0)
    for _ in range(200):
        gold = str(rng.randint(10, 99))
        clean = [(f"page {gold}0 says", f"so {gold}1 or 1{gold}"), (f"it is {gold}.", f"thus {gold}")]
        assert not agent_bank.tells_early(clean, gold)
        leaked = [(clean[0][0], f"so ({gold}), surely"), clean[1]]
        assert agent_bank.tells_early(leaked, gold)
    assert agent_bank.tells_early([("", "Small Red")], "small, red")
    assert not agent_bank.tells_early([("red; small", "red")], "small, red")
    assert not agent_bank.tells_early([("", "anything")], "")


def test_a_thought_that_names_the_answer_is_a_leak(trajectory: Make) -> None:
    made = trajectory([((1,), (2,)), ((3,), (4,))], ["read", "answer 7"])
    said = {2: "it must be 7: read", 4: "answer 7"}
    assert agent_bank.leaks(made, lambda ids: said[ids[0]])
    assert not agent_bank.leaks(made, lambda ids: {2: "read", 4: "answer 7"}[ids[0]])
    assert not agent_bank.leaks(replace(made, turns=()), lambda _: "")


def test_the_gap_is_the_divergence_of_what_is_shown() -> None:
    assert agent_bank.difficulty_gap([1, 1, 1, 2], [1, 1, 2, 2]) == pytest.approx(
        0.75 * log(1.5) + 0.25 * log(0.5)
    )
    assert agent_bank.difficulty_gap([1, 2], [2, 1, 1, 2]) == 0.0
    for shown in ([], [3]):
        with pytest.raises(DataError, match="difficulties"):
            agent_bank.difficulty_gap(shown, [1, 2])


def test_forced_episodes_come_from_the_environment(train: Any) -> None:
    rows = train(
        "agent_bank", environment="collab?slots=2&values=3", demonstrations=6, tries=2, teacher_mistakes=1.0
    )
    assert rows[-1]["data/solved"] >= 6
