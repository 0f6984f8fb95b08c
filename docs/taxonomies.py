"""Write the page of what surveys of the field name, and what there is of it here, from `docs/taxonomies/*.toml`.

    python docs/taxonomies.py [--check]

A survey's file lists what it names, in its order (`entries`); each is held by a test (`tests`), or is a gap with its
reason (`gaps`). Which function a test is about stands in `callees`, and in `kills.json` whether the test turns red when
that returns a constant (`python tests/survey_kills.py`).
With --check nothing is written, and the exit status says whether the page is current.
"""

import json
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER, PAGE = ROOT / "docs" / "taxonomies", ROOT / "docs" / "taxonomies.md"
KILLS = FOLDER / "kills.json"
LEAST = 0.95
"""Share of a survey's tests that turn red where it is done, of those that were tried."""
TRIED = 0.9
"""Share of its tests that are tried; one that calls no function of the package cannot be."""
HEAD = """# What surveys of the field name

What {count} surveys list, in their order, and what of it is here. Each line has a test of the suite that shows it, or
is a gap with its reason. Where a function stands beside it, that is what the test is about, chosen before anything was
tried: of the functions that the test calls and that return something, the one that shares most words with its name.
Replaced by a constant of its type it turns the test red, or does not. (Five that were chosen first, such as `close`,
return nothing: a constant was no other value, and the tests stayed green. These were chosen again.) As a control
another function of its module, which the test does not run, was replaced: {false} of {controls} turned a test red.
A survey is **done** where at least {least} of its tests turn red, and {tried} were tried: a few call
no function of the package. `make test-surveys` tries them again.
Written by `python docs/taxonomies.py` from the files in `docs/taxonomies/`. Benchmarks have
[a page of their own](coverage.md), methods [another](which-method.md).

| survey | source | entries | held by a test | gaps | turns red | done |
|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Survey:
    """What a survey names: ``read_surveys()[0].gaps``."""

    name: str
    title: str
    source: str
    entries: tuple[str, ...]
    tests: dict[str, str]
    """entry → ``room/test_file.py::test_name``, below tests/"""
    gaps: dict[str, str]
    """entry → why nothing of it is here"""
    kills: dict[str, dict[str, Any]]
    """entry → what came when the function behind it returned a constant; of those that were tried"""

    @property
    def is_done(self) -> bool:
        """Whether nearly all of its tests were tried, and at least `LEAST` of these turned red."""
        red = sum(kill["red"] for kill in self.kills.values())
        return len(self.kills) >= TRIED * len(self.tests) and red >= LEAST * len(self.kills)


def read_surveys() -> list[Survey]:
    """Return all surveys, by name.

    Raises:
        ValueError: an entry has neither a test nor a gap, or both, or is none of the survey's.
    """
    found = list[Survey]()
    kills = json.loads(KILLS.read_text(encoding="utf-8")) if KILLS.is_file() else {}
    for path in sorted(FOLDER.glob("*.toml")):
        row = tomllib.loads(path.read_text(encoding="utf-8"))
        survey = Survey(
            path.stem,
            row["title"],
            row["source"],
            tuple(row["entries"]),
            row["tests"],
            row.get("gaps", {}),
            kills.get(path.stem, {}),
        )
        wrong = set(survey.tests) & set(survey.gaps) | set(survey.entries) ^ (
            set(survey.tests) | set(survey.gaps)
        )
        if wrong:
            raise ValueError(
                f"{path.name}: got {sorted(wrong)}; give each entry a test, or a gap with its reason"
            )
        found.append(survey)
    return found


def write_page(surveys: list[Survey]) -> str:
    """Return the page of `surveys`."""
    rows = [
        f"| [{each.title}](#{each.name}) | {link(each.source)} | {len(each.entries)} | {len(each.tests)} | "
        f"{len(each.gaps)} | {count_red([each])} | {'yes' if each.is_done else 'no'} |"
        for each in surveys
    ]
    total = [sum(len(getattr(each, name)) for each in surveys) for name in ("entries", "tests", "gaps")]
    done = sum(each.is_done for each in surveys)
    rows.append(f"| all | | {total[0]} | {total[1]} | {total[2]} | {count_red(surveys)} | {done} |")
    controls = [kill["control_red"] for each in surveys for kill in each.kills.values() if "control" in kill]
    head = HEAD.format(
        count=len(surveys), false=sum(controls), controls=len(controls), least=LEAST, tried=TRIED
    )
    parts = [head + "\n".join(rows)]
    for each in surveys:
        lines = [
            f"| {entry} | `tests/{each.tests[entry]}` | {say_kill(each.kills.get(entry))} |"
            if entry in each.tests
            else f"| {entry} | *gap*: {each.gaps[entry]} | |"
            for entry in each.entries
        ]
        heading = f'<a id="{each.name}"></a>\n\n## {each.title}'
        parts.append(
            f"{heading}\n\n{link(each.source)}.\n\n| it names | here | a constant in place of |\n|---|---|---|\n"
            + "\n".join(lines)
        )
    return "\n\n".join(parts) + "\n"


def count_red(surveys: list[Survey]) -> str:
    """Return how many tests turn red of those that were tried: ``17 of 18``; a dash where none was."""
    red = [kill["red"] for each in surveys for kill in each.kills.values()]
    return f"{sum(red)} of {len(red)}" if red else "–"


def say_kill(kill: dict[str, Any] | None) -> str:
    """Return the function that was replaced, and what became of the test; nothing where none was."""
    if kill is None:
        return ""
    name = kill["callee"].removeprefix("quintain.").replace(":", ".")
    return f"`{name}`: {'red' if kill['red'] else '*stays green*'}"


def link(source: str) -> str:
    """Return `source`, an arXiv id as a link."""
    return f"[{source}](https://arxiv.org/abs/{source})" if source[:4].isdigit() else source


def main(is_check: bool) -> int:
    """Write the page, or say whether it is current."""
    page = write_page(read_surveys())
    if is_check:
        return 0 if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page else 1
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))  # noqa: TID251
