"""What a checkout of AgentIssue-Bench holds (arXiv 2505.20749): ``benchmark/TAG`` with metadata, a patch and a test.

The code of the agents is in images of a registry, which a checkout does not have.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from quintain.errors import DataError
from quintain.types.json_text import load_json

NEEDED = ("issue_github_url", "repo_url", "buggy_commit", "target_dockerhub_image", "title", "description")
"""What metadata must say; further keys are let through."""
CHANGED = re.compile(r"^\+\+\+ b/(\S+)|^--- a/(\S+)", re.MULTILINE)
IMAGE = re.compile(r"[\w./-]+(:[\w.-]+)?")
GOOD = (
    "PATCH SUCCEEDED", "PATCH SUCCESSFULLY VERIFIED", "FIX SUCCESSFULLY VERIFIED", "NO BUG", "FIX CONFIRMED",
    "PATCH VERIFIED",
)  # fmt: skip
"""What a test of the benchmark prints where the issue is gone, as its own evaluator reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """``Issue(tag="lagent_239", title="…", description="…", repository="…", commit="…", image="…:lagent_239", …)``."""

    tag: str
    title: str
    description: str
    repository: str
    commit: str
    image: str
    gold: str
    """the patch of the people who mended it, a unified diff; empty where the checkout has none"""


def read_issues(folder: Path) -> tuple[Issue, ...]:
    """Return the issues of the checkout `folder`, by tag; what has no metadata is not one.

    Raises:
        DataError: there is none, or metadata of another version.
    """
    found = tuple(_read_issue(file) for file in sorted(folder.glob("benchmark/*/metadata.json")))
    if not found:
        raise DataError(
            f"agent-issues: got {folder}, which has no benchmark/TAG/metadata.json; name a checkout of AgentIssue-Bench"
        )
    return found


def _read_issue(file: Path) -> Issue:
    """Return the issue whose metadata is `file`."""
    try:
        loaded: object = load_json(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"agent-issues: got {file}, which cannot be read: {error}") from error
    said = cast("Mapping[str, Any]", loaded) if isinstance(loaded, dict) else {}
    missing = [key for key in NEEDED if not isinstance(said.get(key), str)]
    if missing or not IMAGE.fullmatch(said["target_dockerhub_image"]):
        what = f"does not say {', '.join(missing)}" if missing else "names no image"
        raise DataError(f"agent-issues: got {file}, which {what}; it is of another version of the benchmark")
    gold = [patch.read_text("utf-8", errors="replace") for patch in sorted(file.parent.glob("*.patch"))]
    return Issue(
        tag=file.parent.name,
        title=said["title"],
        description=said["description"],
        repository=said["repo_url"],
        commit=said["buggy_commit"],
        image=said["target_dockerhub_image"],
        gold="\n".join(gold),
    )


def find_changed(diff: str) -> frozenset[str]:
    """Return the files that a unified `diff` changes."""
    return frozenset(after or before for after, before in CHANGED.findall(diff))


def is_solved(output: str, code: int) -> bool:
    """Return whether a test that printed `output` and ended with `code` found the issue gone.

    This is the benchmark's own rule. It reads what the mended code may print as well, and so can be fooled.
    """
    return code == 0 and "FAILED" not in output and any(word in output for word in GOOD)
