"""What surveys name is held by tests that there are, or is a gap with its reason."""

import ast
import hashlib
import runpy
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
LISTED = {
    "agentic_rl": "309f9e74fc22",
    "agentic_search": "e789edd61618",
    "autonomous_agents": "b892d5d48f68",
    "blueprint": "1bda5829740d",
    "goal_directed": "b594e388fb8f",
    "issue_resolution": "35068a3ab5d8",
    "lessons": "07d7225738a7",
    "meta_thinking": "b786d2d85a39",
    "multi_turn": "65f1856ec500",
    "optimisation": "583348b5a483",
    "software_engineering": "8699fb6eb905",
    "techniques": "d5a99388b084",
}
"""survey → the beginning of the hash of what it names; who changes a list says so here"""
MOST_GAPS, MOST_USES = 0.25, 3
PROGRAM: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "taxonomies.py"))
SURVEYS = {each.name: each for each in PROGRAM["read_surveys"]()}


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Return the names of the functions of a file, those of its classes included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_the_page_is_current() -> None:
    assert PROGRAM["main"](is_check=True) == 0, "run python docs/taxonomies.py"


@pytest.mark.parametrize("name", SURVEYS)
def test_every_entry_is_held_by_a_test_that_there_is(name: str) -> None:
    survey = SURVEYS[name]
    for entry, place in survey.tests.items():
        file, _, function = place.partition("::")
        path = ROOT / "tests" / file
        assert path.is_file() and function in functions_of(path), f"{entry}: there is no tests/{place}"
    uses = Counter(survey.tests.values())
    assert max(uses.values()) <= MOST_USES, f"one test holds too much: {uses.most_common(1)}"
    assert all(len(reason) > 20 for reason in survey.gaps.values())


def test_what_is_listed_stays_and_gaps_are_few() -> None:
    listed = {
        name: hashlib.sha256("\n".join(each.entries).encode()).hexdigest()[:12]
        for name, each in SURVEYS.items()
    }
    assert listed == LISTED
    gaps, entries = (
        sum(len(getattr(each, part)) for each in SURVEYS.values()) for part in ("gaps", "entries")
    )
    assert gaps <= MOST_GAPS * entries


def test_a_survey_is_done_where_nearly_all_was_tried_and_turns_red() -> None:
    entries = tuple(str(number) for number in range(20))

    def is_done(red: int, tried: int) -> bool:
        kills = {entry: {"red": number < red} for number, entry in enumerate(entries[:tried])}
        return PROGRAM["Survey"]("a", "A", "x", entries, dict.fromkeys(entries, "t"), {}, kills).is_done

    assert [is_done(19, 20), is_done(18, 20), is_done(18, 18), is_done(17, 17)] == [True, False, True, False]


def test_an_entry_without_anything_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.toml").write_text('title = "A"\nsource = "x"\nentries = ["one"]\n[tests]\n')
    read_surveys = PROGRAM["read_surveys"]
    monkeypatch.setitem(read_surveys.__globals__, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=r"a.toml: got \['one'\]; give each entry a test, or a gap"):
        read_surveys()
