"""Pages lose what says nothing and keep every node that can be acted on."""

import random
import re
from collections.abc import Callable

import pytest
from tests.agents.conftest import Talk

from quintain.agents.deliberation import TASK
from quintain.agents.harness import PlainText
from quintain.agents.protocol import Brief
from quintain.agents.shaping import Pivotal, Simplified, find_ids, keep_pivotal, simplify, with_text
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Image, Text

Briefs = Callable[..., Brief]
PAGE = """Shop
[1] main ""
  [2] link "Red ball"
    [3] StaticText "Red ball"
  [4] list ""
    [5] button "Buy"
    [6] StaticText ""

    [7] StaticText "In stock"
Footer
Footer"""
SIMPLE = """Shop
[1] main ""
  [2] link "Red ball"
  [4] list ""
    [5] button "Buy"
    [7] StaticText "In stock"
Footer"""


def test_a_page_is_simplified() -> None:
    assert simplify(PAGE) == SIMPLE
    assert simplify("A wall.\nA wall ahead.") == "A wall.\nA wall ahead."
    assert simplify("") == ""


@pytest.mark.parametrize(
    ("parent", "text", "is_said"),
    [
        ('link "Order 100"', '"10"', False),
        ('row "Total: $120"', '"$12"', False),
        ('row "Total: $120"', '"$120"', True),
        ('link "Red ball"', "'Red ball'", True),
        ('link "Red ball"', '"ball Red"', False),
        ('link "Red"', '"Red ball"', False),
    ],
)
def test_static_text_goes_where_all_its_words_are_said(parent: str, text: str, is_said: bool) -> None:
    for between in ("", '  [2] group ""\n'):  # by the nearest node around it, or by one further out
        page = f"[1] {parent}\n{between}    [3] StaticText {text}"
        assert ("[3]" not in simplify(page)) == is_said


def test_every_node_that_can_be_acted_on_stays() -> None:
    rng = random.Random(0)
    for _ in range(200):
        lines: list[str] = []
        for number in range(rng.randint(1, 20)):
            role = rng.choice(["link", "button", "StaticText", "list"])
            lines.append(
                f'{"  " * rng.randint(0, 4)}[{number}] {role} "{rng.choice(["", "Buy", "Buy 12", "1", "12", "x"])}"'
            )
        page = "\n".join(lines)
        wanted = [line for line in lines if "StaticText" not in line]
        left = simplify(page).splitlines()
        assert [line for line in left if "StaticText" not in line] == wanted
        names = [set(" ".join(re.findall(r'"(.*)"', text)).split()) for text in (page, simplify(page))]
        assert names[0] == names[1]
        assert simplify(simplify(page)) == simplify(page)


def test_pivotal_nodes_with_what_they_are_in() -> None:
    assert keep_pivotal(PAGE, frozenset({"5"})) == 'Shop\n[1] main ""\n  [4] list ""\n    [5] button "Buy"'
    assert keep_pivotal(PAGE, frozenset()) == "Shop"
    assert keep_pivotal("A wall.\nA door.", frozenset()) == "A wall.\nA door."
    assert find_ids("click [a4], then 12 of x7") == {"a4", "12"}


def test_golden_prompts_of_shaped_pages(small_chat: Chat, brief_of: Briefs) -> None:
    talk = Talk(small_chat, Pivotal(Simplified(PlainText(small_chat)), small_chat, turns=1).open(brief_of()))
    assert talk.sees(PAGE) == f"<|system|>Go.<|user|>{SIMPLE}<|assistant|>"
    talk.says("click [2]")
    second = talk.sees("A wall.")
    page = 'Shop\n[1] main ""\n  [2] link "Red ball"'
    told = f"<|system|>Go.\n\n{TASK}\n{PAGE}"
    assert second == f"{told}<|user|>{page}<|assistant|>click [2]<|end|><|user|>A wall.<|assistant|>"
    talk.says("left")
    assert talk.sees("A door.") == (
        f"{told}<|user|>A wall.<|assistant|>left<|end|><|user|>A door.<|assistant|>"
    )


def test_what_needs_no_cut_is_only_appended_to(small_chat: Chat, brief_of: Briefs) -> None:
    talk = Talk(small_chat, Pivotal(PlainText(small_chat), small_chat, turns=3).open(brief_of()))
    talk.sees("A wall.")
    talk.says("left")
    assert talk.sees("A wall.") == "...<|user|>A wall.<|assistant|>"
    with pytest.raises(UsageError, match="pivotal: got turns=-1"):
        Pivotal(PlainText(small_chat), small_chat, turns=-1).open(brief_of())


def test_pictures_stay() -> None:
    picture = Image(data=b"x", media_type="image/png")
    assert with_text((Text(text="a"), picture), "b") == (Text(text="b"), picture)
    assert with_text((Text(text="a"),), "b") == with_text("a", "b") == "b"
