"""Small agents to mend: every bug shows, plausible patches are wrong, other words are right; and unified diffs."""

from collections.abc import Iterator
from contextlib import closing
from random import Random
from typing import Any

import pytest

from quintain.environments.protocol import advance, begin, tool_action
from quintain.errors import DataError
from quintain.text.patch import apply_patch
from quintain.worlds.repo.agents import AGENTS
from quintain.worlds.repo.box import RepoBox
from quintain.worlds.repo.game import Repo
from quintain.worlds.repo.plan import Case, files, right_files
from quintain.worlds.repo.template import Piece, Template, draw_cases, draw_piece, lines_of, write_lines


@pytest.fixture(scope="module")
def box() -> Iterator[RepoBox]:
    """A box that runs what templates say."""
    made = RepoBox()
    yield made
    made.close()


def passes(box: RepoBox, piece: Piece, lines: tuple[str, ...], cases: Any) -> bool:
    """Return whether the function that `lines` are gives what is right in all `cases`."""
    calls = [
        Case(module="m", function=piece.name, arguments=given, result=result, was_broken=False)
        for given, result in cases
    ]
    return all(box.results({"m.py": "\n".join(lines)}, calls))


@pytest.mark.parametrize("key", AGENTS)
@pytest.mark.parametrize("seed", range(2))
def test_bugs_show_and_plausible_patches_are_wrong(box: RepoBox, key: str, seed: int) -> None:
    template: Template = AGENTS[key]
    piece = draw_piece(key, template, Random(seed), is_broken=False)
    hidden = draw_cases(template, piece, Random(seed + 1))
    seen = draw_cases(template, piece, Random(seed + 2), is_seen=True)
    right, rewrite, plausible = (
        write_lines(template, piece, body) for body in (template.body, template.rewrite, template.plausible)
    )
    assert passes(box, piece, right, (*hidden, *seen)) and passes(box, piece, rewrite, (*hidden, *seen))
    assert passes(box, piece, plausible, seen) and not passes(box, piece, plausible, hidden)
    for bug in range(len(template.bugs)):
        broken = lines_of(template, piece, bug)
        assert broken != right
        assert not passes(box, piece, broken, seen) and not passes(box, piece, broken, hidden)
    assert template.issue and piece.name not in template.issue


def test_patches_by_hand() -> None:
    before = {"a.py": "one\ntwo\nthree\n", "b.py": "x\n"}
    diff = (
        "--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
        "--- a/b.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    )
    assert apply_patch(before, diff) == {"a.py": "one\n2\nthree\n"}
    new = "--- /dev/null\n+++ b/c.py\n@@ -0,0 +1,2 @@\n+y\n+\n"
    assert apply_patch(before, new)["c.py"] == "y\n\n"
    assert before["a.py"] == "one\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("diff", "line"),
    [
        ("two", "got no line that begins with '--- '"),
        ("--- a/a.py\nx", "got 'x'; write [+][+][+] b/FILE"),
        ("--- a/z.py\n+++ b/z.py\n", "got 'z.py', which is no file; files: a.py"),
        ("--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-two\n", "got the line 'two' where there is 'one'"),
        ("--- a/a.py\n+++ b/a.py\n@@ -9 +9 @@\n-two\n", "which is not in the file in this order"),
        ("--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n*one\n", "lines of a hunk begin with a space"),
    ],
)
def test_patches_that_do_not_fit(diff: str, line: str) -> None:
    with pytest.raises(DataError, match=line):
        apply_patch({"a.py": "one\ntwo\n"}, diff)


def test_an_issue_is_told_and_what_was_changed_stands_beside() -> None:
    with closing(Repo(kind="agent", modules=2)) as world:
        said = str(begin(world, world.task("train", 0)))
        plan = world.snapshot()[0]
        module, piece = plan.broken[0]
        assert AGENTS[piece.template].issue in said and piece.name not in said
        assert "apply_patch" in {spec.name for spec in world.tools()}
        refused = advance(world, tool_action("apply_patch", diff="--- a/x\n+++ b/x\n"))
        assert not refused.is_valid and "is no file" in str(refused.observation)
        right = right_files(plan)[f"{module}.py"]
        advance(world, tool_action("write_file", path=f"{module}.py", text=right))
        result = advance(world, tool_action("submit"))
        assert result.is_success and result.reward == 1.0
        assert dict(result.reward_terms) == {"located_file": 1.0, "located_function": 1.0, "plausible": 1.0}
        begin(world, world.task("train", 0))
        for name in [name for name in files(plan) if name.startswith("test_")]:
            advance(world, tool_action("write_file", path=name, text=""))
        result = advance(world, tool_action("submit"))
        assert not result.is_success and result.reward_terms["plausible"] == 0.0, "tests are as they were"
    with closing(Repo()) as world:
        assert "apply_patch" not in {spec.name for spec in world.tools()}
