"""Pictures of curves are safe to show in a page, have its colours, and are the same each time."""

import re

import pytest

from quintain.eval.pictures import BLUE, LINE, add_legend, empty_axes, svg_of


@pytest.fixture
def picture() -> str:
    axes = empty_axes(4, 2)
    axes.plot([0, 1], [0, 1], color=BLUE, label="$a$ <script>")
    axes.text(0.5, 0.5, "bold", weight="bold", size=8)
    add_legend(axes)
    return svg_of(axes)


def test_text_is_text_and_inert(picture: str) -> None:
    assert "$a$ &lt;script&gt;</text>" in picture and "<script" not in picture
    assert re.search(r'<text font-weight="(700|bold)" font-size="8px"[^>]*>bold</text>', picture)


def test_there_is_no_style_no_address_to_fetch_and_no_date(picture: str) -> None:
    assert "style" not in picture and "<metadata" not in picture and "<!" not in picture
    assert not re.search(r'href="(?!#)', picture) and 'font-family="sans-serif"' in picture


def test_colours_are_those_of_the_page_where_it_has_any(picture: str) -> None:
    assert f"var(--blue, {BLUE})" in picture and f"var(--line, {LINE})" in picture


def test_the_same_curves_give_the_same_picture(picture: str) -> None:
    axes = empty_axes(4, 2)
    axes.plot([0, 1], [0, 1], color=BLUE, label="$a$ <script>")
    axes.text(0.5, 0.5, "bold", weight="bold", size=8)
    add_legend(axes)
    assert svg_of(axes) == picture
