"""Results become tables and sections in the pages of their methods, and replace what stood there."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from quintain.cli.main import main
from quintain_evidence.layers.comparison import Comparison
from quintain_evidence.layers.inference import Bound
from quintain_evidence.layers.league import Earlier, Outcome
from quintain_evidence.layers.promises import Promise
from quintain_evidence.layers.runner import run
from quintain_evidence.layers.spec import Signature, signatures
from quintain_evidence.layers.standing import Standing, standings
from quintain_evidence.layers.verdict import Check
from quintain_evidence.pages import (
    END_MARK,
    START_MARK,
    count_behind,
    list_behind,
    promise_lines,
    taken,
    version_cell,
    with_block,
    write,
)


def standing_of(family: str, verdict: str, outcome: Outcome) -> Standing:
    """Return the standing of a row that has a league alone, whose outcome gives `verdict`."""
    found = Comparison(
        verdict=verdict, reasons=(), by_values=outcome.verdict, worst=outcome.verdict, baseline="grpo", world="guess",
        model="mini", outcome=outcome, power=None, loss=0.1,
    )  # fmt: skip
    return Standing(
        row=outcome.row, title=outcome.row, family=family, claims=(), objective=None, checks=None, departs="",
        comparison=found, promise=None,
    )  # fmt: skip


def test_pages_are_written_from_results(write_claim: Callable[..., Path], tmp_path: Path) -> None:
    file = write_claim()
    folder = tmp_path / "results"
    (tmp_path / "docs" / "methods").mkdir(parents=True)
    page = tmp_path / "docs" / "methods" / "toy.md"
    page.write_text("# Toy\n\n**What to look for.** That.\n", encoding="utf-8")

    class Silent:
        def total(self, num: int) -> None: ...

        def advance(self, text: str) -> None: ...

    known: dict[str, Signature] = signatures(file.parent)
    before = standings(known, folder)["toy"]
    assert (before.formula, before.mechanism, before.compared, before.is_done) == (
        "not run",
        "not shown",
        "none",
        False,
    )
    assert before.claims[0].mechanism.reasons == ("not run", "no rival is named that lacks the idea alone")
    run(list(known.values()), folder, 1, lambda s: f"measure {s.row}", Silent())
    docs, history = tmp_path / "docs", tmp_path / "history"
    history.mkdir()
    (history / "toy.md").write_text("# Toy: what was tried\n\nA rate of 9.\n", encoding="utf-8")
    names = [found.name for found in write(standings(known, folder), folder, docs, history)]
    assert names == ["index.md", "league.md", "toy.md", "toy.md"]
    text = page.read_text(encoding="utf-8")
    assert "| formula | *not run* |" in text and "| real model | *no*, it was not tried |" in text
    assert "**Not shown**, for: no rival is named that lacks the idea alone." in text
    assert "[every check and what was tried](../../history/toy.md)" in text and "    measure toy" in text
    assert text.endswith(f"{END_MARK}\n\n**What to look for.** That.\n")
    past = (history / "toy.md").read_text(encoding="utf-8")
    assert past.startswith("# Toy: what was tried\n\nA rate of 9.\n") and "- ✓ null world: " in past
    index = (docs / "results" / "index.md").read_text(encoding="utf-8")
    assert "| [`toy`](../methods/toy.md) | no | not run | not shown, +0." in index
    assert "version 1 ([toy.jsonl](../../results/toy.jsonl))" in index
    assert "Of 1 rows: formula 1 *not run*; mechanism 1 *not shown*; comparison 1 *none*;" in index
    assert index.endswith(
        "| family | signatures | league | runs of the league |\n|---|---|---|---|\n| toys | 0 | 0 | 0 |\n"
    )


def test_a_run_that_rows_share_counts_once() -> None:
    def row(name: str, family: str, **seconds: float) -> Standing:
        return standing_of(family, "better", Outcome(row=name, verdict="better", seconds=seconds))

    rows = {
        "a": row("a", "rl", base=60.0, one=120.0),
        "b": row("b", "rl", base=60.0, two=60.0),
        "c": row("c", "toys", base=60.0),
    }
    assert taken(rows)[-2:] == ["| rl | 0 | 4 | 3 |", "| toys | 0 | 1 | 1 |"]


def test_an_earlier_version_says_what_came_of_it() -> None:
    refused = Earlier(version=2, mean=0.0216, num=10, refused=("method: length",), verdict="better")
    assert version_cell(refused) == "version 2: better, +0.022, 10 seeds (alarms: method: length)"
    lost = Earlier(version=1, mean=-0.1, num=6, refused=(), verdict="worse")
    assert version_cell(lost) == "version 1: worse, -0.100, 6 seeds"


def test_a_block_is_put_before_what_to_look_for_and_replaced_later() -> None:
    page = "# A\n\nText.\n\n**What to look for.** That.\n"
    first = with_block(page, f"{START_MARK}\n\nold\n\n{END_MARK}")
    assert first == f"# A\n\nText.\n\n{START_MARK}\n\nold\n\n{END_MARK}\n\n**What to look for.** That.\n"
    second = with_block(first, f"{START_MARK}\n\nnew\n\n{END_MARK}")
    assert second == first.replace("old", "new")
    assert with_block("# B\n", "x") == "# B\n\nx\n"


def test_the_command_writes_the_pages(
    write_claim: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    docs, claims = tmp_path / "docs", write_claim().parent
    (docs / "methods").mkdir(parents=True)
    (docs / "methods" / "toy.md").write_text("# Toy\n\n**What to look for.** That.\n")
    words = [
        "bench",
        "methods",
        "--pages",
        "--results",
        str(tmp_path),
        "--signatures",
        str(claims),
        "--docs",
        str(docs),
        "--history",
        str(tmp_path / "history"),
    ]
    assert main(words) == 0
    names = [Path(line).name for line in capsys.readouterr().out.splitlines()]
    assert names == ["index.md", "league.md", "toy.md", "toy.md"]
    page = (docs / "methods" / "toy.md").read_text()
    assert page.count("**Known of it.** Not done") == 1
    assert page.endswith("**What to look for.** That.\n")
    assert main(words) == 0
    assert capsys.readouterr().out == "", "a file that stays as it was is not named"
    assert (docs / "methods" / "toy.md").read_text() == page


def test_what_is_behind_is_counted_and_named() -> None:
    def row(name: str, family: str, by_values: str, mean: float | None) -> Standing:
        bound = (
            None
            if mean is None
            else Bound(
                mean=mean,
                low=mean - 0.1,
                high=mean + 0.1,
                p_value=0.5,
                num=6,
                error=0.05,
                critical=2.0,
                freedom=5,
            )
        )
        return standing_of(family, "none", Outcome(row=name, verdict=by_values, bound=bound))

    rows = {
        "a": row("a", "rl", "unresolved", 0.1),
        "b": row("b", "preference", "unresolved", -0.1),
        "c": row("c", "preference", "worse", -0.2),
        "d": row("d", "preference", "not worse", -0.01),
        "e": row("e", "preference", "unfinished", None),
    }
    told = count_behind(rows)
    assert "*unresolved* or *worse* in 3 of 4 rows; 2 of 3 have a mean **below the baseline's**" in told
    assert "and 2 of 2 outside of `critic`, `rl`, `toolrl`." in told
    assert list_behind(rows) == "Behind: [`c`](../methods/c.md) -0.200, [`b`](../methods/b.md) -0.100."
    assert list_behind({}) == ""


def test_a_promise_of_two_systems_has_a_line_for_each() -> None:
    checks = (
        Check(name="old: retail", has_passed=True, detail="5 of 5"),
        Check(name="new: retail", has_passed=False, detail="3 of 5"),
        Check(name="new: telecom", has_passed=True, detail="9 of 9"),
    )
    found = Promise(date="2026-01-02", model="m", command="try it", checks=checks, figures={}, seconds=1.0)
    assert promise_lines(found) == [
        "| real model, old | *yes, 2026-01-02* (`try it`): retail 5 of 5 |",
        "| real model, new | *no, tried 2026-01-02* (`try it`): retail: 3 of 5 |",
    ]
    plain = replace(found, checks=(Check(name="trains", has_passed=True, detail="1 step"),))
    assert promise_lines(plain) == ["| real model | *yes, 2026-01-02* (`try it`): trains 1 step |"]
    assert promise_lines(None) == ["| real model | *no*, it was not tried |"]
