"""Pages are shown in fewer words, and past ones by what was spoken of."""

from collections.abc import Callable

import pytest
from tests.agents.conftest import Talk

from quintain.agents.deliberation import TASK
from quintain.agents.harness import PlainText
from quintain.agents.protocol import Brief
from quintain.agents.shaping import Pivotal, Simplified, find_ids, keep_pivotal, with_text
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Image, Text

Briefs = Callable[..., Brief]
PAGE = """Shop
[1] main ""
  [2] link "Red ball"
    [3] StaticText "Red ball"
  [4] group "Order"
    [5] button "Buy"
    [6] StaticText ""

    [7] StaticText "In stock"
Footer
Footer"""
SIMPLE = """Shop
[2] link "Red ball"
[4] group "Order"
  [5] button "Buy"
  [7] StaticText "In stock"
Footer"""


def test_pivotal_nodes_with_what_they_are_in() -> None:
    assert (
        keep_pivotal(PAGE, frozenset({"5"})) == 'Shop\n[1] main ""\n  [4] group "Order"\n    [5] button "Buy"'
    )
    assert keep_pivotal(PAGE, frozenset()) == "Shop"
    assert keep_pivotal("A wall.\nA door.", frozenset()) == "A wall.\nA door."
    table = '[1] table "Lamps"\n| red | [5] button "Buy" |\n| blue | [6] button "Buy" |\n- [7] link "More"'
    assert keep_pivotal(table, frozenset({"6"})) == '| blue | [6] button "Buy" |'
    assert find_ids("click [a4], then 12 of x7") == {"a4", "12"}


def test_golden_prompts_of_shaped_pages(small_chat: Chat, brief_of: Briefs) -> None:
    talk = Talk(small_chat, Pivotal(Simplified(PlainText(small_chat)), small_chat, turns=1).open(brief_of()))
    assert talk.sees(PAGE) == f"<|system|>Go.<|user|>{SIMPLE}<|assistant|>"
    talk.says("click [2]")
    second = talk.sees("A wall.")
    page = 'Shop\n[2] link "Red ball"'
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


def test_a_page_is_cut_after_so_many_rows_and_that_is_said(small_chat: Chat, brief_of: Briefs) -> None:
    talk = Talk(small_chat, Simplified(PlainText(small_chat), rows=2).open(brief_of()))
    page = 'Shop\n[2] link "Red ball"\n(4 more lines of the page are not shown)'
    assert talk.sees(PAGE) == f"<|system|>Go.<|user|>{page}<|assistant|>"
    with pytest.raises(UsageError, match="simplified: got rows=-1"):
        Simplified(PlainText(small_chat), rows=-1).open(brief_of())


def test_pictures_stay() -> None:
    picture = Image(data=b"x", media_type="image/png")
    assert with_text((Text(text="a"), picture), "b") == (Text(text="b"), picture)
    assert with_text((Text(text="a"),), "b") == with_text("a", "b") == "b"
