"""Experiments on own judgements, values of trees and hindsight: what controls keep; far shorter than registered."""

import random
from collections import Counter
from typing import Any

import pytest
import torch

from quintain.environments.noisy import noisy
from quintain.errors import UsageError
from quintain.methods.selftraining.self_rewarding import score_of
from quintain.testing.pupil import new_pupil, tasks_from
from quintain.types import as_text
from quintain.worlds.shop.stock import Wish
from quintain_evidence.experiments.selftraining import exif, rest_mcts, self_rewarding

SUMS: dict[str, Any] = {
    "world": "sums?digits=1", "seeds": 2, "tasks": 6, "reference": 4, "model": "micro?tokens=words",
    "demonstrations": 60, "updates": 40, "rate": 4e-3,
}  # fmt: skip
BOUGHT: dict[str, Any] = {
    "world": "shop?items=4&near=2", "episodes": 60, "model": "micro?tokens=words",
    "updates": 4, "rate": 5e-3, "held_out": 8, "block": 0, "null_blocks": 1,
}  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.warm_start.corpus.NUM_EPISODES", 6)
    torch.set_num_threads(1)


@pytest.mark.slow
def test_own_judgements_and_their_permutation_are_compared_batch_by_batch() -> None:
    rows = self_rewarding.measure(SUMS, 3)
    assert len(rows) == 2
    for row in rows:
        assert all(-1 <= row[name] <= 1 for name in ("method", "control", "null_method", "null_control"))
        assert 0 <= row["extra.agreement"] <= 1


@pytest.mark.slow
def test_judgements_are_permuted_within_a_task_and_answers_stay() -> None:
    pupil, _ = self_rewarding.taught(SUMS, 1, noisy(0.0))
    world = f"{SUMS['world']}&revisions=0"
    answers = self_rewarding.judged(pupil, world, pupil.play(world, tasks_from(world, 8), size=4, seed=1), 1)
    mixed = self_rewarding.permuted(answers, random.Random(0))
    texts = [[group.trajectories[0].turns[0].action.text for group in groups] for groups in (answers, mixed)]
    assert texts[0] == texts[1]
    for task in {group.task.id for group in answers}:
        scores = [Counter(score_of(g) for g in groups if g.task.id == task) for groups in (answers, mixed)]
        assert scores[0] == scores[1]
    assert [score_of(g) for g in answers] != [score_of(g) for g in mixed]


def test_a_teacher_who_judges_by_a_coin_answers_as_ever() -> None:
    pupil, _ = self_rewarding.taught({**SUMS, "updates": 1}, 1, noisy(0.0))
    world = str(SUMS["world"])
    shown = pupil.show(world, tasks_from(world, 40), self_rewarding.judging_at_random(), seed=0)
    verdicts = [turn for t in shown for turn in t.turns if turn.action.text in self_rewarding.VERDICTS]
    true = sum(turn.reward_terms["verdict"] for turn in verdicts) / len(verdicts)
    assert 0.3 < true < 0.7 and all(t.turns[0].is_answer for t in shown)


@pytest.mark.slow
def test_searches_are_told_apart_by_their_values_alone() -> None:
    options = {
        "world": "sokoban?size=4&walls=0&view=grid",
        "levels": 8,
        "states": 60,
        "taught": 120,
        "rounds": 2,
    }
    rows = rest_mcts.measure({**options, "seeds": 4}, 3)
    assert len(rows) == 4
    for row in rows:
        assert row["null_method"] == row["null_control"] == 1.0, (
            "one move from the end the first look decides"
        )
        assert row["extra.targets"] > 10 and row["extra.agreement"] > 0.5


def test_values_are_permuted_within_their_depth() -> None:
    world = "sokoban?size=4&walls=0&view=grid"
    targets = [
        target
        for task in rest_mcts.drawn(world, 1, 8)
        for target in rest_mcts.implied(rest_mcts.searched(world, task, rest_mcts.nothing, 120, 0))
    ]
    mixed = rest_mcts.permuted(targets, random.Random(0))
    assert [text for text, _ in mixed] == [seen.text for seen, _, _ in targets]
    depths = [depth for _, _, depth in targets]
    for depth in set(depths):
        own = [value for _, value, d in targets if d == depth]
        assert sorted(own) == sorted(v for (_, v), d in zip(mixed, depths, strict=True) if d == depth)
    assert [v for _, v in mixed] != [v for _, v, _ in targets]


@pytest.mark.slow
def test_wishes_are_permuted_and_what_was_done_stays() -> None:
    (row,) = exif.measure(BOUGHT, 3)
    assert row["null_method"] == row["null_control"], "all wishes are the same"
    assert row["extra.relabelled"] > 30 and row["extra.entropy"] > 1
    assert exif.measure({**BOUGHT, "block": 1}, 3)[0].keys().isdisjoint({"null_method", "extra.as_asked"})


def test_an_episode_under_another_wish_differs_in_its_first_prompt_alone() -> None:
    world = str(BOUGHT["world"])
    pupil = new_pupil([world], seed=0, model="micro?tokens=words")
    agent = exif.build_agent(pupil.tokenizer, exif.find(world), temperature=1.0)
    relabel = exif.hindsight(exif.find(world), agent)
    told = next(made for t in exif.explored(pupil, world, BOUGHT, 0) if (made := relabel(t)) is not None)
    own, other = told.task.data, {"wish": {**told.task.data["wish"], "color": "grey", "limit": 95}}
    assert Wish(**own["wish"]).words() in as_text(told.turns[0].observation)
    made = exif.asked_for(world, agent, told, other)
    assert "grey" in pupil.decode(made.turns[0].prompt_ids)
    assert exif.asked_for(world, agent, told, own).turns == told.turns
    assert made.turns[1:] == told.turns[1:] and made.turns[0].completion == told.turns[0].completion
    alike = [exif.asked_for(world, agent, t, other) for t in (told, made)]
    mixed = exif.permuted(world, agent, alike, random.Random(0))
    assert [t.turns for t in mixed] == [t.turns for t in alike], "one wish for all: permuting changes nothing"


def test_one_who_buys_by_taste_looks_for_the_kind_and_takes_anything_of_it() -> None:
    world = str(BOUGHT["world"])
    pupil = new_pupil([world], seed=0, model="micro?tokens=words")
    shown = pupil.show(world, tasks_from(world, 80), exif.by_taste, seed=1)
    assert all(t.turns[0].action.text.startswith("search") for t in shown)
    assert {len(t.turns) for t in shown} == {5}, "search, item, color, size, buy"
    assert 0 < sum(t.is_success for t in shown) < 30
    assert len({t.turns[2].action.text for t in shown}) == 6, "every color is taken by somebody"
    with pytest.raises(UsageError, match="give a shop"):
        exif.by_taste(exif.find("guess")(), random.Random(0), ())
