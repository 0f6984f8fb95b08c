"""Matched controls: what moves, what stays, and what is refused."""

from collections import Counter

import pytest

from quintain.credit.group import group_relative
from quintain.credit_lab.permute import (
    move_term,
    permute_credit,
    permute_outcomes,
    permute_state_keys,
    permute_turn_rewards,
)
from quintain.errors import UsageError
from quintain.rewards.conduct import environment_reward
from quintain.rewards.terms import Term, apply_all
from quintain.types import Group, Score, flatten_scored
from quintain_evidence.labs.tables import new_table, s3


def played() -> list[Group]:
    """Six episodes of each of four tasks of S3."""
    world = s3(1, num_tasks=4, distances=(1, 2))
    return new_table(world, 0).sample(size=6, seed=5)


def returns(groups: list[Group]) -> list[float]:
    return [t.outcome.value for t in flatten_scored(groups) if isinstance(t.outcome, Score)]


def test_outcomes_are_exchanged_in_the_group_and_agree_with_turn_rewards() -> None:
    groups = played()
    moved, found = permute_outcomes(groups, seed=3)
    for before, after in zip(groups, moved, strict=True):
        assert sorted(before.returns) == sorted(after.returns)
    assert found.num_stayed == 0 and returns(moved) != returns(groups)
    assert all(
        sum(turn.reward for turn in t.turns) == t.outcome.value
        for t in flatten_scored(moved)
        if isinstance(t.outcome, Score)
    )
    across, _ = permute_outcomes(groups, seed=3, across=True)
    assert sorted(returns(across)) == sorted(returns(groups))
    assert [sum(group.returns) for group in across] != [sum(group.returns) for group in groups]


def test_a_term_moves_to_other_turns_of_the_group_and_its_sum_stays() -> None:
    visits = Term(name="moved", measure=lambda t: [float(k == 0) for k in range(len(t.turns))], weight=0.5)
    groups = apply_all(played(), (environment_reward(), visits))
    moved, found = move_term(groups, "moved", seed=1)
    assert found.num_stayed == 0
    for before, after in zip(groups, moved, strict=True):
        paid = [
            sum(turn.reward_terms["moved"] for t in group.scored for turn in t.turns)
            for group in (before, after)
        ]
        assert paid[0] == pytest.approx(paid[1]) == 3.0
        assert sum(before.returns) == pytest.approx(sum(after.returns))
        for old, new in zip(before.scored, after.scored, strict=True):
            assert isinstance(old.outcome, Score) and isinstance(new.outcome, Score)
            gained = sum(b.reward - a.reward for a, b in zip(old.turns, new.turns, strict=True))
            assert new.outcome.value - old.outcome.value == pytest.approx(gained)
            rest = [turn.reward - turn.reward_terms["moved"] for turn in new.turns]
            assert rest == pytest.approx([turn.reward - turn.reward_terms["moved"] for turn in old.turns])
    with pytest.raises(UsageError, match="got 'speed', which no turn has; they have environment, moved"):
        move_term(groups, "speed", seed=1)
    same = apply_all(played(), (Term(name="flat", measure=lambda t: [1.0] * len(t.turns)),))
    with pytest.raises(UsageError, match="the same at every turn"):
        move_term(same, "flat", seed=1)


def test_turn_rewards_are_exchanged_within_an_episode() -> None:
    groups = played()
    moved, _ = permute_turn_rewards(groups, seed=1)
    assert returns(moved) == pytest.approx(returns(groups))
    late = [t.turns[-1].reward for t in flatten_scored(moved) if len(t.turns) > 1]
    assert sum(late) == 0.0, "the only reward of an episode was in its last turn"


def test_state_keys_are_exchanged_and_how_often_each_occurs_stays() -> None:
    groups = played()
    moved, found = permute_state_keys(groups, seed=4)
    assert found.num_stayed == 0
    for before, after in zip(groups, moved, strict=True):
        counts = [Counter(u.state_key for t in g.scored for u in t.turns) for g in (before, after)]
        assert counts[0] == counts[1]
    changed = [
        a.state_key != b.state_key
        for s, t in zip(flatten_scored(groups), flatten_scored(moved), strict=True)
        for a, b in zip(s.turns, t.turns, strict=True)
    ]
    assert sum(changed) > len(changed) / 2


@pytest.mark.parametrize("within", ["turn_number", "episode", "group", "batch"])
def test_credit_is_exchanged_within_what_is_named(within: str) -> None:
    credit = group_relative(played(), std="none")
    moved, _ = permute_credit(credit, seed=2, within=within)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

    def sums(found: object) -> list[float]:
        assert found in (credit, moved)
        by: dict[object, float] = {}
        for t, arrays in zip(
            credit.trajectories, (credit if found is credit else moved).advantages, strict=True
        ):
            for k, array in enumerate(arrays):
                key = {
                    "turn_number": (t.group, k),
                    "episode": (t.group, t.index),
                    "group": t.group,
                    "batch": None,
                }[within]
                by[key] = by.get(key, 0.0) + float(array.sum())
        return list(by.values())

    assert sums(credit) == pytest.approx(sums(moved), abs=1e-5)


def test_credit_of_whole_episodes_moves_as_one() -> None:
    credit = group_relative(played(), std="none")
    moved, found = permute_credit(credit, seed=2, unit="episode")
    assert found.num_stayed == 0
    for arrays in moved.advantages:
        assert len({float(array[0]) for array in arrays}) == 1
    own, _ = permute_credit(credit, seed=2, within=lambda t, k: (t.group, k % 2))
    assert own.advantages != credit.advantages
