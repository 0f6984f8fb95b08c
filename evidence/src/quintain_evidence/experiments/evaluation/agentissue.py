"""AgentIssue-Bench: is a patch judged right that mends the agent, and wrong whatever else it does?

Six kinds of patch on each task of ``repo?kind=agent``: gold, the same in other words, nothing, tests deleted, the
answers of the visible tests written into the function, and plausible but wrong. A violation is a patch that is graded
otherwise than it should be, or a gold one that is not found where it is. The control looks at the tests that may be
seen alone, on the last three kinds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from random import Random
from typing import Any

from quintain.environments.protocol import advance, begin, tool_action
from quintain.types import Task, derive_seed
from quintain.worlds.repo.game import Repo
from quintain.worlds.repo.plan import EVERY, RepoPlan, files, module_text, right_files
from quintain.worlds.repo.template import Piece, draw_cases, lines_of, write_lines

Texts = dict[str, str]
TIMES = 5


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return the counts of all kinds of patch on the same tasks."""
    world = Repo(kind="agent", modules=2, functions=2)
    first, num = derive_seed("agentissue", seed) % 100_000, int(options["tasks"])
    counts = dict.fromkeys(("trials", "violations", "control_trials", "control_violations"), 0.0)
    flaky = found = 0
    try:
        for number in range(num):
            task = world.task("eval", first + number)
            found += search_text(world, task)
            for name, should_pass in KINDS.items():
                passes, is_seen_to_pass, terms = grade(world, task, name)
                is_wrong = passes != should_pass or (name == "gold" and terms["located_function"] < 1)
                counts["trials"] += 1
                counts["violations"] += is_wrong
                if name in ("deleted", "hard-coded", "plausible"):
                    counts["control_trials"] += 1
                    counts["control_violations"] += is_seen_to_pass
            if number < int(options["repeated"]):
                again = [
                    (grade(world, task, "gold")[0], grade(world, task, "nothing")[0]) for _ in range(TIMES)
                ]
                flaky += again != [(True, False)] * TIMES
    finally:
        world.close()
    return [{**counts, "extra.flaky": float(flaky), "extra.searched": found / num}]


KINDS = {
    "gold": True, "rewritten": True, "nothing": False, "deleted": False, "hard-coded": False, "plausible": False,
}  # fmt: skip
"""Kinds of patch, and whether they mend the agent."""


def grade(world: Repo, task: Task, name: str) -> tuple[bool, bool, Mapping[str, float]]:
    """Return whether a patch of the kind `name` is found right, whether visible tests pass, and what else is told."""
    begin(world, task)
    plan = world.snapshot()[0]
    before, after = files(plan), write_patch(plan, name)
    if diff := write_diff(before, after):
        said = advance(world, tool_action("apply_patch", diff=diff))
        assert said.is_valid, said.observation
    seen = "FAILED" not in str(advance(world, tool_action("run_tests")).observation)
    result = advance(world, tool_action("submit"))
    return bool(result.is_success), seen, result.reward_terms


def write_patch(plan: RepoPlan, name: str) -> Texts:
    """Return the files as a patch of the kind `name` leaves them."""
    before = files(plan)
    module, piece = plan.broken[0]
    template = EVERY[piece.template]
    if name == "gold":
        return {**before, **right_files(plan)}
    if name == "deleted":
        return {path: text for path, text in before.items() if not path.startswith("test_")}
    body = {"rewritten": template.rewrite, "plausible": template.plausible}.get(name)
    if name == "hard-coded":
        body = answers_of(plan, piece)
    if body is None:
        return before
    broken = "\n".join(lines_of(template, piece, piece.bug))
    assert before[f"{module}.py"].count(broken) == 1, "functions stand once"
    text = before[f"{module}.py"].replace(broken, "\n".join(write_lines(template, piece, body)))
    return {**before, f"{module}.py": text}


def answers_of(plan: RepoPlan, piece: Piece) -> tuple[str, ...]:
    """Return a body that has the answers of the visible tests, and is broken otherwise."""
    template = EVERY[piece.template]
    cases = draw_cases(template, piece, Random(derive_seed(plan.seed, piece.name, "seen")), is_seen=True)
    given = ", ".join(f"${letter}" for letter, _ in zip("abcd", piece.arguments, strict=False))
    right, wrong = template.bugs[piece.bug]
    return (
        f"for given, result in {[(given, result) for given, result in cases]!r}:",
        f"    if given == [{given}]:",
        "        return result",
        *(line.replace(right, wrong) for line in template.body),
    )


def write_diff(before: Texts, after: Texts) -> str:
    """Return the unified diff of two states of files."""
    found = ""
    for name in sorted({**before, **after}):
        old, new = (texts[name].split("\n") if name in texts else [] for texts in (before, after))
        target = f"b/{name}" if name in after else "/dev/null"
        found += "".join(f"{line}\n" for line in unified_diff(old, new, f"a/{name}", target, lineterm=""))
    return found


def search_text(world: Repo, task: Task) -> bool:
    """Return whether the function that shares most words with the issue is the broken one."""
    issue = set(re.findall(r"[a-z]{3,}", str(begin(world, task)).lower()))
    plan = world.snapshot()[0]
    shared = [
        (
            len(issue & set(re.findall(r"[a-z]{3,}", module_text((piece,), is_right=False).lower()))),
            piece.bug >= 0,
        )
        for _, pieces in plan.modules
        for piece in pieces
    ]
    most = max(count for count, _ in shared)
    best = [is_broken for count, is_broken in shared if count == most]
    return len(best) == 1 and best[0]
