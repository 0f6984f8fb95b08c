"""Results become tables and sections in the pages of their methods, and replace what stood there."""

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from quintain.benchmarks.evidence.league import Earlier, Outcome
from quintain.benchmarks.evidence.runner import run
from quintain.benchmarks.evidence.spec import Signature, signatures
from quintain.benchmarks.evidence.standing import Standing, standings
from quintain.benchmarks.pages import (
    END_MARK,
    START_MARK,
    curve_svg,
    earlier_page,
    height,
    mean_curve,
    section,
    taken,
    version_cell,
    with_block,
    write,
)
from quintain.benchmarks.trials import Arm
from quintain.cli.main import main

SVG = "{http://www.w3.org/2000/svg}"


def result(method: Sequence[float] = (0.7, 0.9), **fields: Any) -> dict[str, Any]:
    """Return an earlier comparison as it is stored."""

    def arm(values: Sequence[float]) -> dict[str, Any]:
        made = [
            Arm(
                value=value,
                area=value / 2,
                turns=1000,
                tokens=2500,
                seconds=12.4,
                run="r",
                curve=((0.0, 0.25), (100.0, value)),
            )
            for value in values
        ]
        return {"by_seed": [asdict(found) for found in made]}

    gained = sum(method) / 2 - 0.5
    return {
        "method": "gigpo", "baseline": "grpo", "environment": "keydoor", "measure": "eval/success", "at": "end",
        "claim": "States are compared.", "tried": "", "shared": {"model": "mini"}, "baseline_settings": {},
        "rates": {"tried": []}, "seeds": [0, 1], "date": "2026-01-31", "command": "quintain bench",
        "method_result": arm(method), "baseline_result": arm((0.5, 0.5)),
        "gain_at_end": {"mean": gained}, "gain_in_area": {"mean": gained / 2}, **fields,
    }  # fmt: skip


def test_an_earlier_comparison_is_exploratory_with_t_intervals() -> None:
    text = section("one", result(), "rl")
    assert text.startswith(
        "**Earlier, exploratory:** 2026-01-31, `keydoor` with the model `mini`, 2 seeds, the same held-out tasks for "
        "all of them; intervals are t intervals over seeds. Too few seeds for a verdict. Asked was: States are "
        "compared.\n"
    )
    assert "| success at the end | 0.800 [-0.471, 2.071] | 0.500 [0.500, 0.500] |" in text
    assert "| environment steps | 1,000 | 1,000 |\n| sampled tokens | 2,500 | 2,500 |" in text
    assert "+0.300 [-0.971, +1.571] at the end, +0.150" in text
    assert "held" not in text.replace("held-out", "")
    assert "tried it" in section("one", result(tried="We tried it."), "rl")


def test_a_measure_that_is_to_fall_is_turned_as_it_was_stored() -> None:
    fewer = result((0.3, 0.2), gain_at_end={"mean": 0.25}, gain_in_area={"mean": 0.125})
    assert "in favour of the method: +0.250 [" in section("one", fewer, "rl")


def test_a_section_says_where_and_how_arms_were_compared() -> None:
    row = result(shared={"model": "mini", "eval_environment": "keydoor?rooms=3"}, at="run")
    text = section("one", row, "rl")
    assert "`keydoor`, evaluated on `keydoor?rooms=3`, with the model" in text
    assert "| success over the run | 0.400 [" in text and "| success at the end | 0.800 | 0.500 |" in text
    tuned = result(rates={"tried": [1e-3, 5e-4], "method": 5e-4, "baseline": 1e-3})
    assert "best on a seed of its own (of 0.001, 0.0005: 0.0005 and 0.001);" in section("one", tuned, "rl")
    own = result(baseline="gigpo", baseline_settings={"step_weight": 0})
    assert "| | `gigpo` | `gigpo` (step_weight 0) |" in section("one", own, "rl")
    table = earlier_page({"one": result()}, "rl")
    assert "none is drawn here" in table and "| [one](gigpo.md) | `keydoor` | success |" in table


def test_pages_are_written_from_results(write_claim: Callable[..., Path], tmp_path: Path) -> None:
    file = write_claim()
    folder = tmp_path / "docs" / "results"
    (tmp_path / "docs" / "methods").mkdir(parents=True)
    page = tmp_path / "docs" / "methods" / "toy.md"
    page.write_text("# Toy\n\n**What to look for.** That.\n", encoding="utf-8")

    class Silent:
        def total(self, num: int) -> None: ...

        def done(self, text: str) -> None: ...

    known: dict[str, Signature] = signatures(file.parent)
    before = standings(known, folder)["toy"]
    assert before.word == "not shown"
    assert before.missing == ("objective not run", "formula not run", "toy not run", "no league")
    run(list(known.values()), folder, 1, lambda s: f"measure {s.row}", Silent())
    names = [found.name for found in write(standings(known, folder), folder)]
    assert names == ["index.md", "league.md", "toy.md"]
    text = page.read_text(encoding="utf-8")
    assert "**Evidence: not shown.** Missing: objective not run, formula not run, no league." in text
    assert "- ✓ null world: " in text and "    measure toy" in text
    assert text.endswith(f"{END_MARK}\n\n**What to look for.** That.\n")
    index = (folder / "index.md").read_text(encoding="utf-8")
    assert (
        "| `toy` | not shown | - | - | shown, +0." in index and "version 1 ([toy.jsonl](toy.jsonl))" in index
    )
    assert index.endswith(
        "| family | signatures | league | runs of the league |\n|---|---|---|---|\n| toys | 0 | 0 | 0 |\n"
    )


def test_a_run_that_rows_share_counts_once() -> None:
    def row(name: str, family: str, **seconds: float) -> Standing:
        league = Outcome(row=name, verdict="better", seconds=seconds)
        return Standing(
            row=name, title=name, family=family, claims=(), objective=None, formula=None, league=league
        )

    rows = {
        "a": row("a", "rl", base=60.0, one=120.0),
        "b": row("b", "rl", base=60.0, two=60.0),
        "c": row("c", "toys", base=60.0),
    }
    assert taken(rows)[-2:] == ["| rl | 0 | 4 | 3 |", "| toys | 0 | 1 | 1 |"]


def test_an_earlier_version_says_what_came_of_it() -> None:
    refused = Earlier(version=2, mean=0.0216, num=10, refused=("method: length",))
    assert version_cell(refused) == "version 2: +0.022, 10 seeds (refused, method: length)"
    assert version_cell(Earlier(version=1, mean=-0.1, num=6, refused=())) == "version 1: -0.100, 6 seeds"


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
    (docs / "results" / "rl.json").write_text(json.dumps({"loop": {**result(), "method": "loop"}}))
    words = ["bench", "methods", "--pages", "--results", str(docs / "results"), "--signatures", str(tmp_path)]
    assert main(words) == 0
    names = [Path(line).name for line in capsys.readouterr().out.splitlines()]
    assert names == ["index.md", "league.md", "loop.svg", "rl-results.md", "loop.md"]
    page = (docs / "methods" / "loop.md").read_text()
    assert page.count("**Earlier, exploratory:** 2026-01-31") == 1
    assert page.endswith("**What to look for.** That.\n")
    assert main(words) == 0
    assert (docs / "methods" / "loop.md").read_text() == page
