"""One table for all levels: its rows are the world's, and what is exact is what is sampled."""

import numpy as np
import pytest

from quintain.environments.catalog import find
from quintain.environments.protocol import advance, begin
from quintain.errors import UsageError
from quintain.types import Action, flatten_scored
from quintain.worlds.sokoban.game import Sokoban
from quintain_evidence.labs.levels import (
    drawn_rows,
    exact,
    expert_table,
    levels,
    open_floor,
    starting_at,
)
from quintain_evidence.labs.tables import uniform_start


def test_rows_and_moves_are_those_of_the_world() -> None:
    floor, environment = open_floor(), find("sokoban?size=4&walls=0")()
    assert isinstance(environment, Sokoban)
    rng = np.random.default_rng(0)
    for number in range(12):
        begin(environment, environment.task("train", number))
        row = int(drawn_rows()[number])
        for _ in range(6):
            away = environment.distance()
            assert floor.distance[row] == (np.inf if away is None else away)
            column = int(rng.integers(0, 4))
            result = advance(environment, Action(text=floor.actions[column]))
            assert result.reward == floor.reward[row, column]
            if result.is_terminated:
                assert floor.is_success[row, column]
                break
            row = int(floor.next[row, column])


def test_what_is_exact_is_what_is_sampled() -> None:
    rows = levels(0, 200)
    world = starting_at(rows)
    policy = expert_table(mistakes=0.4)
    done = exact(policy, rows)
    episodes = flatten_scored(type(policy)(world, policy.theta).sample(size=20, seed=0))
    assert np.mean([t.is_success for t in episodes]) == pytest.approx(done.success.mean(), abs=0.02)
    quick = np.mean([t.is_success and len(t.turns) <= 6 for t in episodes])
    assert quick == pytest.approx(done.within(np.full(200, 6)).mean(), abs=0.02)
    assert exact(expert_table(mistakes=0.0), rows).success.min() == pytest.approx(1.0, abs=1e-6)


def test_levels_are_drawn_by_their_distance_and_dead_ones_have_none() -> None:
    away = open_floor().distance
    assert set(away[levels(1, 50, least=2, most=3)]) == {2.0, 3.0}
    assert np.isinf(away[levels(1, 100, dead=0.3)]).sum() == 30
    assert not np.array_equal(levels(1, 50), levels(2, 50))
    assert exact(uniform_start(starting_at([0])), levels(1, 20, dead=1.0)).success.max() == 0.0
    with pytest.raises(UsageError, match="got none"):
        levels(0, 5, least=30)
