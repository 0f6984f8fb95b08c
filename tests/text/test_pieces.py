import pytest

from quintain.text.pieces import PAD, Pieces, common_prefix, pieces_of


def test_pieces_are_filled_with_trimmed_contents() -> None:
    pieces = Pieces(("<u>", "|", "<a>"), ((True, False), (False, True)))
    assert pieces.fill([" x ", " y "]) == "<u>x | y<a>"


@pytest.mark.parametrize(
    ("padded", "trims"),
    [
        (f"<u>{PAD}n0{PAD}<a>", (False, False)),
        (f"<u>n0{PAD}<a>", (True, False)),
        (f"<u>{PAD}n0<a>", (False, True)),
        ("<u>n0<a>", (True, True)),
    ],
)
def test_trimmed_edges_are_found(padded: str, trims: tuple[bool, bool]) -> None:
    assert pieces_of("<u>n0<a>", padded, ["n0"]) == Pieces(("<u>", "<a>"), (trims,))


def test_no_pieces_where_contents_are_edited_lost_or_repeated() -> None:
    assert pieces_of("<u>n0<a>", "<u>_n0_<a>", ["n0"]) is None
    assert pieces_of("<u>n0n0<a>", "<u>n0n0<a>", ["n0"]) is None
    assert pieces_of("<u>n1n0<a>", "<u>n1n0<a>", ["n0", "n1"]) is None
    assert pieces_of("<u><a>", "<u><a>", ["n0"]) is None
    assert pieces_of("<u>", "<u>", []) == Pieces(("<u>",), ())


def test_what_two_texts_begin_with() -> None:
    assert [common_prefix("abc", each) for each in ("abd", "abc", "abcd", "x", "")] == [
        "ab",
        "abc",
        "abc",
        "",
        "",
    ]
