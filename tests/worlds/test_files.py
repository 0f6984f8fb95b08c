"""Work on files: rubrics find what was done wrong, and nothing else; a judge who does not answer is no score."""

import json
from contextlib import closing

import pytest

from quintain.environments.baselines import expert, noop, play
from quintain.environments.check import check
from quintain.environments.protocol import advance, begin, tool_action
from quintain.environments.tools import GraderFault
from quintain.errors import UsageError
from quintain.worlds.files.game import FilesWorld
from quintain.worlds.files.plan import KINDS, RULES, FilesPlan, Kind
from quintain.worlds.files.rubrics import PENALTIES, WEIGHTS, check_files, is_number, weights_of

SALES = "day,shop,amount,state\n1,Nord,10,ok\n1,Nord,5,void\n2,Nord,3,back\n2,West,9,ok\n"
PLAN = FilesPlan(
    kind="refine",
    request="",
    attached=(("plan.csv", "day,name,place\nMon,Ana,  desk 1 \nTue,Ben,desk 2\n"), ("house.md", "x")),
    wanted=(("plan.csv", ""),),
    asked=("Tue", "Eva", "Sat,Dan,desk 3"),
)


def latent(rule: str) -> FilesPlan:
    said = RULES.get(rule, "Files end in a newline.")
    return FilesPlan(
        kind="latent",
        request="",
        attached=(("sales.csv", SALES), ("conventions.md", said)),
        wanted=(("total.json", ""),),
        asked=("Nord", rule),
    )


@pytest.mark.parametrize(("rule", "total"), [("", 18), ("thousands", 18_000), ("void", 13), ("back", 12)])
def test_rules_of_attachments_by_hand(rule: str, total: int) -> None:
    plan = latent(rule)
    files = {**dict(plan.attached), "total.json": json.dumps({"total": total, "days": 2})}
    assert check_files(plan, files) == {
        "form": True, "days": True, "total": True, "touched": False, "stray": False,
    }  # fmt: skip
    wrong = {**files, "total.json": json.dumps({"total": total + 1, "days": 2})}
    assert not check_files(plan, wrong)["total"]


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("day,name,place\nMon,Ana,  desk 1 \nTue,Eva,desk 2\nSat,Dan,desk 3\n", "changed added kept"),
        ("day,name,place\nMon,Ana,desk 1\nTue,Eva,desk 2\nSat,Dan,desk 3\n", "changed added"),
        ("day,name,place\nMon,Ana,  desk 1 \nTue,Ben,desk 2\nSat,Dan,desk 3\n", "added kept"),
        ("day,name,place\nMon,Ana,  desk 1 \nTue,Eva,desk 2\n", "changed kept"),
        ("day,name,place\nMon,Ana,  desk 1 \nTue,Eva, desk 2\nSat,Dan,desk 3\n", "changed added"),
        ("day,name,place\nMon,Ana,  desk 1 \nTue,Ben,desk 2\n", ""),
        ("", ""),
    ],
)
def test_edits_by_hand(text: str, held: str) -> None:
    found = check_files(PLAN, {**dict(PLAN.attached), "plan.csv": text})
    assert " ".join(name for name in WEIGHTS["refine"] if found[name]) == held


def test_penalties() -> None:
    files = {**dict(PLAN.attached), "house.md": "y", "more.txt": ""}
    held = check_files(PLAN, files)
    assert held["touched"] and held["stray"]
    assert weights_of("refine", is_judged=True).keys() == {*WEIGHTS["refine"], *PENALTIES, "note"}


def test_numbers_are_no_texts_and_no_truths() -> None:
    assert is_number(1, 1) and is_number(1.0, 1)
    assert not is_number(True, 1) and not is_number("1", 1) and not is_number(None, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_experts_win_and_nobody_does_not(kind: Kind) -> None:
    with closing(FilesWorld(kind=kind)) as world:
        tasks = [world.task("train", index) for index in range(40)]
        assert all(play(world, task, expert).is_success for task in tasks)
        assert not any(play(world, task, noop).is_success for task in tasks)


def test_the_score_is_the_rubrics() -> None:
    world = FilesWorld(kind="latent")
    begin(world, world.task("train", 0))
    answer = json.loads(dict(world.plan.wanted)["total.json"])
    advance(world, tool_action("write_file", path="total.json", text=json.dumps({**answer, "total": -1})))
    advance(world, tool_action("write_file", path="more.txt", text=""))
    result = advance(world, tool_action("submit"))
    assert (result.reward, result.is_success) == (pytest.approx((1 + 1 - 1) / 5), False)
    assert world.failed == ("total", "stray") and "failed: total, stray" in str(result.observation)


def test_bad_calls_are_said() -> None:
    world = FilesWorld()
    begin(world, world.task("train", 0))
    assert "there is no file 'x'" in str(advance(world, tool_action("read_file", path="x")).observation)
    assert "no name for a file" in str(
        advance(world, tool_action("write_file", path="a/b", text="")).observation
    )
    with pytest.raises(UsageError, match="got a judge and kind=refine"):
        FilesWorld(kind="refine", judge="http://127.0.0.1:9/v1?model=m")


def test_a_judge_who_does_not_answer_is_no_score() -> None:
    world = FilesWorld(kind="workflow", judge="http://127.0.0.1:9/v1?model=m&deadline=1")
    with pytest.raises(GraderFault, match=r"judge at http://127\.0\.0\.1:9/v1: got"):
        play(world, world.task("train", 0), expert)
    begin(world, world.task("train", 0))
    result = advance(world, tool_action("submit"))
    assert result.reward == 0.0 and "note" in world.failed, "nobody is asked about a note that is not there"


def test_it_keeps_what_an_environment_promises() -> None:
    assert check("files", episodes=6).has_passed
