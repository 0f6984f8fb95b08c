"""The experiments of the family: the direction that is claimed, and null worlds in which nothing can be learned."""

import numpy as np
import pytest

from quintain.types import flatten_scored
from quintain_evidence.experiments.critic import archer, digi_q
from quintain_evidence.labs.exact import exact_values
from quintain_evidence.labs.tables import fitted_table, s3


def test_a_critic_of_a_table_learns_what_actions_are_worth() -> None:
    """On many episodes of one table Q is near the exact one wherever an action was often seen."""
    policy = fitted_table(s3(3, num_tasks=4), 3)
    episodes = flatten_scored(policy.sample(size=150, seed=1))
    critic = archer.TableCritic.learned(policy, episodes, 1.0)
    exact = exact_values(policy.world, policy.probabilities())
    starts = policy.world.start
    assert critic.v[0, starts] == pytest.approx(exact.v[-1][starts].numpy(), abs=0.1)


@pytest.mark.slow
def test_the_actor_points_the_right_way_by_a_critic_that_knows() -> None:
    (row,) = archer.measure({"seeds": 1, "size": 2}, 3)
    assert row["method"] > 0.7 > abs(row["control"]) + 0.2 and row["extra.over_reinforce"] > 0.1
    assert abs(row["null_method"] - row["null_control"]) < 0.6
    assert row["extra.dose16"] == pytest.approx(row["method"] - row["control"])
    assert np.isfinite(list(row.values())).all()


def test_the_best_by_q_goes_the_right_way_and_copies_of_one_action_go_nowhere() -> None:
    rows = digi_q.measure({"seeds": 3, "size": 12}, 3)
    assert np.mean([row["method"] - row["control"] for row in rows]) > 0.05
    assert all(row["null_method"] == row["null_control"] == row["extra.dose1"] == 0.0 for row in rows)
    assert all(row["extra.optimism"] >= 0 for row in rows), "the larger of two critics promises more"
