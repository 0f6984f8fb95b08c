"""Experiments on imitation: what controls keep, and that null worlds are null; runs are far shorter than registered."""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from quintain.data.pipeline import as_example, num_trained
from quintain.environments.catalog import find
from quintain.environments.noisy import make_idler
from quintain.environments.protocol import begin
from quintain.errors import DataError
from quintain.testing.pupil import Pupil, new_pupil, tasks_from
from quintain.types import Example
from quintain.warm_start.start import expert_action
from quintain_evidence.experiments.imitation import agent_bank, agent_flan, agent_tuning, atlas, fireact
from quintain_evidence.experiments.selftraining import rest_react

STREAM = "stream?pages=2&facts=1&closed_book=0.5"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.warm_start.corpus.NUM_EPISODES", 6)
    torch.set_num_threads(1)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pupils be as small as there are."""

    def made(worlds: Any, *, seed: int, model: str = "", texts: Any = ()) -> Pupil:
        return new_pupil(worlds, seed=seed, model="micro?tokens=words", texts=texts)

    for module in (agent_bank, agent_flan, agent_tuning, atlas, fireact, rest_react):
        monkeypatch.setattr(module, "new_pupil", made)


@pytest.mark.slow
def test_what_came_out_right_teaches_when_to_read(small: None) -> None:
    options = {"world": STREAM, "block": 0, "updates": 12, "tasks": 60, "held_out": 64}
    (row,) = fireact.measure(options, 3)
    assert row["null_method"] == row["null_control"]
    assert 0.5 < row["extra.kept"] < 0.9
    assert row["method"] == row["extra.open"] - row["extra.closed"]
    (later,) = fireact.measure({**options, "block": 5, "updates": 1, "tasks": 8}, 3)
    assert "null_method" not in later


def test_permuted_answers_are_the_same_words_of_others() -> None:
    pupil = new_pupil([agent_tuning.GENERAL], seed=0, model="micro?tokens=words")
    shown = pupil.show(agent_tuning.GENERAL, tasks_from(agent_tuning.GENERAL, 12), expert_action, seed=0)
    wrong = agent_tuning.permuted(shown, 1)

    def answers(episodes: Any) -> list[tuple[int, ...]]:
        return [t.turns[0].completion.token_ids for t in episodes]

    assert Counter(answers(wrong)) == Counter(answers(shown)) and answers(wrong) != answers(shown)
    assert [t.turns[0].prompt_ids for t in wrong] == [t.turns[0].prompt_ids for t in shown]


@pytest.mark.slow
def test_arms_of_the_mixture_are_measured_alike(small: None) -> None:
    options = {"episodes": 12, "updates": 2, "start_updates": 2, "held_out": 8, "played": 4, "size": 4}
    (row,) = agent_tuning.measure(options, 3)
    assert row["extra.agent_short"] == pytest.approx(0.9 * row["extra.agent_alone"] - row["extra.agent"])
    assert all(0 <= row[key] <= 1 for key in ("method", "control", "null_method", "extra.start"))


@pytest.mark.slow
def test_refusals_of_the_control_stand_anywhere(small: None) -> None:
    world = "calc?steps=1&names=0&checks=0&withheld=0.5"
    options = {"world": world, "block": 0, "updates": 2, "episodes": 12, "held_out": 24}
    (row,) = agent_flan.measure(options, 3)
    assert row["extra.negatives"] > 0
    assert abs(row["null_method"]) < 0.1 and abs(row["extra.without"]) < 0.1
    pupil = new_pupil([world], seed=0, model="micro?tokens=words")
    tasks = tasks_from(world, 10)
    called = pupil.show(world, tasks, agent_flan.call, seed=0, turns=1)
    refused = pupil.show(world, tasks, agent_flan.refuse, seed=0, turns=1)
    assert all(t.turns[0].action.tool_calls for t in called)
    assert {t.turns[0].action.text for t in refused} == {agent_flan.REFUSAL}
    assert {agent_flan.operation(t) for t in called} <= {"add", "subtract", "multiply"}


def test_resampled_successes_have_the_difficulties_of_the_forced_set() -> None:
    world = "collab?slots=3&values=2&told=0.5"
    pupil = new_pupil([world], seed=0, model="micro?tokens=words")
    tasks = tasks_from(world, 24)
    level = {task.id: agent_bank.untold(world, task) for task in tasks}
    shown = [as_example(t) for t in pupil.show(world, tasks, expert_action, seed=0)]

    def levels(examples: list[Example]) -> Counter[int]:
        return Counter(level[e.trajectory.task.id] for e in examples)

    easy = [e for e in shown if level[e.trajectory.task.id] < 3]
    few = [*easy, *[e for e in shown if level[e.trajectory.task.id] == 3][:1]]
    assert levels(agent_bank.resampled(few, shown, level, 0)) == levels(shown)
    assert max(levels(agent_bank.resampled(easy, shown, level, 0))) == 2, "the next easier one stands in"
    hard = agent_bank.hardest(world, tasks)
    assert len(hard) == 8 and min(level[k] for k in hard) >= max(
        level[t.id] for t in tasks if t.id not in hard
    )


@pytest.mark.slow
def test_a_teacher_without_mistakes_leaves_nothing_to_force(small: None) -> None:
    options = {
        "world": "collab?slots=2&values=2", "block": 0, "tasks": 12, "tries": 2, "tokens": 60, "held_out": 12,
        "expert_noise": 0.9,
    }  # fmt: skip
    (row,) = agent_bank.measure(options, 3)
    assert row["null_method"] == row["null_control"]
    assert row["extra.added"] > 0 and row["extra.gap"] >= 0


def test_random_turns_have_as_many_tokens_of_the_same_episode() -> None:
    world = "house?kind=put&things=1"
    pupil = new_pupil([world], seed=0, model="micro?tokens=words")
    shown = atlas.shown(pupil, world, 16, 0, 0.4, 0)
    looks = [turn.action.text == "look" for t in shown for turn in t.turns]
    assert 0.25 < float(np.mean(looks)) < 0.55
    stage = atlas.atlas.pipeline(0.3, atlas.atlas.rule(world, ("open", "take", "put"))).stages[-1]
    chosen = stage.apply([as_example(t) for t in shown])
    drawn = atlas.as_asked(chosen, lambda t: [1.0] * len(t.turns), 0)
    acting = atlas.as_asked(chosen, lambda t: [float(u.action.text != "look") for u in t.turns], 0)

    def tokens(example: Example) -> float:
        assert example.weights is not None
        return float(sum(own.sum() for own in example.weights))

    for one, other, third in zip(chosen, drawn, acting, strict=True):
        assert tokens(one) == pytest.approx(tokens(other)) == pytest.approx(tokens(third))
        assert third.weights is not None
        for own, turn in zip(third.weights, third.trajectory.turns, strict=True):
            assert not own.any() or turn.action.text != "look"
    assert (
        any(num_trained(a) != num_trained(b) for a, b in zip(chosen, drawn, strict=True)) or drawn != chosen
    )


@pytest.mark.slow
def test_gradients_of_choices_are_compared_batch_by_batch(small: None) -> None:
    options = {
        "world": STREAM,
        "seeds": 2,
        "episodes": 3,
        "reference": 8,
        "demonstrations": 16,
        "null_updates": 2,
    }
    rows = rest_react.measure({**options, "low": 0.0, "high": 1.0, "first": 2}, 3)
    assert len(rows) == 2
    for row in rows:
        assert -1 <= row["method"] <= 1 and 0 <= row["extra.agreement"] <= 1


def test_a_start_that_is_too_good_or_too_bad_is_refused() -> None:
    pupil = new_pupil([STREAM], seed=0, model="micro?tokens=words")
    shown = pupil.show(STREAM, tasks_from(STREAM, 8), expert_action, seed=0)
    samples = atlas.example_samples([as_example(t) for t in shown])
    with pytest.raises(DataError, match="a start in stream"):
        pupil.learn_until(samples, STREAM, low=0.99, high=1.0, most=2, first=1)


def test_chances_are_those_of_what_was_said_turn_by_turn() -> None:
    pupil = new_pupil([STREAM], seed=0, model="micro?tokens=words")
    tasks = tasks_from(STREAM, 4)
    shown = pupil.show(STREAM, tasks, expert_action, seed=0)
    found = pupil.chances(shown)
    assert [len(own) for own in found] == [len(t.turns) for t in shown]
    assert all((own < 0).all() for own in found)
    own = pupil.copy()
    own.learn(atlas.example_samples([as_example(t) for t in shown]), updates=6, size=4)
    assert sum(x.sum() for x in own.chances(shown)) > sum(x.sum() for x in found)
    assert [x.tolist() for x in pupil.chances(shown)] == [x.tolist() for x in found], "a copy learns alone"


def test_styles_idle_alike_on_the_whole_and_in_places_of_their_own() -> None:
    world = "house?kind=put&things=1"
    pupil = new_pupil([world], seed=0, model="micro?tokens=words")
    before: list[set[str]] = []
    for style in (1, 4):
        shown = pupil.show(world, tasks_from(world, 20), make_idler(0.4, style), seed=style)
        pairs = [
            (a.action.text, b.action.text) for t in shown for a, b in zip(t.turns, t.turns[1:], strict=False)
        ]
        before.append({after for first, after in pairs if first == "look" and after != "look"})
    assert before[0] != before[1]


def test_odd_numbers_are_marks_that_mean_nothing() -> None:
    assert atlas.number_of(expert()) == 16
    stage = atlas.stage_of(lambda t: [0.0] * len(t.turns))
    pupil = new_pupil(["guess"], seed=0, model="micro?tokens=words")
    shown = pupil.show("guess", tasks_from("guess", 2), expert_action, seed=0)
    assert not stage.apply([as_example(t) for t in shown])


def expert() -> Any:
    world = find("guess")()
    begin(world, world.task("train", 0))
    return expert_action(world, random.Random(0), ())
