"""Cases are told apart by whether they worked, read by what was learned of them, and never of the task itself."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.build import make_episode, make_turn

from quintain.agents.cased import CASES, LABELS, By, CaseMemory, case_words, load_cases
from quintain.errors import DataError, UsageError
from quintain.memory.retrieval import CaseValue, Label, kernel_values
from quintain.types import Action, Group, Score, Trajectory, as_text


def episode(task: str, begins: str, said: str, *, value: float = 1.0, split: str = "train") -> Trajectory:
    turn = make_turn(logprob=None, shows=begins, action=Action(text=said))
    made = make_episode(turn, task=task, outcome=Score(value=value, is_success=value > 0), group=task)
    return replace(made, task=replace(made.task, split=split))


def groups(*episodes: Trajectory) -> list[Group]:
    return [Group(task=t.task, trajectories=(t,)) for t in episodes]


def memory_of(*episodes: Trajectory, by: By = "likeness", count: int = 4) -> CaseMemory:
    memory = CaseMemory(by=by, count=count)
    memory.update(groups(*episodes))
    return memory


RED = episode("a", "Open red lamp", "click red")
BLUE = episode("b", "Open blue chair", "click green", value=0.0)


def test_solved_and_failed_cases_are_told_apart() -> None:
    memory = memory_of(RED, BLUE)
    reads = memory.read(episode("c", "Open", "x").task, "Open blue lamp")
    assert case_words(reads) == (
        "Cases like this one that were solved:\n- Open red lamp Done: click red\n"
        "Cases that were not solved:\n- Open blue chair Done: click green"
    )
    assert case_words([]) == ""


def test_a_task_reads_no_case_of_its_own_and_held_out_ones_leave_none() -> None:
    memory = memory_of(RED, BLUE)
    assert [read.entry.source for read in memory.read(RED.task, "Open red lamp")] == ["b"]
    before = memory.bank.digest()
    memory.update(groups(episode("d", "Open red lamp", "y", split="eval")))
    assert memory.bank.digest() == before and memory.labels == []


def test_all_cases_of_an_episode_share_its_outcome() -> None:
    memory = memory_of(RED, BLUE, by="value")
    told = memory.read(episode("c", "Open red bag", "z").task, "Open red bag")
    memory.update(groups(episode("c", "Open red bag", "z", value=0.0)))
    assert [label.outcome for label in memory.labels] == [0.0, 0.0]
    assert [(label.case, label.chance) for label in memory.labels] == [(r.entry, r.chance) for r in told]
    assert {label.query for label in memory.labels} == {"Open red bag"}


def test_who_is_told_the_same_episodes_reads_the_same() -> None:
    one, other = (memory_of(RED, BLUE, by="value", count=1) for _ in range(2))
    later = episode("c", "Open red bag", "z")
    for memory in (one, other):
        memory.update(groups(later))
    assert one.labels == other.labels and one.bank.digest() == other.bank.digest()
    task = episode("e", "x", "y").task
    assert one.read(task, "Open red box") == other.read(task, "Open red box")


def labels(outcome_of: dict[str, float], queries: Sequence[str]) -> list[Label]:
    cases = memory_of(RED, BLUE).bank.entries
    return [
        Label(query=query, case=case, chance=1.0, outcome=outcome_of[case.source])
        for query in queries
        for case in cases
    ]


def test_the_kernel_weighs_outcomes_under_queries_like_this_one() -> None:
    cases = memory_of(RED, BLUE, episode("c", "Sit", "sit")).bank.entries
    known = [
        Label(query="x", case=cases[0], chance=1.0, outcome=1.0),
        Label(query="y", case=cases[0], chance=1.0, outcome=0.0),
        Label(query="y", case=cases[1], chance=1.0, outcome=1.0),
    ]
    found = kernel_values("x", cases, known, like=lambda one, other: float(one == other), width=1.0)
    assert found == pytest.approx([1 / (1 + 2.718281828**-1), 1.0, 0.5])


def test_the_learned_value_prefers_the_case_that_worked() -> None:
    value = CaseValue()
    known = labels({"a": 1.0, "b": 0.0}, ["Open red bag", "Open blue bag"])
    assert value.fit(known) < 0.2
    red, blue = value.values("Open red bag", memory_of(RED, BLUE).bank.entries)
    assert red > 0.8 and blue < 0.2
    assert CaseValue().fit([]) == pytest.approx(0.6931, abs=1e-4) and value.values("x", ()) == []


def test_a_memory_is_read_again_as_it_was_written(tmp_path: Path) -> None:
    memory = memory_of(RED, BLUE, by="value")
    memory.update(groups(episode("c", "Open red bag", "z")))
    memory.save(tmp_path)
    again = load_cases(tmp_path, count=2, by="value")
    assert again.bank.digest() == memory.bank.digest() and again.labels == memory.labels
    assert again.rank("Open red bag", again.bank.entries) == memory.rank("Open red bag", memory.bank.entries)
    with pytest.raises(UsageError, match="frozen"):
        again.update(groups(RED))
    assert as_text(RED.turns[0].observation) in (tmp_path / CASES).read_text()
    (tmp_path / LABELS).write_text('{"query": 1}\n')
    with pytest.raises(DataError, match="labels of cases"):
        load_cases(tmp_path, count=2, by="value")
    with pytest.raises(DataError, match="bank"):
        load_cases(tmp_path / "none", count=2, by="value")
    with pytest.raises(UsageError, match="cases are read by: got 'luck'"):
        CaseMemory(by="luck")  # pyright: ignore[reportArgumentType]
