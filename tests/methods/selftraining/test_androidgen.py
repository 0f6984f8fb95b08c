"""AndroidGen: where failures are cut, and that what is kept can be carried out again to the same state."""

from dataclasses import replace

import pytest

from quintain.benchmarks.experiments.selftraining import androidgen as experiment
from quintain.benchmarks.labs.pupil import new_pupil, tasks_from
from quintain.data.pipeline import Pipeline, as_example
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.environments.protocol import advance, begin
from quintain.methods.imitation.atlas import ask_progress
from quintain.methods.rl.parts.contexts import ExpertLabels
from quintain.methods.selftraining import androidgen

WORLD = "web?goal=order&popups=0.2"


@pytest.mark.parametrize(
    ("before", "num"),
    [
        ([0, 0, 0.5, 0, 0.5, 0.5], 4),
        ([0, 0.5, 0.25, 0.25], 0),
        ([0, 0.25, 0.5, 0.25], 1),
        ([0, 0.5], 1),
        ([0, 0, 0], 0),
        ([0.5], 0),
        ([], 0),
        ([0, None, 0.5, 0.5], 0),
        ([0, 0.5, None, 0.5], 1),
    ],
)
def test_what_is_kept_was_never_undone(before: list[float | None], num: int) -> None:
    assert androidgen.num_kept(before) == num


def test_failures_are_cut_whole_turns_and_lead_to_the_same_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.training.corpus.NUM_EPISODES", 4)
    pupil = new_pupil([WORLD], seed=0, model="micro?tokens=words")
    shown = pupil.show(WORLD, tasks_from(WORLD, 40), noisy(0.6), seed=0)
    critic = ExpertLabels(WORLD, ask_progress)
    made = Pipeline(androidgen.reached(critic.labels)).run([as_example(t) for t in shown])
    failed = [t for t in shown if not t.is_success]
    cut = [e.trajectory for e in made.examples if not e.trajectory.is_success]
    assert 0 < len(cut) < len(failed) < len(shown)
    assert len(made.examples) - len(cut) == len(shown) - len(failed)
    site = find(WORLD)()
    for t in cut:
        whole = next(own for own in failed if own.task.id == t.task.id)
        assert t.turns == whole.turns[: len(t.turns)] and len(t.turns) < len(whole.turns)
        begin(site, t.task)
        levels = [ask_progress(site)]
        for turn in t.turns:
            advance(site, turn.action)
            levels.append(ask_progress(site))
        assert levels[-1] == critic.labels(whole)[len(t.turns)]
        assert levels[-1] is not None and levels[-2] is not None and levels[-1] > levels[-2]
    none = Pipeline(androidgen.reached(critic.labels, has_failures=False)).run([as_example(t) for t in shown])
    assert all(e.trajectory.is_success for e in none.examples)


def test_one_subgoal_is_never_kept_by_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.training.corpus.NUM_EPISODES", 4)
    world = "web?goal=open&depth=1"
    pupil = new_pupil([world], seed=0, model="micro?tokens=words")
    critic = ExpertLabels(world, ask_progress)
    shown = pupil.show(world, tasks_from(world, 20), noisy(0.9), seed=0)
    failed = [t for t in shown if not t.is_success]
    assert all(androidgen.num_kept(critic.labels(t)) == 0 for t in failed)


def test_windows_have_as_many_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.training.corpus.NUM_EPISODES", 4)
    pupil = new_pupil([WORLD], seed=0, model="micro?tokens=words")
    (t,) = pupil.show(WORLD, tasks_from(WORLD, 1), noisy(0.0), seed=0)
    wanted = experiment.tokens(t, 2)
    for first in range(len(t.turns)):
        example = experiment.window(t, first, wanted)
        assert example.weights is not None
        assert sum(float(own.sum()) for own in example.weights) == pytest.approx(wanted)
        assert example.weights[first].any()
    both = experiment.choices([(t, 2), (replace(t, index=1), 1)], experiment.random.Random(0), 0)
    assert [len(own) for own in both.values()] == [2, 2, 2]
