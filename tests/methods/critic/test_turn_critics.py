"""What twin critics of turns learn, by hand: V and Q of a target network differ at every place."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.data.test_turn_values import TWO

from quintain.credit.turn_td import TurnValues
from quintain.methods.critic.turn_critics import TARGETS, learn_targets, on_policy_targets
from quintain.methods.loops.continuations import Continuation, Continuations
from quintain.methods.loops.queries import PolicyQueries
from quintain.methods.loops.replay import UpdateSamples
from quintain.types import Group, Trajectory

PLAYED = replace(
    TWO, turns=tuple(replace(turn, reward=r) for turn, r in zip(TWO.turns, (0.25, 1.0), strict=True))
)
"""Ids 1 2 | 3 4 | 5 | 6: rewards ¼ and 1, and the task ends."""
SAID = {
    TARGETS[0]: TurnValues(before=[[9.0, 0.4]], after=[[0.7, 3.0]]),
    TARGETS[1]: TurnValues(before=[[8.0, -0.2]], after=[[0.1, 5.0]]),
}
"""V̄ and Q̄ of the recorded turns."""
ANEW = [0.6, 0.2, 4.0]
"""Q̄ of what the policy says now: two candidates in the first turn, one in the second."""


class Told:
    """Answers as target networks would whose numbers are known."""

    max_length = 1_000

    def turn_values(self, episodes: Sequence[Trajectory], *, by: str) -> TurnValues:
        return SAID[by]

    def last_values(self, episodes: Sequence[Trajectory], *, by: str) -> list[float]:
        return [value + (by == TARGETS[1]) for value in ANEW]


def candidates(episodes: Sequence[Trajectory], consultation: PolicyQueries) -> Continuations:
    first, second = (replace(PLAYED, turns=PLAYED.turns[:number]) for number in (1, 2))
    return [
        [
            [Continuation(episode=first, weight=0.25), Continuation(episode=first, weight=0.75)],
            [Continuation(episode=second, weight=1.0)],
        ]
    ]


def targets(lesson: UpdateSamples) -> tuple[list[float], list[float]]:
    """Return y_V and y_Q of the two turns."""
    (sample,) = lesson.samples
    places = [
        [number for number in range(7) if sample.turn_id[number] >= 0 and sample.turn_end[number] == is_after]
        for is_after in (False, True)
    ]
    before, after = ([float(sample.returns[number]) for number in own] for own in places)
    return before, after


@pytest.mark.parametrize("number", [0, 1])
def test_q_learns_the_value_of_the_state_that_follows_and_v_what_the_policy_would_do(number: int) -> None:
    learn = on_policy_targets(number, discount=0.5, ways=candidates)
    before, after = targets(learn([Group(task=PLAYED.task, trajectories=(PLAYED,))], cast(Any, Told())))
    assert after == pytest.approx([0.25 + 0.5 * (0.4, -0.2)[number], 1.0]), "r + γ·V̄(s'), not γ·Q̄(s', a')"
    assert before == pytest.approx([0.25 * 0.6 + 0.75 * 0.2 + number, 4.0 + number]), (
        "Σ w·Q̄ of its own network"
    )


@pytest.mark.parametrize("number", [0, 1])
def test_of_recorded_turns_v_learns_the_smaller_q_and_q_its_own_network(number: int) -> None:
    learn = learn_targets(number, discount=0.5)
    before, after = targets(learn([Group(task=PLAYED.task, trajectories=(PLAYED,))], cast(Any, Told())))
    assert after == pytest.approx([0.25 + 0.5 * (0.4, -0.2)[number], 1.0])
    assert before == pytest.approx([0.1, 3.0]), "min Q̄"
