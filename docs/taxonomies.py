"""Write the page of what surveys of the field name, and what there is of it here, from `docs/taxonomies/*.toml`.

    python docs/taxonomies.py [--check]

A survey's file lists what it names, in its order (`entries`); each is held by a test (`tests`), or is a gap with its
reason (`gaps`). With --check nothing is written, and the exit status says whether the page is current.
"""

import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER, PAGE = ROOT / "docs" / "taxonomies", ROOT / "docs" / "taxonomies.md"
HEAD = """# What surveys of the field name

What {count} surveys list, in their order, and what of it is here. Each line has a test of the suite that shows it, or
is a gap with its reason; that a test is there is checked, that it would fail without what the line names is not.
Written by `python docs/taxonomies.py` from the files in `docs/taxonomies/`. Benchmarks have
[a page of their own](coverage.md), methods [another](which-method.md).

| survey | source | entries | held by a test | gaps |
|---|---|---|---|---|
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


def read_surveys() -> list[Survey]:
    """Return all surveys, by name.

    Raises:
        ValueError: an entry has neither a test nor a gap, or both, or is none of the survey's.
    """
    found = list[Survey]()
    for path in sorted(FOLDER.glob("*.toml")):
        row = tomllib.loads(path.read_text(encoding="utf-8"))
        survey = Survey(
            path.stem, row["title"], row["source"], tuple(row["entries"]), row["tests"], row.get("gaps", {})
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
        f"{len(each.gaps)} |"
        for each in surveys
    ]
    total = [sum(len(getattr(each, name)) for each in surveys) for name in ("entries", "tests", "gaps")]
    rows.append(f"| all | | {total[0]} | {total[1]} | {total[2]} |")
    parts = [HEAD.format(count=len(surveys)) + "\n".join(rows)]
    for each in surveys:
        lines = [
            f"| {entry} | `tests/{each.tests[entry]}` |"
            if entry in each.tests
            else f"| {entry} | *gap*: {each.gaps[entry]} |"
            for entry in each.entries
        ]
        heading = f'<a id="{each.name}"></a>\n\n## {each.title}'
        parts.append(
            f"{heading}\n\n{link(each.source)}.\n\n| it names | here |\n|---|---|\n" + "\n".join(lines)
        )
    return "\n\n".join(parts) + "\n"


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
