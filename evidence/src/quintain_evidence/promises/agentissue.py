"""AgentIssue-Bench: a small real model tries to mend small agents, and the benchmark's own files are read."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from quintain import api
from quintain.adapters.agent_issues.layout import find_changed, is_solved, read_issues
from quintain.types import Score
from quintain_evidence.layers.verdict import Check

MODEL = "SmolLM2-135M-Instruct"
WORLD = "repo?kind=agent&modules=2"
METADATA = {
    "issue_github_url": "https://github.com/InternLM/lagent/issues/239",
    "repo_url": "https://github.com/InternLM/lagent",
    "buggy_commit": "e2320e517b8f3e3edb76263c0576ce651f20adde",
    "fixed_commit": "1a1f65bbc3c5a02861d2a4201fd44eec0cf40420",
    "target_dockerhub_image": "alfin06/agentissue-bench:lagent_239",
    "title": "ModuleNotFoundError: No module named 'griffe.enumerations'",
    "description": "Importing fails, because a version of griffe is missing.",
}
"""What the benchmark says of one of its issues; its words of description are not copied."""
PATCH = (
    "--- a/requirements/runtime.txt\n+++ b/requirements/runtime.txt\n"
    "@@ -1,2 +1,2 @@\n distro\n-griffe\n+griffe<1.0\n"
)


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Let the model play, the expert as well, and read an issue in the benchmark's layout."""
    found, episodes = api.evaluate("smollm2", WORLD, episodes=2, temperature=0.0)
    right, gold = api.evaluate("expert", WORLD, episodes=12)
    terms = [t.turns[-1].reward_terms for t in gold]
    place = runs / "checkout" / "benchmark" / "lagent_239"
    place.mkdir(parents=True, exist_ok=True)
    (place / "metadata.json").write_text(json.dumps(METADATA), "utf-8")
    (place / "239.patch").write_text(PATCH, "utf-8")
    (issue,) = read_issues(runs / "checkout")
    said = "SUCCESS: FIX CONFIRMED"
    checks = [
        Check(
            name="a model works on agents",
            has_passed=sum(isinstance(t.outcome, Score) for t in episodes) == 2,
            detail=f"2 episodes have a score; resolved {found.success:.2f}, no more is claimed of so small a model",
        ),
        Check(
            name="gold mends and is found",
            has_passed=right.success == 1.0
            and all(t["located_function"] == t["plausible"] == 1.0 for t in terms),
            detail=f"{len(gold)} tasks: resolved {right.success:.2f}, each in file and function",
        ),
        Check(
            name="the benchmark's layout",
            has_passed=find_changed(issue.gold) == frozenset({"requirements/runtime.txt"})
            and is_solved(said, 0)
            and not is_solved(f"{said} FAILED", 0),
            detail=f"{issue.tag} at {issue.commit[:8]}, image {issue.image}; its containers were not run",
        ),
    ]
    return checks, {"smollm2_resolved": found.success, "expert": right.success}
