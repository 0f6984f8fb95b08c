"""Practice writes any text into a list that stays sound, by groups that differ, whatever their rewards are."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.build import make_episode, make_turn
from tests.methods.test_training import rows, train

from quintain.agents.experienced import HEAD, Experienced, notes_text
from quintain.memory.bank import Bank, Entry
from quintain.memory.edits import replay_edits
from quintain.methods.agents import practice
from quintain.methods.agents.practice import EVENT, propose
from quintain.runs.collector import Collector
from quintain.store.run import Run
from quintain.types import Action, Group, Score, Split


def group(*rewards: float, split: Split = "train") -> Group:
    made = [
        replace(
            make_episode(
                make_turn(logprob=None, shows="Open it", action=Action(text=f"try {k}"), reward=reward),
                task="a", outcome=Score(value=reward, is_success=reward > 0), group="a", index=k,
            ),
        )
        for k, reward in enumerate(rewards)
    ]  # fmt: skip
    task = replace(made[0].task, split=split)
    return Group(task=task, trajectories=tuple(replace(t, task=task) for t in made))


def find_questions(*groups: Group) -> list[str]:
    seen: list[str] = []

    def write(questions: Sequence[str]) -> list[str]:
        seen.extend(questions)
        return ["add: try first"] * len(questions)

    propose(groups, Bank(), write)
    return seen


def test_groups_that_differ_are_contrasted_whatever_their_range() -> None:
    assert len(find_questions(group(1, 0, 0, 1, 0))) == 1
    assert find_questions(group(1, 1, 1), group(0, 0, 0)) == []
    assert len(find_questions(group(-1, 0.5, -1))) == 1, "a mean below 0 is as good as any"
    assert find_questions(group(1, 0, split="eval")) == []


def test_the_question_has_the_list_and_what_each_attempt_earned() -> None:
    notes = Bank([Entry(id="3", key="Look first.", text="Look first.")])
    text = practice.contrast_text(group(1, 0), notes)
    assert text.startswith(
        f"{HEAD}\n[3] Look first.\n\nAttempt 1, which earned 1:\nObservation: Open it\nAction: try 0"
    )
    assert "Attempt 2, which earned 0:" in text and notes_text(Bank()) == ""


def test_a_resumed_run_has_its_list_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(_self: Collector, _told: str, questions: Sequence[str], *, seed: int) -> list[str]:
        return [f"add: note {seed % 97}" for _ in questions]

    monkeypatch.setattr(Collector, "ask", answer)
    monkeypatch.setattr(practice, "differs", lambda _: True)
    sizes = {"tasks": 2, "group_size": 2, "environment": "guess"}
    whole = train("practice", tmp_path / "whole", steps=2, **sizes)
    part = train("practice", tmp_path / "part", steps=1, **sizes)
    with Run.open(part) as run:
        assert len(replay_edits(run, EVENT, 12)) == 1
    assert (part / "notes.jsonl").read_text() != (whole / "notes.jsonl").read_text()
    with Run.open(whole) as run:
        assert len(replay_edits(run, EVENT, 12)) == 2 and len(replay_edits(run, EVENT, 12, before=2)) == 1
        assert len({*run.weights().values()}) == 1, "no weight changed"
    assert [row.get("practice/experiences") for row in rows(whole)][-2:] == [1.0, 2.0]
    told = Experienced(None, notes=str(whole / "notes.jsonl"))  # pyright: ignore[reportArgumentType]
    assert told.bank is not None and len(told.bank) == 2 and told.bank.is_frozen
