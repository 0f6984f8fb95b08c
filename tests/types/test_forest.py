"""What each turn continues, by hand, and that a walk is the token stream of its leaf."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.build import make_turn

from quintain.types import Turn
from quintain.types.forest import find_parents

Ids = tuple[int, ...]


def turn(prompt: Ids, sampled: Ids, seat: str = "agent", starts: bool = False) -> Turn:
    return make_turn(sampled, shows="x", prompt=prompt, text="go", seat=seat, starts_segment=starts)


def shape(turns: Sequence[Turn]) -> list[tuple[int | None, Ids]]:
    """What each turn continues, and the ids that it is given beyond that."""
    found = zip(turns, find_parents(turns), strict=True)
    return [(parent, each.prompt_ids[num_shared:]) for each, (parent, num_shared) in found]


def tokens(turns: Sequence[Turn], leaf: int) -> Ids:
    """The token stream of the walk to `leaf`."""
    parent, given = shape(turns)[leaf]
    before = () if parent is None else tokens(turns, parent)
    return before + given + turns[leaf].completion.token_ids


def test_one_segment_is_one_chain() -> None:
    turns = [turn((5, 9), (17,)), turn((4,), (2,))]
    assert shape(turns) == [(None, (5, 9)), (0, (4,))]
    assert tokens(turns, 1) == (5, 9, 17, 4, 2)


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


def test_the_seats_have_trees_of_their_own() -> None:
    turns = [
        turn((5,), (1,), "a"),
        turn((5, 1), (2,), "b", starts=True),
        turn((6,), (3,), "a"),
        turn((7,), (4,), "b"),
    ]
    assert shape(turns) == [(None, (5,)), (None, (5, 1)), (0, (6,)), (1, (7,))]


def test_what_an_agent_says_to_itself_is_in_its_own_tree() -> None:
    turns = [
        turn((5,), (1,), "agent/plan"),
        turn((5, 1, 8), (2,), "agent", starts=True),
        turn((9,), (3,), "agent/plan", starts=True),
        turn((4,), (6,), "agent"),
    ]
    assert shape(turns) == [(None, (5,)), (0, (8,)), (None, (9,)), (2, (4,))]


ids = st.lists(st.integers(0, 1), max_size=3).map(tuple)
turns = st.builds(turn, ids, ids, st.sampled_from(["agent", "agent/plan", "b"]), st.booleans())


@st.composite
def histories(draw: st.DrawFn) -> list[Turn]:
    """Turns some of which begin with what an earlier walk said."""
    found: list[Turn] = []
    for _ in range(draw(st.integers(0, 7))):
        new = draw(turns)
        if found and draw(st.booleans()):
            before = tokens(found, draw(st.integers(0, len(found) - 1)))
            new = turn(before + new.prompt_ids, new.completion.token_ids, new.seat, True)
        found.append(new)
    return found


@settings(max_examples=150, deadline=None)
@given(histories())
def test_a_walk_is_the_token_stream_of_its_leaf(turns: list[Turn]) -> None:
    streams: dict[str, Ids] = {}
    for number, (each, (parent, _)) in enumerate(zip(turns, find_parents(turns), strict=True)):
        assert parent is None or parent < number
        before = () if each.starts_segment else streams.get(each.speaker, ())
        streams[each.speaker] = before + each.prompt_ids + each.completion.token_ids
        assert tokens(turns, number) == streams[each.speaker]
