"""PAE: the shortest fifth of each task, ties, single successes, and what an evaluator takes for solved."""

import pytest

from quintain.benchmarks.experiments.imitation.pae import as_many, evaluated, of_all
from quintain.benchmarks.formulas.rounds import Lived, recorded
from quintain.benchmarks.labs.levels import levels, starting_at
from quintain.benchmarks.labs.tables import uniform_start
from quintain.data.pipeline import as_example
from quintain.methods.imitation.pae import Config, accepted, method, shortest
from quintain.types import Example, scored


def examples(*lengths: tuple[int, int], value: float = 1.0) -> list[Example]:
    lived = [Lived(task=task, value=value, is_success=True, num_turns=num) for task, num in lengths]
    return [as_example(t) for group in recorded(lived) for t in group.trajectories]


def kept(*lengths: tuple[int, int], share: float = 0.2) -> list[int]:
    return [len(e.trajectory.turns) for e in shortest(share).apply(examples(*lengths))]


def test_of_four_six_and_ten_turns_four_is_kept() -> None:
    assert kept((0, 4), (0, 6), (0, 10)) == [4]
    assert kept((0, 4), (0, 6), (0, 10), share=1.0) == [4, 6, 10]


def test_a_single_success_stays_and_ties_at_the_cut_do() -> None:
    assert kept((0, 9)) == [9]
    assert kept((0, 4), (0, 4), (0, 4), (0, 7)) == [4, 4, 4]


def test_each_task_has_a_cut_of_its_own() -> None:
    assert kept((0, 2), (0, 3), (1, 8), (1, 9)) == [2, 8]


def test_only_what_is_paid_is_accepted() -> None:
    assert accepted().apply(examples((0, 1), value=0.0)) == []
    assert len(accepted().apply(examples((0, 1), value=0.01))) == 1


@pytest.mark.slow
def test_levels_without_a_solution_give_what_the_evaluator_gets_wrong_and_no_more() -> None:
    rows = levels(0, 40, dead=1.0)
    policy = uniform_start(starting_at(rows))
    build = method(Config()).build
    right = evaluated(policy, policy.world.tasks, 8, 0, wrong=0.0)
    assert getattr(build(right), "examples") == ()  # noqa: B009 - a pipeline's result
    wrong = evaluated(policy, policy.world.tasks, 8, 0, wrong=0.05)
    share = sum(t.outcome.value > 0 for t in scored(wrong) if not isinstance(t.outcome, str)) / 320  # type: ignore[union-attr] # pyright: ignore
    assert 0.02 < share < 0.09, "one in twenty of 320"


def test_the_controls_keep_as_many() -> None:
    made = examples((0, 4), (0, 6), (0, 10), (1, 3), (1, 3))
    assert len(as_many(0.2, 0).apply(made)) == len(shortest(0.2).apply(made)) == 3
    assert [len(e.trajectory.turns) for e in of_all(0.2).apply(made)] == [3, 3]
    assert of_all(0.2).apply([]) == []


def test_newest_steps_are_trained_on_again() -> None:
    assert method(Config(memory=3)).memory == 3


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_all_of_one_length_are_kept(share: float) -> None:
    assert kept((0, 2), (0, 2), (0, 2), share=share) == [2, 2, 2]
