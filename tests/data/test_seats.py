"""Episodes of several seats, taken apart."""

from collections.abc import Mapping
from dataclasses import replace

from tests.build import make_episode, make_turn

from quintain.data.samples import since_segment
from quintain.data.seats import by_seat, order_turns, split_seats
from quintain.types import (
    Failure,
    Group,
    Outcome,
    Score,
    Task,
    Trajectory,
    Turn,
)

TASK = Task(id="duel/train/0", environment="duel", seed=0)


def turn(seat: str, reward: float = 0.0, terms: Mapping[str, float] | None = None) -> Turn:
    return make_turn(
        logprob=-1.0, shows=f"for {seat}", text="go", seat=seat, reward=reward, reward_terms=terms or {}
    )


def episode(*turns: Turn, outcome: Outcome | None = None) -> Trajectory:
    return make_episode(
        *turns, task=TASK, outcome=outcome or Score(value=sum(t.reward for t in turns), is_success=True)
    )


def test_own_rewards_go_to_the_turn_before_them() -> None:
    won = episode(turn("A"), turn("B"), turn("A", 0.0, {"A": -1.0, "B": 1.0}))
    first, second = by_seat(won)
    assert [t.reward for t in first.turns] == [0.0, -1.0] and [t.reward for t in second.turns] == [1.0]
    assert first.outcome == Score(value=-1.0, is_success=False)
    assert second.outcome == Score(value=1.0, is_success=True)
    assert (first.group, second.group) == ("g/A", "g/B")


def test_the_order_of_speaking_outlives_the_separation() -> None:
    talk = episode(turn("A/plan"), turn("B"), turn("A"), turn("B"), turn("A"))
    other = replace(episode(turn("B"), turn("A")), seed=5)
    alone = replace(episode(turn("agent"), turn("agent")), seed=6)
    parts = [*by_seat(talk), *by_seat(other), *by_seat(alone)]
    assert [part.turn_numbers for part in parts] == [(0, 2, 4), (1, 3), (0,), (1,), ()]
    mixed = [parts[i] for i in (2, 0, 4, 3, 1)]
    assert order_turns(mixed) == [
        [(0, 0), (3, 0)],
        [(1, 0), (4, 0), (1, 1), (4, 1), (1, 2)],
        [(2, 0), (2, 1)],
    ]
    assert order_turns([parts[1], parts[3]]) == [[(0, 0), (0, 1)], [(1, 0)]], (
        "a seat that is left out is no gap"
    )


def test_a_shared_reward_is_everybodys() -> None:
    talk = episode(turn("A", -0.02, {"messages": -0.02}), turn("B", -0.02), turn("A", 1.0))
    first, second = by_seat(talk)
    assert [t.reward for t in first.turns] == [-0.04, 1.0]
    assert [t.reward for t in second.turns] == [0.96]
    assert first.outcome == second.outcome == talk.outcome


def test_roles_stay_with_their_seat() -> None:
    first, second = by_seat(episode(turn("A/plan"), turn("A"), turn("B/plan"), turn("B")))
    assert [t.seat for t in first.turns] == ["A/plan", "A"] and [t.seat for t in second.turns] == [
        "B/plan",
        "B",
    ]


def test_one_seat_and_failures_stay_as_they_are() -> None:
    alone = episode(turn("agent/plan"), turn("agent", 1.0))
    assert by_seat(alone) == (alone,)
    group = Group(task=TASK, trajectories=(alone,))
    assert split_seats([group]) == [group]
    empty = Group(task=TASK, trajectories=())
    assert split_seats([empty]) == [empty]
    failure = Failure(owner="environment", kind="timeout", message="late")
    lost = episode(turn("A", 0.0, {"A": 1.0}), turn("B"), outcome=failure)
    assert [part.outcome for part in by_seat(lost)] == [failure, failure]


def test_groups_are_by_seat() -> None:
    pair = Group(task=TASK, trajectories=(episode(turn("A"), turn("B")), episode(turn("A"))))
    first, second = split_seats([pair])
    assert [t.turns for t in first.trajectories] == [(turn("A"),), (turn("A"),)]
    assert {t.group for t in first.trajectories} == {"g/A"}
    assert [t.turns for t in second.trajectories] == [(turn("B"),)]


def test_a_stream_is_that_of_its_seat() -> None:
    turns = [turn("A"), turn("B"), turn("A/plan")]
    assert since_segment(turns, "A") == [turns[0], turns[2]]
    assert since_segment(turns, "C") == []


def test_roles_of_different_policies_have_episodes_of_their_own() -> None:
    def said(seat: str, policy: str, reward: float = 0.0) -> Turn:
        made = turn(seat, reward)
        return replace(made, completion=replace(made.completion, policy=policy))

    planned = episode(said("agent/plan", "policy"), said("agent", "actor", 0.25), said("agent/plan", "policy"),
                      said("agent", "actor", 0.5), said("agent/memory", "actor"))  # fmt: skip
    planner, actor = by_seat(planned)
    assert (planner.group, actor.group) == ("g/agent/plan", "g/agent")
    assert [t.seat for t in planner.turns] == ["agent/plan"] * 2
    assert [t.seat for t in actor.turns] == ["agent", "agent", "agent/memory"]
    assert [t.reward for t in planner.turns] == [0.25, 0.5], "what came of a plan belongs to it"
    assert planner.outcome == actor.outcome == planned.outcome
    same = episode(said("agent/plan", "policy"), said("agent", "policy", 1.0))
    assert by_seat(same) == (same,)
    continued = episode(said("agent", "policy"), said("agent", "actor", 1.0))
    assert by_seat(continued) == (continued,), "one role, played on by another policy, is one episode"
