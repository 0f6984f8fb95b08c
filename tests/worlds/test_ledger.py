"""Questions about all rows of a ledger: answers by value, one grader for code and calls, and a late correction."""

import pytest

from quintain.agents.code_world import InCode
from quintain.environments.baselines import expert, noop, play
from quintain.environments.check import check
from quintain.environments.protocol import advance, begin, tool_action
from quintain.errors import UsageError
from quintain.safety.isolation import find_fault
from quintain.safety.limits import Limits
from quintain.types import Action, as_text
from quintain.worlds.ledger.book import Book, Row, find_answer, is_answer
from quintain.worlds.ledger.game import LedgerWorld, Seen

ROWS = (Row("oslo", 5), Row("rome", 9), Row("oslo", 9), Row("lima", 2))
REGIONS = (("oslo", "north"), ("rome", "south"), ("lima", "north"))


def book(ask: str, of: str = "", late: tuple[int, int] | None = None) -> Book:
    return Book(rows=ROWS, regions=REGIONS, ask=ask, of=of, late=late)  # pyright: ignore[reportArgumentType]


def test_answers_by_hand() -> None:
    assert find_answer(book("sum", "oslo")) == [14]
    assert find_answer(book("join", "north")) == [16]
    assert find_answer(book("sort")) == [1, 2, 0, 3], "of equal amounts the lower id"
    assert find_answer(book("sum", "oslo", late=(0, 50)).corrected) == [59]
    assert book("join", "north").question() == "Add up the amounts of the shops of the region north."


@pytest.mark.parametrize(("value", "is_right"), [(14, True), ([14], True), (14.0, False), ([14, 1], False),
    ("14", False), (True, False), (None, False), ([], False), ({"a": 14}, False)])  # fmt: skip
def test_an_answer_is_a_value_and_no_text(value: object, is_right: bool) -> None:
    assert is_answer(value, [14]) == is_right
    assert not is_answer(True, [1]), "true is no number"


def test_rows_are_read_by_pages_or_stand_in_the_prompt() -> None:
    world, printed = LedgerWorld(rows=4), LedgerWorld(rows=4, interface="text")
    assert [t.name for t in world.tools()] == ["read", "answer"] and [t.name for t in printed.tools()] == [
        "answer"
    ]
    begin(world, world.task("train", 0))
    world.restore((book("sort"), Seen()))
    assert advance(world, tool_action("read", first=1, count=2)).observation == "1 rome 9\n2 oslo 9"
    assert world.progress() == 0, "the first row was not read"
    assert as_text(advance(world, tool_action("read", first=0, count=201)).observation).startswith(
        "Error: got first=0"
    )
    assert advance(world, tool_action("answer", numbers=[1, 2, 0, 3])).is_success
    told = as_text(begin(printed, printed.task("train", 0)))
    assert len(told.splitlines()) == 5 and told.splitlines()[-1].startswith("3 ")
    assert not printed.objects() and printed.progress() == 1


def test_what_is_answered_before_the_correction_is_wrong() -> None:
    world = LedgerWorld(rows=4, changes=True)
    begin(world, world.task("train", 0))
    for right, calls in ((False, ()), (True, ("refresh", "refresh"))):
        world.restore((book("sum", "oslo", late=(0, 50)), Seen()))
        told = [advance(world, tool_action(name)).observation for name in calls]
        assert told == ["A row was corrected.", "Nothing new."][: len(told)]
        assert world.objects()["rows"][0] == {"id": 0, "shop": "oslo", "amount": 50 if right else 5}
        assert advance(world, tool_action("answer", numbers=[59 if right else 14])).is_success == right


def test_experts_solve_it_whichever_way_and_idlers_do_not() -> None:
    for world in (
        LedgerWorld(rows=300, changes=True),
        LedgerWorld(rows=3, interface="text"),
        LedgerWorld(rows=1),
    ):
        for number in range(4):
            task = world.task("eval", number)
            assert play(world, task, expert).is_success and not play(world, task, noop).is_success
    assert check("ledger?rows=12", episodes=8).has_passed
    with pytest.raises(UsageError, match=r"got rows=0, ask=any, changes=False; give 1 to 10000 rows"):
        LedgerWorld(rows=0)
    with pytest.raises(UsageError, match="to sort what changes 2 or more"):
        LedgerWorld(rows=1, ask="sort", changes=True)


@pytest.mark.skipif(bool(find_fault()), reason=find_fault())
def test_code_has_the_rows_as_they_are_after_a_correction() -> None:
    world = InCode(LedgerWorld(rows=50, ask="sum", changes=True), limits=Limits(seconds=30.0))
    task = world.task("train", 3)
    of = as_text(begin(world, task)).split("the shop ")[1].split(".")[0]
    total = f"sum(r['amount'] for r in rows if r['shop'] == {of!r})"
    first = advance(world, Action(text=f"mine = rows\nprint({total})"))
    same = advance(world, Action(text="print(refresh())\nprint(mine is rows)"))
    assert as_text(same.observation).splitlines() == ["A row was corrected.", "True"], "not within a turn"
    later = advance(world, Action(text=f"print(mine is rows, {total})"))
    assert as_text(later.observation).split()[0] == "False"
    assert as_text(later.observation).split()[1] != as_text(first.observation).strip()
    assert advance(world, Action(text=f"result = {total}")).is_success
    world.close()
