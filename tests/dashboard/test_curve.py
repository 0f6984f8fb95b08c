import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from quintain.dashboard.curve import (
    draw_comparison,
    learning_curve_png,
    learning_curve_svg,
    reward_model_svg,
    terminal_curve,
)

SVG = "{http://www.w3.org/2000/svg}"
CURVE = re.compile("eval|train|band|task-.*")


def curve(*values: float) -> list[dict[str, Any]]:
    return [{"step": step, "eval/success": value} for step, value in enumerate(values)]


def test_a_rising_curve_by_value() -> None:
    assert terminal_curve(curve(0.0, 1.0), width=4, height=2).splitlines() == [
        "       held-out success: 0 % → 100 %",
        "100 % │⠀⠀⡠⠊",
        "  0 % │⡠⠊⠀⠀",
        "      └────",
        "       0step 1",
    ]


def test_a_falling_and_a_steep_curve() -> None:
    lines = terminal_curve(curve(1.0, 0.0), width=4, height=2).splitlines()
    assert [line[7:] for line in lines[1:3]] == ["⠑⢄⠀⠀", "⠀⠀⠑⢄"]
    steep = terminal_curve(curve(0.0, 0.0, 1.0, 1.0), width=2, height=3).splitlines()
    assert [line[7:] for line in steep[1:4]] == ["⠀⡏", "⠀⡇", "⣀⠇"]
    assert " 50 % │" in steep[2]


def test_the_size_is_what_was_asked() -> None:
    for width, height in ((10, 3), (60, 8), (100, 15)):
        lines = terminal_curve(curve(0.1, 0.5, 0.2, 0.9), width, height).splitlines()
        assert len(lines) == height + 3
        assert all(len(line) == width + 7 for line in lines[1:-1])


def test_values_outside_of_the_scale_stay_in_the_picture() -> None:
    lines = terminal_curve(curve(-3.0, 7.0), 4, 2).splitlines()
    assert [line[7:] for line in lines[1:3]] == ["⠀⠀⡠⠊", "⡠⠊⠀⠀"]


def test_one_point_none_and_training_only() -> None:
    assert "│⠁⠀⠀⠀" in terminal_curve(curve(1.0), 4, 2)
    assert terminal_curve([]) == "no success was recorded yet"
    assert terminal_curve([{"step": 3, "train/success": 0.5}]).startswith(
        "       success in training: 50 % → 50 %"
    )


@pytest.mark.parametrize("kind", ["all", "evaluation", "training", "nothing"])
def test_the_picture_file(rows: list[dict[str, Any]], tmp_path: Path, kind: str) -> None:
    if kind == "training":
        rows = [{"step": row["step"], "train/success": row["train/success"]} for row in rows]
    elif kind == "evaluation":
        rows = [{k: v for k, v in row.items() if k != "train/success"} for row in rows]
    elif kind == "nothing":
        rows = []
    path = learning_curve_png(rows, tmp_path / "curve.png")
    with Image.open(path) as picture:
        assert (picture.format, picture.size) == ("PNG", (1200, 600))
        colors = {color for _, color in picture.convert("RGB").getcolors(1 << 20) or []}
    assert ((42, 111, 219) in colors) is (kind in ("all", "evaluation"))
    assert ((154, 163, 178) in colors) is (kind in ("all", "training"))


def test_the_same_rows_give_the_same_picture(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    first, second = (learning_curve_png(rows, tmp_path / f"{i}.png").read_bytes() for i in range(2))
    assert first == second


def drawn(rows: list[dict[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Return the points of each curve in the picture for pages, by the name of the curve."""
    root = ElementTree.fromstring(learning_curve_svg(rows))
    groups = [group for group in root.iter(f"{SVG}g") if CURVE.fullmatch(group.get("id", ""))]
    paths = {group.get("id", ""): next(group.iter(f"{SVG}path")).attrib["d"] for group in groups}
    return {
        name: [(float(x), float(y)) for x, y in re.findall(r"([\d.-]+) ([\d.-]+)", path)]
        for name, path in paths.items()
    }


def test_the_points_are_where_they_belong(rows: list[dict[str, Any]]) -> None:
    found = drawn(rows)
    (left, low), (right, high) = found["eval"]
    assert len(found["train"]) == 11 and len(found["band"]) > 4
    (start, bottom), (end, top) = found["train"][0], found["train"][-1]
    assert (left, right) == pytest.approx((start, end))
    assert ((bottom - low) / (bottom - top), (bottom - high) / (bottom - top)) == pytest.approx(
        (0.1, 0.9), abs=1e-3
    )
    picture = learning_curve_svg(rows)
    assert re.findall(r">(\d+%)</text>", picture) == ["0%", "25%", "50%", "75%", "100%", "90%"]


def test_less_to_show() -> None:
    assert drawn([]) == {}
    assert list(drawn([{"step": 3, "train/success": 2.0}])) == ["train"]
    assert list(drawn([{"step": 3, "eval/success": 0.5, "eval/low": 0.4, "eval/high": 0.6}])) == ["eval"]


def test_a_mixed_run_has_a_line_and_a_name_for_each_environment(rows: list[dict[str, Any]]) -> None:
    rows[0] |= {"eval/task/<guess>/success": 0.0, "eval/task/calc\x1b/success": 0.5}
    rows[10] |= {"eval/task/<guess>/success": 1.0, "eval/task/calc\x1b/success": 0.75}
    found = drawn(rows)
    (_, bottom), (_, top) = found["task-0"]
    assert [(bottom - y) / (bottom - top) for _, y in found["task-1"]] == pytest.approx([0.5, 0.75], abs=1e-3)
    markup = learning_curve_svg(rows)
    assert "&lt;guess&gt; 100%" in markup and r"calc\u001b 75%" in markup and "<guess>" not in markup


def test_a_reward_model_and_the_truth_are_drawn_where_there_are_both() -> None:
    """Each on its own axis: the score rises to the top of the picture, the truth falls to its foot."""
    rows: list[dict[str, Any]] = [
        {"step": step, "reward_model/score": 2.0 * step, "reward_model/gold": 1 - step / 10}
        for step in range(11)
    ]
    picture = ElementTree.fromstring(reward_model_svg(rows))
    lines = {
        group.get("id"): [float(n) for n in re.findall(r"[-\d.]+", path.get("d", ""))]
        for group in picture.iter("{http://www.w3.org/2000/svg}g")
        if group.get("id") in ("gold", "score")
        for path in group.iter("{http://www.w3.org/2000/svg}path")
    }
    gold, score = lines["gold"], lines["score"]
    assert len(gold) == len(score) == 22 and gold[::2] == score[::2]
    assert gold[1] < gold[-1] and score[1] > score[-1], "down the page is down in value"
    assert (gold[1], gold[-1]) == pytest.approx((score[-1], score[1]), abs=0.5)
    assert reward_model_svg(rows[:0]) == ""
    assert reward_model_svg([{"step": 1, "reward_model/score": 1.0}]) == ""


def test_arms_are_drawn_into_one_picture(tmp_path: Path) -> None:
    """One run with its intervals, several as their mean with each of them; the same rows give the same bytes."""
    banded = [{**row, "eval/low": 0.1, "eval/high": 0.9} for row in curve(0.2, 0.8)]
    arms = {"one": [banded], "two": [curve(0.2, 0.4, 0.6), curve(0.2, 0.3)]}
    first, second = (
        draw_comparison(arms, tmp_path / name, num_tasks=128).read_bytes() for name in ("a.png", "b.png")
    )
    assert first == second
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size == (1200, 600)
    assert draw_comparison({"one": [curve(0.2)]}, tmp_path / "c.png").read_bytes() != first
