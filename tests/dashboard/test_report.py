import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from quintain.dashboard.report import write_report
from quintain.errors import StoreError
from quintain.store import faults
from quintain.store.run import Run
from quintain.types import Failure, Score

ALLOWED = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "h1",
        "h2",
        "p",
        "div",
        "b",
        "span",
        "pre",
        "details",
    ),
    *("summary", "table", "tr", "th", "td", "svg", "g", "text", "path", "defs", "use", "clippath", "rect"),
}


class Checker(HTMLParser):
    """Collects tags and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with Run.create(tmp_path / "quickstart", recipe="rl/<grpo>", config={"a": 1, "<b>": ["<i>"]}) as opened:
        yield opened


def checked(file: Path) -> str:
    content = file.read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(content)
    assert checker.open == []
    assert checker.tags <= ALLOWED
    assert not any(name.startswith("on") or name in ("style", "href", "src") for name in checker.attributes)
    return content


def test_a_report_is_one_safe_file(run: Run, make: Any, decode: Any, rows: list[dict[str, Any]]) -> None:
    failed = Failure(owner="environment", kind="timeout", message="")
    lost = Score(value=0.0, is_success=False)
    for row in rows:
        step = row["step"]
        batch = [make(lost, index=i, prompt=(5, 6)) for i in range(3)]
        batch += [make(index=3 + i) for i in range(3)] if step == 10 else []
        batch += [make(failed, index=6), make(failed, index=7)]
        run.append(batch, step=step, phase="eval")
        run.commit(step, {k: v for k, v in row.items() if k not in ("step", "phase")})
    run.event("note", "<script>alert(1)</script>")
    file = write_report(run, decode)
    content = checked(file)
    assert file == run.folder / "report.html"
    headings = re.findall(r"<summary>(After step \d+) · <span class=\"\w+\">(\w+)", content)
    last, first = "After step 10", "After step 0"
    assert [outcome for heading, outcome in headings if heading == last] == ["solved"] * 2 + ["not"] * 2 + [
        "failure"
    ]
    assert [outcome for heading, outcome in headings if heading == first] == ["not"] * 2 + ["failure"]
    assert len(headings) == 8
    assert content.count("<details open>") == 1
    for text in (
        "rl/&lt;grpo&gt;",
        "10.0 %",
        "90.0 %",
        "held out, last (80 to 95 %)",
        "1.5 min",
        "<th>&lt;b&gt;</th>",
    ):
        assert text in content, text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in content
    assert [entry.name for entry in run.folder.glob(".*")] == []


def test_what_is_to_be_known_of_a_curve_stands_below_it(run: Run, make: Any, decode: Any) -> None:
    run.event("journal behind", "episodes end at row 3 <b>")
    run.event("resume", "at step 4")
    shown = checked(write_report(run, decode))
    notices = shown.partition("<h2>To be known of this curve</h2>")[2].partition("</table>")[0]
    assert notices == "<table><tr><th>journal behind</th><td>episodes end at row 3 &lt;b&gt;</td></tr>"


def test_a_report_before_anything_happened(run: Run) -> None:
    content = checked(write_report(run, None))
    assert "No success was recorded yet" in content and "Episodes" not in content and "Events" not in content


def test_a_report_without_evaluations(run: Run, make: Any) -> None:
    run.append([make()], step=0)
    run.commit(0, {"train/success": 0.25, "loss": float("nan"), "count": 3})
    content = checked(write_report(run, None))
    assert "25.0 %" in content and "success in training" in content and "<summary>Step 0 · " in content
    assert "<tr><th>loss</th><td>not finite</td></tr><tr><th>count</th><td>3</td></tr>" in content


def test_a_reward_model_stands_beside_the_truth_where_a_run_has_both(run: Run, make: Any) -> None:
    run.append([make()], step=0)
    run.commit(0, {"train/success": 0.25, "reward_model/score": 1.0})
    assert "Reward model" not in checked(write_report(run, None))
    run.append([make()], step=1)
    run.commit(1, {"train/success": 0.25, "reward_model/score": 1.5, "reward_model/gold": 0.5})
    content = checked(write_report(run, None))
    assert "<h2>Reward model</h2>" in content and content.count("<svg") == 2
    assert "reward model's score" in content and "environment's reward" in content


def test_what_each_stage_forgot_stands_in_the_report_where_a_run_looks_at_it(run: Run, make: Any) -> None:
    run.append([make()], step=0, phase="train")
    run.commit(0, {"train/reward": 0.0})
    assert "demonstrated tasks" not in checked(write_report(run, None))
    run.commit(1, {"forgetting/start": 0.75, "forgetting/rl": 0.5, "forgetting/known": -0.125})
    text = checked(write_report(run, None))
    assert "<h2>Success on demonstrated tasks</h2>" in text
    assert "<th>at the start</th><td>75.0%</td>" in text
    assert "<th>step 1</th><td>25.0% after RL, 87.5% after imitation</td>" in text


def test_one_evaluation_without_interval(run: Run, make: Any) -> None:
    run.append([make()], step=0, phase="eval")
    run.commit(0, {"eval/success": 0.5})
    content = checked(write_report(run, None))
    assert "held out, last (50 to 50 %)" in content and content.count("<summary>") == 1


def test_a_reader_can_write_the_report_too(run: Run) -> None:
    with Run.open(run.folder, writable=False) as reader:
        assert "running" in checked(write_report(reader, None))


def test_a_full_disk_is_named_and_the_old_report_stays(run: Run) -> None:
    file = write_report(run, None)
    old = file.read_bytes()
    with (
        faults.inject("io:1:ENOSPC"),
        pytest.raises(StoreError, match=r"writing the report in .*report.html: .*free"),
    ):
        write_report(run, None)
    assert file.read_bytes() == old


def test_environments_of_a_mixture_stand_in_the_report_the_worst_first(run: Run, make: Any) -> None:
    run.append([make()], step=1)
    run.commit(1, {"task/a/gradient_share": 0.9, "task/b/gradient_share": 0.1})
    shown = {"eval/success": 0.6, "eval/low": 0.4, "eval/high": 0.8, "eval/worst_success": 0.25}
    parts = {"eval/task/a/success": 0.95, "eval/task/b/success": 0.25, "task/a/gradient_share": 0.5}
    run.append([make()], step=2)
    run.commit(2, {**shown, **parts})
    text = checked(write_report(run, None))
    assert "worst environment, last" in text and "25.0 %" in text
    first, second = (text.index(name) for name in ("10% of the gradient", "70% of the gradient"))
    assert text.index("Environments, the worst first") < first < second
