"""World of Bits: what a late success is worth, what the advantage is, and that the critic is not trained through it."""

from dataclasses import replace

import numpy as np
import pytest

from quintain.credit.gae import Critic
from quintain.methods.imitation.world_of_bits import Config, above_value, method, pay_last_turn, worth
from quintain.methods.loops.on_policy import Estimates
from quintain.testing.episodes import Lived, record_cases
from quintain.types import Group, Score, Stop, flatten_scored


@pytest.mark.parametrize(
    ("turns", "is_success", "value"),
    [(3, True, 0.7), (10, True, 0.0), (1, True, 0.9), (10, False, -1.0), (2, False, -1.0)],
)
def test_a_success_is_worth_what_time_is_left(turns: int, is_success: bool, value: float) -> None:
    assert worth(turns, 10, is_success=is_success) == pytest.approx(value)
    groups = record_cases([Lived(task=0, value=0.3, is_success=is_success, num_turns=turns)])
    (paid,) = flatten_scored(pay_last_turn(10)(groups))
    assert isinstance(paid.outcome, Score) and paid.outcome.value == pytest.approx(value)
    assert [turn.reward for turn in paid.turns] == pytest.approx([0.0] * (turns - 1) + [value])
    assert paid.is_success is is_success


@pytest.mark.parametrize("stop", [Stop.CUT, Stop.MAX_TURNS, Stop.TERMINATED])
def test_running_out_of_turns_costs_one_whoever_sets_the_limit(stop: Stop) -> None:
    """A critic that says .4 everywhere, beyond the last turn as well: the return of a failure is -1, not -1 + .4."""
    (failed,) = flatten_scored(
        pay_last_turn(10)(record_cases([Lived(task=0, value=0.0, is_success=False, num_turns=3)]))
    )
    group = Group(task=failed.task, trajectories=(replace(failed, stop=stop),))
    values = [[np.full(len(turn.completion.token_ids), 0.4, np.float32) for turn in failed.turns]]
    credit = above_value([group], Estimates(values=Critic(values=values, final=[0.4])))
    for arrays in credit.advantages:
        assert [float(array[0]) for array in arrays] == pytest.approx([-1.4] * 3)
    assert credit.returns is not None
    assert [float(array[0]) for array in credit.returns[0]] == pytest.approx([-1.0] * 3)


def test_time_is_counted_in_turns_and_limits_training_alone() -> None:
    seen: list[int | None] = []

    class Asked:
        def tasks(self, step: int, count: int) -> list[int]:
            return [0] * count

        def sample(self, step: int, tasks: list[int], *, max_turns: int | None, **_: object) -> list[object]:
            seen.append(max_turns)
            return []

    made = method(Config(max_turns=7, episodes=3))
    assert made.collect(Asked(), 1) == []  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    assert seen == [7]
