from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from quintain.dashboard.curve import learning_curve_png, terminal_curve


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
