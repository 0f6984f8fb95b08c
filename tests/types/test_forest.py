"""The forest of a trajectory by hand, its walks, and that it is the trajectory again."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quintain.types import (
    Action,
    Completion,
    Score,
    Stop,
    Task,
    Trajectory,
    Turn,
    as_content,
    join_forest,
    make_forest,
    split_seats,
)

Ids = tuple[int, ...]


def turn(prompt: Ids, sampled: Ids, seat: str = "agent", starts: bool = False, version: int = 0) -> Turn:
    return Turn(
        seat=seat,
        observation=as_content("x"),
        prompt_ids=prompt,
        completion=Completion(
            token_ids=sampled, logprobs=(-0.5,) * len(sampled), stop="stop", policy_version=version
        ),
        action=Action(text="go"),
        starts_segment=starts,
    )


def whole(turns: Sequence[Turn]) -> Trajectory:
    return Trajectory(
        task=Task(id="t", environment="e", seed=0),
        turns=tuple(turns),
        outcome=Score(value=1.0, is_success=True),
        stop=Stop.TERMINATED,
        seed=0,
        group="g",
        index=0,
    )


def shape(turns: Sequence[Turn]) -> list[tuple[int | None, Ids]]:
    trajectory = whole(turns)
    forest = make_forest(trajectory)
    assert join_forest(forest) == trajectory
    assert [node.id for node in forest.nodes] == [node.turn for node in forest.nodes] == [*range(len(turns))]
    return [(node.parent, node.given) for node in forest.nodes]


def test_one_segment_is_one_chain() -> None:
    turns = [turn((5, 9), (17,)), turn((4,), (2,), version=3)]
    assert shape(turns) == [(None, (5, 9)), (0, (4,))]
    forest = make_forest(whole(turns))
    assert [leaf.id for leaf in forest.leaves()] == [1]
    assert forest.tokens(1) == (5, 9, 17, 4, 2)
    last = forest.nodes[1]
    assert (last.sampled, last.logprobs, last.policy, last.versions) == ((2,), (-0.5,), "policy", ((0, 3),))
    assert not forest.trajectory.num_sampled


def test_a_new_segment_is_a_root_or_a_branch_under_the_longest_prefix() -> None:
    turns = [
        turn((5, 9), (17,)),
        turn((4,), (2,)),
        turn((5, 9, 17, 8), (3,), starts=True),  # as if turn 1 had not been
        turn((5, 9, 17, 8, 3, 6), (7,), starts=True),  # what was said until then, and more
        turn((5, 8), (1,), starts=True),  # another history
        turn((5, 9, 17, 4, 2), (11,), starts=True),  # exactly what is there
        turn((0,), (12,)),
    ]
    assert shape(turns) == [
        (None, (5, 9)), (0, (4,)), (0, (8,)), (2, (6,)), (None, (5, 8)), (1, ()), (5, (0,)),
    ]  # fmt: skip
    forest = make_forest(whole(turns))
    assert [leaf.id for leaf in forest.leaves()] == [3, 4, 6]
    assert [node.id for node in forest.walk(6)] == [0, 1, 5, 6]
    assert forest.tokens(3) == (5, 9, 17, 8, 3, 6, 7)


def test_the_seats_have_trees_of_their_own() -> None:
    turns = [
        turn((5,), (1,), "a"),
        turn((5, 1), (2,), "b", starts=True),
        turn((6,), (3,), "a"),
        turn((7,), (4,), "b"),
    ]
    assert shape(turns) == [(None, (5,)), (None, (5, 1)), (0, (6,)), (1, (7,))]
    assert [node.speaker for node in make_forest(whole(turns)).nodes] == ["a", "b", "a", "b"]


def test_what_an_agent_says_to_itself_is_in_its_own_tree() -> None:
    turns = [
        turn((5,), (1,), "agent/plan"),
        turn((5, 1, 8), (2,), "agent", starts=True),
        turn((9,), (3,), "agent/plan", starts=True),
        turn((4,), (6,), "agent"),
    ]
    assert shape(turns) == [(None, (5,)), (0, (8,)), (None, (9,)), (2, (4,))]


def test_versions_by_token_are_kept() -> None:
    done = Completion(
        token_ids=(1, 2),
        logprobs=(),
        stop="stop",
        policy_version=4,
        version_spans=((0, 3), (1, 4)),
        policy="p",
    )
    mixed = Turn(observation=(), prompt_ids=(5,), completion=done, action=Action())
    (node,) = make_forest(whole([mixed])).nodes
    assert (node.versions, node.policy, node.logprobs) == (((0, 3), (1, 4)), "p", ())


ids = st.lists(st.integers(0, 1), max_size=3).map(tuple)
turns = st.builds(turn, ids, ids, st.sampled_from(["agent", "agent/plan", "b"]), st.booleans())


@st.composite
def histories(draw: st.DrawFn) -> list[Turn]:
    """Turns some of which begin with what an earlier walk said."""
    found: list[Turn] = []
    for _ in range(draw(st.integers(0, 7))):
        new = draw(turns)
        if found and draw(st.booleans()):
            forest = make_forest(whole(found))
            before = forest.tokens(draw(st.integers(0, len(found) - 1)))
            new = turn(before + new.prompt_ids, new.completion.token_ids, new.seat, True)
        found.append(new)
    return found


@settings(max_examples=150, deadline=None)
@given(histories())
def test_a_forest_is_the_trajectory_again(turns: list[Turn]) -> None:
    trajectory = whole(turns)
    forest = make_forest(trajectory)
    assert join_forest(forest) == trajectory
    streams: dict[str, Ids] = {}
    for node, each in zip(forest.nodes, turns, strict=True):
        assert node.parent is None or node.parent < node.id
        before = () if each.starts_segment else streams.get(each.speaker, ())
        streams[each.speaker] = before + each.prompt_ids + each.completion.token_ids
        assert forest.tokens(node.id) == streams[each.speaker], "a walk is the token stream of its leaf"


@pytest.mark.parametrize("seats", [(), ("agent", "agent"), ("a", "b", "a", "b/plan")])
def test_an_episode_has_a_trajectory_for_each_seat(seats: tuple[str, ...]) -> None:
    trajectory = whole([turn((number,), (1,), seat) for number, seat in enumerate(seats)])
    episode = split_seats(trajectory)
    assert (episode.task, episode.outcome, episode.parent) == (trajectory.task, trajectory.outcome, None)
    assert episode.seats == tuple(dict.fromkeys(seat.split("/")[0] for seat in seats))
    assert len(episode.trajectories) == max(1, len(episode.seats))
    back = [each for part in episode.trajectories for each in part.turns]
    assert sorted(back, key=lambda each: each.prompt_ids) == list(trajectory.turns)
