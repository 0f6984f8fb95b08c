from random import Random

from quintain.engines.prefixes import Piece, common_length, find_longest, plan_pieces


def test_common_length_by_hand() -> None:
    assert common_length([1, 2, 3], [1, 2, 4, 5]) == 2
    assert common_length([1, 2], [1, 2, 3]) == 2
    assert common_length([], [1]) == 0


def test_the_longest_is_found_and_none_where_nothing_is_alike() -> None:
    known = [[1, 2, 9], [1, 2, 3, 4, 5], [7]]
    assert find_longest([1, 2, 3, 8], known) == (1, 3)
    assert find_longest([1, 2], known) == (0, 2)
    assert find_longest([8, 1], known) == (-1, 0)


def test_a_group_with_one_beginning_reads_it_once() -> None:
    beginning = list(range(100))
    streams = [[*beginning, 200 + k, *range(19)] for k in range(8)]
    assert plan_pieces(streams, [0] * 8, 16) == [[Piece(leader=0, length=100, others=tuple(range(1, 8)))]]


def test_a_beginning_within_a_beginning_is_a_level_of_its_own() -> None:
    two = [[1] * 20 + [2] * 20 + [k] for k in (5, 6)]
    other = [1] * 20 + [3] * 20
    assert plan_pieces([*two, other], [0] * 3, 16) == [
        [Piece(leader=0, length=20, others=(1, 2))],
        [Piece(leader=0, length=40, others=(1,))],
    ]
    assert plan_pieces([*two, other], [0] * 3, 21) == [[Piece(leader=0, length=40, others=(1,))]]


def test_a_stream_that_others_begin_with_reads_its_last_token_by_itself() -> None:
    short, long, longer = [1] * 20, [1] * 20 + [2] * 20, [1] * 20 + [2] * 19 + [3]
    assert plan_pieces([short, long, longer], [0] * 3, 4) == [
        [Piece(leader=0, length=19, others=(1, 2))],
        [Piece(leader=1, length=39, others=(2,))],
    ]


def test_what_is_there_already_is_not_read_again() -> None:
    streams = [[1] * 30 + [k] for k in (2, 3)]
    assert plan_pieces(streams, [20, 20], 10) == [[Piece(leader=0, length=30, others=(1,))]]
    assert plan_pieces(streams, [20, 20], 11) == []
    assert plan_pieces(streams, [30, 30], 1) == []


def count_nodes(streams: list[list[int]]) -> int:
    """Count the tokens of a trie, and once more the last token of each stream that others go on from."""
    beginnings = {tuple(each[: k + 1]) for each in streams for k in range(len(each))}
    inner = sum(any(o[: len(s)] == s and o != s for o in streams) for s in streams)
    return len(beginnings) + inner


def test_as_many_tokens_are_read_as_the_trie_of_the_streams_has() -> None:
    rng = Random(0)
    for _ in range(200):
        drawn = {tuple(rng.randrange(2) for _ in range(rng.randint(1, 9))) for _ in range(rng.randint(1, 8))}
        streams = [list(each) for each in drawn]
        starts, read = [0] * len(streams), 0
        for level in plan_pieces(streams, starts, 1):
            for piece in level:
                assert all(
                    streams[place][: piece.length] == streams[piece.leader][: piece.length]
                    for place in piece.others
                )
                read += piece.length - starts[piece.leader]
                for place in (piece.leader, *piece.others):
                    starts[place] = piece.length
        read += sum(len(each) - start for each, start in zip(streams, starts, strict=True))
        assert read <= count_nodes(streams)
        assert all(start < len(each) for each, start in zip(streams, starts, strict=True))
