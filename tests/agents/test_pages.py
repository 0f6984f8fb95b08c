"""A page loses what says nothing, and never what can be acted on, nor a word."""

import random
import re

import pytest

from quintain.agents.pages import NODE, PASSIVE, read_nodes, simplify

TABLE = """[1] table "Lamps"
  [2] rowgroup ""
    [3] row ""
      [4] columnheader "Name"
      [5] columnheader "Price"
      [6] columnheader ""
    [7] row "red 12"
      [8] cell ""
        [9] StaticText "red"
      [10] gridcell "12"
        [11] StaticText "12"
      [12] cell ""
        [13] button "Buy"
          [14] StaticText "Buy"
        [15] link "a|b\""""
LISTED = """[1] list "Reviews"
  [2] listitem ""
    [3] StaticText "Good"
    [4] link "Reply"
  [5] listitem "Bad\""""


def test_a_table_becomes_markdown() -> None:
    rows = [
        "| Name | Price |  |",
        "| --- | --- | --- |",
        '| red | 12 | [13] button "Buy" [15] link "a\\|b" |',
    ]
    assert simplify(TABLE).splitlines() == ['[1] table "Lamps"', *rows]
    assert simplify(TABLE.replace("Lamps", "")).splitlines() == rows
    assert simplify(TABLE.replace("columnheader", "cell")).splitlines()[1:] == [rows[0], rows[2]]


def test_a_table_of_what_are_no_rows_stays_a_tree() -> None:
    odd = '[1] table "Lamps"\n  [2] button "Buy"\n  [3] row ""\n    [4] cell "red"'
    assert simplify(odd) == '[1] table "Lamps"\n  [2] button "Buy"\n  [4] cell "red"'


def test_a_list_becomes_items_and_a_menu_a_line() -> None:
    assert simplify(LISTED) == '[1] list "Reviews"\n- Good [4] link "Reply"\n- Bad'
    menu = '[1] combobox "Size"\n  [2] option "small"\n  [3] option "large" selected: True'
    assert simplify(menu) == '[1] combobox "Size": [2] option "small" | [3] option "large" selected: True'


def test_text_goes_into_the_node_around_it_and_holders_go_away() -> None:
    page = '[1] generic ""\n  [2] button ""\n    [3] StaticText "Buy"\n'
    page += '  [4] textbox "Name" required: False focused: True'
    assert simplify(page) == '[2] button "Buy"\n[4] textbox "Name" focused: True'
    assert simplify('[1] section ""\n    [2] generic ""\n      [3] link "a"\n  [4] link "b"') == (
        '  [3] link "a"\n[4] link "b"'
    )
    assert simplify('[1] link "is: False"') == '[1] link "is: False"'


@pytest.mark.parametrize(
    ("parent", "text", "is_said"),
    [
        ('link "Order 100"', '"10"', False),
        ('heading "Total: $120"', '"$12"', False),
        ('heading "Total: $120"', '"$120"', True),
        ('link "Red ball"', "'Red ball'", True),
        ('link "Red ball"', '"ball Red"', False),
        ('link "Red"', '"Red ball"', False),
    ],
)
def test_static_text_goes_where_all_its_words_are_said(parent: str, text: str, is_said: bool) -> None:
    for between in ("", '  [2] group ""\n'):  # by the nearest node around it, or by one further out
        page = f"[1] {parent}\n{between}    [3] StaticText {text}"
        assert (text.strip("\"'") not in simplify(page).partition("\n")[2]) == is_said


def test_what_is_no_page_and_a_clean_page_stay() -> None:
    clean = 'Shop\n[1] heading "Lamps"\n  [2] StaticText "12 of them"\n  [3] button "Buy"\n\nFooter'
    assert simplify(clean) == clean.replace("\n\n", "\n")
    assert simplify("A wall.\nA wall ahead.") == "A wall.\nA wall ahead."
    assert simplify("") == ""


def test_a_cut_is_said() -> None:
    page = "\n".join(f'[{k}] link "{k}"' for k in range(9))
    assert simplify(page, 9) == simplify(page, 0) == page
    assert simplify(page, 7).splitlines()[6:] == ['[6] link "6"', "(2 more lines of the page are not shown)"]


def draw_page(rng: random.Random) -> str:
    """Return a random tree of nodes of all kinds."""
    roles = [*sorted(PASSIVE - {""}), "link", "button", "heading", "combobox", "option", "menu", "textbox"]
    lines: list[str] = []
    depth = 0
    for number in range(rng.randint(1, 25)):
        name = rng.choice(["", "", "Buy", "Buy 12", "1", "a|b", "red 'ball'"])
        lines.append(f'{"  " * depth}[{number}] {rng.choice(roles)} "{name}"')
        depth = rng.randint(0, depth + 1)
        if rng.random() < 0.05:
            lines.append("Plain words")
    return "\n".join(lines)


def find_words(page: str) -> set[str]:
    """Return the words of names and plain lines."""
    text = re.sub(r"\[\w+\]( \w+)?", " ", page).replace("\\|", "|")
    return {word for word in re.findall(r"[^\s\"':]+", text) if word not in ("|", "---", "-", "|---")}


def test_every_node_that_can_be_acted_on_and_every_word_stay_in_random_trees() -> None:
    rng = random.Random(0)
    for _ in range(1000):
        page = draw_page(rng)
        left = simplify(page)
        wanted = [
            (node[2], node[3])
            for node in map(NODE.fullmatch, page.splitlines())
            if node is not None and node[3] not in PASSIVE
        ]
        found = [pair for pair in re.findall(r"\[(\w+)\] (\w+)", left) if pair[1] not in PASSIVE]
        assert found == wanted
        assert find_words(left) - {"|"} == find_words(page) - {"|"}
        assert simplify(left) == left, page


def test_nodes_are_read_as_a_tree() -> None:
    (root,) = read_nodes(TABLE.splitlines())
    (group,) = root.children
    assert [row.name for row in group.children] == ["", "red 12"]
    assert [cell.role for cell in group.children[1].children] == ["cell", "gridcell", "cell"]
