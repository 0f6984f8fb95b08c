"""Research extensions: a folder's layout, how numbers are read, cheats that gain nothing, and an episode."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from quintain.adapters.rexbench.environment import RexBench
from quintain.adapters.rexbench.judging import (
    gold_files,
    is_within,
    judge,
    predict_range,
    read_number,
    recall_files,
    student_quantile,
)
from quintain.adapters.rexbench.layout import Target, is_inside, read_extensions
from quintain.environments.boundary import refuse_training
from quintain.environments.protocol import advance, begin, tool_action
from quintain.errors import DataError, UsageError
from quintain.types import as_text

RUN = 'number = float(open("data.txt").read())\nprint("mean:", number)\n'
GOLD = (
    '--- a/run.py\n+++ b/run.py\n@@ -1,2 +1,2 @@\n number = float(open("data.txt").read())\n'
    '-print("mean:", number)\n+print("mean:", 2 * number)\n'
)
TARGETS = {
    "command": ["python3", "run.py"],
    "trials": [
        {"files": {"data.txt": "7.txt"}, "targets": [{"label": "mean:", "low": 13.9, "high": 14.1}]},
        {"files": {"data.txt": "9.txt"}, "targets": [{"label": "mean:", "low": 17.9, "high": 18.1}]},
    ],
}


def write_folder(folder: Path, targets: Mapping[str, Any] = TARGETS) -> Path:
    texts = {
        "instructions/double/instructions.md": "Double it.\n\n### Hints\nTwice.\n\n### More detailed hints\n2 * x\n",
        "instructions/other/instructions.md": "Cannot be judged here.\n",
        "tasks/double/run.py": RUN,
        "tasks/double/data.txt": "3",
        "hidden/double/7.txt": "7",
        "hidden/double/9.txt": "9",
        "gold/double.patch": GOLD,
        "targets/double.json": json.dumps(targets),
    }
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("text", "target", "number"),
    [
        ("PRED ACC : 0.47 (1)\n", {"label": "PRED ACC :"}, 0.47),
        ("PRED ACC : 0.47\nPRED ACC : 0.9", {"label": "PRED ACC :"}, None),
        ("ACC : nan", {"label": "ACC :"}, None),
        ("x: -1.5e-3", {"label": "x:"}, -0.0015),
        ("epoch,test_acc\n1,0.8\n2,0.88\n", {"column": "test_acc"}, 0.88),
        ("epoch,test_acc\n1,0.8\n2\n", {"column": "test_acc"}, None),
        ("epoch,acc\n", {"column": "acc"}, None),
        ("a,a\n1,2\n", {"column": "a"}, None),
        ("a\n1x\n", {"column": "a"}, None),
        ("", {"column": "a"}, None),
    ],
)
def test_numbers_are_read_where_they_stand_once(
    text: str, target: dict[str, Any], number: float | None
) -> None:
    assert read_number(text, Target(low=0, high=1, **target)) == number


def test_ranges_contain_their_ends_and_nothing_that_is_missing() -> None:
    target = Target(low=0.88011, high=0.88411, column="test_acc")
    assert [is_within(number, target) for number in (0.88011, 0.88411, 0.8801, 0.8842, None)] == [
        True, True, False, False, False,
    ]  # fmt: skip


def test_a_range_is_predicted_by_students_distribution() -> None:
    assert student_quantile(0.975, 19) == pytest.approx(2.093024, abs=1e-6)
    assert student_quantile(0.95, 1) == pytest.approx(6.313752, abs=1e-6)
    assert predict_range([1, 2, 3], 0.5) == pytest.approx((2 - 0.942809, 2 + 0.942809), abs=1e-6)


def test_recall_is_of_the_gold_patchs_files() -> None:
    assert recall_files(frozenset({"a", "c"}), frozenset({"a", "b"})) == 0.5
    assert recall_files(frozenset({"a"}), frozenset()) == 0.0


def test_a_patch_is_run_where_it_was_not_shown(tmp_path: Path) -> None:
    (extension,) = read_extensions(write_folder(tmp_path))
    before = dict(extension.repository)
    right = judge(extension, gold_files(extension))
    assert (
        right.numbers == (14.0, 18.0) and right.is_success and right.has_executed and right.file_recall == 1
    )
    unchanged = judge(extension, before)
    assert unchanged.has_executed and not unchanged.is_success and unchanged.file_recall == 0
    printed = judge(extension, {**before, "run.py": 'print("mean: 6")\n'})
    assert printed.has_executed and not printed.is_success and printed.numbers == (6.0, 6.0)
    broken = judge(extension, {**before, "run.py": 'print("mean: 14"); raise SystemExit(1)\n'})
    assert not broken.has_executed and not broken.is_success
    overwritten = {**gold_files(extension), "data.txt": "0"}
    assert judge(extension, overwritten).is_success, "hidden files take the place of the agent's"


def test_results_that_are_brought_along_are_taken_away(tmp_path: Path) -> None:
    targets = {
        "command": ["python3", "run.py"],
        "trials": [{"targets": [{"file": "out/r.csv", "column": "acc", "low": 1, "high": 1}]}],
    }
    (extension,) = read_extensions(write_folder(tmp_path, targets))
    files = dict(extension.repository)
    assert judge(extension, {**files, "out/r.csv": "acc\n1\n"}).numbers == (None,)
    written = 'import os\nos.makedirs("out", exist_ok=True)\nopen("out/r.csv", "w").write("acc\\n1\\n")\n'
    assert judge(extension, {**files, "run.py": written}).is_success


def test_one_that_never_ends_is_stopped(tmp_path: Path) -> None:
    (extension,) = read_extensions(write_folder(tmp_path, {**TARGETS, "seconds": 1}))
    verdict = judge(extension, {**extension.repository, "run.py": "while True: pass\n"})
    assert not verdict.has_executed and verdict.numbers == (None, None)


def test_an_episode(tmp_path: Path) -> None:
    world = RexBench(str(write_folder(tmp_path)), hints=1)
    task = world.task("eval", 0)
    shown = as_text(begin(world, task))
    assert shown.startswith("Double it.\n\n### Hints\nTwice.\n\nIt is run by: python3 run.py\nFiles: ")
    assert "run.py" in shown and "7.txt" not in shown and "2 * x" not in shown
    assert as_text(advance(world, tool_action("read_file", path="run.py", first=2)).observation) == (
        'print("mean:", number)\n'
    )
    ran = as_text(advance(world, tool_action("run")).observation)
    assert ran == "mean: 3.0\n\nIt ended well."
    saved = world.snapshot()
    for path in ("../x", "/etc/x", ""):
        refused = advance(world, tool_action("write_file", path=path, text="x"))
        assert "cannot be" in as_text(refused.observation) and refused.tool_errors
    assert advance(world, tool_action("apply_patch", diff="x")).tool_errors
    assert world.snapshot() == saved
    wrong = advance(world, tool_action("submit"))
    assert (wrong.is_success, wrong.reward) == (False, 0.0)
    assert dict(wrong.reward_terms) == {"executed": 1.0, "file_recall": 0.0}
    world.restore(saved)
    assert advance(world, world.expert_action()).observation == "Changed run.py."
    right = advance(world, world.expert_action())
    assert (right.is_success, right.reward, dict(right.reward_terms)) == (
        True, 1.0, {"executed": 1.0, "file_recall": 1.0},
    )  # fmt: skip
    with pytest.raises(UsageError, match="evaluation"):
        refuse_training(world)


def test_hints_change_the_prompt_alone(tmp_path: Path) -> None:
    folder = str(write_folder(tmp_path))
    shown = [
        as_text(begin(world := RexBench(folder, hints=level), world.task("eval", 0))) for level in range(3)
    ]
    assert [("Twice." in text, "2 * x" in text) for text in shown] == [
        (False, False),
        (True, False),
        (True, True),
    ]
    assert len({text.rpartition("It is run by")[2] for text in shown}) == 1
    with pytest.raises(UsageError, match="hints: got 3"):
        RexBench(folder, hints=3)
    with pytest.raises(UsageError, match="task of rexbench: got 'cogs'; give one of double"):
        RexBench(folder, task="cogs")


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ({"trials": []}, "of which trials is wrong"),
        ({"trials": [{"targets": [{"label": "x", "low": 2, "high": 1}]}]}, "low <= high"),
        (
            {"trials": [{"targets": [{"label": "x", "column": "y", "low": 1, "high": 1}]}]},
            "a label or a column",
        ),
        ({**TARGETS, "gpu": True}, "of which gpu is wrong"),
        (
            {"trials": [{"files": {"a": "none.txt"}, "targets": [{"label": "x", "low": 1, "high": 1}]}]},
            "none.txt",
        ),
        ({"trials": [{"targets": [{"file": "../x", "label": "x", "low": 1, "high": 1}]}]}, "which names"),
    ],
)
def test_targets_that_cannot_be_are_one_line(tmp_path: Path, targets: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError) as caught:
        read_extensions(write_folder(tmp_path, targets))
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_checkout_without_what_is_handed_out_is_said(tmp_path: Path) -> None:
    place = tmp_path / "instructions" / "cogs"
    place.mkdir(parents=True)
    (place / "instructions.md").write_text("Do it.")
    with pytest.raises(DataError, match="instructions of cogs and targets/TASK"):
        read_extensions(tmp_path)
    write_folder(tmp_path)
    (tmp_path / "tasks" / "double" / "run.py").unlink()
    (tmp_path / "tasks" / "double" / "data.txt").unlink()
    with pytest.raises(DataError, match="got no repository of double"):
        read_extensions(tmp_path)
    assert not is_inside("a/../b") and is_inside("a/b.py")
