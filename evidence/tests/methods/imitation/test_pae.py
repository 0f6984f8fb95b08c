"""PAE: the shortest fifth of each task, ties, single successes, and what an evaluator takes for solved."""

import pytest
from tests.methods.imitation.test_pae import examples

from quintain.methods.imitation.pae import (
    Config,
    method,
    shortest,
)
from quintain.types import flatten_scored
from quintain_evidence.experiments.imitation.pae import as_many, evaluated, of_all
from quintain_evidence.labs.levels import levels, starting_at
from quintain_evidence.labs.tables import uniform_start


@pytest.mark.slow
def test_levels_without_a_solution_give_what_the_evaluator_gets_wrong_and_no_more() -> None:
    rows = levels(0, 40, dead=1.0)
    policy = uniform_start(starting_at(rows))
    build = method(Config()).build
    right = evaluated(policy, policy.world.tasks, 8, 0, wrong=0.0)
    assert getattr(build(right), "examples") == ()  # noqa: B009 - a pipeline's result
    wrong = evaluated(policy, policy.world.tasks, 8, 0, wrong=0.05)
    share = sum(t.outcome.value > 0 for t in flatten_scored(wrong) if not isinstance(t.outcome, str)) / 320  # type: ignore[union-attr] # pyright: ignore
    assert 0.02 < share < 0.09, "one in twenty of 320"


def test_the_controls_keep_as_many() -> None:
    made = examples((0, 4), (0, 6), (0, 10), (1, 3), (1, 3))
    assert len(as_many(0.2, 0).apply(made)) == len(shortest(0.2).apply(made)) == 3
    assert [len(e.trajectory.turns) for e in of_all(0.2).apply(made)] == [3, 3]
    assert of_all(0.2).apply([]) == []
