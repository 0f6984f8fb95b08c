"""Rewards learned of comparisons, whoever answers; a run that waited for people goes on as if it had not."""

import json
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import quintain
from quintain.api import resume
from quintain.data.labels import Choice, read_labels
from quintain.errors import ConfigError, DataError
from quintain.learning.labelling import FILE, Session
from quintain.methods.rlhf.comparing import (
    TERM,
    LearnedReward,
    Segment,
    correlation,
    draw_segments,
    pay_turns,
    split_turns,
)
from quintain.methods.rlhf.human_preferences import Config, decaying, method
from quintain.store.run import Run
from quintain.types import Group, Score, Trajectory, as_text

SMALL: dict[str, Any] = {
    "environment": "sokoban?size=3&walls=0&reward=dense", "model": "micro", "demonstrations": 16,
    "imitation_epochs": 1, "episodes": 6, "steps": 3, "eval_every": 3, "eval_episodes": 2, "num_labels": 12,
    "first_labels": 6, "segment": 2, "members": 2, "reward_epochs": 2, "candidates": 2,
}  # fmt: skip


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def weights(run: Path) -> dict[int, str]:
    with Run.open(run, writable=False) as opened:
        return opened.weights()


def again_from(run: Path) -> dict[str, Any]:
    """Return the settings of a run that begins as `run` began, without imitating anything anew."""
    return SMALL | {"model": str(run / "start"), "demonstrations": 0}


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose questions were answered by the environment's rewards."""
    torch.set_num_threads(1)
    return quintain.train("human_preferences", run="hp", root=tmp_path_factory.mktemp("runs"), **SMALL)


@pytest.mark.slow
def test_questions_are_asked_step_by_step_and_answered(answered: Path) -> None:
    labels = read_labels(answered / FILE)
    notes = [query.note for query in labels.queries.values()]
    assert [notes.count(f"step {step}") for step in (1, 2, 3)] == [6, 3, 3]
    assert {label.labeller for label in labels.given} == {"synthetic"} and len(labels.given) == 12
    found = rows(answered)
    assert [row.get("labels/used") for row in found] == [None, 6, 9, 12]
    assert all(row["reward_model/loss"] > 0 and "reward/learned" in row for row in found[1:])
    with Run.open(answered, writable=False) as run:
        for query in labels.queries.values():
            for source, side in zip(query.sources, (query.first, query.second), strict=True):
                step, index, turns, group = source.split("/", 3)
                start, end = map(int, turns.split("-"))
                (played,) = [
                    t for t in run.trajectories(step=int(step), phase="train")
                    if (t.index, t.group) == (int(index), group)
                ]  # fmt: skip
                own = played.turns[start:end]
                assert end - start == 2
                said = [m["content"].strip() for m in side["messages"] if m["role"] == "assistant"]
                assert said == [turn.action.text.strip() for turn in own]
        assert all(TERM not in turn.reward_terms for t in run.trajectories() for turn in t.turns), "as played"


@pytest.mark.slow
def test_answers_of_a_file_lead_to_the_same_weights(answered: Path, tmp_path: Path) -> None:
    file = Path(shutil.copy(answered / FILE, tmp_path / "given.jsonl"))
    again = quintain.train(
        "human_preferences", run="file", root=tmp_path, labels=str(file), **again_from(answered)
    )
    assert weights(again) == weights(answered)
    assert not (again / FILE).exists() and len(read_labels(file).given) == 12, "nothing was asked anew"


@pytest.mark.slow
def test_a_run_waits_for_people_and_goes_on_where_it_was(answered: Path, tmp_path: Path) -> None:
    run = tmp_path / "ask"
    with pytest.raises(
        DataError, match=r"labels of step 1 in .*labels.jsonl: got 0 of 6 within .*quintain resume"
    ):
        quintain.train(
            "human_preferences", run="ask", root=tmp_path, labels="ask", label_hours=1e-7,
            **again_from(answered),
        )  # fmt: skip
    known = read_labels(answered / FILE)
    choices: dict[str, Choice] = {label.query: label.choice for label in known.given}
    person = Session(run / FILE, "ann")
    asked = person.labels.open_queries("ann")
    assert [query.id for query in asked] == list(known.queries)[:6]
    config = json.loads((run / "config.json").read_text())
    config["config"]["label_hours"] = 1.0
    (run / "config.json").write_text(json.dumps(config))
    stop = threading.Event()

    def answer() -> None:
        while not stop.is_set():
            query = person.next()
            if query is None:
                time.sleep(0.02)
            else:
                person.answer(query.id, choices[query.id])

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        resume(run, trust_run=True, accept_changes=True)
    finally:
        stop.set()
        thread.join(10)
    assert weights(run) == weights(answered)
    assert {label.labeller for label in read_labels(run / FILE).given} == {"ann"}


def episode(rewards: list[float], index: int, like: Trajectory) -> Trajectory:
    turns = tuple(
        replace(like.turns[0], reward=reward, starts_segment=not k) for k, reward in enumerate(rewards)
    )
    return replace(like, turns=turns, index=index, group="g")


@pytest.fixture
def like(answered: Path) -> Trajectory:
    with Run.open(answered, writable=False) as run:
        return next(iter(run.trajectories(step=1, phase="train")))


@pytest.mark.slow
def test_segments_have_the_same_number_of_turns(like: Trajectory) -> None:
    episodes = [episode([1.0, 2.0, 4.0], 0, like), episode([8.0], 1, like), episode([16.0, 32.0], 2, like)]
    rng = np.random.default_rng(0)
    both = list(zip((1, 1, 2), episodes, strict=True))
    drawn = [side for pair in draw_segments(both, size=2, count=40, rng=rng) for side in pair]
    assert {side.source for side in drawn} == {"1/0/0-2/g", "1/0/1-3/g", "2/2/0-2/g"}
    assert {side.reward for side in drawn} == {3.0, 6.0, 48.0}
    assert all(len(side.turns.turns) == 2 for side in drawn)
    first = Segment(episodes[0], 0, 1, 1).turns
    assert as_text(first.final_observation) == as_text(like.turns[0].observation), "what was seen next"
    with pytest.raises(DataError, match=r"segments of 4 turns: got 3 episodes of at most 3; lower segment"):
        draw_segments(both, size=4, count=1, rng=rng)
    assert all(turn.starts_segment for turn in split_turns(episodes[0]).turns)


def test_turns_are_paid_and_success_stays(like: Trajectory) -> None:
    won = replace(episode([0.0, 0.0], 0, like), outcome=Score(value=1.0, is_success=True))
    paid = pay_turns(won, [0.5, -2.0])
    assert [turn.reward for turn in paid.turns] == [0.5, -2.0]
    assert paid.outcome == Score(value=-1.5, is_success=True)
    assert paid.turns[1].reward_terms[TERM] == -2.0
    before, after = (
        [Group(task=like.task, trajectories=(episode(each, 0, like),))]
        for each in ([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    )
    assert correlation(before, after) == {"reward_model/correlation": pytest.approx(1.0)}
    assert correlation(before, [Group(task=like.task, trajectories=(episode([1.0] * 3, 0, like),))]) == {}


def test_labels_come_ever_more_slowly() -> None:
    asked = decaying(100, first=25, steps=10)
    assert [asked(step) for step in range(1, 12)] == [25, 22, 13, 10, 7, 6, 5, 4, 4, 4, 0]
    assert [decaying(9, first=3, steps=1)(step) for step in (1, 2)] == [9, 0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"members": 1}, "members: got 1, which cannot disagree"),
        ({"first_labels": 13}, "first_labels: got 13 of num_labels 12 in all"),
        ({"lora_rank": 4}, "lora_rank: got 4, and reward models"),
        ({"environment": "twocards"}, "whose turns cannot be compared"),
        ({"segment": 60}, "lower segment"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path: Path, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises((ConfigError, DataError), match=said):
        quintain.train("human_preferences", run="x", root=tmp_path, **{**SMALL, **wrong})


def test_a_reward_model_may_read_the_history() -> None:
    compared = method(Config(sees_history=True, members=4)).companion
    assert isinstance(compared, LearnedReward) and compared.sees_history
    assert compared.members == ("reward_1", "reward_2", "reward_3", "reward_4")
