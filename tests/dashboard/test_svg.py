import xml.etree.ElementTree as ElementTree
from typing import Any

from quintain.dashboard.svg import curve_svg


def parsed(rows: list[dict[str, Any]]) -> ElementTree.Element:
    markup = curve_svg(rows)
    return ElementTree.fromstring(markup[: markup.index("</svg>") + 6])


def test_the_points_are_where_they_belong(rows: list[dict[str, Any]]) -> None:
    svg = parsed(rows)
    lines = {line.attrib["class"]: line.attrib["points"] for line in svg.iter("polyline")}
    assert lines["eval"] == "46.0,241.2 730.0,42.8"
    assert len(lines["train"].split()) == 11
    (band,) = [polygon.attrib["points"] for polygon in svg.iter("polygon")]
    assert band.split()[0].startswith("46.0,") and len(band.split()) == 4
    assert [text.text for text in svg.iter("text")] == [
        "0%",
        "25%",
        "50%",
        "75%",
        "100%",
        "0",
        "5",
        "10",
        "90%",
    ]


def test_less_to_show() -> None:
    assert "No success was recorded" in curve_svg([])
    svg = parsed([{"step": 3, "train/success": 2.0}])
    assert len(list(svg.iter("polyline"))) == 1 and not list(svg.iter("polygon"))
    svg = parsed([{"step": 3, "eval/success": 0.5, "eval/low": 0.4, "eval/high": 0.6}])
    assert len(list(svg.iter("circle"))) == 1 and not list(svg.iter("polygon"))


def test_a_mixed_run_has_a_line_and_a_name_for_each_environment(rows: list[dict[str, Any]]) -> None:
    rows[0] |= {"eval/task/<guess>/success": 0.0, "eval/task/calc/success": 0.5}
    rows[10] |= {"eval/task/<guess>/success": 1.0, "eval/task/calc/success": 0.75}
    lines = [line for line in parsed(rows).iter("polyline") if line.attrib["class"] == "task"]
    assert [line.attrib["points"] for line in lines] == ["46.0,266.0 730.0,18.0", "46.0,142.0 730.0,80.0"]
    assert len({line.attrib["stroke"] for line in lines}) == 2
    markup = curve_svg(rows)
    assert "&lt;guess&gt; 100%" in markup and "calc 75%" in markup and "<guess>" not in markup
