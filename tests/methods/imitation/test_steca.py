"""STeCa: what a deviation is, how much it weighs, that no rejected side has a gradient, that ways out can be gone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.build import shorten_corpus

from quintain.data.pipeline import example_samples, num_trained
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.environments.protocol import advance, begin
from quintain.errors import ConfigError, DataError
from quintain.losses.preference import dpo_value
from quintain.methods.imitation import steca
from quintain.testing.pupil import RolloutCollector, new_pupil, tasks_from
from quintain.types import Action, Branch, Trajectory, flatten_scored
from quintain.warm_start.start import expert_action

Make = Callable[..., Trajectory]
WORLD = "web?goal=open&depth=2&popups=0&dead_ends=1"
LETTERS = "abcdefghijklmnopqrstu"
OTHER = ("click best mug", "click red mug")


@pytest.mark.parametrize(
    ("number", "own", "before", "is_success", "texts", "wanted"),
    [
        (2, 0.0, 0.6, False, OTHER, True),
        (2, 0.6, 0.6, False, OTHER, True),
        (2, 0.8, 0.6, False, OTHER, False),
        (1, 0.0, 0.6, False, OTHER, False),
        (3, 0.0, 0.0, False, OTHER, True),
        (2, 0.0, 0.6, True, OTHER, False),
        (2, 0.0, 0.6, False, ("go", "go"), False),
        (2, 0.0, 0.6, False, ("go  now", "go now"), False),
        (2, 0.0, 0.6, False, ("", "go"), True),
        (2, float("nan"), 0.6, False, OTHER, False),
        (2, 0.0, float("nan"), False, OTHER, False),
        (9, 0.2, 0.4, False, (" ".join(LETTERS[:12]), " ".join(LETTERS[1:13])), True),
        (9, 0.2, 0.4, False, (" ".join(LETTERS), " ".join(LETTERS[:-1]) + " ."), False),
        (2, -1.0, -0.5, False, OTHER, True),
        (2, 0.61, 0.6, False, OTHER, False),
        (0, 0.0, 1.0, False, OTHER, False),
    ],
)  # fmt: skip
def test_a_deviation_is_worth_no_more_than_the_step_before(
    number: int, own: float, before: float, is_success: bool, texts: tuple[str, str], wanted: bool
) -> None:
    found = steca.is_deviation(number, own, before, is_success=is_success, texts=texts, alike=0.95)
    assert found is wanted


def test_the_step_before_is_compared_not_the_experts_own(trajectory: Make) -> None:
    # The policy's .4 is below the .9 of the expert's step in its place, and above the .3 of the one before.
    step = steps(trajectory, before=0.3, expert=0.9, own=0.4)
    assert steca.kinds_of(step, 0.95) == ["shown"]
    assert steca.kinds_of(replace(step, before=0.4), 0.95) == ["calibrated", "shown"]
    assert steca.kinds_of(replace(step, before=0.4, way_out=None), 0.95) == ["shown"]
    assert steca.kinds_of(replace(step, before=0.4, expert=0.41), 0.95) == ["calibrated"]


def steps(trajectory: Make, *, before: float, expert: float, own: float, value: float = 0.0) -> steca.Step:
    texts = ("go a", "go b", "take")
    tokens = [((1,), (5, 2)), ((2,), (6, 2)), ((3,), (7, 8, 2))]
    shown = trajectory(tokens, texts)
    explored = trajectory(tokens, ("go a", "wait", "wait"), value=value)
    out = trajectory(tokens, ("go a", "wait", "take"))
    return steca.Step(
        shown=shown, number=1, explored=explored, before=before, expert=expert, own=own, way_out=out
    )


def test_a_success_of_its_own_is_imitated_where_it_is_worth_as_much(trajectory: Make) -> None:
    step = steps(trajectory, before=0.3, expert=0.6, own=0.6, value=1.0)
    assert steca.kinds_of(step, 0.95) == ["explored"]
    assert steca.kinds_of(replace(step, own=0.595), 0.95) == []


def test_weights_begin_behind_the_mistake_and_grow_with_the_distance(trajectory: Make) -> None:
    step = steps(trajectory, before=0.5, expert=1.0, own=0.0)
    # What follows the mistake: take, against wait: no word in common.
    calibrated = steca.imitate_step(step, "calibrated")
    assert calibrated.trajectory is step.way_out and calibrated.weights is not None
    assert [own.tolist() for own in calibrated.weights] == [[0, 0], [0, 0], pytest.approx([1.01] * 3)]
    # go b, take against wait, wait; and the other way round with the other sign.
    shown, explored = steca.imitate_step(step, "shown"), steca.imitate_step(step, "explored")
    assert shown.weights is not None and explored.weights is not None
    assert [float(own[0]) for own in shown.weights] == pytest.approx([0, 1.01, 1.01])
    assert [float(own[0]) for own in explored.weights] == pytest.approx([0, 0.99, 0.99])


def test_distances_follow_the_cheapest_path() -> None:
    assert steca.distance(["go", "take"], ["go", "go", "take"]) == 0
    assert steca.distance(["go"], ["take"]) == 1
    assert steca.distance([], ["take"]) == 1 and steca.distance([], []) == 0
    # go a / go b share one of two words; then take / take: (.5 + 0) / 2.
    assert steca.distance(["go a", "take"], ["go b", "take"]) == pytest.approx(0.25)
    assert steca.cosine("Go  there", "go there") == 1 and steca.cosine("", "go") == 0


def test_the_published_loss_without_beta_is_weighted_imitation(trajectory: Make) -> None:
    # -log σ(.1 · 1.5) = .6209570478, and the summed NLL of the chosen side is 10: with β the sum hides the pair.
    pair = float(dpo_value(0.1)(torch.tensor(1.5, dtype=torch.float64)))
    assert pair + 10 == pytest.approx(10.6209570478, abs=1e-9)
    reward = 1.007
    chosen = torch.tensor([-1.0, -2.5, -0.25], dtype=torch.float64, requires_grad=True)
    rejected = torch.tensor([-3.0, -0.5], dtype=torch.float64, requires_grad=True)
    loss = reward * (dpo_value(0.0)(chosen.sum() - rejected.sum()) - chosen.sum())
    assert loss.item() == pytest.approx(reward * (np.log(2) + 3.75), abs=1e-12)
    slopes = torch.autograd.grad(loss, (chosen, rejected))
    assert slopes[0].tolist() == pytest.approx([-reward] * 3, abs=1e-12)
    assert slopes[1].tolist() == [0, 0]


def explored(rate: float, samples: int = 3) -> tuple[steca.Found, list[Any]]:
    """Return what a player finds who errs with probability `rate`."""
    pupil = new_pupil([WORLD], seed=0, model="micro?tokens=words")
    shown = pupil.show(WORLD, tasks_from(WORLD, 12), expert_action, seed=0)
    found = steca.Found()
    with pupil.acting(WORLD) as rollout:
        collector: Any = RolloutCollector(rollout=rollout, seed_of_run=1, player=noisy(rate))
        return found, found.explore(collector, 1, shown, samples)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_corpus(monkeypatch)
    torch.set_num_threads(1)


def test_ways_out_lead_from_the_mistake_to_the_goal(quick: None) -> None:
    found, groups = explored(0.7)
    made = steca.pipeline(found, find(WORLD), 0.95)(groups)
    ways = {id(step.way_out): step for step in found.steps.values() if step.way_out is not None}
    calibrated = [e for e in made.examples if id(e.trajectory) in ways]
    assert calibrated and made.funnel.metrics["data/executable"] == len(made.examples)
    site = find(WORLD)()
    for example in calibrated:
        step, whole = ways[id(example.trajectory)], example.trajectory
        first = step.number + 1
        assert whole.turns[:first] == step.explored.turns[:first] and step.number >= 1
        assert whole.is_success and not step.explored.is_success
        assert example.weights is not None and not any(own.any() for own in example.weights[:first])
        begin(site, whole.task)
        played = [advance(site, turn.action) for turn in whole.turns]
        assert played[-1].is_success
        assert example.sources[0] == f"{step.explored.group}#{step.explored.index}"
    assert any(turn.action.text == "back" for e in calibrated for turn in e.trajectory.turns)
    (sample, *_) = example_samples(calibrated[:1])
    assert np.count_nonzero(sample.loss_weight) == num_trained(calibrated[0])


def test_what_cannot_be_carried_out_is_left_out(quick: None) -> None:
    found, groups = explored(0.7)
    for name, step in found.steps.items():
        if step.way_out is not None:
            # The rest of the expert's own episode, put behind the mistake: it was shown for another page.
            turns = (*step.explored.turns[: step.number + 1], *step.shown.turns[step.number :])
            spliced = replace(step.shown, turns=turns, parent=Branch(episode=name, turn=step.number + 1))
            found.steps[name] = replace(step, way_out=spliced)
    made = steca.pipeline(found, find(WORLD), 0.95)(groups)
    before, after = made.funnel.passages
    assert before.num_out > after.num_out
    kept = {id(e.trajectory) for e in made.examples}
    assert not any(id(s.way_out) in kept for s in found.steps.values() if s.number == 1 and gone_wrong(s))


def gone_wrong(step: steca.Step) -> bool:
    return step.explored.turns[1].action.text.startswith("click best")


def test_who_does_as_the_expert_deviates_nowhere(quick: None) -> None:
    found, groups = explored(0.0)
    assert found.steps == {} and len(groups) == 24
    assert steca.pipeline(found, find(WORLD), 0.95)(groups).examples == ()


@pytest.mark.slow
def test_the_planted_step_is_found_by_exact_values(quick: None) -> None:
    """Who always errs on the list, and never before, deviates there in every episode."""
    pupil = new_pupil([WORLD], seed=0, model="micro?tokens=words", agent="text")
    shown = pupil.show(WORLD, tasks_from(WORLD, 100), expert_action, seed=0)

    def errs(environment: Any, rng: Any, seen: Any) -> Action:
        if len(seen) == 2:
            return environment.mistaken_action(rng)
        return environment.expert_action() if len(seen) < 2 else Action(text="wait")

    found = steca.Found()
    with pupil.acting(WORLD) as rollout:
        collector: Any = RolloutCollector(rollout=rollout, seed_of_run=1, player=errs)
        groups = found.explore(collector, 1, shown, 1)
    kinds = {step.shown.task.id: (step.number, steca.kinds_of(step, 0.95)) for step in found.steps.values()}
    assert len(kinds) == len(found.steps) == 100 == len(flatten_scored(groups)) // 2
    assert set(map(str, kinds.values())) == {str((1, ["calibrated", "shown"]))}


@pytest.mark.slow
def test_a_round_trains_on_what_it_found(train: Any) -> None:
    rows = train("steca", environment=WORLD, steps=1, episodes=4, samples=2, updates=2, eval_every=1)
    assert rows[-1]["data/calibrated"] >= rows[-1]["data/executable"] == rows[-1]["data/kept"] > 0


def test_there_must_be_somebody_to_explore(shows: Any, trajectory: Make) -> None:
    with pytest.raises(ConfigError, match="the expert's episodes are what is explored"):
        steca.Config(demonstrations=0).check()
    made = steca.method(steca.Config(environment=WORLD))
    with pytest.raises(DataError, match="got none that solved its task"):
        made.collect(shows([trajectory([((1,), (2,))], value=0.0)]), 1)
