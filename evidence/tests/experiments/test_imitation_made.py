"""Experiments on how data is made: properties hold, and what they are checked by finds what is wrong."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch

pytest.importorskip("bm25s")

from quintain.testing.pupil import Pupil, new_pupil, tasks_from
from quintain.worlds.hopqa.facts import Fact, Question, harder
from quintain.worlds.plan.drawn import draw_scene, draw_task, length
from quintain_evidence.experiments.imitation import afm, agent_gen, goat, web_dancer

SEAT, MAYOR, BOSS = (
    Fact("Orbit", "seat", "Rome"),
    Fact("Rome", "mayor", "Ben"),
    Fact("Dora", "employer", "Orbit"),
)
FACTS = (SEAT, MAYOR, BOSS, Fact("Delta", "seat", "Oslo"), Fact("Oslo", "mayor", "Jane"))
EASY = Question(
    chain=(MAYOR,),
    paragraphs=tuple(fact.words() for fact in FACTS),
    titles=tuple(fact.subject for fact in FACTS),
    sources=(1,),
    is_closed=False,
    told=(),
)


def test_searches_are_counted_by_trying_all_queries() -> None:
    twice = harder(EASY, 2, random.Random(0))
    assert twice.words() == "What is the mayor of the seat of the employer of Dora?"
    for rounds in (0, 1, 2):
        library = web_dancer.Library(harder(EASY, rounds, random.Random(0)))
        assert library.answer() == "Ben" and library.least(library.answers) == rounds + 1
    assert library.least(library.meets(twice)) == 1, (
        "its sentence is met by luck, and not known for the answer"
    )
    bare = web_dancer.without(EASY)
    assert harder(bare, 1, random.Random(0)) == bare and len(bare.paragraphs) == 4


def test_a_description_of_another_thing_is_told_from_the_right_one() -> None:
    made = harder(EASY, 1, random.Random(0))
    other = web_dancer.elsewhere(made, random.Random(0))
    assert other is not None and other.words() == "What is the mayor of the seat of Delta?"
    assert web_dancer.Library(other).answer() == "Jane"
    lone = replace(made, paragraphs=made.paragraphs[:2], titles=made.titles[:2])
    assert web_dancer.elsewhere(lone, random.Random(0)) is None


def test_harder_questions_keep_their_answers() -> None:
    (row,) = web_dancer.measure({"questions": 20}, 5)
    assert row["violations"] == row["extra.null_changed"] == 0
    assert row["control_violations"] > 0.6 * row["control_trials"] > 5


def test_random_edits_change_the_goal_and_leave_a_plan() -> None:
    rng = random.Random(0)
    sizes = set[int]()
    for _ in range(20):
        task = draw_task(draw_scene(rng), rng)
        assert task is not None
        other = agent_gen.edited(task, rng)
        assert other is not None and length(other) and set(other.goal) != set(task.goal)
        assert replace(other, goal=task.goal) == task
        assert agent_gen.branching(task) >= 1
        sizes.add(len(other.goal))
    assert sizes == {1, 2, 3}


def test_parents_are_sometimes_solved_and_one_step_is_not_evolved() -> None:
    rows = agent_gen.measure({"seeds": 12}, 4)
    assert len(rows) == 12 and all(row["null_method"] == row["extra.null_evolved"] == 0 for row in rows)
    assert sum(row["method"] for row in rows) > sum(row["control"] for row in rows)
    assert 0 < rows[0]["extra.parents"] < 1 and agent_gen.ordered(None, agent_gen_task(), None) == 0.0


def agent_gen_task() -> agent_gen.Puzzle:
    rng = random.Random(1)
    task = draw_task(draw_scene(rng), rng)
    assert task is not None
    easy = agent_gen.easier(task, rng)
    assert easy is not None and agent_gen.failure(easy) <= agent_gen.failure(task) + 0.5
    return task


def test_execution_finds_what_is_planted_and_nothing_where_everything_fits() -> None:
    rows = goat.measure({"seeds": 4}, 3)
    for row in rows:
        assert row["method"] > row["control"] and row["null_method"] == row["null_control"]
        assert row["extra.precision"] > 0.9 and row["extra.recall"] == 1.0
        assert row["extra.permuted_gain"] < 0.1
    assert goat.f1([], []) == 1.0 and goat.f1([], [goat.Edge("a", "b", "x")]) == 0.0


def test_scores_are_put_across_or_within_and_permuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.warm_start.corpus.NUM_EPISODES", 6)
    torch.set_num_threads(1)

    def small(worlds: Any, *, seed: int, model: str = "", texts: Any = ()) -> Pupil:
        return new_pupil(worlds, seed=seed, model="micro?tokens=words", texts=texts)

    monkeypatch.setattr(afm, "new_pupil", small)
    world = "sums?revisions=0&digits=1"
    rows = afm.measure({"seeds": 8, "world": world, "episodes": 10, "updates": 2, "size": 4}, 2)
    assert len(rows) == 8 and all(set(row.values()) <= {0.0, 1.0} for row in rows)
    for table in (afm.ACROSS, afm.WITHIN):
        assert sorted(table) == sorted(table.values()) == [1, 2, 4, 5]
    assert all((a < 3) is not (b < 3) for a, b in afm.ACROSS.items())
    assert all((a < 3) is (b < 3) for a, b in afm.WITHIN.items())
    pupil = new_pupil([world], seed=0, model="micro?tokens=words", texts=[afm.write_roles(afm.example())] * 9)
    team = afm.Team(solve=afm.solve, check=afm.checker(0.0))
    shown = pupil.show(world, tasks_from(world, 20), team.act, seed=0, turns=1)
    other = afm.permuted(pupil, shown, 1)
    before, after = ([afm.said_in(pupil, t) for t in own] for own in (shown, other))

    def scores(texts: Any) -> Counter[str]:
        return Counter(a.content for own in texts for a in own if a.role == afm.CHECK)

    assert scores(before) == scores(after) and before != after
    assert [[a for a in own if a.role != afm.CHECK] for own in before] == [
        [a for a in own if a.role != afm.CHECK] for own in after
    ]
    mixed = [afm.said_in(pupil, t) for t in afm.disordered(pupil, shown, 1)]
    assert mixed != before and list(map(Counter, mixed)) == list(map(Counter, before))
    for own, t in zip(before, shown, strict=True):
        assert afm.is_right(own, t) is (int(own[2].content) >= 3)
