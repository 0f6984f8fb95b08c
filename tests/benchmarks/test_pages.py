"""Results become tables and curves in the pages of their methods, and replace what stood there."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from quintain.benchmarks.pages import (
    END_MARK,
    START_MARK,
    curve_svg,
    height,
    mean_curve,
    overview,
    section,
    with_block,
)
from quintain.benchmarks.trials import Arm, Benchmark, row
from quintain.cli.main import main

SVG = "{http://www.w3.org/2000/svg}"


def result(method: float = 0.8, **fields: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "baseline": "grpo", "claim": "States are compared.", "shared": {"model": "mini"}, **fields
    }  # fmt: skip
    benchmark = Benchmark(name="one", recipe="gigpo", environment="keydoor", **given)

    def arm(value: float) -> Arm:
        curve = ((0.0, 0.25), (100.0, value))
        return Arm(value=value, area=value / 2, turns=1000, tokens=2500, seconds=12.4, run="r", curve=curve)

    seeds = {seed: {"method": arm(method), "baseline": arm(0.5)} for seed in (0, 1)}
    return row(benchmark, seeds, "quintain bench methods --only one", "2026-01-31")


def test_a_section_says_what_was_measured() -> None:
    text = section("one", result(), "rl")
    assert text.startswith(
        "**Measured** on 2026-01-31 on `keydoor` with the model `mini`, 2 seeds, each arm with the same start and "
        "budget. The claim held: States are compared.\n"
    )
    assert "| | `gigpo` | `grpo` |" in text
    assert "| success at the end, 95 % interval | 0.800 [0.800, 0.800] | 0.500 [0.500, 0.500] |" in text
    assert "| environment steps | 1,000 | 1,000 |\n| sampled tokens | 2,500 | 2,500 |" in text
    assert "| seconds of a run | 12 | 12 |" in text
    assert "+0.300 [+0.300, +0.300] at the end, +0.150" in text and "better in 2 of 2 seeds." in text
    assert "![success of one and its baseline over environment steps](../images/rl/one.svg)" in text
    assert text.endswith("```\nquintain bench methods --only one\n```")


def test_a_section_says_where_else_the_arms_were_evaluated() -> None:
    row = result(shared={"model": "mini", "eval_environment": "keydoor?rooms=3"})
    assert "on `keydoor`, evaluated on `keydoor?rooms=3`, with the model `mini`" in section("one", row, "rl")


def test_a_section_says_when_the_run_as_a_whole_is_compared() -> None:
    text = section("one", result(at="run"), "rl")
    assert "| success over the run, 95 % interval | 0.400 [0.400, 0.400] | 0.250 [0.250, 0.250] |" in text
    assert "| success at the end | 0.800 | 0.500 |" in text
    assert "+0.150 [+0.150, +0.150] over the run, +0.300 [+0.300, +0.300] at the end; better" in text


def test_a_section_says_which_learning_rates_were_chosen() -> None:
    tuned = result(rates=(1e-3, 5e-4))
    tuned["rates"] |= {"method": 5e-4, "baseline": 1e-3}
    told = (
        "same start and budget and the learning rate that was best on a seed of its own (of 0.001, 0.0005: "
    )
    assert f"{told}0.0005 and 0.001). The claim" in section("one", tuned, "rl")


def test_a_claim_that_did_not_hold_says_what_was_tried() -> None:
    lost = result(
        0.4, tried="Half and twice the rate.", baseline="gigpo", baseline_settings={"step_weight": 0}
    )
    text = section("one", lost, "rl")
    assert "The claim did not hold here: States are compared. Half and twice the rate." in text
    assert "| | `gigpo` | `gigpo` (step_weight 0) |" in text
    unsure = {**result(), "gain": {**result()["gain"], "low": -0.1}}
    assert "The claim held, though the interval of the difference includes 0: States" in section(
        "one", unsure, "rl"
    )
    table = overview({"one": lost, "two": result()}, {"gigpo": "gigpo.md"}, "rl")
    assert "1 of 2 claims held" in table
    assert "| [one](gigpo.md) | `keydoor` | success | `gigpo` 0.400 [0.400, 0.400] |" in table
    assert table.splitlines()[-2].endswith("| 0 of 2 | no |") and table.endswith("| 2 of 2 | yes |\n")


def test_a_block_is_put_before_what_to_look_for_and_replaced_later() -> None:
    page = "# A\n\nText.\n\n**What to look for.** That.\n"
    first = with_block(page, f"{START_MARK}\n\nold\n\n{END_MARK}")
    assert first == f"# A\n\nText.\n\n{START_MARK}\n\nold\n\n{END_MARK}\n\n**What to look for.** That.\n"
    second = with_block(first, f"{START_MARK}\n\nnew\n\n{END_MARK}")
    assert second == first.replace("old", "new")
    assert with_block("# B\n", "x") == "# B\n\nx\n"


def test_curves_are_means_over_seeds_where_all_have_values() -> None:
    assert height([(0, 0), (10, 1)], 5) == 0.5
    assert height([(0, 0), (10, 1)], 20) == 1
    assert height([(0, 0.5)], 3) == 0.5
    assert mean_curve([[(0, 0), (10, 1)], [(0, 1), (20, 1)]], num=2) == [(0, 0.5), (5, 0.75), (10, 1.0)]
    assert mean_curve([]) == []
    picture = curve_svg(result())
    root = ElementTree.fromstring(picture)
    lines = {group.get("id"): group[0] for group in root.iter(f"{SVG}g") if "-" in group.get("id", "")}
    arms = [f"{arm}-{number}" for arm in ("baseline", "method") for number in (0, 1, "mean")]
    assert list(lines) == arms and picture == curve_svg(result())
    assert {name: float(lines[name].get("stroke-width", 1)) for name in arms[3:]} == {
        "method-0": 1, "method-1": 1, "method-mean": 2.5
    }  # fmt: skip
    assert (
        "#2a6fdb" in lines["method-mean"].attrib["stroke"]
        and "#9aa3b2" in lines["baseline-0"].attrib["stroke"]
    )
    assert "environment steps" in picture and ">gigpo</text>" in picture and ">success</text>" in picture
    assert ">grpo (a$b$ &lt;)</text>" in curve_svg(result() | {"baseline": "grpo (a$b$ <)"})
    empty = result()
    empty["method_result"]["by_seed"][0]["curve"] = ()
    assert "method-1" in curve_svg(empty) and "method-mean" not in curve_svg(empty)


def test_the_command_writes_the_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    docs = tmp_path / "docs"
    (docs / "methods").mkdir(parents=True)
    (docs / "results").mkdir()
    (docs / "methods" / "loop.md").write_text("# LOOP\n\n**What to look for.** That.\n")
    stored = docs / "results" / "rl.json"
    stored.write_text(json.dumps({"loop": {**result(), "method": "loop"}}))
    assert main(["bench", "methods", "--pages", "--output", str(stored)]) == 0
    names = [Path(line).name for line in capsys.readouterr().out.splitlines()]
    assert names == ["rl-results.md", "loop.svg", "loop.md"]
    page = (docs / "methods" / "loop.md").read_text()
    assert page.count("**Measured** on 2026-01-31") == 1 and page.endswith("**What to look for.** That.\n")
    assert main(["bench", "methods", "--pages", "--output", str(stored)]) == 0
    assert (docs / "methods" / "loop.md").read_text() == page
